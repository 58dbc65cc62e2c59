//go:build !nosql

package main

import (
	"fmt"
	"path/filepath"
	"strings"
	"testing"

	"github.com/redis/go-redis/v9"

	"blockd/internal/testkit"
	"blockd/internal/testkit/redisserver"
)

// A publisher reads the keys of a store, and a node asks the same store by the filter that comes with the snapshot: it never reads the keys.
func TestAFilterTravelsWithTheSnapshot(t *testing.T) {
	server := redisserver.Start(t)
	client := redis.NewClient(&redis.Options{Addr: server.Address})
	t.Cleanup(func() { client.Close() })
	put := func(entry string) {
		t.Helper()
		testkit.Must(t, client.SAdd(t.Context(), "blocked", entry).Err())
	}
	put("asked.example")
	source := fmt.Sprintf("[[list]]\nname = \"huge\"\n[list.source]\nkind = \"redis\"\nmode = \"ask\"\ndsn = \"redis://%s/0\"\nkey = \"blocked\"\nevery = \"1s\"\ntimeout = \"10s\"\nnegative_ttl = \"1s\"\n", server.Address)

	dir, store, key := t.TempDir(), t.TempDir(), filepath.Join(t.TempDir(), "publish.key")
	runs(t, "publish", "keygen", key)
	testkit.Write(t, filepath.Join(dir, "lists", "bad.txt"), "bad.example\n")
	testkit.Write(t, filepath.Join(dir, "config.toml"), anyPorts+source+fmt.Sprintf("[publish]\nto = \"file://%s\"\nkey_file = %q\n", store, key))
	publisher := serveIn(t, dir, "smtp", "http")
	// publish reads the filter from its file, which a daemon writes when it has begun to use it, and before it builds the next one.
	publish := func(sender, why string) {
		t.Helper()
		publisher.waitBlocked(t, sender, true)
		built := func() int { return strings.Count(publisher.log.String(), "filter of a list built from its store") }
		n := built()
		testkit.Eventually(t, "the filter to be written", func() bool { return built() > n })
		publisher.must(t, "publish", "--why", why)
	}
	publish("x@asked.example", "the filter is there")

	public := strings.TrimSpace(string(testkit.Read(t, key+".pub")))
	public = public[strings.LastIndex(public, "\n")+1:]
	base, _, _ := strings.Cut(anyPorts, "[[list]]")
	node := func(list string) string {
		return base + list + fmt.Sprintf("[fleet]\nfrom = \"file://%s\"\nkeys = [\"minisign:%s\"]\nevery = \"1s\"\nnode = \"real\"\n", store, public)
	}
	follower := t.TempDir()
	testkit.Write(t, filepath.Join(follower, "config.toml"), node(source+"filter = \"snapshot\"\n"))
	testkit.Must(t, client.ConfigResetStat(t.Context()).Err())
	d := serveIn(t, follower, "smtp", "http")
	d.waitBlocked(t, "x@bad.example", true)
	d.waitBlocked(t, "x@asked.example", true)
	d.waitBlocked(t, "x@clear.example", false)

	// What is new in the store acts with the next sequence.
	put("later.example")
	publish("x@later.example", "a new filter")
	d.waitBlocked(t, "x@later.example", true)

	// What only its own list of that name can do is said at once, or by the state of the source.
	testkit.Write(t, filepath.Join(follower, "config.toml"), base+source+"filter = \"snapshot\"\n")
	if code, _, errs := blockd(t, "", "config", "--check", "-c", filepath.Join(follower, "config.toml")); code == 0 || !strings.Contains(errs, "goes with [fleet]") {
		t.Errorf("without [fleet]: %d %s", code, errs)
	}
	other := t.TempDir()
	testkit.Write(t, filepath.Join(other, "config.toml"), node(strings.Replace(source, "huge", "unknown", 1)+"filter = \"snapshot\"\n"))
	o := serveIn(t, other, "smtp", "http")
	testkit.Eventually(t, "the reason", func() bool {
		_, text := o.get(t, "/readyz")
		return strings.Contains(text, "has no filter of this list")
	})
}

//go:build !nosql

package main

import (
	"path/filepath"
	"strings"
	"testing"

	"github.com/redis/go-redis/v9"

	"blockd/internal/testkit"
	"blockd/internal/testkit/redisserver"
)

// TestDoctorOfAskedList: the doctor asks the store of a list for entries that it has, and says what would go wrong.
func TestDoctorOfAskedList(t *testing.T) {
	server := redisserver.Start(t, "--requirepass", storeSecret)
	client := redis.NewClient(&redis.Options{Addr: server.Address, Password: storeSecret})
	t.Cleanup(func() { client.Close() })
	dir := t.TempDir()
	dsn := "redis://:" + storeSecret + "@" + server.Address + "/0"
	writeFile(t, dir, "store.dsn", dsn+"\n")
	writeFile(t, dir, "lists/a.txt", "other.example\n")
	path := filepath.Join(dir, "config.toml")
	writeFile(t, dir, "config.toml", anyPorts+"[[list]]\nname = \"asked\"\n[list.source]\nkind = \"redis\"\nmode = \"ask\"\ndsn_file = \"store.dsn\"\nkey = \"blocked\"\nevery = \"1s\"\ntimeout = \"10s\"\n")
	says := func(want string) {
		t.Helper()
		_, stdout, stderr := blockd(t, "", "doctor", "-c", path)
		if !strings.Contains(strings.Join(strings.Fields(stdout), " "), want) { // lines are wrapped
			t.Errorf("the doctor says\n%s%s\nwant %s", stdout, stderr, want)
		}
		testkit.Lacks(t, stdout+stderr, storeSecret)
	}
	says("/0: the key is not there")
	put := func(entries ...any) {
		t.Helper()
		testkit.Must(t, client.SAdd(t.Context(), "blocked", entries...).Err())
	}
	put("bulk.example", "a@there.example")
	says("but there is no filter yet, so nothing is asked")
	d := serveIn(t, dir, "smtp", "http")
	testkit.Eventually(t, "the entries to act", func() bool { return d.turnsAway(t, "x@bulk.example") })
	d.end(t)
	says("at most, and knows the 2 entries that were tried")
	put("new.example")
	says("list asked: its filter lacks 1 of 3 entries, which are never asked for")
	writeFile(t, dir, "store.dsn", strings.Replace(dsn, storeSecret, "wrong", 1)+"\n")
	says("list asked: its redis cannot be read, and what its filter holds is still asked for: auth:")
}

//go:build !nosql

package main

import (
	"errors"
	"fmt"
	"path/filepath"
	"testing"

	"github.com/redis/go-redis/v9"

	"blockd/internal/testkit"
	"blockd/internal/testkit/redisserver"
)

// TestAskedBehindForeignFilter: a list is asked behind a Redisson filter that `blockd filter push` has put into its Redis. A filter that is
// pushed anew counts a moment later; one that is gone, or is no filter, changes nothing.
func TestAskedBehindForeignFilter(t *testing.T) {
	server := redisserver.Start(t)
	client := redis.NewClient(&redis.Options{Addr: server.Address})
	t.Cleanup(func() { client.Close() })
	dir := t.TempDir()
	push := func(entries string) {
		t.Helper()
		list := writeFile(t, dir, "pushed.txt", entries)
		bdx := filepath.Join(dir, "pushed.bdx")
		runs(t, "compile", "-o", bdx, list)
		runs(t, "filter", "push", "-i", bdx, "--as", "redisson", "redis://"+server.Address, "bl")
	}
	put := func(entries ...any) {
		t.Helper()
		testkit.Must(t, client.SAdd(t.Context(), "blocked", entries...).Err())
	}
	writeFile(t, dir, "lists/a.txt", "other.example\n")
	writeFile(t, dir, "config.toml", anyPorts+fmt.Sprintf("[[list]]\nname = \"abuse-desk\"\n[list.source]\nkind = \"redis\"\nmode = \"ask\"\ndsn = \"redis://%s\"\nkey = \"blocked\"\nfilter = \"redisson:bl\"\nevery = \"1s\"\ntimeout = \"10s\"\nnegative_ttl = \"1s\"\n", server.Address))
	put("bulk.example", "ann@there.example", "late.example")
	push("bulk.example\nann@there.example\ngone.example\n") // the Redis does not have the last
	d := serveIn(t, dir, "smtp", "http")
	d.wait(t, "upstream ready")
	testkit.Eventually(t, "the entries to act", func() bool { return d.turnsAway(t, "x@bulk.example") })
	for sender, want := range map[string]bool{"ann@there.example": true, "bob@there.example": false, "x@gone.example": false, "x@late.example": false, "x@sub.bulk.example": true} {
		testkit.Equal(t, fmt.Sprintf("%s is turned away", sender), d.turnsAway(t, sender), want)
	}
	push("bulk.example\nann@there.example\nlate.example\n")
	testkit.Eventually(t, "the new filter to count", func() bool { return d.turnsAway(t, "x@late.example") })

	for what, damage := range map[string]func() error{
		"gone": func() error { return client.Del(t.Context(), "bl", "{bl}:config").Err() },
		"no filter": func() error {
			return errors.Join(client.Del(t.Context(), "bl").Err(), client.LPush(t.Context(), "bl", "no filter").Err())
		},
	} {
		testkit.Must(t, damage())
		testkit.Eventually(t, what+" to be told", func() bool { return d.source(t).Error != "" })
		if !d.turnsAway(t, "x@bulk.example") || d.turnsAway(t, "bob@there.example") {
			t.Errorf("%s: the filter that was read before does not serve", what)
		}
		testkit.Got(d.get(t, "/readyz"))(t, fmt.Sprintf("%s: /readyz", what), 200, "degraded…")
		testkit.Must(t, client.Del(t.Context(), "bl", "{bl}:config").Err())
		push("bulk.example\nann@there.example\nlate.example\n")
		testkit.Eventually(t, "the filter to be read again", func() bool { return d.source(t).Error == "" })
	}
}

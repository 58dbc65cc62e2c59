package redis

import (
	"path/filepath"
	"regexp"
	"strconv"
	"testing"

	goredis "github.com/redis/go-redis/v9"

	"blockd/internal/testkit/redisserver"
	"blockd/sources/mirror"
)

// TestIdlePoll: a poll at which nothing has changed is one command for each shard.
func TestIdlePoll(t *testing.T) {
	server := redisserver.Start(t)
	c := goredis.NewClient(&goredis.Options{Addr: server.Address})
	defer c.Close()
	o := Options{DSN: server.URL(), List: "idle"}
	newWriter(t, c, o).do("put", "a.example", "")
	s := open(t, o)
	m, err := mirror.Open(mirror.Options{Folder: filepath.Join(t.TempDir(), "copy")})
	if err != nil {
		t.Fatal(err)
	}
	defer m.Close()
	if _, err := m.Read(t.Context(), s); err != nil {
		t.Fatal(err)
	}
	poll := func() {
		t.Helper()
		if told, err := m.Follow(t.Context(), s); err != nil || told.Changed {
			t.Fatalf("%+v, %v", told, err)
		}
	}
	// A script counts as one of the requests, and what it calls is none.
	form := regexp.MustCompile(`total_reads_processed:(\d+)`)
	requests := func() int {
		t.Helper()
		text, err := c.Info(t.Context(), "stats").Result()
		if err != nil {
			t.Fatal(err)
		}
		n, err := strconv.Atoi(form.FindStringSubmatch(text)[1])
		if err != nil {
			t.Fatal(err)
		}
		return n
	}
	poll()
	const polls = 10
	before := requests()
	for range polls {
		poll()
	}
	if n := requests() - 1 - before; n != polls { // 1 is our own
		t.Errorf("%d polls were %d requests", polls, n)
	}
}

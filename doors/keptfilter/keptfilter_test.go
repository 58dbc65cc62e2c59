package keptfilter

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	goredis "github.com/redis/go-redis/v9"

	"blockd/bloom/filter"
	"blockd/bloom/redisfilter"
	"blockd/doors/export"
	"blockd/index"
	"blockd/internal/redisclient"
	"blockd/internal/testkit"
	"blockd/internal/testkit/indexes"
	"blockd/internal/testkit/redisserver"
)

// fixture is a keeper in a folder of its own, whose pauses are the test's.
type fixture struct {
	*Keeper
	dir string
	log *testkit.Log
	reg *prometheus.Registry
}

func (f *fixture) path(name string) string { return filepath.Join(f.dir, name) }

// keeper makes a keeper of these filters, whose paths are below dir.
func keeper(t *testing.T, dir string, filters ...Filter) *fixture {
	t.Helper()
	f := &fixture{dir: dir, log: &testkit.Log{}, reg: prometheus.NewRegistry()}
	for i := range filters {
		filters[i].Rate, filters[i].Keys = 0.001, export.AllKeys
	}
	f.Keeper = New(Settings{Filters: filters, State: f.path("x.bdx.filters")}, slog.New(slog.NewTextHandler(f.log, nil)), f.reg)
	return f
}

func generation(t *testing.T, text string) *index.Index {
	return indexes.Build(t, indexes.Source(t, "own", text))
}

// holds reports whether the filter at path has a key.
func holds(t *testing.T, path, key string) bool {
	t.Helper()
	f := testkit.Value(filter.Open(path))(t)
	return f.Has([]byte(key))
}

func TestFile(t *testing.T) {
	dir := t.TempDir()
	k := keeper(t, dir, Filter{Name: "bl", As: "guava", To: filepath.Join(dir, "bl.bf")}, Filter{Name: "maps", As: "redisson", To: filepath.Join(dir, "maps")})
	first := generation(t, "one.example\ntwo@bulk.example\n")
	k.Served(first)
	failed := k.round(t.Context())
	testkit.MustGot(failed, holds(t, k.path("bl.bf"), "one.example"), holds(t, k.path("maps.bitmap"), "two@bulk.example"))(t, k.log, false, true, true)
	for _, s := range k.Status() {
		if s.Generation != first.Generation() || s.Keys != 2 || s.Bytes == 0 || s.Written.IsZero() || s.Error != "" {
			t.Errorf("status %+v", s)
		}
	}
	if k.newest() != nil {
		t.Error("the generation is held although all is written")
	}
	written := func() os.FileInfo {
		info := testkit.Value(os.Stat(k.path("bl.bf")))(t)
		return info
	}
	before := written()

	// After a restart with the same generation nothing is written, and what was is known.
	k = keeper(t, dir, k.settings.Filters...)
	testkit.Equal(t, "keys in the metrics", testkit.Samples(t, k.reg, "blockd_filter_keys", "bl")[0], 2)
	k.Served(first)
	if k.round(t.Context()); !os.SameFile(before, written()) {
		t.Error("written anew after a restart")
	}
	// With other settings, another generation or a file that is gone, it is.
	changed := slices.Clone(k.settings.Filters)
	changed[0].Lists = []string{"own"}
	k = keeper(t, dir, changed...)
	k.Served(first)
	if k.round(t.Context()); os.SameFile(before, written()) {
		t.Error("not written by new settings")
	}
	os.Remove(k.path("maps.json"))
	k.Served(first)
	if k.round(t.Context()); !holds(t, k.path("maps"), "one.example") {
		t.Error("a file that is gone is not written again")
	}
	k.Served(generation(t, "three.example\n"))
	if k.round(t.Context()); holds(t, k.path("bl.bf"), "one.example") || !holds(t, k.path("bl.bf"), "three.example") {
		t.Error("not written for a new generation")
	}
	testkit.Write(t, k.settings.State, []byte("{torn"))
	if k = keeper(t, dir, changed...); k.Status()[0].Generation != "" {
		t.Error("a torn state was read")
	}
}

// TestTheNewestWins: a generation that is overtaken is never written.
func TestTheNewestWins(t *testing.T) {
	dir := t.TempDir()
	k := keeper(t, dir, Filter{Name: "bl", As: "bits", To: filepath.Join(dir, "bl.bits")})
	for n := range 20 {
		k.Served(generation(t, fmt.Sprintf("g%d.example\n", n)))
	}
	k.round(t.Context())
	if n := strings.Count(k.log.String(), "filter written"); n != 1 || !holds(t, k.path("bl.bits"), "g19.example") {
		t.Errorf("written %d times:\n%s", n, k.log)
	}
}

// TestFailures: a full or missing disk is told once, counted each time, and tried again after
// pauses that grow; the other filters are written meanwhile.
func TestFailures(t *testing.T) {
	dir := t.TempDir()
	k := keeper(t, dir, Filter{Name: "bl", As: "bits", To: filepath.Join(dir, "later/bl.bits")}, Filter{Name: "other", As: "bits", To: filepath.Join(dir, "other.bits")},
		Filter{Name: "device", As: "bits", To: "/dev/null"})
	k.settings.Filters = k.settings.Filters[:2]
	var pauses []time.Duration
	k.wait = func(_ context.Context, woken <-chan struct{}, d time.Duration) {
		if woken == nil {
			return // the rest after each round
		}
		if pauses = append(pauses, d); len(pauses) == 10 {
			testkit.Write(t, k.path("later/.made"), "")
		}
	}
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error)
	go func() { done <- k.Run(ctx) }()
	k.Served(generation(t, "one.example\n"))
	testkit.Eventually(t, "the filter to be written", func() bool { return k.Status()[0].Generation != "" })
	cancel()
	testkit.Should(t, <-done)
	log := k.log.String()
	testkit.Got(testkit.Samples(t, k.reg, "blockd_filter_failures_total", "bl")[0], strings.Count(log, "filter not written"), strings.Count(log, "filter written"))(t, fmt.Sprintf("%d pauses, log:\n%s", len(pauses), log), 10, 1, 2)
	testkit.Got(slices.IsSorted(pauses), pauses[0], pauses[9])(t, pauses, true, firstPause, lastPause)
	k = keeper(t, dir, Filter{Name: "device", As: "bits", To: "/dev/null"}, Filter{Name: "lists", As: "bits", To: filepath.Join(dir, "l.bits"), Lists: []string{"none"}})
	k.Served(generation(t, "one.example\n"))
	failed := k.round(t.Context())
	testkit.Got(failed, k.Status()[0].Error, k.Status()[1].Error)(t, fmt.Sprintf("status %+v", k.Status()), true, "…no regular file…", `…no list "none"…`)
}

// TestTheEndLeavesTheOldFile: a stop in the middle of a round changes nothing.
func TestTheEndLeavesTheOldFile(t *testing.T) {
	dir := t.TempDir()
	k := keeper(t, dir, Filter{Name: "bl", As: "bits", To: filepath.Join(dir, "bl.bits")})
	k.Served(generation(t, "one.example\n"))
	k.round(t.Context())
	before := testkit.Read(t, k.path("bl.bits"))
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	ix := generation(t, "two.example\n")
	testkit.Fails(k.write(ctx, k.settings.Filters[0], ix))(t, "an ended context", context.Canceled)
	k.Served(ix)
	testkit.Should(t, k.Run(ctx))
	if names, _ := filepath.Glob(dir + "/.*"); string(testkit.Read(t, k.path("bl.bits"))) != string(before) || len(names) > 0 {
		t.Errorf("the old file has changed, or drafts are left: %q", names)
	}
}

// TestRedis pushes into a Redis that is away at first, and shows its password nowhere.
func TestRedis(t *testing.T) {
	address := testkit.Unused(t)
	dir := t.TempDir()
	at := "redis://:geheim@" + address + "/0"
	k := keeper(t, dir, Filter{Name: "bl", As: "bitmap", To: at, Key: "bl"})
	k.Served(generation(t, "one.example\n"))
	if failed := k.round(t.Context()); !failed || k.Status()[0].Error == "" {
		t.Fatalf("a Redis that is away: %+v", k.Status())
	}
	redisserver.StartAt(t, address, "--requirepass", "geheim")
	if failed := k.round(t.Context()); failed {
		t.Fatalf("not pushed:\n%s", k.log)
	}
	s := k.Status()[0]
	if want := "redis://" + address + "/0#bl"; s.Where != want || s.Bytes == 0 || s.Keys != 1 {
		t.Errorf("status %+v, want it at %s", s, want)
	}
	testkit.Lacks(t, k.log.String()+fmt.Sprint(k.Status())+string(testkit.Read(t, k.settings.State)), "geheim")
	server := testkit.Value(redisfilter.Dial(t.Context(), redisclient.Options{URL: at}))(t)
	defer server.Close()
	f, err := server.Fetch(t.Context(), "bl", func(int64, int64) {})
	if err != nil || !f.Has([]byte("one.example")) {
		t.Errorf("what was pushed: %v", err)
	}
}

// TestDeletedFilter: a filter that was deleted, or replaced by another push, is noticed while it runs and after a
// restart, and written again; one that cannot be looked at is a problem.
func TestDeletedFilter(t *testing.T) {
	r := redisserver.Start(t)
	dir, ix := t.TempDir(), generation(t, "one.example\n")
	server := testkit.Value(redisfilter.Dial(t.Context(), redisclient.Options{URL: r.URL()}))(t)
	defer server.Close()
	client := goredis.NewClient(&goredis.Options{Addr: r.Address})
	defer client.Close()
	for _, f := range []Filter{{Name: "bl", As: "bitmap", To: r.URL(), Key: "bl"}, {Name: "maps", As: "redisson", To: r.URL(), Key: "maps"}, {Name: "parts", As: "bitmap", To: r.URL(), Key: "parts", Shards: 4}} {
		k := keeper(t, dir, f)
		k.settings.Live = func() *index.Index { return ix }
		k.Served(ix)
		k.round(t.Context())
		keys := testkit.Value(client.Keys(t.Context(), "*"+f.Key+"*").Result())(t)
		parts := [][]string{keys}
		for _, key := range keys {
			if !strings.HasSuffix(key, ":config") { // without which a key is nobody's filter
				parts = append(parts, []string{key})
			}
		}
		for i, gone := range append(slices.Clone(parts), parts...) {
			testkit.Must(t, client.Del(t.Context(), gone...).Err())
			if i >= len(parts) { // as after a restart
				k = keeper(t, dir, f)
				k.settings.Live = func() *index.Index { return ix }
			}
			k.again()
			if failed := k.round(t.Context()); failed || k.Problems() != nil {
				t.Errorf("%s without %s: %v %q", f.Name, gone, failed, k.Problems())
			}
			if got, err := server.Fetch(t.Context(), f.Key, func(int64, int64) {}); err != nil || !got.Has([]byte("one.example")) {
				t.Errorf("%s without %s is not written again: %v", f.Name, gone, err)
			}
			before := testkit.Value(server.Mark(t.Context(), f.Key))(t)
			k.again()
			k.round(t.Context())
			testkit.Equal(t, "what is there stays", testkit.Value(server.Mark(t.Context(), f.Key))(t), before)
		}
	}
	k := keeper(t, dir, Filter{Name: "bl", As: "bitmap", To: r.URL(), Key: "bl"})
	k.settings.Live = func() *index.Index { return ix }
	r.Kill()
	k.again()
	if failed := k.round(t.Context()); !failed || len(k.Problems()) != 1 || !strings.HasPrefix(k.Problems()[0], "filter bl in redis://") {
		t.Errorf("a Redis that is away: %v %q", failed, k.Problems())
	}
}

func TestSplitTarget(t *testing.T) {
	for to, want := range map[string][3]string{
		"bl.bf": {"bl.bf", "", ""}, "/var/a#b": {"/var/a#b", "", ""}, "redis://h#bl": {"redis://h", "bl", ""},
		"redis-sentinel://a,b/master#x": {"redis-sentinel://a,b/master", "x", ""},
		"redis://h":                     {"", "", "want the key"}, "redis://h#": {"", "", "want the key"}, "https://u:p@h/x": {"", "", "have https://"},
	} {
		place, key, err := SplitTarget(to)
		if place != want[0] || key != want[1] || (err == nil) != (want[2] == "") || err != nil && !strings.Contains(err.Error(), want[2]) {
			t.Errorf("SplitTarget(%s) = %q, %q, %v", to, place, key, err)
		}
	}
}

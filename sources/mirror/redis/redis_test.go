package redis

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	goredis "github.com/redis/go-redis/v9"

	"blockd/internal/testkit"
	"blockd/internal/testkit/redisserver"
	"blockd/lists"
	"blockd/sources/mirror"
	"blockd/sources/mirror/mirrortest"
)

// shared is the server of all tests that need no other. Each test has a list of its own there.
var shared = redisserver.Share("--enable-debug-command", "yes")

func TestMain(m *testing.M) { shared.Main(m) }

func server(t testing.TB) (*redisserver.Server, *goredis.Client) {
	t.Helper()
	r := shared.Get(t)
	return r, client(t, r.Address)
}

func client(t testing.TB, address string) *goredis.Client {
	t.Helper()
	c := goredis.NewClient(&goredis.Options{Addr: address})
	t.Cleanup(func() { c.Close() })
	return c
}

func open(t testing.TB, o Options) *Source {
	t.Helper()
	s := testkit.Value(Open(o))(t)
	t.Cleanup(func() { s.Close() })
	return s
}

// writer changes a list by the script that is printed.
type writer struct {
	t      testing.TB
	c      goredis.UniversalClient
	o      Options
	script *goredis.Script
}

func newWriter(t testing.TB, c goredis.UniversalClient, o Options) *writer {
	t.Helper()
	return &writer{t, c, o, goredis.NewScript(open(t, o).Lua())}
}

func (w *writer) try(args ...any) (rev int64, err error) {
	all, i := keysOf(w.o), 0
	if len(all) > 1 {
		i = shardOf(args[1].(string), len(all))
	}
	k := all[i]
	return w.script.Run(context.Background(), w.c, []string{k.entries, k.log, k.rev}, args...).Int64()
}

func (w *writer) do(args ...any) (rev int64) {
	w.t.Helper()
	return testkit.Value(w.try(args...))(w.t)
}

// table is what a reader has: the entries by what it was told, as a copy has them.
type table map[string]mirror.Row

func (x table) read(t testing.TB, s *Source) mirror.Mark {
	t.Helper()
	return testkit.Value(x.all(t.Context(), s))(t)
}

func (x table) all(ctx context.Context, s *Source) (mirror.Mark, error) {
	clear(x)
	return s.All(ctx, func(r mirror.Row) error { x[r.Entry] = r; return nil })
}

func (x table) follow(t testing.TB, s *Source, since mirror.Mark) mirror.Mark {
	t.Helper()
	return testkit.Value(x.changes(t.Context(), s, since))(t)
}

func (x table) changes(ctx context.Context, s *Source, since mirror.Mark) (mirror.Mark, error) {
	return s.Changes(ctx, since, func(c mirror.Change) error {
		delete(x, c.Entry)
		for _, r := range c.Rows {
			x[c.Entry] = r
		}
		return nil
	})
}

func (x table) want(t testing.TB, rows ...mirror.Row) {
	t.Helper()
	want := table{}
	for _, r := range rows {
		want[r.Entry] = r
	}
	if !maps.Equal(x, want) {
		t.Fatalf("have %v, want %v", x, want)
	}
}

func TestDriver(t *testing.T) {
	r := redisserver.Start(t)
	c := client(t, r.Address)
	form := regexp.MustCompile(`total_reads_processed:(\d+)`)
	for _, shards := range []int{0, 16} {
		o := Options{DSN: r.URL(), List: fmt.Sprint("driver", shards), Shards: shards}
		w, own := newWriter(t, c, o), 0
		d := mirrortest.Driver{
			Open:   func(t testing.TB) mirror.Source { return open(t, o) },
			Put:    func(t testing.TB, entry, action string) { w.do("put", entry, action) },
			Remove: func(t testing.TB, entry string) { w.do("del", entry) },
			Asked: func(t testing.TB) int { // a script counts as one request, and what it calls is none
				own++
				n := testkit.Value(strconv.Atoi(form.FindStringSubmatch(c.Info(t.Context(), "stats").Val())[1]))(t)
				return n - own
			},
		}
		if shards > 0 {
			d.Asked = nil // each shard is asked
		}
		t.Run(fmt.Sprint(shards, " shards"), func(t *testing.T) { mirrortest.Run(t, d) })
	}
}

func TestReadAndFollow(t *testing.T) {
	r, c := server(t)
	for _, shards := range []int{0, 16} {
		o := Options{DSN: r.URL(), List: fmt.Sprint("follow", shards), Shards: shards}
		s, w, x := open(t, o), newWriter(t, c, o), table{}
		mark := x.read(t, s)
		w.do("put", "a@bad.example", "block\t4102444800\t17\tsold\taddresses")
		w.do("put", "b.example", "")
		w.do("put", "c.example", "allow\tsoon")
		rows := []mirror.Row{
			{Entry: "a@bad.example", Action: "block", Expires: 4102444800, ID: "17", Reason: "sold\taddresses"},
			{Entry: "b.example"}, {Entry: "c.example", Action: "allow", Expires: -1},
		}
		after := x.follow(t, s, mark)
		x.want(t, rows...)
		x.follow(t, s, mark) // again, as after a crash
		x.want(t, rows...)
		testkit.Equal(t, "a full read has another mark", x.read(t, open(t, o)), after)
		x.want(t, rows...)
		if rev := w.do("put", "b.example", ""); x.follow(t, s, after) != after || rev == 0 {
			t.Error("what is there already is a change")
		}
		if shards == 16 {
			mirrortest.WantLost(t, "the mark of another number of shards", s, "1-1 1 1-1 0", "the mark is of another source")
		}
		plan := testkit.Value(s.Plan(t.Context()))(t)
		testkit.Has(t, plan, "HSCAN", "XREAD")
	}
}

// More changes than one answer has, and values that are large.
func TestPages(t *testing.T) {
	r, c := server(t)
	o := Options{DSN: r.URL(), List: "pages"}
	s, w, x := open(t, o), newWriter(t, c, o), table{}
	w.do("put", "0.example", "")
	mark := x.read(t, s)
	long := strings.Repeat("x", answerLimit/3)
	for i := range 2*changesCount + 3 {
		value := "block"
		if i%400 == 0 {
			value = "block\t\t\t" + long
		}
		w.do("put", fmt.Sprintf("%d.example", i%1500), value)
	}
	again := table{}
	after := again.read(t, s)
	if x.follow(t, s, mark) != after || !maps.Equal(x, again) || len(x) != 1500 {
		t.Errorf("%d entries by changes, %d by reading", len(x), len(again))
	}
}

func TestTooOld(t *testing.T) {
	r, c := server(t)
	ctx := t.Context()
	for name, damage := range map[string]struct {
		do   func(k keys, w *writer) error
		fine bool
	}{
		"nothing":      {func(k keys, w *writer) error { return nil }, true},
		"debug reload": {func(k keys, w *writer) error { return c.Do(ctx, "DEBUG", "RELOAD").Err() }, true},
		"cut after":    {func(k keys, w *writer) error { return c.XTrimMaxLen(ctx, k.log, 5).Err() }, true},
		"cut":          {func(k keys, w *writer) error { return c.XTrimMaxLen(ctx, k.log, 1).Err() }, false},
		"emptied":      {func(k keys, w *writer) error { return c.XTrimMaxLen(ctx, k.log, 0).Err() }, false},
		"gone":         {func(k keys, w *writer) error { return c.Del(ctx, k.log).Err() }, false},
		"one removed": {func(k keys, w *writer) error {
			all, err := c.XRevRangeN(ctx, k.log, "+", "-", 2).Result()
			return errors.Join(err, c.XDel(ctx, k.log, all[1].ID).Err())
		}, false},
		"rev back": {func(k keys, w *writer) error { return c.Decr(ctx, k.rev).Err() }, false},
		"flushed":  {func(k keys, w *writer) error { return c.Del(ctx, k.entries, k.log, k.rev).Err() }, false},
		"rev gone": {func(k keys, w *writer) error { return c.Del(ctx, k.rev).Err() }, false},
		"uncounted": {func(k keys, w *writer) error {
			return c.XAdd(ctx, &goredis.XAddArgs{Stream: k.log, Values: []string{"op", "put", "f", "x"}}).Err()
		}, false},
		"begun anew": {func(k keys, w *writer) error {
			err := c.Del(ctx, k.entries, k.log, k.rev).Err()
			for last := c.Time(ctx).Val().UnixMilli(); c.Time(ctx).Val().UnixMilli() == last; { // ids are of milliseconds, and no program empties and fills a list within one
			}
			for i := range 10 {
				w.do("put", fmt.Sprintf("new%d.example", i), "")
			}
			return err
		}, false},
	} {
		t.Run(name, func(t *testing.T) {
			o := Options{DSN: r.URL(), List: "old " + name}
			s, w, x := open(t, o), newWriter(t, c, o), table{}
			for i := range 5 {
				w.do("put", fmt.Sprintf("%d.example", i), "")
			}
			mark := x.read(t, s)
			for i := 5; i < 8; i++ {
				w.do("put", fmt.Sprintf("%d.example", i), "")
			}
			testkit.Must(t, damage.do(keysOf(o)[0], w))
			_, err := x.changes(ctx, s, mark)
			if damage.fine != (err == nil) || err != nil && !errors.Is(err, mirror.ErrTooOld) {
				t.Errorf("%v", err)
			}
			if damage.fine && len(x) != 8 {
				t.Errorf("%v", x)
			}
		})
	}
}

// TestPastTheScript: who writes into the hash without the script, as HSET and a refill after FLUSHALL do, is not
// overlooked.
func TestPastTheScript(t *testing.T) {
	testkit.Peer(t, "redis-server")
	r := redisserver.Start(t)
	c := client(t, r.Address)
	ctx := t.Context()
	hset := func(entries ...string) func(k keys, w *writer) {
		return func(k keys, w *writer) {
			for _, e := range entries {
				testkit.Must(t, c.HSet(ctx, k.entries, e, "").Err())
			}
		}
	}
	put := func(entries ...string) func(k keys, w *writer) {
		return func(_ keys, w *writer) {
			for _, e := range entries {
				w.do("put", e, "")
			}
		}
	}
	flush := func(keys, *writer) { testkit.Must(t, c.FlushAll(ctx).Err()) }
	for name, tt := range map[string]struct {
		before, after []func(k keys, w *writer)
		unlogged      bool
	}{
		"into nothing":                          {nil, []func(keys, *writer){hset("a.example", "b.example")}, true},
		"into nothing, then the script":         {nil, []func(keys, *writer){hset("a.example"), put("b.example", "b2.example")}, false},
		"the script, then more":                 {nil, []func(keys, *writer){put("b.example", "b2.example"), hset("a.example")}, false},
		"what the script has put is replaced":   {nil, []func(keys, *writer){put("b.example", "b2.example"), hset("a.example"), func(k keys, w *writer) { w.do("del", "b.example") }}, false},
		"beside a log":                          {[]func(keys, *writer){put("b.example")}, []func(keys, *writer){hset("a.example")}, false},
		"beside a log that goes on":             {[]func(keys, *writer){put("b.example")}, []func(keys, *writer){hset("a.example", "c.example"), put("d.example")}, false},
		"taken out by hand":                     {[]func(keys, *writer){put("b.example")}, []func(keys, *writer){func(k keys, _ *writer) { c.HDel(ctx, k.entries, "b.example") }}, false},
		"filled before, and more":               {[]func(keys, *writer){hset("b.example")}, []func(keys, *writer){hset("a.example")}, true},
		"emptied and filled by hand":            {[]func(keys, *writer){put("b.example")}, []func(keys, *writer){flush, hset("a.example")}, true},
		"emptied and filled by the script":      {[]func(keys, *writer){put("b.example")}, []func(keys, *writer){flush, put("a.example")}, false},
		"empty, emptied and filled by hand":     {nil, []func(keys, *writer){flush, hset("a.example")}, true},
		"filled by hand, then by the script":    {[]func(keys, *writer){hset("b.example")}, []func(keys, *writer){put("a.example")}, false},
		"the same number, by hand, log emptied": {[]func(keys, *writer){put("b.example")}, []func(keys, *writer){func(k keys, _ *writer) { c.Del(ctx, k.entries, k.log, k.rev) }, hset("a.example")}, true},
	} {
		flush(keys{}, nil)
		o := Options{DSN: r.URL(), List: "past"}
		w := newWriter(t, c, o)
		k := keysOf(o)[0]
		for _, do := range tt.before {
			do(k, w)
		}
		copied := mirrortest.NewCopy(t, open(t, o), lists.Settings{})
		copied.Read(t)
		if _, err := copied.Mirror.Follow(ctx, copied.Source); err != nil && !errors.Is(err, mirror.ErrTooOld) {
			t.Errorf("%s: %v", name, err)
		}
		for _, do := range tt.after {
			do(k, w)
		}
		copied.Update(t)
		_, err := copied.Mirror.Follow(ctx, copied.Source)
		if unlogged, is := errors.AsType[*mirror.Unlogged](err); is != tt.unlogged || is && !strings.Contains(unlogged.Hint, "blockd source lua") || !is && err != nil {
			t.Errorf("%s: %v, want an error of the log: %v", name, err, tt.unlogged)
		}
		all := table{}
		all.read(t, open(t, o))
		var want []string
		for entry := range all {
			want = append(want, entry+" b")
		}
		slices.Sort(want)
		copied.Want(t, name, want...)
	}
}

// What a read has seen of changes that a failover loses afterwards is not kept.
func TestLostAfterTheRead(t *testing.T) {
	r, c := server(t)
	o := Options{DSN: r.URL(), List: "lost"}
	s, w := open(t, o), newWriter(t, c, o)
	for i := range 5 {
		w.do("put", fmt.Sprintf("%d.example", i), "")
	}
	first := true
	mark, err := s.All(t.Context(), func(mirror.Row) error {
		if first {
			first = false
			w.do("put", "late.example", "")
		}
		return nil
	})
	testkit.Must(t, err)
	k := keysOf(o)[0]
	last := testkit.Value(c.XRevRangeN(t.Context(), k.log, "+", "-", 1).Result())(t)
	x := table{}
	x.follow(t, s, mark)
	x.want(t, mirror.Row{Entry: "late.example"})
	// As if this change had never come here, and another one had.
	testkit.Must(t, errors.Join(c.XDel(t.Context(), k.log, last[0].ID).Err(), c.HDel(t.Context(), k.entries, "late.example").Err(), c.Decr(t.Context(), k.rev).Err()))
	w.do("put", "other.example", "")
	mirrortest.WantLost(t, "another change came", s, mark, "it was lost in a failover")
}

// After a FLUSHALL the list is empty, and its reader learns so by a full read: whether that may serve is for the gate.
func TestFlushAll(t *testing.T) {
	testkit.Peer(t, "redis-server")
	r := redisserver.Start(t)
	c := client(t, r.Address)
	for _, shards := range []int{0, 4} {
		o := Options{DSN: r.URL(), List: "flushed", Shards: shards}
		s, w, x := open(t, o), newWriter(t, c, o), table{}
		for i := range 40 {
			w.do("put", fmt.Sprintf("%d.example", i), "")
		}
		mark := x.read(t, s)
		testkit.Must(t, c.FlushAll(t.Context()).Err())
		if _, err := x.changes(t.Context(), s, mark); !errors.Is(err, mirror.ErrTooOld) || len(x) != 40 {
			t.Errorf("%d entries, %v", len(x), err)
		}
		mark = x.read(t, s)
		x.want(t)
		w.do("put", "new.example", "")
		x.follow(t, s, mark)
		x.want(t, mirror.Row{Entry: "new.example"})
	}
}

// A hash that goes while it is read ends with the cursor 0, as a whole one does.
func TestHalfARead(t *testing.T) {
	r, c := server(t)
	for name, goes := range map[string]func(k keys) error{
		"flushed": func(k keys) error { return c.Del(t.Context(), k.entries, k.log, k.rev).Err() },
		"deleted": func(k keys) error { return c.Del(t.Context(), k.entries).Err() },
		"renamed": func(k keys) error {
			return errors.Join(c.HSet(t.Context(), k.entries+"2", "a.example", "").Err(), c.Rename(t.Context(), k.entries+"2", k.entries).Err())
		},
	} {
		for _, changes := range []string{"log", "none"} {
			o := Options{DSN: r.URL(), List: "half " + name + changes, Changes: changes}
			s, w := open(t, o), newWriter(t, c, o)
			for i := range 2000 {
				w.do("put", fmt.Sprintf("%d.example", i), "")
			}
			rows := 0
			_, err := s.All(t.Context(), func(mirror.Row) error {
				if rows++; rows == 100 {
					return goes(keysOf(o)[0])
				}
				return nil
			})
			// Without a log a smaller one may be what the other program wants: the gate judges.
			if smaller := name == "renamed" && changes == "none"; smaller != (err == nil) || err != nil && mirrortest.Class(err) != mirror.ClassTruncated {
				t.Errorf("%s, %s: %d rows, %v", name, changes, rows, err)
			}
		}
	}
}

// The script as an operator calls it, from a file.
func TestScriptByRedisCLI(t *testing.T) {
	r, _ := server(t)
	cli := testkit.Peer(t, "redis-cli")
	o := Options{DSN: r.URL(), List: "cli"}
	file := filepath.Join(t.TempDir(), "change.lua")
	testkit.Write(t, file, open(t, o).Lua())
	call := func(args ...string) string {
		k := keysOf(o)[0]
		out, err := exec.Command(cli, append([]string{"-s", r.Socket, "--eval", file, k.entries, k.log, k.rev, ","}, args...)...).CombinedOutput()
		if err != nil {
			t.Fatalf("%v: %s", err, out)
		}
		return strings.TrimSpace(string(out))
	}
	s, x := open(t, o), table{}
	for _, step := range []struct{ args, want string }{
		{"put|spam@bad.example|block\t\t4711\tsold addresses", "1"},
		{"put|spam@bad.example|block\t\t4711\tsold addresses", "1"},
		{"put|b.example|", "2"}, {"del|gone.example", "2"}, {"del|b.example", "3"},
		{"put|b.example", "ERR want put ENTRY VALUE, or del ENTRY"}, {"add|b.example|x", "ERR want put ENTRY VALUE, or del ENTRY"}, {"del", "ERR want put ENTRY VALUE, or del ENTRY"},
	} {
		if got := call(strings.Split(step.args, "|")...); got != step.want && !strings.Contains(got, step.want) {
			t.Errorf("%q: %s, want %s", step.args, got, step.want)
		}
	}
	x.read(t, s)
	x.want(t, mirror.Row{Entry: "spam@bad.example", Action: "block", ID: "4711", Reason: "sold addresses"})
}

func TestWait(t *testing.T) {
	r, c := server(t)
	for _, shards := range []int{0, 4} {
		o := Options{DSN: r.URL(), List: fmt.Sprint("wait", shards), Shards: shards}
		s, w, x := open(t, o), newWriter(t, c, o), table{}
		w.do("put", "a.example", "")
		mark := x.read(t, s)
		heard := make(chan error, 1)
		go func() { heard <- s.Wait(t.Context()) }()
		w.do("put", "b.example", "")
		testkit.Must(t, <-heard)
		testkit.Must(t, s.Wait(t.Context())) // at once: it was not read yet
		x.follow(t, s, mark)
		ctx, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
		testkit.IsError(t, "nothing has changed", s.Wait(ctx), context.DeadlineExceeded)
		cancel()
	}
}

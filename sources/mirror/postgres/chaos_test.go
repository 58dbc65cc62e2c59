package postgres

import (
	"context"
	"flag"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"

	"github.com/jackc/pgx/v5/pgconn"

	"blockd/internal/testkit"
	"blockd/lists"
	"blockd/sources/mirror/mirrortest"
)

var soak = flag.Bool("soak", false, "more writers' changes, and more crashes")

// writer changes entries of its own, one at a time, and knows every state that they were in.
type writer struct {
	name string
	rng  *rand.Rand
	turn chan struct{} // a change each
	conn *pgconn.PgConn
	rows map[string]string // what the table has: key to action

	mu     sync.Mutex
	states []string // in order; the last one may be about to come
}

// text is a state: its rows, in order.
func text(rows map[string]string) string {
	var b strings.Builder
	for _, key := range slices.Sorted(maps.Keys(rows)) {
		fmt.Fprintf(&b, "%s %s\n", key, rows[key])
	}
	return b.String()
}

// change makes a change at random. An error leaves it open whether it was made.
func (w *writer) change(ctx context.Context) error {
	next := maps.Clone(w.rows)
	key := fmt.Sprintf("%s.%d@bulk.example", w.name, w.rng.IntN(8))
	action := []string{"block", "allow", "tempfail", "discard"}[w.rng.IntN(4)]
	other := fmt.Sprintf("%s.%d@bulk.example", w.name, w.rng.IntN(8))
	var sql string
	switch _, there := w.rows[key]; {
	case !there:
		sql = fmt.Sprintf("insert into senders (entry, action) values ('%s', '%s')", key, action)
		next[key] = action
	case w.rng.IntN(3) == 0:
		sql = fmt.Sprintf("delete from senders where entry = '%s'", key)
		delete(next, key)
	case w.rng.IntN(3) == 0 && next[other] == "":
		sql = fmt.Sprintf("update senders set entry = '%s' where entry = '%s'", other, key)
		next[other] = next[key]
		delete(next, key)
	default:
		sql = fmt.Sprintf("update senders set action = '%s' where entry = '%s'", action, key)
		next[key] = action
	}
	if w.rng.IntN(2) == 0 { // so that some commit in another order than they were numbered
		sql = "begin; " + sql + "; select pg_sleep(0.002); commit"
	}
	w.mu.Lock()
	w.states = append(w.states, text(next))
	w.mu.Unlock()
	if err := execute(ctx, w.conn, sql); err != nil {
		return err
	}
	w.rows = next
	return nil
}

// run makes changes. In the end it knows what the table has.
func (w *writer) run(ctx context.Context, url string, changes int) error {
	for range changes {
		select {
		case <-w.turn:
		case <-ctx.Done():
			return ctx.Err()
		}
		if err := w.connect(ctx, url); err != nil {
			return err
		}
		if w.change(ctx) != nil {
			w.conn = hangUp(w.conn)
		}
	}
	return w.connect(ctx, url)
}

// connect makes sure that there is a connection. After one that was lost it asks for what the table has.
func (w *writer) connect(ctx context.Context, url string) error {
	for w.conn == nil || w.conn.IsClosed() {
		conn, err := pgconn.Connect(ctx, url)
		if ctx.Err() != nil {
			return ctx.Err()
		}
		if err != nil {
			continue
		}
		if w.conn = conn; w.recall(ctx) != nil {
			w.conn = hangUp(conn)
		}
	}
	return nil
}

// recall reads what the table has. The change that was not answered may have been made or not.
func (w *writer) recall(ctx context.Context) error {
	found := map[string]string{}
	_, err := rows(ctx, w.conn, "select entry, action from senders where entry like $1::text", []string{w.name + ".%"}, func(v []string) error {
		found[v[0]] = v[1]
		return nil
	})
	if err != nil {
		return err
	}
	w.rows = found
	w.mu.Lock()
	defer w.mu.Unlock()
	if last := len(w.states) - 1; w.states[last] != text(found) {
		w.states = w.states[:last]
	}
	return nil
}

// TestRandomWriters: 8 writers change rows at random while the server crashes, connections are ended and the copy is
// opened anew. Whatever the copy serves is what each writer's rows were at some time, never an earlier one than before, and in the
// end both are the same.
func TestRandomWriters(t *testing.T) {
	changes, crashes := 125, 2
	if *soak {
		changes, crashes = 5000, 10
	}
	name, o := database(t, "", Options{Notify: "channel"})
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	writers, turn := make([]*writer, 8), make(chan struct{}, 8*changes)
	var running sync.WaitGroup
	for i := range writers {
		w := &writer{name: "w" + strconv.Itoa(i), rng: rand.New(rand.NewPCG(uint64(i), 1)), turn: turn, states: []string{""}}
		writers[i] = w
		running.Go(func() {
			testkit.Should(t, w.run(ctx, shared.URL("postgres", name), changes))
		})
	}
	done := make(chan struct{})
	go func() { defer close(done); running.Wait() }()

	c := mirrortest.NewCopy(t, open(t, o), lists.Settings{})
	seen := make([]int, len(writers)) // the state of each writer that was served last
	rng := rand.New(rand.NewPCG(7, 7))
	polls, failed := 0, 0
	step := func() {
		t.Helper()
		polls++
		if told, err := c.Bring(ctx); err != nil {
			failed++
		} else if told.Changed {
			judge(t, writers, seen, c.Lines(t))
		}
	}
	for i, ended := 0, false; !ended; i++ {
		select {
		case <-done:
			ended = true
		default:
		}
		for range min(rng.IntN(80), cap(turn)-len(turn)) { // changes go on while the copy is brought up to date
			turn <- struct{}{}
		}
		step()
		switch {
		case crashes > 0 && i%10 == 4:
			crashes--
			testkit.Must(t, shared.Crash())
			step()
			testkit.Must(t, shared.Start())
		case i%10 == 9:
			c.Source.Close()
			c.Restart(t)
		case rng.IntN(8) == 0:
			shared.Exec(t, name, "select pg_terminate_backend(pid) from pg_stat_activity where datname = current_database() and pid <> pg_backend_pid()")
		}
	}
	step() // of which the connection may be lost
	step()
	judge(t, writers, seen, c.Lines(t))
	for i, w := range writers {
		if last := len(w.states) - 1; w.states[seen[i]] != w.states[last] {
			t.Errorf("%s: state %d of %d is served in the end", w.name, seen[i], last)
		}
	}
	t.Logf("%d polls, of which %d failed", polls, failed)
}

// judge finds the states that are served.
func judge(t *testing.T, writers []*writer, seen []int, lines []string) {
	t.Helper()
	rows := make([]map[string]string, len(writers))
	words := map[string]string{"b": "block", "a": "allow", "t": "tempfail", "d": "discard"}
	for _, line := range lines {
		f := strings.Split(line, "\t")
		i := int(f[0][1] - '0')
		if rows[i] == nil {
			rows[i] = map[string]string{}
		}
		rows[i][f[0]] = words[f[1]]
	}
	for i, w := range writers {
		w.mu.Lock()
		at := slices.Index(w.states[seen[i]:], text(rows[i]))
		w.mu.Unlock()
		if at < 0 {
			t.Fatalf("%s: what is served was never there since state %d:\n%s", w.name, seen[i], text(rows[i]))
		}
		seen[i] += at
	}
}

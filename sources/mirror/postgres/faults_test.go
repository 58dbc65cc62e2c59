package postgres

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"maps"
	"math/rand/v2"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgconn"

	"blockd/internal/testkit"
	"blockd/lists"
	"blockd/sources/mirror"
	"blockd/sources/mirror/mirrortest"
	"blockd/sources/mirror/query"
)

// interrupted is a source to which something happens after so many rows of a full read.
type interrupted struct {
	*Source
	after int
	what  func()
}

func (i interrupted) All(ctx context.Context, yield func(mirror.Row) error) (mirror.Mark, error) {
	n := 0
	return i.Source.All(ctx, func(r mirror.Row) error {
		if n++; n == i.after {
			i.what()
		}
		return yield(r)
	})
}

// many fills the table with more than the buffers between server and client hold.
func many(t *testing.T, name string) {
	t.Helper()
	shared.Exec(t, name, "insert into senders (entry, reason) select 'user' || i || '@bulk.example', repeat('x', 200) from generate_series(1, 50000) as i")
}

func TestServerCrashesDuringFullRead(t *testing.T) {
	name, o := database(t, "", Options{})
	shared.Exec(t, name, "insert into senders (entry) values ('before.example')")
	s := open(t, o)
	c := mirrortest.NewCopy(t, s, lists.Settings{})
	c.Read(t)
	before, _ := c.State()
	many(t, name)
	_, err := c.Mirror.Read(t.Context(), interrupted{s, 10, func() {
		testkit.Should(t, shared.Crash())
	}})
	mirrortest.WantFault(t, err, mirror.ClassUnreachable, "") // in the midst of the crash
	_, err = c.Mirror.Follow(t.Context(), s)
	mirrortest.WantFault(t, err, mirror.ClassUnreachable, "") // while the server is away
	if now, _ := c.State(); now != before {
		t.Errorf("the copy is %+v, was %+v", now, before)
	}
	testkit.Must(t, shared.Start())
	testkit.Equal(t, "entries when it is back", c.Update(t).Entries, 50001)
}

func TestReadThatYieldEnds(t *testing.T) {
	name, o := database(t, "", Options{})
	many(t, name)
	s := open(t, o)
	full := &mirror.Error{Class: mirror.ClassDisk, Err: errors.New("full")}
	testkit.Fails(s.All(t.Context(), func(mirror.Row) error { return full }))(t, "yield's error came back as", full)
	ctx, cancel := context.WithCancel(t.Context())
	testkit.Fails(s.All(ctx, func(mirror.Row) error { cancel(); return nil }))(t, "cancelled", context.Canceled)
	if found, _ := mirrortest.Rows(t, s); len(found) != 50000 {
		t.Errorf("%d rows then", len(found))
	}
}

func TestClasses(t *testing.T) {
	name, o := database(t, "", Options{})
	refusing := testkit.Refusing(t)
	shared.Exec(t, name, `do $$ begin create role locked login password 'tiger'; exception when duplicate_object then null; end $$;
		do $$ begin create role full login connection limit 0; exception when duplicate_object then null; end $$`)
	for _, tt := range []struct {
		name, dsn, query string
		want             mirror.Class
	}{
		{"nothing there", "postgres://reader:t0p-s3cret@" + refusing + "/x", "", mirror.ClassUnreachable},
		{"no such host", "postgres://reader:t0p-s3cret@host.invalid/x", "", mirror.ClassUnreachable},
		{"wrong password", "postgres://locked:t0p-s3cret@" + shared.Address + "/" + name, "", mirror.ClassAuth},
		{"no such database", "postgres://reader:t0p-s3cret@" + shared.Address + "/t0p-s3cret", "", mirror.ClassSchema},
		{"no TLS", "postgres://reader:t0p-s3cret@" + shared.Address + "/" + name + "?sslmode=require", "", mirror.ClassRefused},
		{"too many connections", "postgres://full:t0p-s3cret@" + shared.Address + "/" + name, "", mirror.ClassRefused},
		{"no such table", "", "select entry from \"t0p-s3cret\"", mirror.ClassSchema},
		{"no such column", "", "select sender as entry from senders", mirror.ClassSchema},
		{"no column entry", "", "select id from senders", mirror.ClassSchema},
		{"an unknown column", "", "select entry, 1 as colour from senders", mirror.ClassSchema},
		{"no right", "", "select rolpassword as entry from pg_authid", mirror.ClassAuth},
		{"no SQL", "", "select entry frm senders", mirror.ClassQuery},
		{"two statements", "", "select entry from senders; drop table senders", mirror.ClassQuery},
		{"a division by zero", "", "select (1/(length(current_user)-6))::text as entry", mirror.ClassQuery},
		{"too slow for the server", shared.URL("reader", name) + "&statement_timeout=50", "select pg_sleep(60)::text as entry", mirror.ClassTimeout},
		{"a row of 40 MiB", "", "select repeat('x', 40 << 20) as entry", mirror.ClassRows},
		{"a write", "", "select nextval('senders_id_seq')::text as entry", mirror.ClassAuth},
	} {
		t.Run(tt.name, func(t *testing.T) {
			o := o
			o.Changes, o.Notify = query.None, ""
			if tt.dsn != "" {
				o.DSN = tt.dsn + map[bool]string{true: "&", false: "?"}[strings.Contains(tt.dsn, "?")] + "password=t0p-s3cret"
			}
			if tt.query != "" {
				o.Query = tt.query
			}
			s := open(t, o)
			_, err := s.Fingerprint(t.Context())
			if err == nil {
				_, err = s.All(t.Context(), mirrortest.Skip)
			}
			if tt.dsn == "" { // the text of the query is no secret
				mirrortest.WantFault(t, err, tt.want, "")
			} else {
				mirrortest.WantFault(t, err, tt.want, "", "s3cret")
			}
		})
	}
}

func TestOpenNamesTheKeyAndNoSecret(t *testing.T) {
	for _, dsn := range []string{
		"", "t0p-s3cret", "mysql://u:t0p-s3cret@h/d", "postgres://u:t0p-s3cret/x@h:port/d", "postgres://u:t0p-s3cret@h:99999999/d",
		"postgres://u:t0p-s3cret@h/d?sslmode=t0p-s3cret", "postgres://u:%zzt0p-s3cret@h/d", "postgres://u:t0p-s3cret@[h/d", "postgres://u@h/d?password=t0p-s3cret&a;b%",
		"postgres://u:t0p-s3cret@h/d?sslrootcert=/nowhere&sslmode=verify-ca", "postgres://u:t0p-s3cret@h/d?connect_timeout=t0p-s3cret",
	} {
		_, err := Open(Options{DSN: dsn, Query: readAll, Changes: query.None})
		mirrortest.WantRefused(t, dsn, err, "dsn: ", "s3cret")
	}
	_, err := Open(Options{DSN: "postgres://u@h/d", Query: readAll, Changes: "some"})
	mirrortest.WantRefused(t, "changes", err, "changes: ", "s3cret")
}

func TestTLSIsVerifiedUnlessLocal(t *testing.T) {
	for _, tt := range []struct {
		dsn      string
		tls      bool
		verified bool
		fallback bool // to plain
	}{
		{"postgres://u@db.example/d", true, true, false},
		{"postgres://u@a.example,b.example:5433/d?connect_timeout=3", true, true, false},
		{"postgres://u@127.0.0.1,db.example/d", true, true, false},
		{"postgres://u@192.0.2.1/d?sslmode=disable", false, false, false},
		{"postgres://u@192.0.2.1/d?sslmode=require", true, false, false},
		{"postgres://u@127.0.0.1/d", true, false, true},
		{"postgres://u@[::1]/d", true, false, true},
		{"postgres://u@localhost/d?sslmode=verify-full", true, true, false},
		{"postgres:///d?host=/run/postgresql", false, false, false},
	} {
		c, err := parse(tt.dsn)
		if err != nil {
			t.Errorf("%s: %v", tt.dsn, err)
			continue
		}
		verified := c.TLSConfig != nil && !c.TLSConfig.InsecureSkipVerify
		fallback := slices.ContainsFunc(c.Fallbacks, func(f *pgconn.FallbackConfig) bool { return f.TLSConfig == nil })
		if c.TLSConfig != nil != tt.tls || verified != tt.verified || fallback != tt.fallback {
			t.Errorf("%s: TLS %v, verified %v, plain at last %v", tt.dsn, c.TLSConfig != nil, verified, fallback)
		}
	}
}

func TestServerThatStalls(t *testing.T) {
	_, o := database(t, "", Options{})
	o.Query = "select 'a.example' as entry union all select pg_sleep(600)::text"
	o.Changes = query.None
	s := open(t, o)
	s.stall = 50 * time.Millisecond
	mirrortest.WantFaultOf(t, s, mirror.ClassTimeout, "")
}

func TestRightsAndColumnsThatGo(t *testing.T) {
	name, o := database(t, "", Options{Query: "select * from senders"})
	shared.Exec(t, name, "insert into senders (entry) values ('a.example')")
	c := mirrortest.NewCopy(t, open(t, o), lists.Settings{})
	c.Read(t)
	for _, step := range []struct {
		what, sql string
		want      mirror.Class
	}{
		{"revoked", "revoke select on senders from reader; insert into senders (entry) values ('b.example')", mirror.ClassAuth},
		{"granted again", "grant select on senders to reader", ""},
		{"another type", "alter table senders alter column action type varchar; insert into senders (entry) values ('c.example')", ""},
		{"another column", "alter table senders add column colour int; insert into senders (entry) values ('d.example')", mirror.ClassSchema},
		{"as before", "alter table senders drop column colour", ""},
		{"the log has gone", "alter table blockd_log rename to other", mirror.ClassSchema},
		{"the log is back", "alter table other rename to blockd_log", ""},
		{"the entry has gone", "alter table senders drop column entry cascade; alter table senders disable trigger all; insert into blockd_log (list, entry, gone) values ('abuse', 'a.example', true)", mirror.ClassSchema},
	} {
		t.Run(step.what, func(t *testing.T) {
			before, _ := c.State()
			shared.Exec(t, name, step.sql)
			_, err := c.Bring(t.Context())
			mirrortest.WantFault(t, err, step.want, "")
			if now, _ := c.State(); step.want != "" && now != before {
				t.Error("the copy has changed")
			}
		})
	}
}

func TestEncodingsAndLongRows(t *testing.T) {
	for _, tt := range []struct{ encoding, sql, want string }{
		{"SQL_ASCII", `insert into senders (entry) values (E'b\xfc@bulk.example'), (E'a@bulk.example')`, "a@bulk.example"},
		{"LATIN1", `set client_encoding = 'UTF8'; insert into senders (entry) values (E'b\u00fccher.example')`, "xn--bcher-kva.example"},
		{"UTF8", `drop index senders_entry_idx; insert into senders (entry, reason) values ('a.example', repeat('x', 1 << 20)), (repeat('y', 1 << 20), repeat('\', 1 << 20)), ('b.example', '')`, "b.example"},
	} {
		t.Run(tt.encoding, func(t *testing.T) {
			name, o := database(t, "encoding '"+tt.encoding+"' lc_collate 'C' lc_ctype 'C'", Options{})
			shared.Exec(t, name, tt.sql)
			c := mirrortest.NewCopy(t, open(t, o), lists.Settings{})
			holds := func(want string) {
				t.Helper()
				if lines := strings.Join(c.Lines(t), "\n"); !strings.Contains(lines, want) {
					t.Errorf("%.200q", lines)
				}
			}
			if told := c.Read(t); tt.encoding == "SQL_ASCII" && (told.Refused != 1 || told.First[0].ID != "1") {
				t.Errorf("%+v", told)
			}
			holds(tt.want + "\t")
			shared.Exec(t, name, "update senders set action = 'allow'")
			c.Follow(t)
			holds(tt.want + "\ta")
		})
	}
}

func TestHints(t *testing.T) {
	name, o := database(t, "", Options{Notify: "Blockd Abuse"})
	s := open(t, o)
	wait := func(what string) {
		t.Helper()
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		testkit.MustEqual(t, what, s.Wait(ctx), nil)
	}
	quiet := func(what string) {
		t.Helper()
		ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
		defer cancel()
		if err := s.Wait(ctx); !errors.Is(err, context.DeadlineExceeded) {
			t.Fatalf("%s: %v", what, err)
		}
	}
	wait("the first one, which connects")
	quiet("nothing has changed")
	for i := range 20 {
		shared.Exec(t, name, fmt.Sprintf("insert into senders (entry) values ('%d.example')", i))
	}
	wait("changed")
	more := 0 // the server tells of them when it finds the time, so there may be a second hint, but not twenty
	for ; more < 20; more++ {
		ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
		err := s.Wait(ctx)
		cancel()
		if errors.Is(err, context.DeadlineExceeded) {
			break
		}
		testkit.Must(t, err)
	}
	if more >= 10 {
		t.Errorf("twenty changes are %d hints", more+1)
	}
	shared.Exec(t, name, "select pg_terminate_backend(pid) from pg_stat_activity where datname = current_database() and application_name = 'blockd'")
	quiet("the connection was lost; the poll finds what changes")
	wait("it is made again")
	shared.Exec(t, name, "delete from senders")
	wait("changed again")
}

// TestPooler: pgbouncer is refused where it gives a connection to another client after each transaction.
func TestPooler(t *testing.T) {
	program := testkit.Peer(t, "pgbouncer")
	name, o := database(t, "", Options{Notify: "channel"})
	for _, tt := range []struct {
		mode string
		want mirror.Class
	}{{"transaction", mirror.ClassRefused}, {"statement", mirror.ClassRefused}, {"session", ""}} {
		t.Run(tt.mode, func(t *testing.T) {
			host, port, _ := net.SplitHostPort(testkit.Unused(t))
			_, behind, _ := net.SplitHostPort(shared.Address)
			dir, err := os.MkdirTemp(shared.Dir, "bouncer-")
			testkit.Must(t, err)
			testkit.Must(t, os.Chmod(dir, 0o755))
			file := filepath.Join(dir, "ini")
			testkit.Write(t, file, fmt.Sprintf(`[databases]
* = host=%s port=%s user=reader
[pgbouncer]
listen_addr = %s
listen_port = %s
unix_socket_dir =
auth_type = any
pool_mode = %s
`, shared.Dir, behind, host, port, tt.mode))
			cmd := shared.Command(program, file)
			testkit.Must(t, cmd.Start())
			ended := make(chan struct{})
			go func() { defer close(ended); _ = cmd.Wait() }()
			t.Cleanup(func() { _ = cmd.Process.Kill(); <-ended })
			testkit.Eventually(t, "pgbouncer", func() bool {
				conn, err := net.Dial("tcp", net.JoinHostPort(host, port))
				if err == nil {
					conn.Close()
				}
				return err == nil
			})
			o.DSN = fmt.Sprintf("postgres://reader@%s/%s", net.JoinHostPort(host, port), name)
			s := open(t, o)
			_, err = s.Fingerprint(t.Context())
			mirrortest.WantFault(t, err, tt.want, "")
			if tt.want == "" {
				mirrortest.Rows(t, s)
			}
		})
	}
}

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
	_, err := rows(ctx, w.conn, "select entry, action from senders where entry like $1::text", []string{w.name + ".%"}, 2, func(v []string) error {
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

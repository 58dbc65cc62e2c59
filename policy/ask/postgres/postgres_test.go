package postgres_test

import (
	"bytes"
	"context"
	"errors"
	"flag"
	"fmt"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"blockd/index"
	"blockd/internal/testkit"
	"blockd/internal/testkit/postgresserver"
	"blockd/lists"
	"blockd/mail/addr"
	"blockd/policy/ask"
	"blockd/policy/ask/postgres"
	"blockd/policy/verdict"
	"blockd/sources/mirror/query"
)

// shared is the server of all tests here, and its database.
var (
	shared *postgresserver.Server
	only   string
)

func TestMain(m *testing.M) {
	flag.Parse()
	os.Exit(run(m))
}

func run(m *testing.M) int {
	server, err := postgresserver.Open()
	if err == nil {
		shared = server
		defer server.Close()
	} else if !errors.Is(err, exec.ErrNotFound) {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	return m.Run()
}

// database makes the table senders anew, whose entries have a type, with some rows.
func database(t testing.TB, entry string) (name string, o postgres.Options) {
	t.Helper()
	if shared == nil {
		testkit.Missing(t, "PostgreSQL is not installed (make peers)")
	}
	if only == "" {
		only = shared.Database(t, "")
	}
	name = only
	shared.Exec(t, name, "create extension if not exists citext; drop table if exists senders cascade; create table senders (id serial primary key, entry "+entry+`, action text, expires timestamptz, reason text);
		create index on senders (entry);
		insert into senders (entry, action, expires, reason) values ('a@b.example', 'block', '2100-01-01', E'it''s\twhy'), ('a@b.example', 'allow', null, null),
		('d.example', null, 'infinity', ''), (null, 'block', null, null)`)
	return name, postgres.Options{DSN: shared.URL("postgres", name), Query: "select entry, action, expires, reason, id from senders", Changes: query.None}
}

func open(t testing.TB, o postgres.Options) *postgres.Store {
	t.Helper()
	s, err := postgres.Open(o)
	testkit.Must(t, err)
	t.Cleanup(func() { s.Close() })
	return s
}

func say(answers []ask.Answer) string {
	var b strings.Builder
	for _, a := range answers {
		fmt.Fprintf(&b, "%s:", a.Text)
		for _, r := range a.Rows {
			fmt.Fprintf(&b, " %s|%s|%d|%s|%s", r.Entry, r.Action, r.Expires, r.ID, r.Reason)
		}
		b.WriteByte('\n')
	}
	return b.String()
}

var texts = []string{"a@b.example", "b.example", "d.example", "{\"\\,'}"}

const answered = "a@b.example: a@b.example|block|4102444800|1|it's\twhy a@b.example|allow|0|2|\nb.example:\nd.example: d.example||0|3|\n{\"\\,'}:\n"

func TestTypesOfEntries(t *testing.T) {
	for _, entry := range []string{"text", "varchar(200)", "char(30)", "citext", "name"} {
		_, o := database(t, entry)
		s := open(t, o)
		for range 3 {
			if got, err := s.Ask(t.Context(), texts); err != nil || say(got) != answered {
				t.Errorf("%s: %v\n%swant\n%s", entry, err, say(got), answered)
			}
		}
	}
	name, o := database(t, "citext")
	shared.Exec(t, name, "update senders set entry = 'D.Example' where id = 3")
	if got, err := open(t, o).Ask(t.Context(), texts[2:3]); err != nil || say(got) != "d.example: D.Example||0|3|\n" {
		t.Errorf("capitals: %v %s", err, say(got))
	}
}

// TestDoubts: what is not an answer to the whole question is an error. The statement of the test spoils a database; each question
// may go to a connection of before or to a new one.
func TestDoubts(t *testing.T) {
	for _, tt := range []struct{ name, spoil, mend, query string }{
		{name: "the table has gone", spoil: "alter table senders rename to other", mend: "alter table other rename to senders"},
		{name: "the column has gone", spoil: "alter table senders rename entry to sender", mend: "alter table senders rename sender to entry"},
		{name: "a column more", spoil: "alter table senders add colour text", mend: "alter table senders drop colour", query: "select * from senders"},
		{name: "a column of another type", spoil: "alter table senders alter reason type bytea using null", mend: "alter table senders alter reason type text using null"},
		{name: "a function that fails", spoil: "create view v as select (1/(id-id))::text as entry from senders", mend: "drop view v", query: "select entry from v"},
		{name: "a statement that may not be so slow", spoil: "create view v as select entry from senders, pg_sleep(9); alter role postgres set statement_timeout = 50", mend: "drop view v; alter role postgres reset statement_timeout", query: "select entry from v"},
		{name: "a row of another entry", spoil: "create collation blind (provider = icu, locale = 'und-u-ks-level1', deterministic = false); alter table senders alter entry type text collate blind; update senders set entry = 'á@b.example'",
			mend: "alter table senders alter entry type text; update senders set entry = 'a@b.example' where id = 1"},
		{name: "rows without end", spoil: "create view v as select entry from senders, generate_series(1, 5000)", mend: "drop view v", query: "select entry from v"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			name, o := database(t, "text")
			if tt.query != "" {
				o.Query = tt.query
			}
			s := open(t, o)
			if tt.query == "" {
				if got, err := s.Ask(t.Context(), texts); err != nil || say(got) != answered {
					t.Fatalf("before: %v\n%s", err, say(got))
				}
			}
			shared.Exec(t, name, tt.spoil)
			spoiled := tt.name == "a column of another type" // which a new connection takes as it is
			for i := range 3 {
				ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
				got, err := s.Ask(ctx, texts)
				cancel()
				if err == nil && (!spoiled || i == 0) {
					t.Errorf("an answer: %s", say(got))
				}
				if err != nil && strings.Contains(err.Error(), "\n") {
					t.Errorf("an error of several lines: %q", err)
				}
			}
			shared.Exec(t, name, tt.mend)
			if tt.query == "" && !spoiled && tt.name != "a row of another entry" {
				if got, err := s.Ask(t.Context(), texts); err != nil || say(got) != answered {
					t.Errorf("afterwards: %v\n%s", err, say(got))
				}
			}
		})
	}
}

// TestLostConnections: connections that the server has ended meanwhile cost no answer.
func TestLostConnections(t *testing.T) {
	name, o := database(t, "text")
	s := open(t, o)
	var all sync.WaitGroup
	for range 50 {
		all.Go(func() { s.Ask(t.Context(), texts) })
	}
	all.Wait()
	for range 3 {
		shared.Exec(t, name, "select pg_terminate_backend(pid, 5000) from pg_stat_activity where datname = current_database() and application_name = 'blockd'")
		if got, err := s.Ask(t.Context(), texts); err != nil || say(got) != answered {
			t.Errorf("%v\n%s", err, say(got))
		}
	}
	held := shared.Query(t, name, "select count(*) from pg_stat_activity where datname = current_database() and application_name = 'blockd'")
	if n, _ := strconv.Atoi(held[0]); n > 8 {
		t.Errorf("%d connections", n)
	}
}

func TestOpenTellsNoPassword(t *testing.T) {
	for _, dsn := range []string{"postgres://u:hunter2@%zz/d", "http://u:hunter2@host", "postgres://u:hunter2@host:x/d", "postgres://u:hunter2@host/d?sslmode=hunter2"} {
		if _, err := postgres.Open(postgres.Options{DSN: dsn, Query: "select entry from e", Changes: query.None}); err == nil || strings.Contains(err.Error(), "hunter2") {
			t.Errorf("%v", err)
		}
	}
	s := open(t, postgres.Options{DSN: "postgres://u:hunter2@127.0.0.1:1/d", Query: "select entry from e", Changes: query.None})
	if _, err := s.Ask(t.Context(), texts); err == nil || strings.Contains(err.Error(), "hunter2") {
		t.Errorf("%v", err)
	}
	s.Close()
	if _, err := s.Ask(t.Context(), texts); err == nil {
		t.Error("an answer of a store that is closed")
	}
}

// processes are those of the server: the first and its children.
func processes(t testing.TB) (pids []int) {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(shared.Dir, "data", "postmaster.pid"))
	testkit.Must(t, err)
	first, _, _ := strings.Cut(string(text), "\n")
	children, err := os.ReadFile("/proc/" + first + "/task/" + first + "/children")
	if err != nil {
		t.Skip("the system does not tell the children of a process")
	}
	for _, f := range append([]string{first}, strings.Fields(string(children))...) {
		pid, err := strconv.Atoi(f)
		if err != nil || pid <= 1 || pid == os.Getpid() {
			t.Fatalf("process %q: %v", f, err)
		}
		pids = append(pids, pid)
	}
	return pids
}

func signal(t testing.TB, s syscall.Signal) {
	t.Helper()
	for _, pid := range processes(t) {
		if err := syscall.Kill(pid, s); err != nil && err != syscall.ESRCH {
			t.Fatal(err)
		}
	}
}

// TestServerDiesAndHangs asks a server that is stopped (SIGSTOP), goes on, is killed, and is started again: no answer is
// wrong, and few wait long.
func TestServerDiesAndHangs(t *testing.T) {
	_, o := database(t, "text")
	var log bytes.Buffer
	set := ask.New(ask.Options{Store: open(t, o), Pause: 100 * time.Millisecond, Timeout: 200 * time.Millisecond, Positive: time.Nanosecond, Negative: time.Nanosecond,
		Source: index.Source{List: "asked"}, Actions: true}, slog.New(slog.NewTextHandler(&log, nil)))
	defer set.Close()
	f := ask.NewFilter(10)
	for _, text := range []string{"d.example", "c@b.example"} {
		it, err := lists.ParseEntry(text, lists.Settings{})
		testkit.Must(t, err)
		f.Add(it.Key)
	}
	set.UseFilter(f)
	sets := ask.NewSets([]*ask.Set{set}, nil)
	// question is whether a sender is listed, and false if that is not known.
	question := func(text string) (listed, known bool) {
		a, err := addr.Parse(text)
		testkit.Must(t, err)
		matches, _, unasked := sets.Begin(a, addr.Key{}, verdict.EnvelopeSource).Amend(t.Context(), nil, nil, time.Now())
		return len(matches) > 0, len(unasked) == 0
	}
	counts := map[string]int{}
	var waits []time.Duration
	phase := func(name string, n int) {
		for range n {
			start := time.Now()
			yes, known := question("x@d.example")
			no, knownToo := question("c@b.example")
			waits = append(waits, time.Since(start)/2)
			if no || yes != known {
				t.Fatalf("%s: listed %v (known %v), unlisted %v (known %v)", name, yes, known, no, knownToo)
			}
			if known {
				counts[name]++
			}
		}
	}
	until := func(name string) {
		for end := time.Now().Add(30 * time.Second); counts[name] == 0; phase(name, 1) {
			if time.Now().After(end) {
				t.Fatalf("%s: no answer\n%s", name, log.String())
			}
		}
	}
	until("alive")
	phase("alive", 100)
	signal(t, syscall.SIGSTOP)
	phase("stopped", 1000)
	signal(t, syscall.SIGCONT)
	until("goes on")
	signal(t, syscall.SIGKILL)
	phase("dead", 1000)
	if counts["stopped"]+counts["dead"] > 0 {
		t.Errorf("answers of a server that gives none: %v", counts)
	}
	// A process that nothing has waited for yet counts as running, so that the next server would not start.
	locks, _ := filepath.Glob(filepath.Join(shared.Dir, ".s.*.lock"))
	for _, lock := range append(locks, filepath.Join(shared.Dir, "data", "postmaster.pid")) {
		testkit.Must(t, os.Remove(lock))
	}
	testkit.Must(t, shared.Start())
	until("started again")
	slices.Sort(waits)
	t.Logf("%v; p50 %s, p99 %s, most %s", counts, waits[len(waits)/2], waits[len(waits)*99/100], waits[len(waits)-1])
	if waits[len(waits)/2] > 100*time.Millisecond {
		t.Errorf("half of all wait for %s", waits[len(waits)/2])
	}
}

// BenchmarkConfirm asks a local server for the six texts of a sender with four keys, of a table of a hundred thousand.
func BenchmarkConfirm(b *testing.B) {
	name, o := database(b, "text")
	shared.Exec(b, name, "insert into senders (entry) select 'u' || i || '@b' || j || '.example' from generate_series(1, 1000) i, generate_series(1, 100) j; analyze senders")
	s := open(b, o)
	var waits []time.Duration
	i := 0
	for b.Loop() {
		d := fmt.Sprintf("b%d.example", i%100)
		start := time.Now()
		if _, err := s.Ask(b.Context(), []string{fmt.Sprintf("u%d@%s", i%2000, d), fmt.Sprintf("u%d@", i), d, "=" + d, "example", ".example"}); err != nil {
			b.Fatal(err)
		}
		waits = append(waits, time.Since(start))
		i++
	}
	slices.Sort(waits)
	b.ReportMetric(float64(waits[len(waits)*99/100].Microseconds()), "p99-us")
}

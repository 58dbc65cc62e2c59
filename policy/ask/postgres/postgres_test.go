package postgres_test

import (
	"context"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"blockd/internal/testkit"
	"blockd/internal/testkit/asked"
	"blockd/internal/testkit/postgresserver"
	"blockd/policy/ask/postgres"
	"blockd/sources/mirror/query"
)

// shared is the server of all tests here, and its database.
var (
	shared *postgresserver.Server
	only   string
)

func TestMain(m *testing.M) { postgresserver.Main(m, &shared) }

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
	s := testkit.Value(postgres.Open(o))(t)
	t.Cleanup(func() { s.Close() })
	return s
}

var texts = []string{"a@b.example", "b.example", "d.example", "{\"\\,'}"}

const answered = "a@b.example: a@b.example|block|4102444800|1|it's\twhy a@b.example|allow|0|2|\nb.example:\nd.example: d.example||0|3|\n{\"\\,'}:\n"

func TestTypesOfEntries(t *testing.T) {
	for _, entry := range []string{"text", "varchar(200)", "char(30)", "citext", "name"} {
		_, o := database(t, entry)
		s := open(t, o)
		for range 3 {
			asked.WantAnswer(t, entry, s, texts, answered, "")
		}
	}
	name, o := database(t, "citext")
	shared.Exec(t, name, "update senders set entry = 'D.Example' where id = 3")
	asked.WantAnswer(t, "capitals", open(t, o), texts[2:3], "d.example: D.Example||0|3|\n", "")
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
				asked.WantAnswer(t, "before", s, texts, answered, "")
			}
			shared.Exec(t, name, tt.spoil)
			spoiled := tt.name == "a column of another type" // which a new connection takes as it is
			for i := range 3 {
				ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
				got, err := s.Ask(ctx, texts)
				cancel()
				if err == nil && (!spoiled || i == 0) {
					t.Errorf("an answer: %s", asked.Say(got))
				}
				if err != nil && strings.Contains(err.Error(), "\n") {
					t.Errorf("an error of several lines: %q", err)
				}
			}
			shared.Exec(t, name, tt.mend)
			if tt.query == "" && !spoiled && tt.name != "a row of another entry" {
				asked.WantAnswer(t, "afterwards", s, texts, answered, "")
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
		asked.WantAnswer(t, "connections that are lost", s, texts, answered, "")
	}
	held := shared.Query(t, name, "select count(*) from pg_stat_activity where datname = current_database() and application_name = 'blockd'")
	if n, _ := strconv.Atoi(held[0]); n > 8 {
		t.Errorf("%d connections", n)
	}
}

func TestAwayTellsNoPassword(t *testing.T) {
	s := open(t, postgres.Options{DSN: "postgres://u:hunter2@127.0.0.1:1/d", Query: "select entry from e", Changes: query.None})
	asked.WantAnswer(t, "away", s, texts, "", "hunter2")
	s.Close()
	asked.WantAnswer(t, "closed", s, texts, "", "hunter2")
}

// processes are those of the server: the first and its children.
func processes(t testing.TB) (pids []int) {
	t.Helper()
	text := testkit.Value(os.ReadFile(filepath.Join(shared.Dir, "data", "postmaster.pid")))(t)
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

func TestServerDiesAndHangs(t *testing.T) {
	_, o := database(t, "text")
	signal := func(s syscall.Signal) {
		for _, pid := range processes(t) {
			if err := syscall.Kill(pid, s); err != nil && err != syscall.ESRCH {
				t.Fatal(err)
			}
		}
	}
	asked.DiesAndHangs(t, asked.Server{
		Store: open(t, o),
		Stop: func() {
			for _, pid := range processes(t) {
				testkit.Stop(t, pid)
			}
		},
		GoOn: func() { signal(syscall.SIGCONT) },
		Kill: func() { signal(syscall.SIGKILL) },
		Start: func() {
			// A process that nothing has waited for yet counts as running, so that the next server would not start.
			locks, _ := filepath.Glob(filepath.Join(shared.Dir, ".s.*.lock"))
			for _, lock := range append(locks, filepath.Join(shared.Dir, "data", "postmaster.pid")) {
				testkit.Must(t, os.Remove(lock))
			}
			testkit.Must(t, shared.Start())
		},
	})
}

// BenchmarkConfirm asks a local server for the six texts of a sender with four keys, of a table of a hundred thousand.
func BenchmarkConfirm(b *testing.B) {
	name, o := database(b, "text")
	shared.Exec(b, name, "insert into senders (entry) select 'u' || i || '@b' || j || '.example' from generate_series(1, 1000) i, generate_series(1, 100) j; analyze senders")
	asked.BenchmarkConfirm(b, open(b, o))
}

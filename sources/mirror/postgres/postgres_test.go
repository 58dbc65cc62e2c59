package postgres

import (
	"fmt"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgconn"

	"blockd/internal/testkit"
	"blockd/internal/testkit/postgresserver"
	"blockd/internal/testkit/writers"
	"blockd/sources/mirror"
	"blockd/sources/mirror/mirrortest"
	"blockd/sources/mirror/query"
)

// shared is the server of all tests here.
var shared *postgresserver.Server

func TestMain(m *testing.M) { postgresserver.Main(m, &shared) }

// table is what most tests read.
const table = `create table senders (id serial primary key, entry text, action text, expires timestamptz, reason text);
	create index on senders (entry);`

const readAll = "select entry, action, expires, reason, id from senders"

// database makes a database with a table, and what DDL says that blockd needs.
func database(t *testing.T, options string, o Options, more ...string) (name string, whole Options) {
	t.Helper()
	if shared == nil {
		testkit.Missing(t, "PostgreSQL is not installed (make peers)")
	}
	name = shared.Database(t, options)
	o.DSN, o.List = shared.URL("reader", name), "abuse"
	if o.Query == "" {
		o.Query = readAll
	}
	if o.Changes == "" {
		o.Changes = query.Log
	}
	shared.Exec(t, name, table+`do $$ begin create role reader login; exception when duplicate_object then null; end $$; `+strings.Join(more, ""))
	shared.Exec(t, name, testkit.Value(open(t, o).DDL())(t))
	return name, o
}

func open(t testing.TB, o Options) *Source {
	t.Helper()
	s := testkit.Value(Open(o))(t)
	t.Cleanup(func() { s.Close() })
	return s
}

func TestDriver(t *testing.T) {
	name, o := database(t, "", Options{})
	shared.Exec(t, name, "create role counted login in role reader; alter role counted set log_statement = 'all'")
	o.DSN = shared.URL("counted", name)
	statement := regexp.MustCompile(`LOG:  (statement|execute) .*`)
	mirrortest.Run(t, mirrortest.Driver{
		Open: func(t testing.TB) mirror.Source { return open(t, o) },
		Put: func(t testing.TB, entry, action string) {
			shared.Exec(t, name, fmt.Sprintf("delete from senders where entry = '%[1]s'; insert into senders (entry, action) values ('%[1]s', '%[2]s')", entry, action))
		},
		Remove: func(t testing.TB, entry string) {
			shared.Exec(t, name, "delete from senders where entry = '"+entry+"'")
		},
		Asked: func(t testing.TB) int {
			n := len(statement.FindAll(testkit.Read(t, filepath.Join(shared.Dir, "log")), -1))
			testkit.AtLeast(t, "statements in the log of the server", n, 1)
			return n
		},
	})
}

func TestRowsAreReadAsTheyAre(t *testing.T) {
	name, o := database(t, "", Options{})
	shared.Exec(t, name, `insert into senders (entry, action, expires, reason) values
		('a@bulk.example', 'block', '2031-02-03 04:05:06.7+02', E'tab\there, line\nthere, back\\slash'),
		('b.example', null, null, ''), ('c.example', 'allow', 'infinity', E'\\N'), (null, null, null, E'\b\f\r\x0b\x01'),
		('bücher.example', '', '1970-01-01', 'ü')`)
	want := []mirror.Row{
		{Entry: "a@bulk.example", Action: "block", Expires: 1927937106 - 7200, Reason: "tab\there, line\nthere, back\\slash", ID: "1"},
		{Entry: "b.example", ID: "2"},
		{Entry: "c.example", Action: "allow", Reason: `\N`, ID: "3"},
		{Reason: "\b\f\r\v\x01", ID: "4"},
		{Entry: "bücher.example", Expires: -1, Reason: "ü", ID: "5"},
	}
	want[0].Expires = time.Date(2031, 2, 3, 2, 5, 6, 0, time.UTC).Unix()
	mirrortest.WantRows(t, open(t, o), want...)
}

func TestTypesOfColumns(t *testing.T) {
	name, o := database(t, "", Options{Changes: query.None})
	o.Query = "select address as entry, what as action, ends as expires, key as id, note as reason from typed"
	for _, tt := range []struct{ name, types, values string }{
		{"varchar, enum, timestamp, uuid", "address varchar(99), what act, ends timestamp, key uuid, note varchar", "'a.example', 'block', '2031-02-03 02:05:06', '6ee1f8b3-35a5-4b0f-9f0a-0e7a3f6f4c11', 'n'"},
		{"citext, text, bigint, bigint", "address citext, what text, ends bigint, key bigint, note text", "'a.example', 'block', 1927850706, 7, 'n'"},
		{"bpchar, name, date, numeric", "address text, what name, ends numeric, key numeric, note char(3)", "'a.example', 'block', 1927850706, 7.5, 'n  '"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			shared.Exec(t, name, "create extension if not exists citext; drop table if exists typed; drop type if exists act; create type act as enum ('block', 'allow'); create table typed ("+tt.types+"); insert into typed values ("+tt.values+"); grant select on typed to reader")
			got, _ := mirrortest.Rows(t, open(t, o))
			if len(got) != 1 || got[0].Entry != "a.example" || got[0].Action != "block" || got[0].Expires != 1927850706 || strings.TrimSpace(got[0].Reason) != "n" || got[0].ID == "" {
				t.Errorf("%+v", got)
			}
		})
	}
}

// TestLateCommit: rev 7 is committed after rev 8 was read. A mark that is the highest rev would never see it.
func TestLateCommit(t *testing.T) {
	name, o := database(t, "", Options{})
	s := open(t, o)
	_, mark := mirrortest.Rows(t, s)
	late := session(t, name)
	late("begin; insert into senders (entry, action) values ('late.example', 'block')")
	shared.Exec(t, name, "insert into senders (entry, action) values ('soon.example', 'allow')")

	mark = mirrortest.WantChanges(t, s, mark, "soon.example allow")
	highest := shared.Query(t, name, "select max(rev) from blockd_log")[0]
	late("commit")
	if got := shared.Query(t, name, "select count(*) from blockd_log where rev > "+highest); got[0] != "0" {
		t.Error("a mark that is the highest rev finds it too, so this test shows nothing")
	}
	mark = mirrortest.WantChanges(t, s, mark, "late.example block")
	testkit.Equal(t, "then another mark", mirrortest.WantChanges(t, s, mark), mark)
}

// session is a connection of its own, as the superuser.
func session(t *testing.T, name string) func(sql string) {
	t.Helper()
	s := open(t, Options{DSN: shared.URL("postgres", name), Query: "select", Changes: query.None})
	testkit.Must(t, s.connect(t.Context()))
	return func(sql string) {
		t.Helper()
		testkit.Must(t, execute(t.Context(), s.conn, sql))
	}
}

// TestEntriesOfCitext: capitals do not tell entries apart, and an index finds them.
func TestEntriesOfCitext(t *testing.T) {
	name, o := database(t, "", Options{})
	shared.Exec(t, name, "create extension citext; alter table senders alter column entry type citext; insert into senders (entry) select i || '.example' from generate_series(1, 5000) as i; analyze senders")
	s := open(t, o)
	_, mark := mirrortest.Rows(t, s)
	shared.Exec(t, name, "insert into senders (entry, action) values ('A.example', 'block'); insert into blockd_log (list, entry, gone) values ('abuse', 'a.EXAMPLE', false)")
	mirrortest.WantChanges(t, s, mark, "A.example block", "a.EXAMPLE")
	testkit.Has(t, testkit.Value(s.Plan(t.Context()))(t), "by an index")
}

// TestNumbersOfTransactionsGivenTwice: after a crash a new row may have the number of a transaction that the mark
// counts as seen. It is found by its own number.
func TestNumbersOfTransactionsGivenTwice(t *testing.T) {
	name, o := database(t, "", Options{})
	s := open(t, o)
	_, mark := mirrortest.Rows(t, s)
	p, ok := positionOf(mark)
	if !ok {
		t.Fatal(mark)
	}
	p.snapshot = "1000000000:1000000000:"
	shared.Exec(t, name, "insert into senders (entry, action) values ('new.example', 'block')")
	mirrortest.WantChanges(t, s, p.mark(), "new.example block")
}

func TestTriggersOfDDL(t *testing.T) {
	name, o := database(t, "", Options{})
	s := open(t, o)
	shared.Exec(t, name, testkit.Value(s.DDL())(t)) // twice does no harm
	for _, step := range []struct {
		sql  string
		want []string
	}{
		{"insert into senders (entry, action) values ('a.example', 'block'), ('b.example', 'allow'), ('b.example', 'block')", []string{"a.example block", "b.example allow block"}},
		{"update senders set entry = 'c.example' where entry = 'a.example'", []string{"a.example", "c.example block"}},
		{"delete from senders where action = 'allow'", []string{"b.example block"}},
		{"begin; insert into senders (entry) values ('d.example'); rollback", nil},
		{"insert into senders (entry) values (''), (null)", nil},
	} {
		_, mark := mirrortest.Rows(t, s)
		shared.Exec(t, name, step.sql)
		mirrortest.WantChanges(t, s, mark, step.want...)
	}
	_, mark := mirrortest.Rows(t, s)
	shared.Exec(t, name, "truncate senders")
	mirrortest.WantLost(t, "after TRUNCATE", s, mark, "blockd_log says that anything may have changed")
	mirrortest.WantChanges(t, s, mirrortest.WantRows(t, s))
}

// TestFollowsOwners: entries with owners are followed by the log as by a watermark, and found whatever type they have.
func TestFollowsOwners(t *testing.T) {
	for _, kind := range []string{"varchar(200)", "citext"} {
		for _, o := range []Options{
			{Changes: query.Log, Query: writers.OwnedQuery, PerRecipient: true},
			{Changes: query.Watermark, Watermark: "changed", Query: writers.OwnedWatermark, PerRecipient: true},
		} {
			t.Run(kind+" "+o.Changes, func(t *testing.T) {
				name, o := database(t, "", o, "create extension if not exists citext; "+strings.ReplaceAll(writers.OwnedTable, "varchar(200)", kind)+";")
				writers.FollowOwned(t, open(t, o), o.Watermark != "", func(sql string) { shared.Exec(t, name, sql) })
			})
		}
	}
}

// TestTriggersOlderThanOwners: of what they have noted nobody knows whose it is.
func TestTriggersOlderThanOwners(t *testing.T) {
	name, o := database(t, "", Options{Query: writers.OwnedQuery, PerRecipient: true}, writers.OwnedTable+";")
	s := open(t, o)
	_, mark := mirrortest.Rows(t, s)
	shared.Exec(t, name, "insert into blockd_log (list, entry, gone) values ('abuse', 'bulk.example', false)")
	mirrortest.WantLost(t, "everything is read", s, mark, "blockd_log says that anything may have changed")
}

func TestLogThatWasCleaned(t *testing.T) {
	name, o := database(t, "", Options{})
	s := open(t, o)
	follows := func(what string, since mirror.Mark) {
		t.Helper()
		if _, err := s.Changes(t.Context(), since, mirrortest.Ignore); err != nil {
			t.Errorf("%s: %v", what, err)
		}
	}
	const lost = "as it was read: it was cleaned, reset, restored from a backup, or has lost its end in a failover"
	_, mark := mirrortest.Rows(t, s)
	_, clean, _ := strings.Cut(testkit.Value(s.DDL())(t), "reads everything again.\n")
	clean, _, _ = strings.Cut(strings.ReplaceAll(clean, "--   ", ""), "\n\n")
	clean = strings.ReplaceAll(strings.ReplaceAll(clean, "--     ", ""), "interval '7 days'", "interval '0'")
	shared.Exec(t, name, clean)
	follows("cleaned with nothing new", mark)
	shared.Exec(t, name, "insert into senders (entry) values ('a.example'); insert into senders (entry) values ('b.example')")
	follows("with two new rows", mark)
	shared.Exec(t, name, clean)
	mirrortest.WantLost(t, "of which one was cleaned", s, mark, lost)
	_, mark = mirrortest.Rows(t, s)
	shared.Exec(t, name, "delete from blockd_log")
	mirrortest.WantLost(t, "emptied by hand", s, mark, lost)
	_, mark = mirrortest.Rows(t, s)
	follows("empty as before", mark)
	shared.Exec(t, name, "insert into senders (entry) values ('c.example')")
	mirrortest.WantTooOld(t, "the first row of an empty log", s, mark)
	_, mark = mirrortest.Rows(t, s)
	shared.Exec(t, name, "update blockd_log set at = at - interval '1 second'")
	mirrortest.WantLost(t, "the number of another change", s, mark, lost)
	_, mark = mirrortest.Rows(t, s)
	shared.Exec(t, name, "truncate blockd_log restart identity; insert into senders (entry) values ('d.example')")
	mirrortest.WantLost(t, "the log's numbers have gone back", s, mark, lost)
	for _, other := range []mirror.Mark{"", "none", "watermark 0 7", "log 1:1: x 0", "log 1:1:"} {
		mirrortest.WantLost(t, "the mark "+string(other), s, other, "the mark is of another source")
	}
}

// TestFingerprint: another database, query or columns are another source; a restart is none.
func TestFingerprint(t *testing.T) {
	name, o := database(t, "", Options{})
	print := func(o Options) string {
		t.Helper()
		return testkit.Value(open(t, o).Fingerprint(t.Context()))(t)
	}
	first := print(o)
	other := o
	other.Query += " where true"
	if print(other) == first {
		t.Error("another query is the same source")
	}
	shared.Exec(t, name, "alter table senders alter column action type varchar")
	if print(o) == first {
		t.Error("another type is the same source")
	}
	second, o := database(t, "", Options{})
	if print(o) == first || second == name {
		t.Error("another database is the same source")
	}
}

// BenchmarkRead reads a table of so many rows into a copy, and takes changes in. BLOCKD_TEST_ROWS gives their number.
func BenchmarkRead(b *testing.B) {
	n := mirrortest.BenchRows(100_000)
	server, err := postgresserver.Open()
	if err != nil {
		b.Skip(err)
	}
	defer server.Close()
	server.Exec(b, "postgres", fmt.Sprintf(`create table senders as
		select i as id, 'user.' || substr(md5(i::text), 1, 10) || '@mail' || i %% 100000 || '.bulk.example' as entry from generate_series(1, %d) as i;
		create index on senders (entry)`, n))
	s := open(b, Options{DSN: server.URL("postgres", "postgres"), List: "bench", Query: "select entry, id from senders", Changes: query.Log})
	server.Exec(b, "postgres", testkit.Value(s.DDL())(b))
	mirrortest.Benchmark(b, s, n, func(i int) {
		server.Exec(b, "postgres", fmt.Sprintf("insert into senders values (0, 'new%d@bulk.example')", i))
	})
}

// TestWatermark: changed rows are found by a column, and rows of the overlap are told once.
func TestWatermark(t *testing.T) {
	for _, tt := range []struct{ name, column, now string }{
		{"timestamp with a zone", "timestamptz", "now()"},
		{"timestamp without one", "timestamp", "localtimestamp"},
		{"Unix seconds", "bigint", "extract(epoch from now())::bigint"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			name, o := database(t, "", Options{Changes: query.None})
			shared.Exec(t, name, "alter table senders add deleted boolean, add changed "+tt.column+" default "+tt.now)
			o.Query, o.Changes, o.Watermark, o.Overlap = "select entry, action, changed, deleted from senders", query.Watermark, "changed", time.Minute
			s := open(t, o)
			shared.Exec(t, name, testkit.Value(open(t, o).DDL())(t))
			mark := mirrortest.WantRows(t, s)
			days := map[bool]string{true: "864000", false: "interval '10 days'"}[tt.column == "bigint"]
			for _, step := range []struct {
				sql  string
				want []string
			}{
				{"insert into senders (entry, action) values ('a.example', 'block'), ('a.example', 'allow')", []string{"a.example block allow"}},
				{"insert into senders (entry, action, changed) values ('late.example', 'block', (select max(changed) from senders) - " + map[bool]string{true: "30", false: "interval '30 seconds'"}[tt.column == "bigint"] + ")", []string{"late.example block"}},
				{"select", nil},
				{"update senders set deleted = true, changed = " + tt.now + " where action = 'allow'", []string{"a.example block"}},
				{"update senders set deleted = true, changed = " + tt.now + " where entry like 'a%'", []string{"a.example"}},
				{"insert into senders (entry, changed) values ('never.example', null)", []string{"never.example "}},
				{"update senders set action = 'block' where entry = 'never.example'", []string{"never.example block"}},
				{"insert into senders (entry, action, changed) values ('future.example', 'block', (select max(changed) from senders) + " + days + ")", []string{"future.example block"}},
				{"insert into senders (entry, action) values ('after.example', 'block')", []string{"after.example block"}},
				{"update senders set action = 'allow' where entry = 'after.example'", []string{"after.example allow"}},
				{"update senders set deleted = true where entry in ('future.example', 'after.example')", []string{"after.example", "future.example"}},
				{"delete from senders where entry = 'late.example'", nil}, // only a full read tells
			} {
				shared.Exec(t, name, step.sql)
				mark = mirrortest.WantChanges(t, s, mark, step.want...)
			}
			if found, _ := mirrortest.Rows(t, s); len(found) != 1 || found[0].Entry != "never.example" {
				t.Errorf("a full read: %+v", found)
			}
			if got, again := mirrortest.Changes(t, open(t, o), mark); len(got) == 0 || again == mark {
				t.Errorf("another process knows of no poll before: %q", got)
			}
		})
	}
}

func TestWatermarkThatIsNone(t *testing.T) {
	_, o := database(t, "", Options{Changes: query.None})
	o.Changes, o.Watermark = query.Watermark, "action"
	mirrortest.WantFaultOf(t, open(t, o), mirror.ClassSchema, "") // a text
	o.Watermark = "updated_at"
	mirrortest.WantFaultOf(t, open(t, o), mirror.ClassSchema, "select it too")
	o.Changes, o.Watermark = query.None, ""
	s := open(t, o)
	_, mark := mirrortest.Rows(t, s)
	mirrortest.WantTooOld(t, "without any way to find changes", s, mark)
}

// TestWatermarkForms: in every form a time has the overlap in its own unit.
func TestWatermarkForms(t *testing.T) {
	for _, tt := range []struct{ column, first, second, now, future string }{
		{"int", "1700000000", "1700000100", "extract(epoch from now())::int", "extract(epoch from now())::int + 864000"},
		{"bigint", "1700000000000", "1700000100000", "(extract(epoch from now()) * 1000)::bigint", "(extract(epoch from now()) * 1000)::bigint + 864000000"},
		{"timestamptz", "'2026-01-01 00:00:00Z'", "'2026-01-01 00:01:40Z'", "now()", "now() + interval '10 days'"},
	} {
		t.Run(tt.column, func(t *testing.T) {
			name, o := database(t, "", Options{Changes: query.None})
			shared.Exec(t, name, "drop table senders; create table senders (id int primary key, address text, gone int not null default 0, touched "+tt.column+"); grant select on senders to reader")
			o.Query, o.Changes, o.Watermark, o.Overlap = mirrortest.WatermarkQuery, query.Watermark, "touched", time.Minute
			do := func(sql string) { shared.Exec(t, name, sql) }
			mirrortest.Watermark(t, open(t, o), do, tt.first, tt.second, tt.now, tt.future)
			if tt.column == "int" {
				do("delete from senders")
				mirrortest.Wide(t, open(t, o), do)
			}
		})
	}
}

// TestRowFromTheFuture does not hide rows that are changed before that time.
func TestRowFromTheFuture(t *testing.T) {
	name, o := database(t, "", Options{Changes: query.None})
	shared.Exec(t, name, "alter table senders add changed timestamptz default now(); insert into senders (entry, changed) values ('future.example', '2999-01-01')")
	o.Query, o.Changes, o.Watermark, o.Overlap = "select entry, changed from senders", query.Watermark, "changed", time.Minute
	s := open(t, o)
	_, mark := mirrortest.Rows(t, s)
	_, mark = mirrortest.Changes(t, s, mark)
	shared.Exec(t, name, "insert into senders (entry) values ('now.example')")
	mirrortest.WantChanges(t, s, mark, "now.example ")
}

func TestPlan(t *testing.T) {
	name, o := database(t, "", Options{Notify: "channel"})
	shared.Exec(t, name, "insert into senders (entry) select i || '.example' from generate_series(1, 20000) as i; analyze senders")
	s := open(t, o)
	for _, tt := range []struct {
		sql  string
		want []string
	}{
		{"select", []string{"server: PostgreSQL 1", "as reader, no TLS", "COPY in one snapshot; about 20000 rows", "the log, of which 20001 rows", "by an index", "hints: NOTIFY on the channel channel"}},
		{"drop index senders_entry_idx; delete from blockd_log", []string{"reading the whole table", "the log has no row of the list"}},
	} {
		shared.Exec(t, name, tt.sql)
		text, err := s.Plan(t.Context())
		for _, want := range tt.want {
			if err != nil || !strings.Contains(text, want) {
				t.Errorf("%s: %v, no %q in\n%s", tt.sql, err, want, text)
			}
		}
	}
}

// TestTriggersFailNoStatement: whatever the query, and whatever becomes of table and log, what the application writes
// is written, and blockd hears of it.
func TestTriggersFailNoStatement(t *testing.T) {
	const made = "drop schema if exists app cascade; create schema app; create table app.t (id serial primary key, address text, \"From\" text, ends timestamptz, list text[]);"
	name, o := database(t, "", Options{Changes: query.None}, made)
	o.Changes = query.Log
	conn := testkit.Value(pgconn.Connect(t.Context(), shared.URL("postgres", name)))(t)
	defer conn.Close(t.Context())
	logged := func() (entries string) {
		_, err := rows(t.Context(), conn, "select coalesce(string_agg(entry, ',' order by rev), '') from blockd_log where list = 'abuse'", nil, 1, func(v []string) error {
			entries = v[0]
			return nil
		})
		testkit.Must(t, err)
		return entries
	}
	write := func(what, want string, sql ...string) {
		t.Helper()
		for _, statement := range sql {
			if err := execute(t.Context(), conn, statement); err != nil {
				t.Errorf("%s: %s fails: %v", what, statement, err)
			}
		}
		if got := logged(); got != want {
			t.Errorf("%s: the log has %q, want %q", what, got, want)
		}
	}
	for q, fine := range map[string]bool{
		"select id, lower(address) entry from app.t":                                   true,
		"select address entry from app.t":                                              true,
		"select app.t.address as entry from app.t":                                     true,
		"select lower(app.t.address) as \"entry\" from app.t where id > 0":             true,
		"select x.address entry from app.t x":                                          true,
		"select \"From\" as reason, address as entry from app.t":                       true,
		"select distinct cast(address as varchar(100)) as entry from app.t":            true,
		"select case when address is null then null else address end entry from app.t": true,
		"select trim(both ' ' from address) as entry from app.t order by id":           true,
		"select (address) as entry, unnest(list) as reason from app.t":                 true,
		"select nowhere as entry from app.t":                                           false, // the database refuses all of the DDL
		"select address as entry from app.nowhere":                                     false,
		"select entry from app.t":                                                      false,
		"select * from app.t":                                                          false,
		"select div entry from app.t":                                                  false,
		"select address as entry from app.t join app.t u using (id)":                   false,
	} {
		testkit.Must(t, execute(t.Context(), conn, "drop table if exists blockd_log; "+made))
		o.Query = q
		ddl, err := open(t, o).DDL()
		if err == nil {
			if err = execute(t.Context(), conn, ddl); err != nil {
				testkit.Must(t, execute(t.Context(), conn, "rollback"))
			}
		}
		if (err == nil) != fine {
			t.Errorf("%s: %v", q, err)
		}
		if !fine {
			testkit.Must(t, execute(t.Context(), conn, "create table if not exists blockd_log (rev int, list text, entry text)"))
			write(q, "", "insert into app.t (address) values ('a.example')", "update app.t set address = 'b.example'", "truncate app.t")
			continue
		}
		write(q, ",a.example,a.example,b.example,b.example,", "insert into app.t (address) values ('a.example'), (null), ('')", "update app.t set address = 'b.example' where address = 'a.example'", "delete from app.t where address = 'b.example'", "truncate app.t")
	}
	o.Query = "select lower(address) entry from app.t"
	ddl := testkit.Value(open(t, o).DDL())(t)
	testkit.Must(t, execute(t.Context(), conn, "drop table if exists blockd_log; "+made+ddl))
	write("a column has another name", ",", "alter table app.t rename column address to sender", "insert into app.t (sender) values ('a.example')")
	write("and its own again", ",,a.example,a.example,a.example", "alter table app.t rename column sender to address", "alter table app.t drop column ends", "update app.t set address = 'a.example', list = '{}'",
		"insert into app.t (address) values ('A.example')")
	write("the log refuses", ",,a.example,a.example,a.example", "alter table blockd_log add constraint none check (rev < 0) not valid", "insert into app.t (address) values ('b.example')")
	for what, sql := range map[string]string{
		"the log is another one": "drop table blockd_log; create table blockd_log (rev int)",
		"the log has gone":       "drop table blockd_log",
	} {
		for _, statement := range []string{sql, "insert into app.t (address) values ('c.example')", "begin; update app.t set address = 'd.example'; commit", "truncate app.t"} {
			if err := execute(t.Context(), conn, statement); err != nil {
				t.Errorf("%s: %s fails: %v", what, statement, err)
			}
		}
		testkit.Must(t, execute(t.Context(), conn, "drop table if exists blockd_log; "+ddl))
	}
	// What it prints for its removal removes it.
	_, removal, _ := strings.Cut(ddl, "To remove all this again:\n")
	removal, _, _ = strings.Cut(removal, "-- and with the last list")
	testkit.Must(t, execute(t.Context(), conn, strings.ReplaceAll(removal, "--   ", "")))
	write("after the removal", "", "insert into app.t (address) values ('e.example')")
}

package mysql

import (
	"errors"
	"fmt"
	"os/exec"
	"slices"
	"strings"
	"testing"

	"blockd/internal/testkit"
	"blockd/internal/testkit/mariadbserver"
	"blockd/sources/mirror"
)

var _ mirror.Source = (*Source)(nil)

const table = "create table senders (id int primary key, address varchar(200), action varchar(10), expires datetime, why mediumtext) engine = InnoDB default charset utf8mb4;"

const rows = "select id, address as entry, action, expires, why as reason from senders"

// TestServer runs the tests of one server, which each have a database of their own.
func TestServer(t *testing.T) {
	server := mariadbserver.Start(t)
	for _, tt := range []struct {
		name string
		test func(*testing.T, *database)
	}{
		{"rows and log", testRowsAndLog},
		{"order of commits", testOrderOfCommits},
		{"classes", testClasses},
		{"words", testWords},
		{"other table", testOtherTable},
		{"large rows", testLargeRows},
		{"watermark", testWatermark},
		{"killed", testKilled},
		{"hung", testHung},
		{"TLS", testTLS},
		{"rubbish", testRubbish},
		{"idle poll", testIdlePoll},
		{"follows", testFollows},
		{"follows owners", testFollowsOwners},
	} {
		t.Run(tt.name, func(t *testing.T) { tt.test(t, newDatabase(t, server)) })
	}
}

// database is a database that a test writes to.
type database struct {
	*mariadbserver.Server
	name string
}

const password = "p/w#9?@secret"

func newDatabase(t *testing.T, s *mariadbserver.Server) *database {
	d := &database{s, strings.Map(func(r rune) rune {
		if r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' {
			return r
		}
		return '_'
	}, t.Name())}
	text := strings.NewReplacer("NAME", d.name, "PASSWORD", password).Replace("create database NAME; create user if not exists reader identified by 'PASSWORD'; grant select on NAME.* to reader; use NAME; ") + table
	if _, err := s.DB.Exec(text); err != nil {
		t.Fatal(err)
	}
	return d
}

func (d *database) do(t testing.TB, text string, args ...any) {
	t.Helper()
	if _, err := d.DB.Exec("use "+d.name+";"+text, args...); err != nil {
		t.Fatalf("%.200s: %v", text, err)
	}
}

// source opens the database as a list does; with a log it has what the source asks for.
func (d *database) source(t testing.TB, o Options) *Source {
	t.Helper()
	o.DSN, o.List = d.URL("reader", password, d.name), "abuse-desk"
	if o.Query == "" {
		o.Query = rows
	}
	s, err := Open(o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.Close() })
	if o.Changes == "log" {
		client := exec.Command(testkit.Peer(t, "mariadb"), "--no-defaults", "--socket="+d.Socket, "--user=root", d.name)
		client.Stdin = strings.NewReader(s.DDL())
		if out, err := client.CombinedOutput(); err != nil {
			t.Fatalf("%v: %s", err, out)
		}
	}
	return s
}

// all reads everything.
func all(t testing.TB, s *Source) (lines []string, mark mirror.Mark) {
	t.Helper()
	mark, err := s.All(t.Context(), func(r mirror.Row) error {
		lines = append(lines, fmt.Sprintf("%s|%s|%d|%s|%s", r.Entry, r.Action, r.Expires, r.Reason, r.ID))
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return lines, mark
}

// changed reads what has changed.
func changed(t testing.TB, s *Source, since mirror.Mark) (lines []string, mark mirror.Mark) {
	t.Helper()
	mark, err := s.Changes(t.Context(), since, func(c mirror.Change) error {
		line := c.Entry + ":"
		for _, r := range c.Rows {
			line += " " + r.ID
		}
		lines = append(lines, line)
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	slices.Sort(lines)
	return lines, mark
}

func testRowsAndLog(t *testing.T, d *database) {
	bare, err := Open(Options{DSN: d.URL("reader", password, d.name), Query: rows, Changes: "log", List: "abuse-desk"})
	if err != nil {
		t.Fatal(err)
	}
	defer bare.Close()
	if _, err := bare.All(t.Context(), nothing); classOf(err) != mirror.ClassSchema || !strings.HasSuffix(err.Error(), "hint: blockd source ddl abuse-desk prints what a log needs") {
		t.Errorf("without a log: %v", err)
	}
	d.do(t, "insert into senders values (1, 'ann@b.example', 'block', '2030-01-01 00:00:00', 'why'), (2, 'c.example', null, null, null), (3, 'bücher.example', null, '2030-01-01', null)")
	s := d.source(t, Options{Changes: "log"})
	lines, mark := all(t, s)
	if want := []string{"ann@b.example|block|1893456000|why|1", "c.example||0||2", "bücher.example||1893456000||3"}; !slices.Equal(lines, want) {
		t.Fatalf("%q, want %q", lines, want)
	}
	if lines, again := changed(t, s, mark); lines != nil || again != mark {
		t.Errorf("nothing has changed: %q, %s", lines, again)
	}
	d.do(t, "update senders set address = 'Ann2@b.example' where id = 1; delete from senders where id = 2; update senders set why = 'x' where id = 3")
	lines, next := changed(t, s, mark)
	if want := []string{"Ann2@b.example: 1", "ann@b.example:", "bücher.example: 3", "c.example:"}; !slices.Equal(lines, want) {
		t.Errorf("%q, want %q", lines, want)
	}
	if lines, _ := changed(t, s, next); lines != nil {
		t.Errorf("%q", lines)
	}
	d.do(t, "delete from blockd_log where rev <= 2")
	if _, err := s.Changes(t.Context(), mark, nil); !errors.Is(err, mirror.ErrTooOld) {
		t.Errorf("the log was cleaned: %v", err)
	}
	d.do(t, "delete from blockd_log")
	if _, err := s.Changes(t.Context(), next, nil); err != nil {
		t.Errorf("the log was cleaned up to where we are: %v", err)
	}
	if plan, err := s.Plan(t.Context()); err != nil || !strings.Contains(plan, "changes: blockd_log, last number 5") || strings.Contains(plan, "secret") {
		t.Errorf("%v: %s", err, plan)
	}
}

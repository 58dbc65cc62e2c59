package preset

import (
	"database/sql"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"blockd/internal/testkit"
	"blockd/lists"
	"blockd/sources/mirror"
	"blockd/sources/mirror/sqlite"
)

// database is an SQLite file of some statements.
func database(t *testing.T, statements ...string) (path string) {
	t.Helper()
	path = filepath.Join(t.TempDir(), "mail.db")
	db := testkit.Value(sql.Open("sqlite", "file:"+path))(t)
	defer db.Close()
	for _, s := range statements {
		testkit.Value(db.Exec(s))(t)
	}
	return path
}

// ofFile reads a preset from an SQLite file: the lines of its entries, and what is refused as "ID: class".
func ofFile(t *testing.T, p *Preset, path string, owners bool) (all []string) {
	t.Helper()
	s := testkit.Value(sqlite.Open(sqlite.Options{DSN: "sqlite:" + path, Query: p.Query, Changes: "none", List: "senders", PerRecipient: owners}))(t)
	testkit.Value(p.Source(s, nil).All(t.Context(), func(row mirror.Row) error {
		line, no := mirror.Say(row, lists.Settings{PerRecipient: owners})
		if no != nil {
			line = fmt.Sprintf("%s: %s", no.ID, no.Class)
		}
		all = append(all, line)
		return nil
	}))(t)
	slices.Sort(all)
	return all
}

// ofOwners reads a preset for owners.
func ofOwners(t *testing.T, name, path string) []string {
	t.Helper()
	return ofFile(t, testkit.Value(FindForOwners(name, "sqlite"))(t), path, true)
}

func TestTablesOfOwners(t *testing.T) {
	path := database(t,
		"create table users (id integer primary key, email text); create table mailaddr (id integer primary key, email text); create table wblist (rid integer, sid integer, wb text)",
		"insert into users values (1, 'anna@here.example'), (2, '@here.example'), (3, '@.'), (4, '@.other.example')",
		"insert into mailaddr values (1, 'promo@bulk.example'), (2, '@.bulk.example'), (3, '@partner.example'), (4, '@.')",
		"insert into wblist values (1, 1, 'B'), (2, 2, 'B'), (2, 3, 'W'), (3, 2, 'B'), (4, 3, 'N'), (1, 2, '5'), (1, 4, 'B')")
	compare(t, ofOwners(t, "amavis:wblist", path), []string{
		"anna@here.example promo@bulk.example\tb\tx\t\t1/1\t",
		"here.example bulk.example\tb\tt\t\t2/2\t",
		"here.example partner.example\ta\tx\t\t2/3\t",
		"3/2: owner", // for every recipient
		"other.example partner.example\tb\tx\t\t4/3\t",
		"1/4: too-broad",
	})
	path = database(t, "create table userpref (username text, preference text, value text)",
		"insert into userpref values ('anna@here.example', 'blacklist_from', '*@bulk.example'), ('%here.example', 'whitelist_from', 'news@partner.example'), "+
			"('@GLOBAL', 'blacklist_from', 'x@bulk.example'), ('anna@here.example', 'unwhitelist_from', 'y@bulk.example'), ('anna@here.example', 'required_score', '5')")
	compare(t, ofOwners(t, "spamassassin:userpref", path), []string{
		"anna@here.example bulk.example\tb\tx\t\tanna@here.example\t",
		"here.example news@partner.example\ta\tx\t\t%here.example\t",
		"@GLOBAL: owner",
	})
	for _, name := range []string{"postfix:/etc/postfix/access.cf", "mailcow:filterconf:here.example", "mailcow:filterconf", "x:y"} {
		if _, err := FindForOwners(name, "sqlite"); err == nil {
			t.Errorf("%s in SQLite: no error", name)
		}
	}
}

func find(t *testing.T, name, kind string) *Preset {
	t.Helper()
	return testkit.Value(Find(name, kind))(t)
}

func compare(t *testing.T, got, want []string) {
	t.Helper()
	slices.Sort(want)
	testkit.EqualSlices(t, "rows", got, want)
}

// The tables of amavisd-new, README.sql-mysql.
var amavis = []string{
	"create table users (id integer primary key, priority integer not null default 7, policy_id integer not null default 1, email varbinary(255) not null unique, fullname varchar(255))",
	"create table mailaddr (id integer primary key, priority integer not null default 7, email varbinary(255) not null unique)",
	"create table wblist (rid integer not null, sid integer not null, wb varchar(10) not null, primary key (rid, sid))",
	"insert into users (id, email) values (1, '@.'), (2, 'ann@here.example'), (3, '@here.example')",
	"insert into mailaddr (id, email) values (1, 'Promo@bulk.example'), (2, '@bulk.example'), (3, '@.bulk.test'), (4, '@.'), (5, 'user@*'), (6, '192.0.2.0/24'), (7, 'bulk.example'), (8, 'friend@bulk.test'), (9, 'x y@bulk.example')",
}

func TestAmavis(t *testing.T) {
	path := database(t, append(slices.Clip(amavis), `insert into wblist values
		(1, 1, 'B'), (1, 2, 'n'), (1, 3, 'B'), (1, 4, 'B'), (1, 5, 'B'), (1, 6, 'B'), (1, 7, 'B'), (1, 8, 'W'), (1, 9, 'B'),
		(2, 1, 'B'), (2, 2, '-5'), (2, 3, ' '), (3, 1, 'Y')`)...)
	compare(t, ofFile(t, find(t, "amavis:wblist", "sqlite"), path, false), []string{
		"promo@bulk.example\tb\tx\t\t1/1\t", "bulk.example\tb\tx\t\t1/2\t", "bulk.test\tb\tt\t\t1/3\t", "1/4: too-broad",
		"user@\tb\tl\t\t1/5\t", "192.0.2.0/24\tb\tt\t\t1/6\t", "1/7: syntax", "friend@bulk.test\ta\tx\t\t1/8\t", "1/9: syntax",
		"bulk.example\ta\tx\t\t2/2\t", "bulk.test\ta\tt\t\t2/3\t", "promo@bulk.example\ta\tx\t\t3/1\t",
	})
}

func TestSpamAssassin(t *testing.T) {
	path := database(t,
		"create table userpref (username varchar(100) not null, preference varchar(50) not null, value varchar(100) not null, prefid integer primary key)",
		`insert into userpref (username, preference, value) values
		('@GLOBAL', 'blacklist_from', '*@bulk.example  promo@bulk.test'), ('$GLOBAL', 'BLOCKLIST_FROM', '*.spam.example'), ('@GLOBAL', 'blacklist_from', 'new*@bulk.test'),
		('@GLOBAL', 'required_score', '4'), ('@GLOBAL', 'blacklist_from', 'bulk.test'), ('@GLOBAL', 'blacklist_from', '# nothing'),
		('ann', 'blacklist_from', '*@nobody.example'), ('ann', 'whitelist_from', 'Friend@bulk.example'), ('bob', 'unblacklist_from', 'promo@bulk.test'),
		('bob', 'whitelist_auth', '*@bank.example'), ('bob', 'whitelist_from', '*')`)
	compare(t, ofFile(t, find(t, "spamassassin:userpref", "sqlite"), path, false), []string{
		"bulk.example\tb\tx\t\t@GLOBAL\t", "promo@bulk.test\tb\tx\t\t@GLOBAL\t", "spam.example\tb\ts\t\t$GLOBAL\t", "@GLOBAL: unsupported",
		"@GLOBAL: syntax", "@GLOBAL: syntax", "friend@bulk.example\ta\tx\t\tann\t", "promo@bulk.test\ta\tx\t\tbob\t", "bank.example\tp\tx\t\tbob\t", "bob: too-broad",
	})
}

// mailcow has MySQL alone. SQLite reads the same SQL.
func TestMailcow(t *testing.T) {
	path := database(t,
		"create table filterconf (object varchar(255) not null default '', `option` varchar(50) not null default '', value varchar(100) not null default '', prefid integer primary key)",
		"create table domain (domain varchar(255) primary key, active integer not null default 1)",
		"insert into domain values ('one.example', 1), ('two.example', 1), ('gone.example', 0)",
		`insert into filterconf (object, option, value) values
		('one.example', 'blacklist_from', '*@bulk.example'), ('two.example', 'blacklist_from', '*@bulk.example'), ('one.example', 'blacklist_from', '*@bulk.test'),
		('ann@two.example', 'blacklist_from', '*@bulk.test'), ('gone.example', 'blacklist_from', '*@bulk.test'), ('ann@two.example', 'whitelist_from', 'friend@bulk.example'),
		('one.example', 'highspamlevel', '15'), ('one.example', 'blacklist_from', 'bulk.test')`)
	compare(t, ofFile(t, find(t, "mailcow:filterconf", "mysql"), path, false), []string{
		"bulk.example\tb\tx\t\tevery domain, such as one.example\t", "friend@bulk.example\ta\tx\t\tann@two.example\t",
	})
	compare(t, ofFile(t, find(t, "mailcow:filterconf:one.example", "mysql"), path, false), []string{
		"bulk.example\tb\tx\t\tone.example\t", "bulk.test\tb\tx\t\tone.example\t", "one.example: syntax",
	})
}

func TestNames(t *testing.T) {
	for _, tt := range []struct{ name, kind, want string }{
		{"amavis:wlist", "mysql", `there is no ready query "amavis:wlist"`},
		{"amavis:wblist:x", "mysql", "there is no ready query"},
		{"amavis:wblist", "ldap", `"amavis:wblist" reads tables in kind postgres or mysql or sqlite, have "ldap"`},
		{"mailcow:filterconf", "postgres", `"mailcow:filterconf" reads tables in kind mysql, have "postgres"`},
		{"mailcow:filterconf:x' or 1", "mysql", `want "mailcow:filterconf"`},
		{"mailcow:filterconf:", "mysql", `want "mailcow:filterconf"`},
		{"postfix:/etc/x.cf", "redis", `"postfix:/etc/x.cf" reads tables`},
	} {
		testkit.Got(Find(tt.name, tt.kind))(t, fmt.Sprintf("%s of %s", tt.name, tt.kind), testkit.Any, tt.want+"…")
	}
	for query, want := range map[string]bool{"amavis:wblist": true, "spamasassin:userpref": true, "select a from b": false, "select a::text as entry": false, "entry=mail": false, "": false} {
		testkit.Equal(t, fmt.Sprintf("IsName(%q)", query), IsName(query), want)
	}
}

func TestEnumerate(t *testing.T) {
	const where = "want one condition COLUMN = '%s', which every row has to meet"
	const one = "want one column as the result"
	for _, tt := range []struct{ query, want, fault string }{
		{query: "SELECT action FROM senders WHERE address = '%s'", want: "SELECT address as entry, action as action FROM senders WHERE address is not null "},
		{query: "select 'REJECT' from b where address='%s' and active=1;", want: "select address as entry, 'REJECT' as action from b where address is not null and active=1"},
		{query: "SELECT DISTINCT s.action AS result FROM senders s JOIN d ON d.id = s.d WHERE d.on AND (lower(s.address) = '%s') LIMIT 1",
			want: "SELECT DISTINCT lower(s.address) as entry, s.action as action FROM senders s JOIN d ON d.id = s.d WHERE d.on AND ( lower(s.address) is not null )"},
		{query: "select concat('REJECT ', why) x from s where (a = \"%s\" and why not like '5%%') and (b or c)", want: "select a as entry, concat('REJECT ', why) as action from s where ( a is not null and why not like '5%') and (b or c)"},
		{query: "select case when a then 'OK' else 'REJECT' end from s where k = '%s' order by a", want: "select k as entry, case when a then 'OK' else 'REJECT' end as action from s where k is not null "},
		{query: "select a from s where k = '%s' or k = '*'", fault: where},
		{query: "select a from s where (k = '%s' and x) or y", fault: where},
		{query: "select a from s where y or (k = '%s' and x)", fault: where},
		{query: "select a from s where not (k = '%s')", fault: where},
		{query: "select a from s where not k = '%s'", fault: where},
		{query: "select a from s where coalesce((k = '%s'), x)", fault: where},
		{query: "select a from s where x in (k = '%s')", fault: where},
		{query: "select a from s where k = '%s' || x", fault: where},
		{query: "select a from s where k = '%s' is null", fault: where},
		{query: "select a from s where '%s' like k", fault: where},
		{query: "select a from s where '%s' = k", fault: where},
		{query: "select a from s where k like '%s'", fault: where},
		{query: "select a from s where x = k = '%s'", fault: where},
		{query: "select a from s where x between 1 and k = '%s'", fault: where},
		{query: "select a from s where k in (select x from y where z = '%s')", fault: where},
		{query: "select a from s where k = '%s' and d = '%d'", fault: "it asks for a part of the address"},
		{query: "select a from s where k = '@%s'", fault: "it asks for a part of the address"},
		{query: "select a from s where k = %s", fault: "it asks for a part of the address"},
		{query: "select '%s' from s where k = '%s'", fault: "it has '%s' twice"},
		{query: "select a, b from s where k = '%s'", fault: one},
		{query: "select * from s where k = '%s'", fault: one},
		{query: "select s.* from s where k = '%s'", fault: one},
		{query: "select from s where k = '%s'", fault: one},
		{query: "select a from s", fault: "it has no condition"},
		{query: "select lookup('%s')", fault: "it asks a function"},
		{query: "call lookup('%s')", fault: "want a select"},
		{query: "select", fault: "want a select"},
		{query: "", fault: "want a select"},
		{query: "select a from s where k = '%s' order by b limit 1", fault: "it takes one of several rows"},
		{query: "select a from s where k = '%s' group by a", fault: "it has GROUP"},
		{query: "select a from s where k = '%s' union select 1", fault: "it has UNION"},
		{query: "select a from s where k = '%s' -- x", fault: "it has a comment"},
		{query: "select a from s where k = '%s'; delete from s", fault: "it is more than one statement"},
		{query: "select a from s where k = '%s", fault: "a quote without its end"},
		{query: "select a from s where (k = '%s'", fault: "a ( without its )"},
		{query: "select a from s where k = '%s')", fault: "a ) without its ("},
	} {
		got, err := enumerate(tt.query, false)
		if tt.fault != "" {
			testkit.Begins(t, tt.query, fmt.Sprint(err), tt.fault)
		} else if got != tt.want || err != nil {
			t.Errorf("%s\nhave %q, %v\nwant %q", tt.query, got, err, tt.want)
		}
	}
}

func FuzzEnumerate(f *testing.F) {
	f.Add("select a from s where k = '%s' and (b or c)", true)
	f.Add("SELECT concat('a', b) x FROM s WHERE lower(k) = \"%s\" LIMIT 1", false)
	f.Fuzz(func(t *testing.T, query string, escapes bool) {
		if got, err := enumerate(query, escapes); err == nil && !strings.Contains(got, " is not null") {
			t.Errorf("%q becomes %q", query, got)
		}
	})
}

func TestPostfixFiles(t *testing.T) {
	const password = "s3cr#t:p@ss/w%d"
	tests := []struct{ name, kind, text, dsn, query, fault string }{
		{name: "mysql", kind: "mysql", text: "hosts = inet:db.example:3307, other.example\nuser = blockd\ndbname = mail\nquery = select a from s\n  where k = '%s'\n# a comment\n",
			dsn: "mysql://blockd:s3cr%23t%3Ap%40ss%2Fw%25d@db.example:3307/mail", query: "select k as entry, a as action from s where k is not null "},
		{name: "socket", kind: "mysql", text: "hosts = db.example unix:/run/m.sock\nuser = blockd\ndbname = mail\nquery = select a from s where k = '%s'\n",
			dsn: "mysql://blockd:s3cr%23t%3Ap%40ss%2Fw%25d@/mail?socket=%2Frun%2Fm.sock", query: "select k as entry, a as action from s where k is not null "},
		{name: "localhost", kind: "mysql", text: "hosts = localhost\nuser = blockd\ndbname = mail\ntable = s\nselect_field = a\nwhere_field = k\nadditional_conditions = and b\n",
			dsn: "mysql://blockd:s3cr%23t%3Ap%40ss%2Fw%25d@/mail?socket=%2Frun%2Fmysqld%2Fmysqld.sock", query: "select k as entry, a as action from s where k is not null and b"},
		{name: "postgres", kind: "postgres", text: "hosts = inet:db.example:5433 other.example\nuser = blockd\ndbname = mail\nquery = select a from s where k = '%s'\n",
			dsn: "postgres://blockd:s3cr%23t%3Ap%40ss%2Fw%25d@/mail?host=db.example%2Cother.example&port=5433%2C5432", query: "select k as entry, a as action from s where k is not null "},
		{name: "postgres by a URL", kind: "postgres", text: "hosts = postgresql://ann@db.example/mail?sslmode=require\nquery = select a from s where k = '%s'\n",
			dsn: "postgresql://ann@db.example/mail?sslmode=require", query: "select k as entry, a as action from s where k is not null "},
		{name: "sqlite", kind: "sqlite", text: "dbpath = /var/mail.db\nquery = select a from s where k = '%s'\n",
			dsn: "sqlite:/var/mail.db", query: "select k as entry, a as action from s where k is not null "},
		{name: "ldap", kind: "ldap", text: "server_host = ldap.example\nserver_port = 1389\nsearch_base = ou=x, dc=example\nquery_filter = (&(mail=%s)(active=TRUE))\nresult_attribute = action\nbind_dn = cn=blockd\nbind_pw = " + password + "\nstart_tls = yes\n",
			dsn: "ldap://cn=blockd:s3cr%23t%3Ap%40ss%2Fw%25d@ldap.example:1389/ou=x%2C%20dc=example??sub?%28&%28mail=%2A%29%28active=TRUE%29%29?starttls", query: "entry=mail, action=action"},
		{name: "a filter of its own", kind: "ldap", text: "server_host = ldapi://%2Frun%2Fldapi\nsearch_base = dc=example\nquery_filter = mail=%s\nresult_attribute = a\nscope = one\nbind = no\n",
			dsn: "ldapi://%2Frun%2Fldapi/dc=example??one?%28mail=%2A%29", query: "entry=mail, action=a"},
		{name: "another kind", kind: "mysql", text: "dbpath = /var/mail.db\nquery = select a from s where k = '%s'\n", fault: `dbpath: it is the file of an SQLite table; want kind = "sqlite"`},
		{name: "no place", kind: "sqlite", text: "dbpath = mail.db\nquery = select a from s where k = '%s'\n", fault: "dbpath: want a path from the root"},
		{name: "no database", kind: "mysql", text: "query = select a from s where k = '%s'\n", fault: "dbname: missing"},
		{name: "no query", kind: "mysql", text: "dbname = x\n", fault: "query: missing"},
		{name: "a part", kind: "mysql", text: "dbname = x\nquery = select a from s where k = '%u'\n", fault: "query: it asks for a part of the address"},
		{name: "domain", kind: "mysql", text: "dbname = x\ndomain = here.example\nquery = select a from s where k = '%s'\n", fault: "domain makes answers depend on the address"},
		{name: "format", kind: "mysql", text: "dbname = x\nresult_format = %s %d\nquery = select a from s where k = '%s'\n", fault: `result_format "%s %d"`},
		{name: "any of two", kind: "ldap", text: "search_base = dc=x\nquery_filter = (|(mail=%s)(alias=%s))\nresult_attribute = a\n", fault: "query_filter: want one (ATTRIBUTE=%s)"},
		{name: "or", kind: "ldap", text: "search_base = dc=x\nquery_filter = (|(mail=%s)(x=y))\nresult_attribute = a\n", fault: "query_filter: want one (ATTRIBUTE=%s)"},
		{name: "base", kind: "ldap", text: "search_base = dc=%d\nquery_filter = (mail=%s)\nresult_attribute = a\n", fault: "search_base: it depends"},
		{name: "two results", kind: "ldap", text: "search_base = dc=x\nquery_filter = (mail=%s)\nresult_attribute = a, b\n", fault: "result_attribute: want one"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			path := testkit.File(t, "senders.cf", "password = "+password+"\n"+tt.text)
			p, err := Find("postfix:"+path, tt.kind)
			if tt.fault != "" {
				if err == nil || !strings.HasPrefix(err.Error(), path+": "+tt.fault) || strings.Contains(err.Error(), "s3cr") {
					t.Errorf("%v, want %s: %s", err, path, tt.fault)
				}
				return
			}
			if err != nil || p.DSN != tt.dsn || p.Query != tt.query {
				t.Errorf("%+v, %v\nwant %s\n%s", p, err, tt.dsn, tt.query)
			}
		})
	}
	testkit.Fails(Find("postfix:/none/such.cf", "mysql"))(t, "no file", os.ErrNotExist)
	testkit.Got(Find("postfix:/dev/zero", "mysql"))(t, "a device", testkit.Any, "…is no file of…")
}

// postmap asks Postfix for the keys of a table, all at once. It gives their values; a key that is not there has none.
func postmap(t *testing.T, kind, path string, keys []string) map[string]string {
	t.Helper()
	program := testkit.Peer(t, "postmap")
	folder := testkit.Value(exec.Command("postconf", "-dh", "shlib_directory").Output())(t)
	library := filepath.Join(strings.TrimSpace(string(folder)), "postfix-"+kind+".so")
	if _, err := os.Stat(library); err != nil {
		testkit.Missing(t, "postfix-"+kind+" is not installed (make peers)")
	}
	config := t.TempDir()
	testkit.Write(t, filepath.Join(config, "main.cf"), "compatibility_level = 3.6\n")
	testkit.Write(t, filepath.Join(config, "dynamicmaps.cf"), fmt.Sprintf("%s %s dict_%s_open\n", kind, library, kind))
	cmd := exec.Command(program, "-c", config, "-q", "-", kind+":"+path)
	cmd.Stdin = strings.NewReader(strings.Join(keys, "\n") + "\n")
	out, err := cmd.CombinedOutput()
	if exit, ok := err.(*exec.ExitError); err != nil && (!ok || exit.ExitCode() != 1 || strings.Contains(string(out), "postmap:")) { // 1: some were not found
		t.Fatalf("%v\n%s", err, out)
	}
	found := map[string]string{}
	for line := range strings.Lines(string(out)) {
		key, value, _ := strings.Cut(strings.TrimSuffix(line, "\n"), "\t")
		found[key] = value
	}
	return found
}

// access is the table of a judge: keys of access(5), and what they lead to.
var access = []string{
	"create table senders (address varchar(255), action varchar(255), active integer)",
	`insert into senders values
	('promo@bulk.example', 'REJECT bulk mail', 1), ('bulk.test', '550 5.7.1 go away', 1), ('offers@', 'DEFER', 1), ('friend@bulk.test', 'OK', 1),
	('192.0.2.7', 'REJECT', 1), ('198.51.100', 'reject', 1), ('drop@bulk.example', 'DISCARD', 1), ('later@bulk.example', '450 later', 1), ('code@bulk.example', '12345', 1),
	('Caps@bulk.example', 'REJECT', 1), ('off@bulk.example', 'REJECT', 0), ('none@bulk.example', null, 1), ('empty@bulk.example', '', 1), ('dunno@bulk.example', 'DUNNO', 1),
	('hold@bulk.example', 'HOLD', 1), ('x y@bulk.example', 'REJECT', 1), ('p%q@bulk.example', 'REJECT', 1), (null, 'REJECT', 1)`,
}

// agree compares what a preset reads with what Postfix says of each key: an entry where Postfix has a value that a list
// can carry, and none anywhere else.
func agree(t *testing.T, path, kind, postfixKind string, open func(p *Preset) (mirror.Source, error)) {
	t.Helper()
	keys := []string{"promo@bulk.example", "bulk.test", "offers@", "friend@bulk.test", "192.0.2.7", "198.51.100", "drop@bulk.example", "later@bulk.example", "code@bulk.example",
		"caps@bulk.example", "off@bulk.example", "none@bulk.example", "empty@bulk.example", "dunno@bulk.example", "hold@bulk.example", "p%q@bulk.example", "other@bulk.example", "example"}
	judged := postmap(t, postfixKind, path, keys)
	p := find(t, "postfix:"+path, kind)
	s, err := open(p)
	testkit.Must(t, err)
	defer s.Close()
	ours := map[string]lists.Action{}
	_, err = p.Source(s, nil).All(t.Context(), func(row mirror.Row) error {
		if it := row.Item; it.Kind != lists.Err {
			ours[strings.TrimSuffix(it.Name(), ".0/24")] = it.Action
		}
		return nil
	})
	testkit.Must(t, err)
	want := map[string]lists.Action{"REJECT bulk mail": lists.Block, "550 5.7.1 go away": lists.Block, "DEFER": lists.Tempfail, "OK": lists.Allow, "REJECT": lists.Block, "reject": lists.Block,
		"DISCARD": lists.Discard, "450 later": lists.Tempfail, "12345": lists.Allow, "DUNNO": lists.Allow}
	for _, key := range keys {
		value, there := judged[key]
		action, has := ours[key]
		if wanted, carried := want[value]; has != (there && carried) || has && action != wanted {
			t.Errorf("%s: Postfix says %q (%v), and the list has it: %v (%v)", key, value, there, has, action)
		}
	}
	testkit.AtLeast(t, fmt.Sprintf("what Postfix found: %q", judged), len(judged), 9)
}

func TestPostfixAgreesOnSQLite(t *testing.T) {
	path := database(t, access...)
	cf := testkit.File(t, "senders.cf", "dbpath = "+path+"\nquery = SELECT action FROM senders WHERE address = '%s' AND active = 1\n")
	agree(t, cf, "sqlite", "sqlite", func(p *Preset) (mirror.Source, error) {
		return sqlite.Open(sqlite.Options{DSN: p.DSN, Query: p.Query, Changes: "none", List: "senders"})
	})
}

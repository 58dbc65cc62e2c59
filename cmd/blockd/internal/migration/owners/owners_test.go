package owners

import (
	"context"
	"encoding/csv"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"blockd/cmd/blockd/internal/migration"
	"blockd/internal/testkit"
	"blockd/lists"
	"blockd/sources/mirror"
	"blockd/sources/mirror/sqlite"
)

// told is a result in lines: the findings, and the lists.
func told(r *migration.Result) string {
	var b strings.Builder
	for _, f := range r.Findings {
		fmt.Fprintf(&b, "%s | %s | %s | %s\n", f.Text, f.Outcome, f.Now, f.List)
	}
	for _, l := range r.Lists {
		fmt.Fprintf(&b, "-- %s %d\n%s", l.File, l.Entries, l.Text)
	}
	return b.String()
}

func check(t *testing.T, got, want string) {
	t.Helper()
	if want = strings.TrimLeft(strings.ReplaceAll(want, "\t", ""), "\n"); got != want {
		t.Errorf("have\n%s\nwant\n%s", got, want)
	}
}

func file(t *testing.T, name, text string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), name)
	testkit.Must(t, os.MkdirAll(filepath.Dir(path), 0o755))
	testkit.Must(t, os.WriteFile(path, []byte(text), 0o600))
	return path
}

// ask is Options.Query for SQLite.
func ask(ctx context.Context, _, dsn, query string, yield func(string, mirror.Row) error) error {
	s, err := sqlite.Open(sqlite.Options{DSN: dsn, Query: strings.Replace(query, " as owner", " as reason", 1), Changes: "none", List: "import"})
	if err != nil {
		return err
	}
	defer s.Close()
	_, err = s.All(ctx, func(row mirror.Row) error { return yield(row.Reason, row) })
	return err
}

const amavisRows = `
INSERT INTO users VALUES (1,7,1,'@.','all'),(2,7,1,'Ann@here.example','Ann; "the first"'),(3,5,1,'@here.example',NULL),(4,5,1,'@.sub.example',NULL);
INSERT INTO mailaddr VALUES (1,7,'Promo@bulk.example'),(2,5,'@bulk.example'),(3,5,'@.bulk.test'),(4,0,'@.'),(5,5,'user@*'),(6,5,'192.0.2.0/24'),(7,5,'it''s@x.example'),(8,5,'192.0.2.7');
INSERT INTO wblist VALUES (1,1,'B'),(1,2,'W'),(2,1,'B'),(2,2,'W'),(2,3,'b'),(2,4,'B'),(2,5,'B'),(2,6,'B'),(2,7,'5.0'),(2,8,' '),(3,3,'W'),(4,1,'B'),(9,9,'B');
`

const amavisWant = `
@.: B Promo@bulk.example | not asked |  | everyone
@.: W @bulk.example | not asked |  | everyone
Ann@here.example: B Promo@bulk.example | not asked |  | users
Ann@here.example: W @bulk.example | not asked |  | users
Ann@here.example: b @.bulk.test | not asked |  | users
Ann@here.example: B @. | not carried over | too-broad: this covers every sender | 
Ann@here.example: B user@* | not asked |  | users
Ann@here.example: B 192.0.2.0/24 | not carried over | an address of clients; an entry of a mailbox is about senders | 
Ann@here.example: 5.0 it's@x.example | not carried over | "5.0" neither refuses nor lets pass: a score is not blockd's | 
Ann@here.example: 192.0.2.7 | not carried over | "" neither refuses nor lets pass: a score is not blockd's | 
@here.example: W @.bulk.test | not asked |  | users
@.sub.example: B Promo@bulk.example | not asked | for mailboxes at sub.example, and not at names below it | users
-- users.csv 6
owner,entry,action,reason
ann@here.example,promo@bulk.example,block,amavisd-new 2/1
ann@here.example,=bulk.example,allow,amavisd-new 2/2
ann@here.example,bulk.test,block,amavisd-new 2/3
ann@here.example,user@,block,amavisd-new 2/5
here.example,bulk.test,allow,amavisd-new 3/3
sub.example,promo@bulk.example,block,amavisd-new 4/1
-- everyone.txt 2
!=bulk.example
promo@bulk.example
`

// A database, and the dumps of three programs, give the same.
func TestAmavis(t *testing.T) {
	create := `
CREATE TABLE users (id integer primary key, priority integer NOT NULL DEFAULT '7', policy_id int(10), email varbinary(255) NOT NULL, fullname varchar(255) DEFAULT NULL, UNIQUE (email));
CREATE TABLE mailaddr (id integer primary key, priority integer not null, email varbinary(255) not null);
CREATE TABLE wblist (rid integer, sid integer, wb varchar(10) not null, primary key (rid, sid));
`
	t.Run("dump", func(t *testing.T) {
		r := testkit.Value(Amavis(t.Context(), file(t, "dump.sql", create+amavisRows), Options{}))(t)
		check(t, told(r), amavisWant)
	})
	t.Run("mysqldump", func(t *testing.T) {
		text := "-- MySQL dump 10.13\n/*!40101 SET NAMES utf8 */;\nDROP TABLE IF EXISTS `users`;\n" + strings.ReplaceAll(create, "TABLE users", "TABLE `users`") + "LOCK TABLES `users` WRITE;\n"
		text += strings.NewReplacer(`it''s`, `it\'s`, "INTO wblist", "INTO `mail`.`wblist` (`rid`,`sid`,`wb`)", "'@bulk.example'", "_binary '@bulk.example'", "'192.0.2.7'", "0x3139322e302e322e37").Replace(amavisRows)
		r := testkit.Value(Amavis(t.Context(), file(t, "dump.sql", text), Options{}))(t)
		check(t, told(r), amavisWant)
	})
	t.Run("pg_dump", func(t *testing.T) {
		var b strings.Builder
		b.WriteString("--\n-- PostgreSQL database dump\n--\n\\restrict x\nSET x = 1;\nSELECT pg_catalog.set_config('search_path', '', false);\nCREATE FUNCTION f() RETURNS trigger AS $$ begin insert into wblist values (1); end $$;\n")
		for _, name := range []string{"users", "mailaddr", "wblist"} {
			columns := map[string]string{"users": "id, priority, policy_id, email, fullname", "mailaddr": "id, priority, email", "wblist": "rid, sid, wb"}[name]
			fmt.Fprintf(&b, "COPY public.%s (%s) FROM stdin;\n", name, columns)
			_, rows, _ := strings.Cut(amavisRows, "INTO "+name+" VALUES (")
			rows, _, _ = strings.Cut(rows, ");\n")
			for row := range strings.SplitSeq(rows, "),(") {
				row = strings.ReplaceAll(row, "''", "’")
				row = strings.ReplaceAll(strings.ReplaceAll(strings.ReplaceAll(row, ",", "\t"), "'", ""), "’", "'")
				if row = strings.ReplaceAll(row, "NULL", `\N`); name == "mailaddr" && strings.HasSuffix(row, "@bulk.example") {
					row = strings.Replace(row, "@bulk.example", `\\x`+fmt.Sprintf("%x", "@bulk.example"), 1)
					row = strings.Replace(row, "Promo", `\\x`+fmt.Sprintf("%x", "Promo"), 1)
					row = strings.Replace(row, `506\\x`, "506", 1)
					row = strings.Replace(row, `6f\\x`, "6f", 1)
				}
				b.WriteString(row + "\n")
			}
			b.WriteString("\\.\n\n")
		}
		r := testkit.Value(Amavis(t.Context(), file(t, "dump.sql", b.String()), Options{}))(t)
		check(t, told(r), amavisWant)
	})
	t.Run("database", func(t *testing.T) {
		path := filepath.Join(t.TempDir(), "mail.db")
		cmd := exec.Command(testkit.Peer(t, "sqlite3"), path)
		cmd.Stdin = strings.NewReader(create + amavisRows)
		testkit.Value(cmd.CombinedOutput())(t)
		for _, from := range []string{path, "sqlite:" + path, file(t, "dsn", "sqlite:"+path+"\n")} {
			r := testkit.Value(Amavis(t.Context(), from, Options{Query: ask}))(t)
			testkit.Equal(t, fmt.Sprintf("%s: have\n%s", from, told(r)), strings.Join(sortedLines(told(r)), "\n"), strings.Join(sortedLines(strings.TrimLeft(amavisWant, "\n")), "\n"))
		}
	})
}

func sortedLines(text string) []string {
	return slices.Sorted(slices.Values(strings.Split(text, "\n")))
}

func TestSpamAssassinSQL(t *testing.T) {
	dump := `CREATE TABLE userpref (username varchar(100), preference varchar(50), value varchar(100), prefid int);
INSERT INTO userpref VALUES ('ann@here.example','blacklist_from','*@bulk.example x@y.example',1),('%here.example','whitelist_from','*@*.good.example',2),
('bob','blacklist_from','*@bulk.example',3),('ann@here.example','whitelist_auth','*@bank.example',4),('ann@here.example','blacklist_from','*spam*',5),
('@GLOBAL','blacklist_from','z@z.example',6),('ann@here.example','unblacklist_from','z@z.example',7),('ann@here.example','required_score','4',8),('ann@here.example','whitelist_from_rcvd','a@b.example c',9);`
	path := file(t, "dump.sql", dump)
	r, err := SpamAssassinSQL(t.Context(), path, Options{})
	testkit.Must(t, err)
	check(t, told(r), `
ann@here.example: blacklist_from *@bulk.example x@y.example | not asked |  | users
ann@here.example: blacklist_from *@bulk.example x@y.example | not asked |  | users
%here.example: whitelist_from *@*.good.example | not asked |  | users
bob: blacklist_from *@bulk.example | not carried over | the user "bob" has no domain; --domain completes such names | 
ann@here.example: whitelist_auth *@bank.example | not asked |  | users-proved
ann@here.example: blacklist_from *spam* | not carried over | unsupported: a pattern that is neither an address nor all of a name | 
@GLOBAL: blacklist_from z@z.example | not asked |  | everyone
ann@here.example: unblacklist_from z@z.example | not asked | an exception, where the row takes back an entry for everyone alone | users
ann@here.example: whitelist_from_rcvd a@b.example c | not carried over | unsupported: an exception for mail that a named server hands over; without that anybody could use the name | 
-- users.csv 4
owner,entry,action,reason
ann@here.example,=bulk.example,block,SpamAssassin ann@here.example
ann@here.example,x@y.example,block,SpamAssassin ann@here.example
here.example,.good.example,allow,SpamAssassin %here.example
ann@here.example,z@z.example,allow,SpamAssassin ann@here.example
-- users-proved.csv 1
owner,entry,action,reason
ann@here.example,=bank.example,allow,SpamAssassin ann@here.example
-- everyone.txt 1
z@z.example
`)
	r, err = SpamAssassinSQL(t.Context(), path, Options{Domain: "there.example"})
	testkit.Got(err, told(r))(t, "with a domain", nil, "…\nbob@there.example,=bulk.example,block,…")
}

func TestMailcow(t *testing.T) {
	r, err := Mailcow(t.Context(), file(t, "dump.sql", "CREATE TABLE `filterconf` (\n  `object` varchar(255) NOT NULL DEFAULT '',\n  `option` varchar(50),\n  `value` varchar(100),\n  `prefid` int(11) NOT NULL AUTO_INCREMENT,\n  PRIMARY KEY (`prefid`),\n  KEY `object` (`object`)\n);\n"+
		"INSERT INTO `filterconf` VALUES ('here.example','blacklist_from','*@bulk.example',1),('ann@here.example','whitelist_from','promo@bulk.example',2),('ann@here.example','lowspamlevel','5',3);"), Options{})
	testkit.Must(t, err)
	check(t, told(r), `
here.example: blacklist_from *@bulk.example | not asked |  | users
ann@here.example: whitelist_from promo@bulk.example | not asked |  | users
-- users.csv 2
owner,entry,action,reason
here.example,=bulk.example,block,mailcow here.example
ann@here.example,promo@bulk.example,allow,mailcow ann@here.example
`)
}

func TestUserPrefs(t *testing.T) {
	root := filepath.Dir(file(t, "x", ""))
	for path, text := range map[string]string{
		"ann/.spamassassin/user_prefs":          "# mine\nblacklist_from *@bulk.example\nscore X 3\nwhitelist_from friend@bulk.example\n",
		"there.example/bob/user_prefs":          "blacklist_from x@y.example\nwhitelist_to me@here.example\n",
		"eve@else.example/user_prefs":           "unblacklist_from x@y.example\n",
		"ann/.spamassassin/user_prefs.template": "blacklist_from not@read.example\n",
	} {
		path = filepath.Join(root, path)
		testkit.Must(t, os.MkdirAll(filepath.Dir(path), 0o755))
		testkit.Must(t, os.WriteFile(path, []byte(text), 0o600))
	}
	r := testkit.Value(UserPrefs(t.Context(), root, Options{Domain: "here.example"}))(t)
	check(t, told(r), `
blacklist_from *@bulk.example | not asked |  | users
whitelist_from friend@bulk.example | not asked |  | users
unblacklist_from x@y.example | not asked | an exception, where the line takes back an entry for everyone alone | users
blacklist_from x@y.example | not asked |  | users
whitelist_to me@here.example | not carried over | it is not about senders | 
-- users.csv 4
owner,entry,action,reason
ann@here.example,=bulk.example,block,user_prefs:2
ann@here.example,friend@bulk.example,allow,user_prefs:4
eve@else.example,x@y.example,allow,user_prefs:1
bob@there.example,x@y.example,block,user_prefs:1
`)
}

func TestSieve(t *testing.T) {
	path := file(t, "ann@here.example.sieve", `require ["fileinto", "reject"];
# enough
if address :is "from" "promo@bulk.example" { discard; stop; }
if address :domain :is "From" ["bulk.example", "bulk.test"] { discard; }
if envelope :is "from" "x@y.example" { reject "no"; stop; }
if address :localpart "from" "offers" { discard; }
if address :contains "from" "spam" { discard; }
if header :contains "subject" "x" { discard; stop; }
if anyof (address :is "from" "a@b.example", size :over 1M) { discard; }
if header :contains "list-id" "golang" { fileinto "go"; stop; }
if address :is "from" "late@bulk.example" { discard; stop; }
`)
	r := testkit.Value(Sieve(t.Context(), filepath.Dir(path), Options{}))(t)
	const narrow = " | not asked |  | users\n"
	got := told(r)
	testkit.Has(t, got,
		`if address :is "from" "promo@bulk.example" { discard; stop; }`+narrow,
		`if address :domain :is "From" ["bulk.example", "bulk.test"] { discard; }`+narrow,
		`if envelope :is "from" "x@y.example" { reject "no"; stop; } | not asked |  | users`+"\n",
		`if address :contains "from" "spam" { discard; } | not carried over | its test is of the kind :contains | `+"\n",
		`{ discard; stop; } | not carried over | its test is not the address of a sender | `+"\n",
		`if address :is "from" "late@bulk.example" { discard; stop; } | not carried over | the rule of line 10 may keep such mail before | `+"\n",
		"-- users.csv 5\nowner,entry,action,reason\nann@here.example,promo@bulk.example,block,\"Sieve, line 3\"\nann@here.example,=bulk.example,block,\"Sieve, line 4\"\nann@here.example,=bulk.test,block,\"Sieve, line 4\"\nann@here.example,x@y.example,block,\"Sieve, line 5\"\nann@here.example,offers@,block,\"Sieve, line 6\"\n")
}

func TestRspamdSettings(t *testing.T) {
	testkit.Peer(t, "rspamadm")
	r, err := RspamdSettings(t.Context(), file(t, "settings.conf", `settings {
  bob { rcpt = "bob@here.example"; from = ["@spam.example", "/x/i"]; apply { actions { reject = 0.0; } } }
  white { rcpt = "@here.example"; from = "a@b.example"; whitelist = yes; }
  black { rcpt = "ann"; ip = "192.0.2.0/24"; symbols = ["MINE"]; apply { MINE = 999; } }
  odd { rcpt = "ann"; from = "a@b.example"; apply { X = 3; } }
  more { user = "x"; from = "a@b.example"; whitelist = yes; }
}
`), Options{Domain: "here.example"})
	testkit.Must(t, err)
	check(t, told(r), `
black: 192.0.2.0/24 | not carried over | an address of clients; an entry of a mailbox is about senders | 
bob: @spam.example | not asked |  | users
bob: /x/i | not carried over | an expression; an entry of a mailbox is no pattern | 
more | not carried over | it has a condition that no entry has: user | 
odd | not carried over | it changes scores or symbols, and neither refuses nor lets pass | 
white: a@b.example | not asked |  | users
-- users.csv 2
owner,entry,action,reason
bob@here.example,=spam.example,block,rspamd bob
here.example,a@b.example,allow,rspamd white
`)
}

// What an import writes, it reads again as the same.
func TestCSVRoundTrip(t *testing.T) {
	r, err := CSV(t.Context(), file(t, "portal.csv", "Mailbox;List;Sender;Note\nAnn@Here.Example;black;Promo@Bulk.example;\"one; \"\"two\"\"\"\n@here.example;white;bulk.test;\nann@here.example;maybe;x@y.example;\nann@here.example;black;not an entry;\nbob;black;x@y.example;\nann@here.example;black;*@*;\n"), Options{})
	testkit.Must(t, err)
	check(t, told(r), `
Ann@Here.Example: black Promo@Bulk.example | not asked |  | users
@here.example: white bulk.test | not asked |  | users
ann@here.example: maybe x@y.example | not carried over | "maybe" is neither block nor allow | 
ann@here.example: black not an entry | not carried over | syntax: more than one word; write one entry a line | 
bob: black x@y.example | not carried over | the user "bob" has no domain; --domain completes such names | 
ann@here.example: black *@* | not carried over | too-broad: this covers every sender | 
-- users.csv 2
owner,entry,action,reason
ann@here.example,promo@bulk.example,block,"one; ""two"""
here.example,bulk.test,allow,
`)
	again, err := CSV(t.Context(), file(t, "users.csv", string(r.Lists[0].Text)), Options{})
	if err != nil || string(again.Lists[0].Text) != string(r.Lists[0].Text) || again.Count(migration.NotAsked) != 2 {
		t.Errorf("read again: %v\n%s", err, told(again))
	}
}

func FuzzDump(f *testing.F) {
	f.Add("CREATE TABLE userpref (username int, preference int, value int);INSERT INTO userpref VALUES ('a','blacklist_from','b@c.example'),(1,2,3);")
	f.Add("COPY userpref (username, preference, value) FROM stdin;\na@b.example\tblacklist_from\t*@x.example\n\\.\n")
	f.Add("-- MySQL dump\nINSERT INTO `userpref` (`value`) VALUES (_binary 'x\\'y',0x00,$$")
	f.Fuzz(func(t *testing.T, text string) {
		rows := 0
		err := readDump("spamassassin-sql", []byte(text), func(line int, owner string, row mirror.Row) error {
			if rows++; line < 1 || line > 1+strings.Count(text, "\n") {
				t.Fatalf("a row in line %d of %q", line, text)
			}
			return nil
		})
		if err != nil && strings.ContainsAny(err.Error(), "\n") {
			t.Fatalf("an error of several lines: %q", err)
		}
	})
}

// What a script's rules come to is an entry that a list has, whatever the script is.
func FuzzSieve(f *testing.F) {
	f.Add(`require "x"; if address :is "from" "a@b.example" { discard; stop; } text: 1K "a" ["b", "c"] not header;`)
	f.Add("if anyof (address \"a\", not size :over 1) { keep; } elsif true { reject text:\nx\n.\n; }")
	f.Add("/* x */ if if if (((")
	f.Fuzz(func(t *testing.T, text string) {
		r := begin("Sieve", "x", Options{})
		testkit.Must(t, r.sieve("a@b.example.sieve", "a@b.example", []byte(text)))
		result := testkit.Value(r.end())(t)
		for _, l := range result.Lists {
			records := testkit.Value(csv.NewReader(strings.NewReader(string(l.Text))).ReadAll())(t)
			testkit.MustEqual(t, "records", len(records), l.Entries+1)
			for _, record := range records[1:] {
				testkit.MustGot(lists.ParseEntry(record[1], lists.Settings{}))(t, fmt.Sprintf("%q is no entry", record[1]), "…", nil)
			}
		}
	})
}

// TestCSVInUTF16 is what spreadsheets write as "Unicode text".
func TestCSVInUTF16(t *testing.T) {
	text := "\xff\xfe"
	for _, c := range "owner,entry\nann@here.example,promo@bulk.example\n" {
		text += string(c) + "\x00"
	}
	r := testkit.Value(CSV(t.Context(), file(t, "portal.csv", text), Options{}))(t)
	testkit.Has(t, told(r), "ann@here.example,promo@bulk.example")
}

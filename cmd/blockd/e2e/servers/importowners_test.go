package servers

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/smtp"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"blockd/cmd/blockd/e2e"
	"blockd/cmd/blockd/internal/migration"
	"blockd/internal/testkit"
)

// What SpamAssassin itself says by a user's user_prefs, blockd says by the import of that file: a sender that gets
// USER_IN_BLOCKLIST is refused for this user,
// one with USER_IN_WELCOMELIST is let in, others are neither. Where the report says that a line is not carried over,
// or narrower, blockd does less.
func TestImportAnswersAsSpamAssassin(t *testing.T) {
	spamassassin := testkit.Peer(t, "spamassassin")
	dir := t.TempDir()
	const prefs = `
required_score 5.0
blocklist_from promo@bulk.example
blocklist_from *@shop.example @short.example
blacklist_from *@*.below.example offers@*
blocklist_from *casino*@x.example
welcomelist_from friend@shop.example
whitelist_from boss@elsewhere.example
`
	home := filepath.Join(dir, "home")
	file := testkit.Write(t, filepath.Join(home, "anna", ".spamassassin", "user_prefs"), prefs)
	site := filepath.Dir(testkit.Write(t, filepath.Join(dir, "site", "local.cf"), `
loadplugin Mail::SpamAssassin::Plugin::Check
loadplugin Mail::SpamAssassin::Plugin::WLBLEval
header USER_IN_BLOCKLIST eval:check_from_in_blocklist()
header USER_IN_WELCOMELIST eval:check_from_in_welcomelist()
clear_headers
fold_headers 0
report_safe 0
add_header all Seen _TESTS(,)_
`))
	senders := map[string]string{
		"promo@bulk.example": "blocked", "other@bulk.example": "clear", "a@shop.example": "blocked", "a@mail.shop.example": "clear", "friend@shop.example": "allowed",
		"b@mail.below.example": "blocked", "b@below.example": "clear", "x@short.example": "clear", "boss@elsewhere.example": "allowed", "clerk@elsewhere.example": "clear",
		"mycasino1@x.example": "less", "offers@there.example": "less", // blocked there: the report says that the patterns are not carried over
	}
	var box strings.Builder
	for s := range senders {
		fmt.Fprintf(&box, "From %[1]s Tue Nov 24 12:00:00 2026\nReturn-Path: <%[1]s>\nFrom: <%[1]s>\nTo: <anna@here.example>\nMessage-ID: <1@there.example>\nDate: Tue, 24 Nov 2026 12:00:00 +0000\nSubject: hello\n\nhello\n\n", s)
	}
	cmd := exec.Command(spamassassin, "-L", "--mbox", "-p", file, "--configpath", site, "--siteconfigpath", site)
	cmd.Stdin, cmd.Env = strings.NewReader(box.String()), append(os.Environ(), "HOME="+dir)
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("spamassassin: %v\n%s", err, out)
	}
	there := map[string]string{}
	for _, m := range regexp.MustCompile(`(?ms)^X-Spam-Seen: (\S*)$.*?^From: <(.*?)>$`).FindAllStringSubmatch(string(out), -1) {
		there[m[2]] = "clear"
		if strings.Contains(m[1], "WELCOMELIST") {
			there[m[2]] = "allowed"
		} else if strings.Contains(m[1], "BLOCKLIST") {
			there[m[2]] = "blocked"
		}
	}

	imported := filepath.Join(dir, "imported")
	d := &e2e.Daemon{Dir: imported}
	if out, err := exec.Command(e2e.Program, "import", "--user-prefs", home, "--domain", "here.example", "-o", imported).CombinedOutput(); err != nil {
		if exit, is := errors.AsType[*exec.ExitError](err); !is || exit.ExitCode() != 1 { // 1: not all is carried over
			t.Fatalf("import: %v\n%s", err, out)
		}
	}
	d.Must(t, "compile")
	for sender, want := range senders {
		less := want == "less"
		if less {
			want = "blocked"
		}
		if there[sender] != want {
			t.Errorf("%s: SpamAssassin says %q, want %q", sender, there[sender], want)
		}
		if less {
			want = "clear"
		}
		if _, got, errs := d.Command(t, "check", "--recipient", "anna@here.example", sender); !strings.HasPrefix(got, sender+"\t"+want+"\t") {
			t.Errorf("%s: %q, want %s: %s", sender, got, want, errs)
		}
		if _, got, _ := d.Command(t, "check", "--recipient", "bob@here.example", sender); !strings.HasPrefix(got, sender+"\tclear\t") {
			t.Errorf("%s to Bob: %q", sender, got)
		}
	}
}

// What an import says that SpamAssassin answers, by the meaning of its globs, SpamAssassin itself answers.
func TestImportAsksAsSpamAssassinAnswers(t *testing.T) {
	spamassassin := testkit.Peer(t, "spamassassin")
	example := filepath.Join(e2e.Root, "testdata/migration/examples/spamassassin/local.cf")
	site := filepath.Dir(testkit.Write(t, filepath.Join(t.TempDir(), "local.cf"), `
loadplugin Mail::SpamAssassin::Plugin::Check
loadplugin Mail::SpamAssassin::Plugin::WLBLEval
header USER_IN_BLOCKLIST eval:check_from_in_blocklist()
header USER_IN_WELCOMELIST eval:check_from_in_welcomelist()
header USER_IN_ALL_SPAM_TO eval:check_to_in_all_spam()
clear_headers
fold_headers 0
report_safe 0
add_header all Seen _TESTS(,)_
`+string(testkit.Read(t, example))))
	r := testkit.Value(migration.SpamAssassin(t.Context(), example, migration.Options{}))(t)
	asked := holdAlike(t, *r, r.There, func(_ context.Context, mails []migration.Mail) ([]migration.Answer, error) {
		var box strings.Builder
		for i, m := range mails {
			fmt.Fprintf(&box, "From %[1]s Tue Nov 24 12:00:00 2026\nReturn-Path: <%[1]s>\nFrom: <%[2]s>\nTo: <%[3]s>\nMessage-ID: <%[4]d@there.example>\nDate: Tue, 24 Nov 2026 12:00:00 +0000\nSubject: hello\n\nhello\n\n",
				m.Sender, m.Author, m.Recipient, i)
		}
		cmd := exec.Command(spamassassin, "-L", "--mbox", "-p", os.DevNull, "--configpath", site, "--siteconfigpath", site)
		cmd.Stdin, cmd.Env = strings.NewReader(box.String()), append(os.Environ(), "HOME="+site)
		out, err := cmd.Output()
		answers := make([]migration.Answer, len(mails))
		for _, m := range regexp.MustCompile(`(?ms)^X-Spam-Seen: (\S*)$.*?^Message-ID: <(\d+)@`).FindAllStringSubmatch(string(out), -1) {
			i, _ := strconv.Atoi(m[2])
			answers[i].Fate = migration.Passes
			if strings.Contains(m[1], "USER_IN_BLOCKLIST") && !strings.Contains(m[1], "USER_IN_WELCOMELIST") && !strings.Contains(m[1], "USER_IN_ALL_SPAM_TO") {
				answers[i].Fate = migration.Refused
			}
		}
		return answers, err
	})
	if asked < 100 {
		t.Errorf("%d mails were asked about", asked)
	}
}

// What rspamd itself does by a file of user settings, blockd does by its import: a message that is rejected for a
// recipient is refused for
// that recipient, one that is let pass unread is allowed.
func TestImportAnswersAsRspamd(t *testing.T) {
	testkit.Peer(t, "rspamadm")
	const settings = `settings {
  bob { priority = 5; rcpt = "bob@here.example"; from = ["@spam.example", "promo@bulk.example"]; apply { actions { reject = 0.0; } } }
  friends { priority = 4; rcpt = "@here.example"; from = "friend@partner.example"; whitelist = yes; }
  news { priority = 3; rcpt = ["anna@here.example", "carl@here.example"]; from = "@news.example"; apply { actions { reject = 0.0; } } }
  scores { priority = 2; rcpt = "anna@here.example"; from = "@maybe.example"; apply { actions { "add header" = 4.0; } } }
}
`
	scanner := e2e.RunRspamd(t, "", `modules { path = "$PLUGINSDIR/settings.lua"; }
`+settings)
	action := func(from, rcpt string) string {
		answer, err := e2e.Scan(scanner, "From: <"+from+">\r\nSubject: x\r\n\r\nx\r\n", map[string]string{"From": from, "Rcpt": rcpt})
		if err != nil {
			return err.Error()
		}
		switch {
		case answer.Skipped:
			return "allowed"
		case answer.Action == "reject":
			return "blocked"
		}
		return "clear"
	}
	testkit.Eventually(t, "rspamd to answer with its settings", func() bool { return action("promo@bulk.example", "bob@here.example") == "blocked" })

	dir := t.TempDir()
	imported := filepath.Join(dir, "imported")
	d := &e2e.Daemon{Dir: imported}
	file := testkit.Write(t, filepath.Join(dir, "settings.conf"), settings)
	cmd := exec.Command(e2e.Program, "import", "--rspamd-settings", file, "-o", imported)
	if out, err := cmd.CombinedOutput(); cmd.ProcessState.ExitCode() > 1 { // 1: not all is carried over
		t.Fatalf("import: %v\n%s", err, out)
	}
	d.Must(t, "compile")
	blocked, allowed := 0, 0
	for _, from := range []string{"promo@bulk.example", "other@bulk.example", "x@spam.example", "x@mail.spam.example", "friend@partner.example", "clerk@partner.example", "x@news.example", "x@maybe.example"} {
		for _, rcpt := range []string{"anna@here.example", "bob@here.example", "carl@here.example", "dora@there.example"} {
			want := action(from, rcpt)
			switch want {
			case "blocked":
				blocked++
			case "allowed":
				allowed++
			}
			if _, got, errs := d.Command(t, "check", "--recipient", rcpt, from); !strings.HasPrefix(got, from+"\t"+want+"\t") {
				t.Errorf("%s to %s: %q, rspamd says %s: %s", from, rcpt, got, want, errs)
			}
		}
	}
	if blocked != 4 || allowed != 3 {
		t.Errorf("rspamd rejects %d and lets pass %d, want 4 and 3", blocked, allowed)
	}
}

// amavisTables are those of amavisd-new's README.sql, with what some recipients refuse and let pass.
const amavisTables = `
create table users (id integer primary key, priority integer default 7, policy_id integer default 1, email varchar(255), fullname text, local char(1));
create table mailaddr (id integer primary key, priority integer default 7, email varchar(255));
create table wblist (rid integer, sid integer, wb varchar(10), primary key (rid, sid));
create table policy (id integer primary key, policy_name text);
insert into policy values (1, 'all');
insert into users (id, priority, email) values (1, 9, 'anna@here.example'), (2, 5, '@here.example'), (3, 9, 'bob@there.example');
insert into mailaddr (id, priority, email) values (1, 9, 'promo@bulk.example'), (2, 4, '@.bulk.example'), (3, 5, '@partner.example'), (4, 9, 'friend@bulk.example');
insert into wblist values (1, 1, 'B'), (2, 2, 'B'), (2, 3, 'W'), (1, 4, 'W'), (3, 3, 'B'), (3, 2, '1.5');
`

// amavis runs a real amavisd on the tables of a file, and returns what it says of a sender for a recipient.
func amavis(t *testing.T, tables string) func(sender, recipient string) string {
	t.Helper()
	program := testkit.Peer(t, "amavisd")
	if os.Geteuid() != 0 {
		testkit.Missing(t, "amavisd takes another user's rights, which needs root")
	}
	dir, err := os.MkdirTemp("", "blockd-amavis-") // its user has to get there, and may not write to its configuration
	testkit.Must(t, err)
	t.Cleanup(func() { os.RemoveAll(dir) })
	testkit.Must(t, os.Chmod(dir, 0o755))
	home := filepath.Join(dir, "home")
	testkit.Must(t, os.MkdirAll(filepath.Join(home, "tmp"), 0o755))
	database := testkit.Write(t, filepath.Join(home, "mail.db"), string(testkit.Read(t, tables)))
	e2e.Ran(t, exec.Command("chown", "-R", "amavis:amavis", home))
	address := e2e.FreeAddress(t)
	_, port, _ := net.SplitHostPort(address)
	config := testkit.Write(t, filepath.Join(dir, "amavisd.conf"), strings.NewReplacer("FOLDER", home, "PORT", port, "DATABASE", database).Replace(`use strict;
$MYHOME = 'FOLDER'; $TEMPBASE = "$MYHOME/tmp"; $helpers_home = $MYHOME; $pid_file = "$MYHOME/pid"; $lock_file = "$MYHOME/lock";
$daemon_user = 'amavis'; $daemon_group = 'amavis'; $max_servers = 1; $max_requests = 0; $enable_db = 0; $enable_zmq = 0;
$do_syslog = 0; $log_level = 5; $LOGFILE = undef;
$myhostname = 'mail.here.example'; $mydomain = 'here.example'; @local_domains_maps = (1);
$inet_socket_bind = '127.0.0.1'; $inet_socket_port = PORT; $unix_socketname = undef;
$forward_method = 'smtp:[127.0.0.1]:1'; $notify_method = $forward_method;
@bypass_virus_checks_maps = (1); @bypass_banned_checks_maps = (1); @bypass_header_checks_maps = (1);
$sa_local_tests_only = 1; $final_spam_destiny = D_PASS;
@lookup_sql_dsn = (['DBI:SQLite:dbname=DATABASE', '', '']);
1;
`))
	log, err := os.Create(filepath.Join(dir, "log")) // a file: what was logged before a reply is there when the reply is
	testkit.Must(t, err)
	cmd := exec.Command(program, "-c", config, "foreground")
	cmd.Stdout, cmd.Stderr = log, log
	t.Cleanup(func() {
		log.Close()
		if said := testkit.Read(t, log.Name()); t.Failed() {
			t.Logf("amavisd, the end: %s", said[max(0, len(said)-2000):])
		}
	})
	e2e.StartServer(t, cmd, address)
	return func(sender, recipient string) string {
		t.Helper()
		before := len(testkit.Read(t, log.Name()))
		// It passes nothing on: there is no next server, so each mail ends with 451.
		err := smtp.SendMail(address, nil, sender, []string{recipient}, []byte("Subject: hello\r\n\r\nhello\r\n"))
		said := string(testkit.Read(t, log.Name())[before:])
		if !strings.Contains(said, "wbl: checking sender <"+sender+">") {
			t.Fatalf("amavisd did not look: %v\n%s", err, said)
		}
		switch {
		case strings.Contains(said, fmt.Sprintf("recip <%s> blacklisted sender <%s>", recipient, sender)):
			return "blocked"
		case strings.Contains(said, fmt.Sprintf("recip <%s> whitelisted sender <%s>", recipient, sender)):
			return "allowed"
		}
		return "clear"
	}
}

// What amavisd itself says of a sender for a recipient, blockd says, by an import of its tables and by a list that
// reads them.
func TestAnswersAsAmavis(t *testing.T) {
	dir := t.TempDir()
	tables := filepath.Join(dir, "mail.db")
	cmd := exec.Command(testkit.Peer(t, "sqlite3"), tables)
	cmd.Stdin = strings.NewReader(amavisTables)
	e2e.Ran(t, cmd)
	imported := &e2e.Daemon{Dir: filepath.Join(dir, "imported")}
	cmd = exec.Command(e2e.Program, "import", "--amavis", tables, "-o", imported.Dir)
	if out, err := cmd.CombinedOutput(); cmd.ProcessState.ExitCode() > 1 { // 1: not all is carried over
		t.Fatalf("import: %v\n%s", err, out)
	}
	imported.Must(t, "compile")
	read := e2e.Serve(t, e2e.Setup{Lists: fmt.Sprintf("[[list]]\nname = \"users\"\nper_recipient = true\n[list.source]\nkind = \"sqlite\"\ndsn = \"sqlite:%s\"\nquery = \"amavis:wblist\"\n", tables)})
	read.Prints(t, "check --recipient anna@here.example promo@bulk.example", "\tblocked\t")
	amavis := amavis(t, tables)
	counts := map[string]int{}
	for _, from := range []string{"promo@bulk.example", "other@bulk.example", "x@mail.bulk.example", "friend@bulk.example", "a@partner.example", "a@mail.partner.example"} {
		for _, to := range []string{"anna@here.example", "carl@here.example", "bob@there.example", "dora@elsewhere.example"} {
			want := amavis(from, to)
			counts[want]++
			for name, d := range map[string]*e2e.Daemon{"import": imported, "list": read} {
				if _, got, errs := d.Command(t, "check", "--recipient", to, from); !strings.HasPrefix(got, from+"\t"+want+"\t") {
					t.Errorf("%s, %s to %s: %q, amavisd says %s: %s", name, from, to, got, want, errs)
				}
			}
		}
	}
	if counts["blocked"] != 8 || counts["allowed"] != 3 {
		t.Errorf("amavisd blocks %d and lets pass %d, want 8 and 3", counts["blocked"], counts["allowed"])
	}
}

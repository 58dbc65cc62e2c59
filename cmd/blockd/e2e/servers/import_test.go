package servers

import (
	"bufio"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"blockd/cmd/blockd/e2e"
	"blockd/cmd/blockd/internal/migration"
	"blockd/cmd/blockd/internal/trial"
	"blockd/internal/testkit"
	"blockd/internal/testkit/accessmodel"
)

type importLine struct {
	File, Text, Outcome, Now, Mail, There, Here string
	Line                                        int
}

// runImport imports a main.cf into a folder, and returns what is said of its entries, and of mails that are answered
// differently.
func runImport(t *testing.T, mainCF, out string) (entries, differences []importLine) {
	t.Helper()
	text, err := exec.Command(e2e.Program, "import", "--from-postfix", mainCF, "-o", out, "--json").Output()
	if exit := (*exec.ExitError)(nil); err != nil && !(errors.As(err, &exit) && exit.ExitCode() == 1) {
		t.Fatalf("import: %v\n%s", err, text)
	}
	for line := range strings.Lines(string(text)) {
		var f importLine
		testkit.Must(t, json.Unmarshal([]byte(line), &f))
		switch {
		case f.Mail != "":
			differences = append(differences, f)
		case f.Outcome != "":
			entries = append(entries, f)
		}
	}
	return entries, differences
}

// serveImport starts the daemon on an imported configuration, with doors of its own.
func serveImport(t *testing.T, dir, policy string) *e2e.Daemon {
	t.Helper()
	d := &e2e.Daemon{Dir: dir, SMTP: e2e.FreeAddress(t), HTTP: e2e.FreeAddress(t), Maildir: filepath.Join(dir, "mail")}
	text := testkit.Read(t, d.Path("config.toml"))
	e2e.Blockd(t, "config", "--check", "-c", d.Path("config.toml"))
	doors := fmt.Sprintf("[smtp]\nlisten = %q\nupstream = \"maildir:mail\"\nproxy_from = [\"127.0.0.1\"]\nhard_errors = 20000\nquarantine = \"aside\"\n", d.SMTP)
	config := strings.NewReplacer("[smtp]\nlisten = \"\"\n", doors, `policy_listen = "127.0.0.1:8893"`, fmt.Sprintf("policy_listen = %q", policy)).Replace(string(text))
	testkit.Write(t, d.Path("config.toml"), config+fmt.Sprintf("\n[http]\nlisten = %q\n[index]\npath = \"blockd.bdx\"\n", d.HTTP))
	d.Start(t)
	return d
}

// asClient opens a session with a filter or a server in the name of a client: by a
// PROXY header, or by XCLIENT.
func asClient(t *testing.T, address, ip, name string, proxy bool) *e2e.Client {
	t.Helper()
	conn := testkit.Value(net.DialTimeout("tcp", address, time.Minute))(t)
	t.Cleanup(func() { conn.Close() })
	c := &e2e.Client{T: t, Conn: conn, R: bufio.NewReader(conn)}
	six := netip.MustParseAddr(ip).Is6()
	if proxy {
		family, self := "TCP4", "127.0.0.1"
		if six {
			family, self = "TCP6", "::1"
		}
		c.Write(fmt.Appendf(nil, "PROXY %s %s %s 40000 25\r\n", family, ip, self))
	}
	want := func(got, code string) {
		if !strings.HasPrefix(got, code) {
			t.Fatalf("as %s at %s: %q, want %s", ip, address, got, code)
		}
	}
	want(c.Reply(), "220")
	want(c.Command("EHLO client.there.example"), "250")
	if !proxy {
		if six {
			ip = "IPV6:" + ip
		}
		want(c.Command("XCLIENT ADDR=%s NAME=%s", ip, cmp.Or(name, "[UNAVAILABLE]")), "220")
		want(c.Command("EHLO client.there.example"), "250")
	}
	return c
}

// xclient asks an SMTP server about mails at RCPT, in the name of their clients.
func xclient(t *testing.T, address string, proxy bool) migration.Answerer {
	return func(_ context.Context, mails []migration.Mail) ([]migration.Answer, error) {
		answers := make([]migration.Answer, len(mails))
		for i, m := range mails {
			c := asClient(t, address, m.Client.String(), m.Name, proxy)
			said := c.Command("MAIL FROM:<%s>", m.Sender)
			if strings.HasPrefix(said, "250") {
				said = c.Command("RCPT TO:<%s>", m.Recipient)
			}
			c.Conn.Close()
			switch said[0] {
			case '2':
				answers[i].Fate = migration.Passes
			case '4':
				answers[i].Fate = migration.Deferred
			default:
				answers[i].Fate = migration.Refused
			}
			if said[0] != '2' {
				answers[i].Words = unfronted(said)
			}
		}
		return answers, nil
	}
}

// atRcpt has an answerer say what a client hears at RCPT: mail that is held, dropped or tagged is accepted there.
func atRcpt(ask migration.Answerer, words bool) migration.Answerer {
	return func(ctx context.Context, mails []migration.Mail) ([]migration.Answer, error) {
		answers, err := ask(ctx, mails)
		for i, a := range answers {
			if a.Fate != migration.Refused && a.Fate != migration.Deferred {
				answers[i] = migration.Answer{Fate: migration.Passes}
			} else if !words || strings.HasPrefix(a.Words, "by ") {
				answers[i].Words = ""
			}
		}
		return answers, err
	}
}

// holdAlike has two programs answer all mails of an import alike.
func holdAlike(t *testing.T, r migration.Result, there, here migration.Answerer) int {
	t.Helper()
	r.There = there
	testkit.Must(t, r.Ask(t.Context(), here, func(int) {}))
	if r.Unasked != "" {
		t.Errorf("nothing was asked: %s", r.Unasked)
	}
	for _, d := range r.Differences {
		t.Errorf("%s (%s: %s): %s\n  but %s", d.Mail, d.Place, d.Entry, d.There, d.Here)
	}
	return r.Asked
}

// TestImportAsksAsPostfixAnswers: what an import says that Postfix answers, by postmap and the order of restrictions,
// a real smtpd
// answers; and what it says that blockd answers, a blockd that runs with the configuration that was written.
func TestImportAsksAsPostfixAnswers(t *testing.T) {
	postmap := testkit.Peer(t, "postmap")
	p := e2e.StartPostfix(t, e2e.FreeAddress(t))
	head := testkit.Read(t, filepath.Join(p.Config, "main.cf"))
	asked := 0
	for seed := range 12 {
		m := accessmodel.Random(rand.New(rand.NewPCG(uint64(seed), 31)))
		marker := fmt.Sprintf("250 2.1.0 round %d", seed)
		more := "smtpd_error_sleep_time = 0\nsmtpd_soft_error_limit = 9999\nsmtpd_hard_error_limit = 10000\nrelay_domains = static:all\n" +
			"smtpd_reject_unlisted_recipient = no\nsmtpd_junk_command_limit = 100000\nsmtpd_banner = $myhostname " + marker + "\n" + []string{"", "soft_bounce = yes\n", "access_map_reject_code = 450\n"}[seed%3]
		// Said twice, it would be warned of by every process of the reload, more often
		// than the socket of postlogd holds messages while it is not yet there.
		once := strings.NewReplacer("mynetworks =\n", "", "inet_protocols = ipv4", "inet_protocols = all").Replace(string(head))
		testkit.Must(t, m.Write(p.Config, once+more))
		p.Age(t) // postmap reads main.cf too
		for _, table := range m.Tables {
			if table.Kind() == "hash" {
				e2e.Ran(t, exec.Command(postmap, "-c", p.Config, "hash:"+filepath.Join(p.Config, table.Name)))
			}
		}
		p.Reload(t)
		testkit.Eventually(t, "Postfix to go by the new tables", func() bool { return strings.Contains(banner(p.SMTP), marker) })
		out, main := t.TempDir(), filepath.Join(p.Config, "main.cf")
		runImport(t, main, out)
		r := testkit.Value(migration.Postfix(t.Context(), main, migration.Options{}))(t)
		t.Cleanup(r.Close)
		asked += holdAlike(t, *r, atRcpt(r.There, true), atRcpt(xclient(t, p.SMTP, false), true))

		here := testkit.Value(trial.Open(t.Context(), filepath.Join(out, "config.toml"), t.TempDir()))(t)
		d := serveImport(t, out, e2e.FreeAddress(t))
		holdAlike(t, *r, atRcpt(here.Mails, false), atRcpt(xclient(t, d.SMTP, true), false))
		here.Close()
		if t.Failed() {
			text, _ := os.ReadFile(filepath.Join(out, "report.txt"))
			t.Fatalf("seed %d\n%s\n%s", seed, m.Restrictions(), text)
		}
		d.Stop(t)
	}
	t.Logf("%d mails asked about", asked)
}

// banner is the greeting of a server, "" where there is none.
func banner(address string) string {
	conn, err := net.DialTimeout("tcp", address, time.Second)
	if err != nil {
		return ""
	}
	defer conn.Close()
	conn.SetDeadline(time.Now().Add(2 * time.Second))
	line, _ := bufio.NewReader(conn).ReadString('\n')
	return line
}

// TestImportDocument types the commands of docs/import.md in a copy of the example.
func TestImportDocument(t *testing.T) {
	testkit.Peer(t, "postconf")
	dir, home := t.TempDir(), t.TempDir()
	testkit.Must(t, os.CopyFS(dir, os.DirFS(filepath.Join(e2e.Root, "testdata/migration/postfix"))))
	env := []string{"HOME=" + home, "PATH=" + filepath.Dir(e2e.Program) + ":" + os.Getenv("PATH")}
	blocks := e2e.Consoles(t, "docs/import.md")
	if len(blocks) != 1 {
		t.Fatalf("docs/import.md has %d console blocks, want the example", len(blocks))
	}
	// Once: what is there already is not written again.
	e2e.Perform(t, "docs/import.md", dir, env, blocks[0])
	out, _ := exec.Command(e2e.Program, "import", "--from-postfix", filepath.Join(dir, "main.cf"), "-o", filepath.Join(home, "blockd")).CombinedOutput()
	if !strings.Contains(string(out), "config.toml is there already; --force replaces it, and keeps it as config.toml.old") {
		t.Errorf("a second import says\n%s", out)
	}
}

// TestImportOfRealLists: the lists of others, named by a configuration of each program,
// are carried over whole.
func TestImportOfRealLists(t *testing.T) {
	tests := []struct{ tool, flag, file, text string }{
		{"postconf", "--from-postfix", "main.cf", "smtpd_sender_restrictions = check_sender_access hash:" + testkit.Shared(t, "lists/converted/sender_access") + "\n"},
		{"rspamadm", "--from-rspamd", "multimap.conf", "A { type = from; action = reject; filter = \"email:domain\"; map = \"" + testkit.Shared(t, "lists/rspamd/redirectors.inc") + "\" }\n" +
			"B { type = ip; action = accept; map = \"" + testkit.Shared(t, "lists/rspamd/test-ip.list") + "\" }\n" +
			"C { type = from; action = reject; regexp = true; map = \"" + testkit.Shared(t, "lists/rspamd/test-regexp.list") + "\" }\n"},
		{"", "--from-spamassassin", "local.cf", "include " + testkit.Shared(t, "lists/converted/blocklist_from.cf") + "\n"},
	}
	for _, tt := range tests {
		t.Run(tt.flag, func(t *testing.T) {
			if tt.tool != "" {
				testkit.Peer(t, tt.tool)
			}
			dir := t.TempDir()
			testkit.Write(t, filepath.Join(dir, tt.file), tt.text)
			out, err := exec.Command(e2e.Program, "import", tt.flag, filepath.Join(dir, tt.file), "-o", filepath.Join(dir, "out")).Output()
			if exit := (*exec.ExitError)(nil); err != nil && !(errors.As(err, &exit) && exit.ExitCode() == 1) {
				t.Fatalf("import: %v", err)
			}
			said := strings.TrimSpace(string(out))
			t.Log(said[strings.LastIndexByte(said, '\n')+1:])
			for _, command := range []string{"config --check", "compile"} {
				cmd := exec.Command(e2e.Program, append(strings.Fields(command), "-c", filepath.Join(dir, "out", "config.toml"))...)
				e2e.Ran(t, cmd)
			}
		})
	}
}

// importReplies are a Postfix with its own tables, another one that asks a blockd with the import of these, and what
// the
// report says of each key.
type importReplies struct {
	there, here *e2e.Postfix
	told        map[string]importLine
	same        int  // replies that were to be the same
	narrower    bool // what is not carried over may be answered otherwise
	fronts      bool // what stands before the texts is the same, too
}

// compareImport starts there, imports what it has, and has a Postfix ask that by lines, in which %s is the policy
// service.
func compareImport(t *testing.T, there *e2e.Postfix, lines string) *importReplies {
	t.Helper()
	there.Start(t)
	r := &importReplies{there: there, here: e2e.ConfigurePostfix(t, e2e.FreeAddress(t)), told: map[string]importLine{}}
	out, policy := t.TempDir(), e2e.FreeAddress(t)
	entries, _ := runImport(t, filepath.Join(there.Config, "main.cf"), out)
	for _, l := range entries {
		key, _, _ := strings.Cut(l.Text, " ")
		r.told[key] = l
	}
	serveImport(t, out, policy)
	r.here.Add(t, "main.cf", fmt.Sprintf(lines, policy))
	r.here.Start(t)
	return r
}

// unfronted is a reply without what Postfix puts between codes and text.
func unfronted(reply string) string {
	if _, text, ok := strings.Cut(reply, " rejected: "); ok {
		return reply[:len("550 5.7.1 ")] + text
	}
	return reply
}

// hold has both reply about what a key matches: alike in the first digit, and to the octet if it is "the same", but
// for what Postfix puts
// in front of a text.
func (r *importReplies) hold(t *testing.T, key string, reply func(address string) string) {
	t.Helper()
	was, is := reply(r.there.SMTP), reply(r.here.SMTP)
	line, known := r.told[key]
	switch {
	case !known:
		t.Errorf("%s: the report has no such line", key)
	case line.Outcome == "the same":
		r.same++
		if !r.fronts {
			is, was = unfronted(is), unfronted(was)
		}
		testkit.Equal(t, line.Text+": said to be the same", is, was)
	default:
		t.Logf("%s: %s, %s\nPostfix %q\nblockd  %q", line.Text, line.Outcome, line.Now, was, is)
	}
	if was[0] != is[0] && !(r.narrower && line.Outcome == "not carried over") {
		t.Errorf("%s: Postfix %q, blockd %q", key, was, is)
	}
}

// TestImportAnswersAsPostfix: a Postfix that asks its own table, and one that asks blockd
// with what `blockd import` made of that table, answer the same RCPT. Where the report says
// "the same", it is the same to the octet.
func TestImportAnswersAsPostfix(t *testing.T) {
	postmap := testkit.Peer(t, "postmap")
	table := `
bare.example        REJECT
text.example        REJECT bulk mail, see https://here.example/no-bulk
status.example      REJECT 5.7.9 no bulk mail
statusonly.example  REJECT 5.7.9
looksso.example     REJECT 550 roses
percent.example     REJECT 100% spam, %sender %% $1
code.example        550 5.7.9 no bulk mail
codeonly.example    551 we do not want it
classes.example     554 4.7.9 which class?
nodetail.example    554 5.7.9
permanent.example   552 5.1.1 no such sender
later.example       450 4.7.2 come back later
laterodd.example    451 5.7.2 come back later
laterplain.example  450 come back later
lateronly.example   450
latercode.example   450 4.7.1
coded.example       450 4.7.1 100% %sender $1 %ref %contact
dollar.example      550 5.7.1 pay $5, ${1} and $(x)
greek.example       554 5.7.1 όχι
toolong.example     550 5.7.1 ` + strings.Repeat("a text of more than one line has ", 17) + `
reject.example      DEFER_IF_REJECT not now
greylist.example    DEFER
defertext.example   DEFER the disk is full
permit.example      DEFER_IF_PERMIT
permittext.example  DEFER_IF_PERMIT 4.7.3 come back
gone.example        521 5.7.1 go away
full.example        421 4.7.1 too many of you
blanks.example      REJECT   two  blanks	and a tab
utf8.example        REJECT kein Bedarf für Müll
long.example        REJECT ` + "long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long" + `
held.example        HOLD
marked.example      PREPEND X-From-Shop: yes
fine.example        OK
x+y@text.example    REJECT a mailbox
local@              REJECT local-parts
`
	for _, setting := range []string{"", "access_map_reject_code = 550\naccess_map_defer_code = 451\n", "soft_bounce = yes\n"} {
		t.Run(strings.TrimSpace(setting), func(t *testing.T) {
			const patterns = "/@(pat|odd)\\.example$/ REJECT from a pattern\n/^promo.*@/ REJECT from a pattern\n"
			there := e2e.ConfigurePostfix(t, e2e.FreeAddress(t))
			testkit.Write(t, filepath.Join(there.Config, "senders"), table)
			testkit.Write(t, filepath.Join(there.Config, "patterns"), patterns)
			there.Add(t, "main.cf", "smtpd_sender_restrictions = check_sender_access hash:$config_directory/senders, check_sender_access regexp:$config_directory/patterns\n"+setting)
			e2e.Ran(t, exec.Command(postmap, "-c", there.Config, "hash:"+filepath.Join(there.Config, "senders")))
			replies := compareImport(t, there, "smtpd_sender_restrictions = check_policy_service inet:%s\n"+setting)
			replies.fronts = true
			ask := func(key, sender string) {
				replies.hold(t, key, func(address string) string { // which may be the last of its session
					c := e2e.DialSMTP(t, address)
					defer c.Conn.Close()
					c.Command("MAIL FROM:<%s>", sender)
					return c.Command("RCPT TO:<you@here.example>")
				})
			}
			for line := range strings.Lines(strings.TrimSpace(table)) {
				key := strings.Fields(line)[0]
				switch {
				case strings.HasSuffix(key, "@"):
					ask(key, key+"there.example")
				case strings.Contains(key, "@"):
					ask(key, key)
				default:
					ask(key, "a@"+key)
				}
			}
			ask("/@(pat|odd)\\.example$/", "a@pat.example")
			ask("/^promo.*@/", "promo9@there.example")
			if replies.same < 20 {
				t.Errorf("%d entries are said to be the same; nothing is shown", replies.same)
			}
			t.Log(replies.same, "replies are the same to the octet")
		})
	}
}

// TestImportAnswersClientsAndRecipients is TestImportAnswersAsPostfix for the tables of clients and of recipients.
func TestImportAnswersClientsAndRecipients(t *testing.T) {
	postmap := testkit.Peer(t, "postmap")
	clients := map[string]string{"192.0.2.1": "REJECT", "192.0.2.2": "REJECT no mail from dial-up lines, %ref $1", "192.0.2.3": "450 4.7.2 not yet",
		"192.0.2.4": "554 gone for good", "192.0.2.5": "DEFER", "192.0.2.6": "521 5.7.1 go away", "192.0.2.7": "REJECT kein Bedarf für Müll", "192.0.2.8": "550 5.7.9 no"}
	recipients := map[string]string{"a@here.example": "REJECT", "b@here.example": "550 5.1.1 moved to b@new.example", "c@here.example": "450 4.2.1 on holiday, 100% sure",
		"d@here.example": "DEFER", "e@here.example": "551 has left"}
	lines := func(table map[string]string) (text string) {
		for key, value := range table {
			text += key + " " + value + "\n"
		}
		return text
	}
	there := e2e.ConfigurePostfix(t, e2e.FreeAddress(t))
	for name, table := range map[string]map[string]string{"clients": clients, "recipients": recipients} {
		path := filepath.Join(there.Config, name)
		testkit.Write(t, path, lines(table))
		e2e.Ran(t, exec.Command(postmap, "-c", there.Config, "hash:"+path))
	}
	const common = "smtpd_authorized_xclient_hosts = 127.0.0.0/8\n"
	there.Add(t, "main.cf", "smtpd_recipient_restrictions = check_client_access hash:$config_directory/clients, check_recipient_access hash:$config_directory/recipients, permit_mynetworks, reject_unauth_destination\n"+common)
	replies := compareImport(t, there, "smtpd_recipient_restrictions = check_policy_service inet:%s, permit_mynetworks, reject_unauth_destination\n"+common)
	replies.narrower = true
	ask := func(key, client, recipient string) {
		replies.hold(t, key, func(address string) string {
			c := asClient(t, address, client, "", false)
			defer c.Conn.Close()
			if got := c.Command("MAIL FROM:<x@there.example>"); !strings.HasPrefix(got, "250") {
				return got
			}
			return c.Command("RCPT TO:<%s>", recipient)
		})
	}
	for key := range clients {
		ask(key, key, "you@here.example")
	}
	for key := range recipients {
		ask(key, "192.0.2.99", key)
	}
	if len(replies.told) < len(clients)+len(recipients) {
		t.Errorf("the report has %d lines; nothing is shown", len(replies.told))
	}
}

package servers

import (
	"bufio"
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
	"blockd/internal/testkit"
	"blockd/internal/testkit/accessmodel"
)

// imported is what `blockd import` says of a configuration.
type imported struct {
	same  map[string]bool // "table0:3" and "permit_mynetworks", that are about the same mail
	lines []importLine
}

type importLine struct {
	File, Text, Outcome, Now string
	Line                     int
}

// runImport imports a main.cf into a folder.
func runImport(t *testing.T, mainCF, out string) imported {
	t.Helper()
	text, err := exec.Command(e2e.Program, "import", "--from-postfix", mainCF, "-o", out, "--json").Output()
	if exit := (*exec.ExitError)(nil); err != nil && !(errors.As(err, &exit) && exit.ExitCode() == 1) {
		t.Fatalf("import: %v\n%s", err, text)
	}
	r := imported{same: map[string]bool{}}
	for line := range strings.Lines(string(text)) {
		var f importLine
		testkit.Must(t, json.Unmarshal([]byte(line), &f))
		if f.Outcome == "" {
			continue // the summary
		}
		at := fmt.Sprintf("%s:%d", filepath.Base(f.File), f.Line)
		if f.Text == "permit_mynetworks" {
			at = f.Text
		}
		r.same[at] = f.Outcome == "the same" || f.Outcome == "other words"
		r.lines = append(r.lines, f)
	}
	return r
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
func asClient(t *testing.T, address, ip string, proxy bool) *e2e.Client {
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
		want(c.Command("XCLIENT ADDR=%s NAME=[UNAVAILABLE]", ip), "220")
		want(c.Command("EHLO client.there.example"), "250")
	}
	return c
}

// TestImportDecidesAsPostfix: a real Postfix with generated tables and restrictions,
// then blockd with what `blockd import` made of them, are asked about the same senders
// from the same clients. They answer alike but where an entry that matches is said to
// mean something else, and blockd refuses nobody whom Postfix let pass. The model that
// a test of package migration goes by is held against Postfix by the way.
func TestImportDecidesAsPostfix(t *testing.T) {
	postmap := testkit.Peer(t, "postmap")
	p := e2e.StartPostfix(t, e2e.FreeAddress(t))
	head := testkit.Read(t, filepath.Join(p.Config, "main.cf"))
	asked, refused, differ := 0, 0, 0
	for seed := range 6 {
		m := accessmodel.Random(rand.New(rand.NewPCG(uint64(seed), 31)))
		marker := fmt.Sprintf("250 2.1.0 round %d", seed)
		more := "smtpd_error_sleep_time = 0\nsmtpd_soft_error_limit = 9999\nsmtpd_hard_error_limit = 10000\n" +
			"smtpd_junk_command_limit = 100000\nsmtpd_banner = $myhostname " + marker + "\n"
		// Said twice, it would be warned of by every process of the reload, more often
		// than the socket of postlogd holds messages while it is not yet there.
		once := strings.NewReplacer("mynetworks =\n", "", "inet_protocols = ipv4", "inet_protocols = all").Replace(string(head))
		testkit.Must(t, m.Write(p.Config, once+more))
		p.Age(t) // postmap reads main.cf too
		for _, table := range m.Tables {
			if table.CIDR {
				continue
			}
			e2e.Ran(t, exec.Command(postmap, "-c", p.Config, "hash:"+filepath.Join(p.Config, table.Name)))
		}
		p.Reload(t)
		testkit.Eventually(t, "Postfix to go by the new tables", func() bool { return strings.Contains(banner(p.SMTP), marker) })

		out := t.TempDir()
		told := runImport(t, filepath.Join(p.Config, "main.cf"), out)
		d := serveImport(t, out, e2e.FreeAddress(t))
		for _, ip := range accessmodel.Clients() {
			there, here := asClient(t, p.SMTP, ip, false), asClient(t, d.SMTP, ip, true)
			for _, sender := range accessmodel.Senders() {
				client := netip.MustParseAddr(ip)
				was, is := there.Rcpt(sender, "you@here.example"), here.Rcpt(sender, "you@here.example")
				asked++
				if was[0] != '2' {
					refused++
				}
				if (was[0] != '2') != m.Refuses(sender, client) {
					t.Errorf("seed %d: %s from %s: Postfix says %q, the model refuses: %t", seed, sender, ip, was, m.Refuses(sender, client))
				}
				switch {
				case (was[0] == '2') == (is[0] == '2'):
					continue
				case was[0] == '2':
					t.Errorf("seed %d: %s from %s: Postfix says %q, blockd %q", seed, sender, ip, was, is)
				case !m.Differs(told.same, sender, client):
					t.Errorf("seed %d: %s from %s: Postfix says %q, blockd %q, and the report says nothing of it", seed, sender, ip, was, is)
				}
				differ++
			}
		}
		if t.Failed() {
			text, _ := os.ReadFile(filepath.Join(out, "report.txt"))
			t.Fatalf("%s\n%s", m.Restrictions(), text)
		}
		d.Stop(t)
	}
	t.Logf("%d mails asked about, %d of them refused by Postfix; blockd decides %d otherwise, all by the report", asked, refused, differ)
	if refused == 0 || refused == asked {
		t.Errorf("Postfix refused %d of %d: nothing is shown", refused, asked)
	}
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

// importReplies are a Postfix with its own tables, another one that asks a blockd with the import of these, and what the
// report says of each key.
type importReplies struct {
	there, here *e2e.Postfix
	told        map[string]importLine
	same        int  // replies that were to be the same
	narrower    bool // what is not carried over may be answered otherwise
}

// compareImport starts there, imports what it has, and has a Postfix ask that by lines, in which %s is the policy service.
func compareImport(t *testing.T, there *e2e.Postfix, lines string) *importReplies {
	t.Helper()
	there.Start(t)
	r := &importReplies{there: there, here: e2e.ConfigurePostfix(t, e2e.FreeAddress(t)), told: map[string]importLine{}}
	out, policy := t.TempDir(), e2e.FreeAddress(t)
	for _, l := range runImport(t, filepath.Join(there.Config, "main.cf"), out).lines {
		key, _, _ := strings.Cut(l.Text, " ")
		r.told[key] = l
	}
	serveImport(t, out, policy)
	r.here.Add(t, "main.cf", fmt.Sprintf(lines, policy))
	r.here.Start(t)
	return r
}

// hold has both reply about what a key matches: alike in the first digit, and to the octet if it is "the same".
func (r *importReplies) hold(t *testing.T, key string, reply func(address string) string) {
	t.Helper()
	was, is := reply(r.there.SMTP), reply(r.here.SMTP)
	line, known := r.told[key]
	switch {
	case !known:
		t.Errorf("%s: the report has no such line", key)
	case line.Outcome == "the same":
		r.same++
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
			c := asClient(t, address, client, false)
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

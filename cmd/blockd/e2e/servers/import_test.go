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

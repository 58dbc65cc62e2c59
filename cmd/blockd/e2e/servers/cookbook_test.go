package servers

import (
	"fmt"
	"net"
	"net/smtp"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"sync/atomic"
	"testing"

	"blockd/cmd/blockd/e2e"
	"blockd/internal/testkit"
)

// recipe is the one block of docs/cookbook.md with the given words behind its
// fence, with each old address or path in it replaced by a new one.
func recipe(t *testing.T, words string, oldnew ...string) string {
	t.Helper()
	blocks := e2e.Fenced(t, "docs/cookbook.md", words)
	if len(blocks) != 1 {
		t.Fatalf("docs/cookbook.md has %d blocks %q, want one", len(blocks), words)
	}
	for i := 0; i < len(oldnew); i += 2 {
		if !strings.Contains(blocks[0], oldnew[i]) {
			t.Fatalf("docs/cookbook.md, %s: no %q in\n%s", words, oldnew[i], blocks[0])
		}
	}
	return strings.NewReplacer(oldnew...).Replace(blocks[0])
}

// cooked is a blockd with a configuration of the cookbook.
type cooked struct {
	*e2e.Daemon
	milter, policy, socketmap string // HOST:PORT
	folder                    string // of the Unix sockets that the configuration asks for
	asked                     string // the policy service as Postfix names it
}

// cook configures a blockd by blocks of the cookbook, on addresses of the test.
func cook(t *testing.T, config string) *cooked {
	t.Helper()
	return cookIn(t, publicDir(t), config)
}

// cookIn is cook with Unix sockets in a given folder.
func cookIn(t *testing.T, folder, config string) *cooked {
	t.Helper()
	dir := t.TempDir()
	c := &cooked{Daemon: &e2e.Daemon{Dir: dir, SMTP: e2e.FreeAddress(t), HTTP: e2e.FreeAddress(t)},
		milter: e2e.FreeAddress(t), policy: e2e.FreeAddress(t), socketmap: e2e.FreeAddress(t), folder: folder}
	c.asked = "inet:" + c.policy
	milter := fmt.Sprintf("[milter]\nlisten = %q\n", c.milter)
	if strings.Contains(config, "[milter]\n") {
		milter = ""
	}
	postfix := fmt.Sprintf("[postfix]\npolicy_listen = %q\n", c.policy)
	config = strings.NewReplacer("/var/lib/blockd/", dir+"/", "/var/spool/postfix/blockd/", folder+"/", "127.0.0.1:8894", c.socketmap, "0.0.0.0:25", c.SMTP).Replace(config)
	if _, rest, ok := strings.Cut(config, "[postfix]\n"); ok {
		if strings.Contains(rest, "policy_listen") {
			postfix, c.asked = "[postfix]\n", "unix:"+filepath.Join(folder, "policy")
		}
		config, postfix = strings.TrimSuffix(config, "[postfix]\n"+rest), postfix+rest
	}
	testkit.Write(t, c.Path("config.toml"), fmt.Sprintf("%s\n%s\n%s\n[http]\nlisten = %q\n", config, milter, postfix, c.HTTP))
	testkit.Must(t, os.Mkdir(c.Path("lists"), 0o755))
	testkit.Write(t, c.Path("lists/bulk.txt"), "bulk.example\nspam@x.example\n\"bad q\"@x.example\n198.51.100.0/24\n")
	return c
}

// lines are lines of the cookbook for Postfix, which ask this blockd. The Postfix of a test is in no chroot: it
// sees the whole path of the socket.
func (c *cooked) lines(text string) string {
	return strings.NewReplacer("unix:/blockd/milter", "unix:"+filepath.Join(c.folder, "milter"), "unix:blockd/policy", c.asked, "127.0.0.1:8894", c.socketmap).Replace(text)
}

// holding opens the doors of a blockd in its place, as a socket unit does.
func (c *cooked) holding(t *testing.T) map[string]net.Listener {
	t.Helper()
	held := map[string]net.Listener{}
	for name, place := range map[string][2]string{"milter": {"unix", filepath.Join(c.folder, "milter")}, "policy": {"tcp", c.policy}, "http": {"tcp", c.HTTP}} {
		l := testkit.Value(net.Listen(place[0], place[1]))(t)
		if place[0] == "unix" {
			if err := os.Chmod(place[1], 0o666); err != nil { // SocketMode of the unit
				t.Fatal(err)
			}
		}
		t.Cleanup(func() { l.Close() })
		held[name] = l
	}
	return held
}

// cookedPostfix runs a Postfix with lines of the cookbook at the end of its main.cf.
func cookedPostfix(t *testing.T, lines string) *e2e.Postfix {
	t.Helper()
	p := e2e.ConfigurePostfix(t, e2e.FreeAddress(t))
	p.Add(t, "main.cf", lines)
	p.Start(t)
	return p
}

// tell sends the beginning of a transaction and returns the reply to RCPT, or to
// MAIL where that was refused.
func tell(t *testing.T, address, from, to string) string {
	t.Helper()
	c := e2e.DialSMTP(t, address)
	defer c.Conn.Close()
	if got := c.Command("MAIL FROM:<%s>", from); !strings.HasPrefix(got, "250") {
		return got
	}
	return oneLine(e2e.Plain(c.Command("RCPT TO:<%s>", to)))
}

var (
	nextLine  = regexp.MustCompile(`\r\n\d{3}[- ]\S+ `)
	firstLine = regexp.MustCompile(`^(\d{3})-`)
)

// oneLine undoes what Exim does to long replies: it cuts them behind a colon.
func oneLine(reply string) string {
	return firstLine.ReplaceAllString(nextLine.ReplaceAllString(reply, " "), "$1 ")
}

// expect is tell with a form that the reply must have.
func expect(t *testing.T, when, address, from, to, form string) {
	t.Helper()
	if got := tell(t, address, from, to); !regexp.MustCompile("^" + form).MatchString(got) {
		t.Errorf("%s: <%s> to <%s>: %q, want %s", when, from, to, got, form)
	}
}

const (
	refusedSender = `550 5\.7\.1 <a@mx\.bulk\.example>: Sender address rejected: listed in bulk \(ref \*\)$`
	letIn         = `250 `
)

// course is what every recipe must do: refuse, hear postmaster, deliver, do what the
// page says while blockd is stopped, and refuse again.
type course struct {
	server, smtp string
	blockd       *cooked
	refused      string // form of the reply to a listed sender
	down         string // form of the reply to anybody while blockd is stopped
	delivered    func() int
}

func (c course) run(t *testing.T) {
	t.Helper()
	testkit.Eventually(t, c.server+" to ask", func() bool {
		return regexp.MustCompile("^" + c.refused).MatchString(tell(t, c.smtp, "a@mx.bulk.example", "you@here.example"))
	})
	expect(t, "blockd runs", c.smtp, "a@mx.bulk.example", "postmaster@here.example", letIn)
	expect(t, "blockd runs", c.smtp, "", "you@here.example", letIn)
	before := c.delivered()
	testkit.Equal(t, "a clear sender", e2e.OneReply(c.smtp, "friend@there.example"), "250 ")
	testkit.Eventually(t, "a mail to arrive", func() bool { return c.delivered() == before+1 })

	c.blockd.Stop(t)
	expect(t, "blockd is stopped", c.smtp, "friend@there.example", "you@here.example", c.down)
	expect(t, "blockd is stopped", c.smtp, "a@mx.bulk.example", "you@here.example", c.down)
	c.blockd.Start(t)
	expect(t, "blockd is back", c.smtp, "a@mx.bulk.example", "you@here.example", c.refused)
	expect(t, "blockd is back", c.smtp, "friend@there.example", "you@here.example", letIn)
}

func TestCookbookPostfix(t *testing.T) {
	shared := recipe(t, "toml")
	byMilter, byPolicy := shared+recipe(t, "toml milter"), shared+recipe(t, "toml policy")
	for name, tt := range map[string]struct {
		config, lines, down string
	}{
		"milter":                          {byMilter, recipe(t, "main.cf milter"), letIn},
		"milter, its other default":       {byMilter, recipe(t, "main.cf milter", "= accept", "= tempfail"), `451 4\.7\.1 Service unavailable - try again later`},
		"policy service":                  {byPolicy, recipe(t, "main.cf policy"), letIn},
		"policy service, without default": {byPolicy, recipe(t, "main.cf policy", ", default_action=DUNNO", ""), `451 4\.3\.5 `},
		"socketmap":                       {shared + recipe(t, "toml socketmap"), recipe(t, "main.cf socketmap"), `451 4\.3\.[05] `},
	} {
		t.Run(name, func(t *testing.T) {
			d := cook(t, tt.config)
			testkit.Peer(t, "postfix") // and with it the group of the socket
			d.Start(t)
			p := cookedPostfix(t, d.lines(tt.lines))
			course{server: "Postfix", smtp: p.SMTP, blockd: d, refused: refusedSender, down: tt.down,
				delivered: func() int { return len(e2e.Messages(t, p.Maildir)) }}.run(t)
		})
	}
}

func TestCookbookSendmail(t *testing.T) {
	for name, tt := range map[string]struct{ old, new, down string }{
		"milter":      {", T=", ", T=", letIn},
		"milter, F=T": {", T=", ", F=T, T=", `451 4\.3\.2 `},
	} {
		t.Run(name, func(t *testing.T) {
			j, s := configureSendmail(t, recipe(t, "sendmail.mc milter", tt.old, tt.new))
			d := cookIn(t, j.mkdir(t, "var/spool/postfix/blockd", 0, 0o755), recipe(t, "toml")+recipe(t, "toml sendmail", `"smmsp"`, `"6"`)) // as newJail has it
			d.Start(t)
			j.start(t, s.smtp, sendmailProgram, "-bD", "-q1m", "-C", sendmailCF)
			course{server: s.name, smtp: s.smtp, blockd: d, down: tt.down, delivered: func() int { return len(s.inbox.all()) },
				refused: strings.Replace(refusedSender, "<a@", `<you@here\.example>\.\.\. <a@`, 1)}.run(t)
		})
	}
}

func TestCookbookExim(t *testing.T) {
	for name, tt := range map[string]struct{ fallback, down string }{
		"ACL":                 {"{action=DUNNO}", letIn},
		"ACL, which puts off": {"{action=DEFER_IF_PERMIT 4.3.0 try again later}", `451 4\.3\.0 try again later`},
	} {
		t.Run(name, func(t *testing.T) {
			acl := recipe(t, "exim4 acl", "{action=DUNNO}", tt.fallback)
			j, s := configureExim(t, strings.Replace(eximConf, "acl_rcpt:\n", "acl_rcpt:\n"+strings.ReplaceAll(acl, "%", "%%"), 1))
			d := cookIn(t, j.mkdir(t, "var/spool/postfix/blockd", 0, 0o755), recipe(t, "toml")+"[[list]]\nname = \"slow\"\npath = \"slow.txt\"\non_match = \"tempfail\"\n"+
				recipe(t, "toml exim", `"Debian-exim"`, `"4"`)) // as newJail has it
			testkit.Write(t, d.Path("slow.txt"), "slow.example\n")
			d.Start(t)
			j.start(t, s.smtp, "/usr/sbin/exim4", "-bdf", "-q1m")
			expect(t, "tempfail", s.smtp, "a@slow.example", "you@here.example", `451 4\.7\.1 listed in slow \(ref \*\)`)
			for _, sender := range []string{`spam@x.example`, `"spam"@x.example`, `"sp\am"@x.example`, `"bad q"@x.example`, `"bad\ q"@x.example`, `"a"@bulk.example`} {
				expect(t, "quoted", s.smtp, sender, "you@here.example", `550 5\.7\.1 <`+regexp.QuoteMeta(sender)+`>: Sender address rejected: listed in bulk \(ref \*\)`)
			}
			expect(t, "quoted", s.smtp, `"spam@x.example"@there.example`, "you@here.example", letIn)
			course{server: s.name, smtp: s.smtp, blockd: d, refused: refusedSender, down: tt.down, delivered: func() int { return len(s.inbox.all()) }}.run(t)
		})
	}
}

// In front a stopped blockd is no connection, and blockd says who the client is.
func TestCookbookInFront(t *testing.T) {
	for name, start := range map[string]func(t *testing.T, port string) *mailServer{
		"Exim": func(t *testing.T, port string) *mailServer {
			conf := eximConf
			for line := range strings.Lines(recipe(t, "exim4 front", "10025", port)) {
				key, _, _ := strings.Cut(line, " ")
				own := regexp.MustCompile(`(?m)^` + key + ` = .*\n`)
				if !own.MatchString(conf) {
					t.Fatalf("eximConf has no %s", key)
				}
				line = strings.ReplaceAll(strings.ReplaceAll(line, "127.0.0.1.587", "%[3]s.%[4]s"), "%%", "%")
				conf = own.ReplaceAllLiteralString(conf, line)
			}
			// %[6]s is the port that startExim would have had.
			return startEximWith(t, conf+"# %[6]s\n")
		},
		"OpenSMTPD": func(t *testing.T, port string) *mailServer {
			return startOpenSMTPD(t, "", recipe(t, "smtpd.conf front", "10025", port))
		},
	} {
		t.Run(name, func(t *testing.T) {
			behind := e2e.FreeAddress(t)
			_, port, _ := net.SplitHostPort(behind)
			s := start(t, port)
			d := cook(t, strings.ReplaceAll(recipe(t, "toml front"), "127.0.0.1:10025", behind))
			d.Start(t)
			refused := regexp.MustCompile("^" + refusedSender)
			testkit.Eventually(t, "mail to pass", func() bool { return refused.MatchString(tell(t, d.SMTP, "a@mx.bulk.example", "you@here.example")) })
			expect(t, "blockd runs", d.SMTP, "a@mx.bulk.example", "postmaster@here.example", letIn)
			testkit.Begins(t, "a clear sender", e2e.DialFrom(t, "127.0.0.9", d.SMTP).Send("friend@there.example", "you@here.example", e2e.Crlf([]byte("Subject: passed\n\nhi\n"))), "250")
			s.settle(t)
			if all := s.inbox.all(); len(all) != 1 || !strings.Contains(all[0].text, "127.0.0.9") {
				t.Errorf("arrived: %q, want one mail with its client's address in a Received field", all)
			}
			d.Stop(t)
			if e2e.Listens(d.SMTP) {
				t.Error("a stopped blockd listens")
			}
		})
	}
}

// While somebody holds its sockets open, blockd is restarted under traffic: every
// mail that was taken arrives, no listed sender gets in, and nobody is put off.
func TestCookbookRestarts(t *testing.T) {
	for _, door := range []string{"milter", "policy"} {
		t.Run(door, func(t *testing.T) {
			d := cook(t, recipe(t, "toml")+recipe(t, "toml milter"))
			held := d.holding(t)
			d.Run(t, e2e.Passing(t, d.Daemon, held))
			p := cookedPostfix(t, d.lines(recipe(t, "main.cf "+door)))
			refused := regexp.MustCompile(`^550 5\.7\.1 `)
			testkit.Eventually(t, "Postfix to ask", func() bool { return refused.MatchString(tell(t, p.SMTP, "a@mx.bulk.example", "you@here.example")) })

			var accepted atomic.Int64
			f := e2e.NewFlow(t)
			for range 4 {
				f.Mails("Postfix", p.SMTP, &accepted)
			}
			for range 4 {
				f.Goes(20)
				d.Stop(t)
				d.Run(t, e2e.Passing(t, d.Daemon, held))
			}
			f.Goes(20) // behind the last restart
			f.End()
			testkit.Eventually(t, "all that was taken", func() bool { return len(e2e.Messages(t, p.Maildir)) == int(accepted.Load()) })
		})
	}
}

// A client of Postfix that says nothing holds up the end of blockd for all of smtp.drain_timeout. Where that is shorter
// than Postfix's patience, who asks meanwhile hears the new process, and no listed sender gets in.
func TestCookbookRestartIdle(t *testing.T) {
	d := cook(t, strings.Replace(recipe(t, "toml")+recipe(t, "toml milter"), "[smtp]\n", "[smtp]\ndrain_timeout = \"2s\"\n", 1))
	held := d.holding(t)
	d.Run(t, e2e.Passing(t, d.Daemon, held))
	p := cookedPostfix(t, d.lines(recipe(t, "main.cf milter")))
	refused := regexp.MustCompile("^" + refusedSender)
	testkit.Eventually(t, "Postfix to ask", func() bool { return refused.MatchString(tell(t, p.SMTP, "a@mx.bulk.example", "you@here.example")) })
	idle, err := smtp.Dial(p.SMTP) // has read the greeting: Postfix has asked about the client
	testkit.Must(t, err)
	defer idle.Close()
	answer := make(chan string, 1)
	go func() { answer <- e2e.OneReply(p.SMTP, "a@mx.bulk.example") }()
	d.Stop(t)
	if cut := "milter connections closed, the time to stop is over"; !strings.Contains(d.Log.String(), cut) {
		t.Errorf("the idle client held up nothing: the log lacks %q", cut)
	}
	d.Run(t, e2e.Passing(t, d.Daemon, held))
	testkit.Begins(t, "a listed sender during the restart", <-answer, "550 5.7.1 ")
}

// The real systemd-socket-activate opens the doors, and the first question starts
// blockd: who asks it waits for the answer.
func TestCookbookSocketActivation(t *testing.T) {
	command := testkit.Peer(t, "systemd-socket-activate")
	d := cook(t, recipe(t, "toml"))
	cmd := exec.Command(command, "-l", d.milter, "-l", d.policy, "-l", d.HTTP, "--fdname=milter:policy:http", e2e.Program, "serve", "-c", d.Path("config.toml"))
	p := cookedPostfix(t, d.lines(recipe(t, "main.cf milter", "unix:/blockd/milter", "inet:"+d.milter)+recipe(t, "main.cf policy")))
	d.Run(t, cmd)
	expect(t, "started by a socket", p.SMTP, "a@mx.bulk.example", "you@here.example", refusedSender)
	testkit.Equal(t, "a clear sender", e2e.OneReply(p.SMTP, "friend@there.example"), "250 ")
	for _, service := range []string{"blockd_milter_connections_total", `blockd_postfix_connections{service="policy"}`} {
		d.CountedSome(t, service)
	}
}

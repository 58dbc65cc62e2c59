package servers

import (
	"bufio"
	"encoding/base64"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/emersion/go-sasl"
	"github.com/emersion/go-smtp"

	"blockd/cmd/blockd/e2e"
	"blockd/internal/testkit"
	"blockd/internal/testkit/selfsigned"
)

// TestActionsWithPostfix has a real Postfix behind what the filter does beside
// refusing: mail that is set aside, marked, and passed on as BDAT.
func TestActionsWithPostfix(t *testing.T) {
	p := e2e.StartPostfix(t, e2e.FreeAddress(t))
	d := e2e.Serve(t, e2e.Setup{Upstream: "smtp://" + p.SMTP,
		SMTP: "client_info = \"xclient\"\nchunking = true\nquarantine = \"aside\"\n",
		Lists: "[[list]]\nname = \"junk\"\npath = \"junk.txt\"\non_match = \"quarantine\"\n" +
			"[[list]]\nname = \"watch\"\npath = \"watch.txt\"\non_match = \"tag\"\n",
		Files: map[string]string{"junk.txt": "junk.example\n", "watch.txt": "watch.example\n"}})
	c := e2e.DialTalk(t, d.SMTP)
	want := func(reply, prefix string) {
		t.Helper()
		if !strings.HasPrefix(reply, prefix) {
			t.Fatalf("reply %q, want %s", reply, prefix)
		}
	}
	testkit.Has(t, c.Command("EHLO client.there.example"), "CHUNKING")

	// Octets that DATA may not have, in two chunks, the second of which looks like
	// commands.
	head, tail := "Subject: chunks\r\n\r\nbare\nLF\r\n", "RSET\r\nQUIT\r\n"
	want(c.Command("MAIL FROM:<friend@there.example>"), "250")
	want(c.Command("RCPT TO:<you@here.example>"), "250")
	c.Write([]byte(fmt.Sprintf("BDAT %d\r\n%sBDAT %d LAST\r\n%s", len(head), head, len(tail), tail)))
	want(c.Reply(), "250")
	want(c.Reply(), "250 2.0.0 Ok")

	// One message for quarantine and for postmaster.
	want(c.Command("MAIL FROM:<promo@junk.example>"), "250")
	want(c.Command("RCPT TO:<you@here.example>"), "250")
	want(c.Command("RCPT TO:<postmaster@here.example>"), "250")
	want(c.Command("DATA"), "354")
	want(c.Command("Subject: both\r\n\r\n..dot\r\n."), "250 2.0.0 Ok: queued")

	want(c.Command("MAIL FROM:<promo@watch.example>"), "250")
	want(c.Command("RCPT TO:<you@here.example>"), "250")
	want(c.Command("DATA"), "354")
	want(c.Command("Subject: marked\r\n\r\nhi\r\n."), "250 2.0.0 Ok: queued")
	want(c.Command("QUIT"), "221")

	testkit.Eventually(t, "three messages to arrive", func() bool { return len(e2e.Messages(t, p.Maildir)) == 3 })
	var all strings.Builder
	for _, path := range e2e.Messages(t, p.Maildir) {
		text := testkit.Read(t, path)
		all.Write(text)
	}
	for _, text := range []string{"RSET\nQUIT\n", "Subject: both\n\n.dot\n", "X-Blockd: list=watch ref="} {
		if !strings.Contains(all.String(), text) {
			t.Errorf("no %q in what arrived:\n%s", text, all.String())
		}
	}
	files, err := os.ReadDir(filepath.Join(d.Dir, "aside", "new"))
	if err != nil || len(files) != 1 {
		t.Fatalf("quarantine holds %v (%v), want one message", files, err)
	}
	text, err := os.ReadFile(filepath.Join(d.Dir, "aside", "new", files[0].Name()))
	if err != nil || !strings.HasPrefix(string(text), "Return-Path: <promo@junk.example>\r\nDelivered-To: you@here.example\r\nX-Blockd: list=junk ref=") ||
		!strings.HasSuffix(string(text), "Subject: both\r\n\r\n.dot\r\n") {
		t.Errorf("quarantine has %q, %v", text, err)
	}
}

// TestAuthIsForwarded has swaks log in, by two mechanisms, at an independent server
// behind the filter, which alone knows the password.
func TestAuthIsForwarded(t *testing.T) {
	swaks := testkit.Peer(t, "swaks")
	behind := smtp.NewServer(smtp.BackendFunc(func(*smtp.Conn) (smtp.Session, error) { return &loginSession{}, nil }))
	behind.Domain, behind.AllowInsecureAuth = "behind.here.example", true
	l := testkit.Listen(t)
	go behind.Serve(l)
	t.Cleanup(func() { behind.Close() })

	cert := selfsigned.New(t, "filter.here.example")
	d := e2e.Configure(t, e2e.Setup{Upstream: "smtp://" + l.Addr().String(), Lists: e2e.BadList, Files: e2e.BadFiles,
		SMTP: "client_info = \"none\"\nallow_open_upstream = true\ntls_cert = \"cert.pem\"\ntls_key = \"key.pem\"\nauth = \"forward\"\n"})
	cert.Write(t, d.Dir)
	d.Start(t)
	run := func(args ...string) string {
		t.Helper()
		out, _ := exec.Command(swaks, append([]string{"--server", d.SMTP, "--ehlo", "client.there.example",
			"--from", "promo@bulk.example", "--to", "you@here.example", "--body", "hello"}, args...)...).CombinedOutput()
		return string(out)
	}
	for _, mechanism := range []string{"PLAIN", "LOGIN"} {
		login := []string{"--tls", "--auth", mechanism, "--auth-user", "me"}
		testkit.Has(t, run(append(login, "--auth-password", "right-password")...), "250 2.0.0 OK: queued")
		if out := run(append(login, "--auth-password", "wrong-password")...); !strings.Contains(out, "535 ") || strings.Contains(out, "queued") {
			t.Errorf("%s: with a wrong password:\n%s", mechanism, out)
		}
	}
	testkit.Has(t, run("--tls"), "550 5.7.1 ")
	if out := run("--auth", "PLAIN", "--auth-user", "me", "--auth-password", "right-password"); strings.Contains(out, "250-AUTH") || strings.Contains(out, "250 AUTH") {
		t.Errorf("AUTH in the clear:\n%s", out)
	}
	log := d.WholeLog(t)
	for _, text := range []string{"-password", base64.StdEncoding.EncodeToString([]byte("\x00me\x00right-password"))} {
		if strings.Contains(log, text) {
			t.Errorf("%q is in the log", text)
		}
	}
}

// loginSession takes mail of those who have logged in.
type loginSession struct{ in bool }

func (s *loginSession) AuthMechanisms() []string { return []string{sasl.Plain, sasl.Login} }

func (s *loginSession) Auth(mechanism string) (sasl.Server, error) {
	check := func(name, password string) error {
		if s.in = name == "me" && password == "right-password"; !s.in {
			return smtp.ErrAuthFailed
		}
		return nil
	}
	if mechanism == sasl.Plain {
		return sasl.NewPlainServer(func(_, name, password string) error { return check(name, password) }), nil
	}
	return &loginServer{check: check}, nil
}

// loginServer is the server's side of LOGIN, which go-sasl has no more.
type loginServer struct {
	name  *string
	check func(name, password string) error
}

func (l *loginServer) Next(response []byte) (challenge []byte, done bool, err error) {
	switch {
	case response == nil:
		return []byte("Username:"), false, nil
	case l.name == nil:
		name := string(response)
		l.name = &name
		return []byte("Password:"), false, nil
	}
	return nil, true, l.check(*l.name, string(response))
}

func (s *loginSession) Mail(string, *smtp.MailOptions) error {
	if !s.in {
		return smtp.ErrAuthRequired
	}
	return nil
}

func (s *loginSession) Rcpt(string, *smtp.RcptOptions) error { return nil }

func (s *loginSession) Data(r io.Reader) error {
	_, err := io.Copy(io.Discard, r)
	return err
}

func (s *loginSession) Reset() {}

func (s *loginSession) Logout() error { return nil }

const quarantineLists = "[[list]]\nname = \"bad\"\npath = \"bad.txt\"\non_match = \"quarantine\"\n"

var quarantineFiles = map[string]string{"bad.txt": "bulk.example\n"}

// TestQuarantineReleasedToPostfix holds that a message that is let go arrives at a real server, once, as it was sent; that it
// stays for a recipient whom that server refuses, and when there is no server.
func TestQuarantineReleasedToPostfix(t *testing.T) {
	p := e2e.StartPostfix(t, e2e.FreeAddress(t), "virtual_mailbox_maps=inline:{bob@here.example=inbox/}")
	d := e2e.Serve(t, e2e.Setup{Upstream: "smtp://" + p.SMTP, SMTP: "quarantine = \"aside\"\nclient_info = \"xclient\"\n", Lists: quarantineLists, Files: quarantineFiles})
	d.Send(t, "first \x1b[31mred", "bob@here.example")
	d.Send(t, "second", "bob@here.example", "nobody@here.example")
	all := d.Aside(t)
	if len(all) != 2 || all[1].Sender != "Spammer+tag@bulk.example" || len(all[0].Recipients) != 2 || all[0].Lists[0] != "bad" {
		t.Fatalf("in quarantine: %+v", all)
	}
	_, out, _ := d.Quarantine(t, "list")
	if strings.Contains(out, "\x1b") || !strings.Contains(out, `first \x1b[31mred`) || !strings.Contains(out, "bob@here.example and 1 more") {
		t.Errorf("listed:\n%q", out)
	}
	if code, out, _ := d.Quarantine(t, "show", all[1].ID); code != 0 || !strings.Contains(out, "blockd history --ref "+all[1].Ref) || !strings.Contains(out, "\n.a dot\nend\n") || strings.Contains(out, "\x1b") {
		t.Errorf("shown, %d:\n%q", code, out)
	}
	if code, out, _ := d.Quarantine(t, "show", "--raw", all[1].ID); code != 0 || !strings.HasPrefix(out, "Return-Path: <Spammer+tag@bulk.example>\r\nDelivered-To: bob@here.example\r\nX-Blockd: ") {
		t.Errorf("raw, %d:\n%q", code, out)
	}
	code, out, notes := d.Quarantine(t, "release", all[1].ID)
	if code != 0 || !strings.HasPrefix(out, "released: bob@here.example from Spammer+tag@bulk.example: 250 ") {
		t.Fatalf("released, %d: %s%s", code, out, notes)
	}
	arrived := func(n int) string {
		t.Helper()
		testkit.Eventually(t, "mail to arrive", func() bool { return len(e2e.Messages(t, p.Maildir)) == n })
		all := e2e.Messages(t, p.Maildir)
		return string(testkit.Read(t, all[len(all)-1]))
	}
	mail := arrived(1)
	if !strings.Contains(mail, "Return-Path: <Spammer+tag@bulk.example>") || !strings.Contains(mail, "X-Blockd-Released: ") || strings.Count(mail, "Delivered-To: bob@here.example") > 1 ||
		!strings.Contains(mail, "\n.a dot\n") {
		t.Errorf("arrived:\n%s", mail)
	}
	if code, _, notes := d.Quarantine(t, "release", all[1].ID); code != 1 || !strings.Contains(notes, "no such message") {
		t.Errorf("a second time: %d, %s", code, notes)
	}
	code, out, _ = d.Quarantine(t, "release", all[0].ID)
	if code != 1 || !strings.Contains(out, "released: bob@here.example") || !strings.Contains(out, "refused by the next server: nobody@here.example from Spammer+tag@bulk.example: 550 ") || !strings.Contains(out, "still in quarantine") {
		t.Errorf("refused for one, %d: %s", code, out)
	}
	arrived(2)
	if left := d.Aside(t); len(left) != 1 || fmt.Sprint(left[0].Recipients) != "[nobody@here.example]" {
		t.Errorf("left: %+v", left)
	}
	testkit.Must(t, p.Master.Signal(syscall.SIGTERM))
	testkit.Eventually(t, "Postfix to end", func() bool { return !e2e.Listens(p.SMTP) })
	if code, _, notes := d.Quarantine(t, "release", all[0].ID); code != 1 || !strings.Contains(notes, "refused") {
		t.Errorf("without a next server: %d, %s", code, notes)
	}
	d.Stop(t)
	if code, _, notes := d.Quarantine(t, "release", all[0].ID); code != 1 || !strings.Contains(notes, "no daemon answers") {
		t.Errorf("without a daemon: %d, %s", code, notes)
	}
	if left := d.Aside(t); len(left) != 1 || left[0].Unsure != nil {
		t.Errorf("left without a daemon: %+v", left)
	}
	if code, out, notes := d.Quarantine(t, "purge", all[0].ID); code != 0 || !strings.HasPrefix(out, "removed 1 message") {
		t.Errorf("purged, %d: %s%s", code, out, notes)
	}
	if left := d.Aside(t); len(left) != 0 {
		t.Errorf("after that: %+v", left)
	}
}

// TestQuarantineReleaseKilled holds that a release that was killed when the next server had the whole message is not repeated
// by itself, and that one that was killed before is.
func TestQuarantineReleaseKilled(t *testing.T) {
	l := testkit.Listen(t)
	hangs, got := make(chan string, 1), make(chan string, 10)
	hangs <- "."
	go hangingServer(l, hangs, got)
	d := e2e.Serve(t, e2e.Setup{Upstream: "smtp://" + l.Addr().String(), SMTP: "quarantine = \"aside\"\nclient_info = \"none\"\nallow_open_upstream = true\n", Lists: quarantineLists, Files: quarantineFiles})
	d.Send(t, "hello", "bob@here.example")
	id := d.Aside(t)[0].ID
	release := func(flags ...string) (notes string, code int) {
		code, _, notes = d.Quarantine(t, "release", append(flags, id)...)
		return notes, code
	}
	killedAt := func(line string) {
		t.Helper()
		ended := make(chan struct{})
		go func() { defer close(ended); release() }()
		testkit.Eventually(t, "the next server to hear "+line, func() bool { return len(got) > 0 })
		testkit.MustEqual(t, "the next server hangs at", <-got, line)
		d.Kill(t)
		<-ended
		d.Start(t)
	}
	killedAt(".")
	if all := d.Aside(t); len(all) != 1 || all[0].Unsure == nil {
		t.Fatalf("after the kill: %+v", all)
	}
	if _, out, _ := d.Quarantine(t, "list"); !strings.Contains(out, "(perhaps released) hello") {
		t.Errorf("listed:\n%s", out)
	}
	if notes, code := release(); code != 1 || !strings.Contains(notes, "cut off") || !strings.Contains(notes, "--again") {
		t.Errorf("released after the kill: %d, %s", code, notes)
	}
	if notes, code := release("--again"); code != 0 {
		t.Errorf("released again: %d, %s", code, notes)
	}
	if all := d.Aside(t); len(all) != 0 {
		t.Errorf("left: %+v", all)
	}
	if notes, err := os.ReadDir(filepath.Join(d.Dir, "aside", "release")); err != nil || len(notes) > 0 {
		t.Errorf("notes left: %v, %v", notes, err)
	}

	d.Send(t, "once more", "bob@here.example")
	id = d.Aside(t)[0].ID
	hangs <- "DATA"
	killedAt("DATA")
	if notes, code := release(); code != 0 {
		t.Errorf("released after a kill before the end: %d, %s", code, notes)
	}
}

// hangingServer is a next server that takes all mail. At a line from hangs it says to got that it has heard it, and nothing to
// the client any more.
func hangingServer(l net.Listener, hangs <-chan string, got chan<- string) {
	hang := ""
	for {
		c, err := l.Accept()
		if err != nil {
			return
		}
		select {
		case hang = <-hangs:
		default:
		}
		func() {
			defer c.Close()
			fmt.Fprint(c, "220 next\r\n")
			lines, data := bufio.NewScanner(c), false
			for lines.Scan() {
				line := lines.Text()
				verb, _, _ := strings.Cut(line, " ")
				switch {
				case hang != "" && line == hang:
					got <- hang
					hang = ""
					for lines.Scan() { // until the client is killed
					}
					return
				case data && line != ".":
				case verb == "DATA":
					data = true
					fmt.Fprint(c, "354 go on\r\n")
				case verb == "QUIT":
					fmt.Fprint(c, "221 bye\r\n")
					return
				default:
					data = false
					fmt.Fprint(c, "250 ok\r\n")
				}
			}
		}()
	}
}

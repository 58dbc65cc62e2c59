package servers

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"blockd/cmd/blockd/e2e"
	"blockd/internal/testkit"
)

// TestBehindEachServer has blockd in front of each server, under STARTTLS by name
// and authority where it has that: what it offers, its answers, and real mail.
func TestBehindEachServer(t *testing.T) {
	for _, server := range servers {
		if server.name == "lax Postfix" {
			continue
		}
		t.Run(server.name, func(t *testing.T) {
			t.Parallel()
			s := server.start(t)
			more := "chunking = true\n"
			if s.cert.Leaf != nil {
				ca := testkit.File(t, "ca.pem", string(s.cert.CertPEM))
				more += fmt.Sprintf("upstream_tls = \"starttls\"\nupstream_tls_name = \"mail.here.example\"\nupstream_tls_ca = %q\n", ca)
			}
			setup := s.filtered(more)
			setup.Lists, setup.Files = e2e.BadList, e2e.BadFiles
			if _, err := os.Stat(filepath.Join(e2e.Root, "..", "shared")); err == nil {
				setup.Lists += spamList(t)
			}
			d := e2e.Serve(t, setup)
			t.Run("keywords", func(t *testing.T) { mirrored(t, s, d) })
			t.Run("recipients", func(t *testing.T) { refusedRecipients(t, s, d) })
			t.Run("corpus", func(t *testing.T) { someCorpus(t, s, d) })
		})
	}
}

// mirrored compares what is offered, and has each parameter taken where the server
// offers it and refused where it does not.
func mirrored(t *testing.T, s *mailServer, d *e2e.Daemon) {
	keywords := func(address string) (all []string) {
		for line := range strings.Lines(e2e.DialTalk(t, address).Command("EHLO client.there.example")) {
			word, _, _ := strings.Cut(strings.TrimSpace(line)[4:], " ")
			all = append(all, word)
		}
		return all[1:] // behind the host's name
	}
	theirs, ours := keywords(s.smtp), keywords(d.SMTP)
	passed := []string{"PIPELINING", "SIZE", "8BITMIME", "SMTPUTF8", "ENHANCEDSTATUSCODES", "DSN", "DELIVERBY", "MT-PRIORITY", "LIMITS",
		"RRVS", "FUTURERELEASE", "HELP", "CHUNKING", "BINARYMIME"}
	for _, word := range passed {
		if slices.Contains(theirs, word) != slices.Contains(ours, word) {
			t.Errorf("%s is offered by the server: %v, by blockd: %v", word, slices.Contains(theirs, word), slices.Contains(ours, word))
		}
	}
	for _, word := range ours {
		if !slices.Contains(passed, word) {
			t.Errorf("blockd offers %s", word)
		}
	}
	t.Logf("offers %q, of %q", ours, theirs)

	c := e2e.DialSMTP(t, d.SMTP)
	for _, tt := range []struct{ keyword, mail, rcpt string }{
		{"DSN", "<a@friend.example> RET=HDRS ENVID=abc", "<you@here.example> NOTIFY=FAILURE ORCPT=rfc822;you@here.example"},
		{"SMTPUTF8", "<\u00e4@friend.example> SMTPUTF8", "<you@here.example>"},
		{"8BITMIME", "<a@friend.example> BODY=8BITMIME", "<you@here.example>"},
		{"SIZE", "<a@friend.example> SIZE=1000", "<you@here.example>"},
	} {
		want := "5"
		if slices.Contains(theirs, tt.keyword) {
			want = "250"
		}
		got := c.Command("MAIL FROM:%s", tt.mail)
		if strings.HasPrefix(got, "250") {
			got = c.Command("RCPT TO:%s", tt.rcpt)
		}
		if !strings.HasPrefix(got, want) {
			t.Errorf("%s: %q, want %s", tt.keyword, got, want)
		}
		c.Command("RSET")
	}
}

// refusedRecipients mixes recipients that the server takes and refuses: its
// answers pass as they are, and the message goes to those that it has taken.
func refusedRecipients(t *testing.T, s *mailServer, d *e2e.Daemon) {
	recipients := []string{"one@here.example", "two@elsewhere.example", "three@here.example"}
	play := func(address, id string) (replies []string) {
		c := e2e.DialSMTP(t, address)
		c.Command("MAIL FROM:<%s@friend.example>", id)
		for _, to := range recipients {
			replies = append(replies, c.Command("RCPT TO:<%s>", to))
		}
		c.Command("DATA")
		testkit.Begins(t, "the dot", c.Command("Subject: x\r\n\r\nhello\r\n."), "250")
		c.Command("QUIT")
		return replies
	}
	alone, behind := play(s.smtp, "alone"), play(d.SMTP, "behind")
	if !slices.Equal(alone, behind) || behind[1][0] != '5' { // no server relays
		t.Errorf("behind blockd the answers are %q, alone %q", behind, alone)
	}
	s.settle(t)
	var got []string
	for _, a := range s.inbox.all() {
		if a.from == "behind@friend.example" {
			got = append(got, a.to...)
		}
	}
	slices.Sort(got)
	if want := []string{"one@here.example", "three@here.example"}; !slices.Equal(got, want) {
		t.Errorf("handed on to %q, want %q", got, want)
	}

	c := e2e.DialSMTP(t, d.SMTP)
	c.Command("MAIL FROM:<a@bulk.example>")
	testkit.Begins(t, "a listed sender", c.Command("RCPT TO:<one@here.example>"), "550 5.7.1 <a@bulk.example>")
	testkit.Begins(t, "postmaster", c.Command("RCPT TO:<postmaster@here.example>"), "250")
}

// someCorpus sends every eighth real message to the server alone and through
// blockd, and compares what is handed on.
func someCorpus(t *testing.T, s *mailServer, d *e2e.Daemon) {
	mails, _, _ := corpus(t)
	alone, behind := map[int]string{}, map[int]string{}
	refused, untouched, same := 0, 0, 0
	direct, filtered := e2e.DialSMTP(t, s.smtp), e2e.DialSMTP(t, d.SMTP)
	for i := 0; i < len(mails); i += 8 {
		m := mails[i]
		if m.sender == malformed {
			continue
		}
		got := filtered.Send(m.sender, fmt.Sprintf("behind%d@here.example", i), m.text)
		if m.listed {
			refused++
			if !refusal(m.sender).MatchString(got) {
				t.Errorf("%s: %q", m.file, got)
			}
			continue
		}
		want := direct.Send(m.sender, fmt.Sprintf("alone%d@here.example", i), m.text)
		if got[:3] != want[:3] {
			t.Errorf("%s: behind blockd %q, alone %q", m.file, got, want)
		}
	}
	s.settle(t)
	for _, a := range s.inbox.all() {
		var i int
		text := a.text
		switch {
		case scan(a.to[0], "behind%d@here.example", &i):
			behind[i] = text
		case scan(a.to[0], "alone%d@here.example", &i):
			alone[i] = text
		}
	}
	if len(alone) != len(behind) {
		t.Errorf("%d messages were handed on alone, %d behind blockd", len(alone), len(behind))
	}
	for i, text := range behind {
		switch {
		case strings.HasSuffix(text, string(mails[i].text)):
			untouched++
		case e2e.Tail(text, len(mails[i].text)/2) == e2e.Tail(alone[i], len(mails[i].text)/2) && fields(text) == fields(alone[i]):
			same++ // the server changes it, and does so alone
		default:
			t.Errorf("%s: handed on behind blockd\n%.600q\nalone\n%.600q", mails[i].file, text, alone[i])
		}
	}
	t.Logf("%s: %d messages handed on, %d of them octet for octet, %d changed as the server alone changes them; %d refused", s.name, len(behind), untouched, same, refused)
}

func scan(text, format string, i *int) bool {
	n, err := fmt.Sscanf(text, format, i)
	return err == nil && n == 1
}

// fields is a message without what names the hop and the recipient: Received
// fields and what the test itself makes different.
func fields(text string) string {
	var b strings.Builder
	received := false
	for line := range strings.Lines(text) {
		if received = received && (line[0] == ' ' || line[0] == '\t') || strings.HasPrefix(line, "Received:"); !received {
			b.WriteString(line)
		}
	}
	return b.String()
}

// publicDir makes a folder that any user may write to, as smtp-sink's user must.
func publicDir(t *testing.T) string {
	t.Helper()
	dir := testkit.Value(os.MkdirTemp("", "blockd-sink-"))(t)
	t.Cleanup(func() { os.RemoveAll(dir) })
	testkit.Must(t, os.Chmod(dir, 0o777))
	return dir
}

// TestLMTPUpstream relays into a real LMTP server (RFC 2033), by TCP and by Unix
// socket: one recipient a transaction, refused senders never seen there.
func TestLMTPUpstream(t *testing.T) {
	lists := "[[list]]\nname = \"bad\"\npath = \"bad.txt\"\n"
	files := map[string]string{"bad.txt": "bulk.example\n"}
	tests := []struct {
		name  string
		start func(t *testing.T, dir string) (upstream string)
	}{
		{"tcp", func(t *testing.T, dir string) string {
			return "lmtp://" + e2e.Sink(t, "-L", "-D", filepath.Join(dir, "mail."))
		}},
		{"unix", func(t *testing.T, dir string) string {
			socket := filepath.Join(dir, "lmtp")
			e2e.RunSink(t, "unix:"+socket, "-L", "-D", filepath.Join(dir, "mail."))
			return "lmtp+unix:" + socket
		}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			dir := publicDir(t)
			d := e2e.Serve(t, e2e.Setup{Upstream: tt.start(t, dir), Lists: lists, Files: files, SMTP: `client_info = "none"`})
			c := e2e.DialSMTP(t, d.SMTP)
			for _, step := range []struct{ command, want string }{
				{"MAIL FROM:<a@bulk.example>", "250"},
				{"RCPT TO:<you@here.example>", "550 5.7.1 "},
				{"RSET", "250"},
				{"MAIL FROM:<friend@there.example>", "250"},
				{"RCPT TO:<you@here.example>", "250"},
				{"RCPT TO:<other@here.example>", "452 4.5.3 "},
				{"DATA", "354"},
				{"Subject: by LMTP\r\n\r\n..a line that begins with a dot\r\n.", "250"},
				{"QUIT", "221"},
			} {
				e2e.MustBegin(t, step.command, c.Command("%s", step.command), step.want)
			}
			var text []byte
			testkit.Eventually(t, "the message to be in the sink's file", func() bool {
				mails, _ := filepath.Glob(filepath.Join(dir, "mail.*"))
				for _, mail := range mails {
					more, _ := os.ReadFile(mail)
					text = append(text, more...)
				}
				return strings.Contains(string(text), "by LMTP")
			})
			if strings.Contains(string(text), "bulk.example") || !strings.Contains(string(text), ".a line that begins with a dot") {
				t.Errorf("the server has received:\n%s", text)
			}
		})
	}
}

// TestBehindHAProxy has a real HAProxy in front that says who the client is, by
// either version of its protocol, and looks after its servers' health.
func TestBehindHAProxy(t *testing.T) {
	haproxy := testkit.Peer(t, "haproxy")
	for _, version := range []string{"send-proxy", "send-proxy-v2"} {
		t.Run(version, func(t *testing.T) {
			d := e2e.Configure(t, e2e.Setup{Lists: e2e.BadList, Files: e2e.BadFiles, SMTP: "proxy_from = [\"127.0.0.1\"]\n"})
			d.Start(t)
			front := e2e.FreeAddress(t)
			config := filepath.Join(t.TempDir(), "haproxy.cfg")
			testkit.Write(t, config, fmt.Sprintf(`
defaults
  mode tcp
  timeout connect 5s
  timeout client 30s
  timeout server 30s
listen smtp
  bind %s
  source 127.0.0.1
  server blockd %s %s check check-%s inter 100ms
`, front, d.SMTP, version, "send-proxy"))
			e2e.StartServer(t, exec.Command(haproxy, "-db", "-f", config), front)

			c := e2e.DialFrom(t, "127.0.0.99", front)
			testkit.Begins(t, "a listed sender", c.Send("a@bulk.example", "you@here.example", nil), "550 5.7.1 ")
			testkit.Begins(t, "a clear sender", c.Send("friend@there.example", "you@here.example", e2e.Crlf([]byte("Subject: x\n\nhi\n"))), "250 ")
			d.Logged(t, 1, "client=127.0.0.99 ")
			// HAProxy's own address must not be the client of anybody's mail.
			testkit.Eventually(t, "health checks to be served", func() bool {
				return d.Metric("blockd_smtp_sessions_total") > "1"
			})
			testkit.Equal(t, "connections of HAProxy refused", d.Metric(`blockd_smtp_connections_refused_total{why="proxy"}`), "0")
		})
	}
}

package servers

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"blockd/cmd/blockd/e2e"
	"blockd/internal/testkit"
	"blockd/internal/testkit/selfsigned"
)

// mailServer is a real mail server of a test's own. It takes mail for everybody
// at here.example and hands it to inbox; for strangers it does not relay.
type mailServer struct {
	name, version string
	smtp          string // HOST:PORT for any client
	behind        string // HOST:PORT for blockd, which says there who the client is by clientInfo
	clientInfo    string
	cert          selfsigned.Cert // shown behind STARTTLS; zero: it has none
	inbox         *inbox
	log           func() string
	queues        []string // folders that hold a file for each message it still has
}

// filtered is the setup of a blockd in front of the server.
func (s *mailServer) filtered(more string) e2e.Setup {
	return e2e.Setup{Upstream: "smtp://" + s.behind, SMTP: fmt.Sprintf("client_info = %q\n%s", s.clientInfo, more)}
}

// settle waits until everything that the server has taken was handed on.
func (s *mailServer) settle(t *testing.T) {
	t.Helper()
	testkit.Eventually(t, s.name+" to have handed on what it took", func() bool {
		empty := true
		for _, queue := range s.queues {
			filepath.WalkDir(queue, func(path string, d os.DirEntry, err error) error {
				if err == nil && !d.IsDir() {
					empty = false
					return filepath.SkipAll
				}
				return nil // a folder may go while it is walked
			})
		}
		return empty
	})
}

// startPostfixServer is startPostfix with its mail handed to an inbox.
func startPostfixServer(t *testing.T, options ...string) *mailServer {
	t.Helper()
	cert := selfsigned.New(t, "mail.here.example")
	certPath, keyPath := cert.Write(t, publicDir(t))
	options = append([]string{"smtpd_tls_security_level=may", "smtpd_tls_cert_file=" + certPath, "smtpd_tls_key_file=" + keyPath}, options...)
	p := e2e.ConfigurePostfix(t, e2e.FreeAddress(t), options...)
	in := startInbox(t)
	p.Add(t, "master.cf", "lmtp unix - - n - - lmtp\n")
	p.Add(t, "main.cf", "virtual_transport = lmtp:inet:"+in.address+"\nlmtp_line_length_limit = 0\n")
	p.Start(t)
	out, err := exec.Command(testkit.Peer(t, "postconf"), "-d", "-h", "mail_version").Output() // -d: as compiled, no main.cf is read
	testkit.Must(t, err)
	s := &mailServer{name: "Postfix", version: strings.TrimSpace(string(out)), smtp: p.SMTP, behind: p.SMTP,
		cert: cert, clientInfo: "xclient", inbox: in, log: p.Log}
	for _, queue := range []string{"maildrop", "incoming", "active", "deferred"} {
		s.queues = append(s.queues, filepath.Join(p.Dir, "queue", queue))
	}
	return s
}

// servers are those that blockd is proved in front of.
var servers = []struct {
	name  string
	start func(t *testing.T) *mailServer
}{
	{"Postfix", func(t *testing.T) *mailServer { return startPostfixServer(t) }},
	// What Postfix did before 2023, and does for mynetworks unless told otherwise.
	{"lax Postfix", func(t *testing.T) *mailServer {
		s := startPostfixServer(t, "smtpd_forbid_bare_newline=no")
		s.name = "lax Postfix"
		return s
	}},
	{"Exim", func(t *testing.T) *mailServer { return startExim(t) }},
	{"Sendmail", func(t *testing.T) *mailServer { return startSendmail(t) }},
	{"OpenSMTPD", func(t *testing.T) *mailServer { return startOpenSMTPD(t, "") }},
}

// Each server takes a message and hands it on, and relays for nobody: what the
// other tests rely on.
func TestServers(t *testing.T) {
	for _, server := range servers {
		t.Run(server.name, func(t *testing.T) {
			t.Parallel()
			s := server.start(t)
			c := e2e.DialSMTP(t, s.smtp)
			const text = "Subject: x\r\n\r\nhello\r\n.dot\r\n"
			if got := c.Send("friend@there.example", "you@here.example", []byte(text)); !strings.HasPrefix(got, "250 ") {
				t.Errorf("the dot = %q\n%s", got, s.log())
			}
			s.settle(t)
			if got := s.inbox.all(); len(got) != 1 || got[0].from != "friend@there.example" || len(got[0].to) != 1 || got[0].to[0] != "you@here.example" ||
				!strings.Contains(got[0].text, "Subject: x\r\n") || !strings.HasSuffix(got[0].text, "\r\n\r\nhello\r\n.dot\r\n") {
				t.Errorf("arrived: %q\n%s", got, s.log())
			}
			c.Command("MAIL FROM:<friend@there.example>")
			testkit.Begins(t, "a recipient elsewhere", c.Command("RCPT TO:<you@elsewhere.example>"), "5")
		})
	}
}

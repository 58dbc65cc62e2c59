package servers

import (
	"fmt"
	"net"
	"strings"
	"testing"

	"blockd/cmd/blockd/e2e"
	"blockd/internal/testkit"
)

// By SMTP: as a client of LMTP it is lost when a message has two recipients, with
// an answer for each.
// There is no TLS: Debian 12's build fails in every handshake as a server, with
// openssl s_client too.
const opensmtpdConf = `
%[4]s
listen on %[1]s port %[2]s hostname mail.here.example %[5]s
listen on %[1]s port %[6]s hostname mail.here.example proxy-v2 %[5]s
action "inbox" relay host "smtp+notls://%[3]s"
match from any for domain "here.example" action "inbox"
`

// startOpenSMTPD runs an OpenSMTPD until the test ends. listen are more options
// of its listeners, and settings more lines ahead of it.
func startOpenSMTPD(t *testing.T, listen string, settings ...string) *mailServer {
	t.Helper()
	j := newJail(t)
	in := startInbox(t)
	s := &mailServer{
		name: "OpenSMTPD", version: packageVersion(t, "opensmtpd"), smtp: e2e.FreeAddress(t), behind: e2e.FreeAddress(t), inbox: in, clientInfo: "proxy-v2",
		queues: []string{j.path("var/spool/smtpd/queue")}, log: j.log.String,
	}
	host, port, _ := net.SplitHostPort(s.smtp)
	_, behind, _ := net.SplitHostPort(s.behind)
	testkit.Write(t, j.path("etc/smtpd.conf"), fmt.Sprintf(opensmtpdConf, host, port, in.address, strings.Join(settings, "\n"), listen, behind))
	j.mkdir(t, "var/spool/smtpd", 0, 0o711)
	j.mkdir(t, "var/lib/opensmtpd/empty", 0, 0o755)
	j.start(t, s.smtp, "/usr/sbin/smtpd", "-d")
	return s
}

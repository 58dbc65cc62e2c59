package servers

import (
	"fmt"
	"net"
	"os"
	"strings"
	"testing"

	"blockd/cmd/blockd/e2e"
	"blockd/internal/testkit"
)

// eximConf leaves SMTP as Exim has it, and sees to it that a message leaves as it
// came and at once.
const eximConf = `
primary_hostname = mail.here.example
local_interfaces = <; %[3]s.%[4]s ; %[3]s.%[6]s
hosts_proxy = ${if eq{$received_port}{%[6]s}{127.0.0.1}}
domainlist local_domains = here.example
spool_directory = /var/spool/exim4
log_file_path = /var/log/exim4/%%slog
log_selector = +all
exim_user = Debian-exim
never_users =
tls_advertise_hosts = *
tls_certificate = /etc/tls/cert.pem
tls_privatekey = /etc/tls/key.pem
host_lookup =
rfc1413_query_timeout = 0s
smtp_accept_queue_per_connection = 0
smtp_accept_max = 0
smtp_connect_backlog = 100
message_size_limit = 60M
smtputf8_advertise_hosts = *
acl_smtp_rcpt = acl_rcpt
acl_smtp_data = acl_data
%[5]s

begin acl
acl_rcpt:
  accept domains = +local_domains
  deny message = relay not permitted
acl_data:
  accept

begin routers
inbox:
  driver = manualroute
  domains = +local_domains
  transport = inbox
  route_list = * %[1]s
  self = send

begin transports
inbox:
  driver = smtp
  protocol = lmtp
  port = %[2]s
  allow_localhost
  hosts_avoid_tls = *
  hosts_try_chunking =
  message_linelength_limit = 1000000

begin retry
* * F,1h,1m
`

// startExim runs an Exim until the test ends. settings are more lines of the
// main section.
func startExim(t *testing.T, settings ...string) *mailServer {
	t.Helper()
	return startEximWith(t, eximConf, settings...)
}

// startEximWith is startExim with another configuration of eximConf's form.
func startEximWith(t *testing.T, conf string, settings ...string) *mailServer {
	t.Helper()
	j := newJail(t)
	in := startInbox(t)
	const user = 4 // Debian-exim in newJail's list
	testkit.Must(t, os.Chown(j.path("etc/tls/key.pem"), user, user))
	j.mkdir(t, "var/spool/exim4", user, 0o750)
	j.mkdir(t, "var/log/exim4", user, 0o750)
	s := &mailServer{
		name: "Exim", version: packageVersion(t, "exim4-daemon-heavy"), smtp: e2e.FreeAddress(t), behind: e2e.FreeAddress(t), inbox: in, cert: j.cert, clientInfo: "proxy-v2",
		queues: []string{j.path("var/spool/exim4/input")},
		log: func() string {
			text, _ := os.ReadFile(j.path("var/log/exim4/mainlog"))
			more, _ := os.ReadFile(j.path("var/log/exim4/rejectlog"))
			return string(text) + string(more) + j.log.String()
		},
	}
	host, port, _ := net.SplitHostPort(s.smtp)
	_, behind, _ := net.SplitHostPort(s.behind)
	inHost, inPort, _ := net.SplitHostPort(in.address)
	testkit.Write(t, j.mkdir(t, "etc/exim4", 0, 0o755)+"/exim4.conf",
		fmt.Sprintf(conf, inHost, inPort, host, port, strings.Join(settings, "\n"), behind))
	j.start(t, s.smtp, "/usr/sbin/exim4", "-bdf", "-q1m")
	return s
}

package servers

import (
	"fmt"
	"net"
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

func TestMain(m *testing.M) { e2e.Main(m) }

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
	j, s := configureExim(t, conf, settings...)
	j.start(t, s.smtp, "/usr/sbin/exim4", "-bdf", "-q1m")
	return s
}

// configureExim is startEximWith without the start.
func configureExim(t *testing.T, conf string, settings ...string) (*jail, *mailServer) {
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
	return j, s
}

// sendmailMC leaves SMTP as Sendmail has it. F lacks D, F and M, with which it
// would add fields behind the client's; delivery is interactive, so that a
// message has arrived when its dot is answered. Sendmail lets 127.0.0.1 send
// anywhere, and blockd comes from there: Local_check_rcpt is asked first.
const sendmailMC = `divert(-1)
divert(0)dnl
OSTYPE(` + "`linux'" + `)dnl
define(` + "`confDOMAIN_NAME', `mail.here.example'" + `)dnl
define(` + "`confDELIVERY_MODE', `interactive'" + `)dnl
define(` + "`confTO_IDENT', `0'" + `)dnl
define(` + "`confPID_FILE', `/var/run/sendmail.pid'" + `)dnl
define(` + "`confDEF_USER_ID', `smmta:smmta'" + `)dnl
define(` + "`confSERVICE_SWITCH_FILE', `/etc/mail/service.switch'" + `)dnl
define(` + "`ALIAS_FILE', `'" + `)dnl
define(` + "`STATUS_FILE', `'" + `)dnl
define(` + "`confSERVER_CERT', `/etc/tls/cert.pem'" + `)dnl
define(` + "`confSERVER_KEY', `/etc/tls/key.pem'" + `)dnl
define(` + "`confCACERT_PATH', `/etc/tls'" + `)dnl
define(` + "`confCACERT', `/etc/tls/cert.pem'" + `)dnl
define(` + "`confLOG_LEVEL', `14'" + `)dnl
FEATURE(` + "`no_default_msa'" + `)dnl
FEATURE(` + "`nocanonify'" + `)dnl
FEATURE(` + "`accept_unresolvable_domains'" + `)dnl
FEATURE(` + "`accept_unqualified_senders'" + `)dnl
LOCAL_DOMAIN(` + "`here.example'" + `)dnl
DAEMON_OPTIONS(` + "`Name=MTA, Addr=%[1]s, Port=%[2]s'" + `)dnl
%[5]s
MAILER(` + "`smtp'" + `)dnl
MAILER_DEFINITIONS
Minbox, P=[IPC], F=hmuXz8, S=EnvFromSMTP, R=EnvToSMTP, E=\r\n, T=DNS/RFC822/SMTP, A=TCP $h %[4]s
LOCAL_RULESETS
SLocal_check_rcpt
R$*	$: $>canonify $1
R$* < @ $=w . > $*	$@ local
R$* < @ $* > $*	$#error $@ 5.7.1 $: "550 5.7.1 Relaying denied"
LOCAL_RULE_0
R$+ < @ here.example . >	$#inbox $@ [%[3]s] $: $1 < @ here.example . >
`

const sendmailProgram, sendmailCF = "/usr/libexec/sendmail/sendmail", "/etc/mail/sendmail.cf"

// startSendmail runs a Sendmail until the test ends. mc are more lines of the m4
// source that its configuration is made of, such as INPUT_MAIL_FILTER.
func startSendmail(t *testing.T, mc ...string) *mailServer {
	t.Helper()
	j, s := configureSendmail(t, mc...)
	j.start(t, s.smtp, sendmailProgram, "-bD", "-q1m", "-C", sendmailCF)
	return s
}

// configureSendmail is startSendmail without the start.
func configureSendmail(t *testing.T, mc ...string) (*jail, *mailServer) {
	t.Helper()
	j := newJail(t)
	in := startInbox(t)
	s := &mailServer{
		name: "Sendmail", version: packageVersion(t, "sendmail-bin"), smtp: e2e.FreeAddress(t), inbox: in, cert: j.cert, clientInfo: "none",
		queues: []string{j.path("var/spool/mqueue")}, log: j.log.String,
	}
	s.behind = s.smtp
	j.mkdir(t, "var/spool/mqueue", 0, 0o700)
	host, port, _ := net.SplitHostPort(s.smtp)
	inHost, inPort, _ := net.SplitHostPort(in.address)
	source := j.path("etc/mail/sendmail.mc")
	testkit.Write(t, source, fmt.Sprintf(sendmailMC, host, port, inHost, inPort, strings.Join(mc, "\n")))
	testkit.Write(t, j.path("etc/mail/service.switch"), "hosts files\naliases files\n")

	// m4 outside of the jail: the files that it reads ask a shell for the date.
	cf := j.path("usr/share/sendmail/cf")
	m4 := exec.Command(j.path("usr/bin/m4"), "-D_CF_DIR_="+cf+"/", cf+"/m4/cf.m4", source)
	m4.Env = []string{"PATH=/usr/bin:/bin", "LD_LIBRARY_PATH=" + strings.Join(j.libraries(t), ":")}
	text, err := m4.Output()
	if err != nil {
		t.Fatalf("m4: %v", err)
	}
	testkit.Write(t, j.path(sendmailCF), string(text))
	return j, s
}

// libraries are the folders that hold the shared libraries of the jail.
func (j *jail) libraries(t *testing.T) []string {
	t.Helper()
	files := testkit.Value(filepath.Glob(j.path("usr/lib/*/libsigsegv.so.2")))(t)
	for i, file := range files {
		files[i] = filepath.Dir(file)
	}
	return files
}

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

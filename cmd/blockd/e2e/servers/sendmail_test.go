package servers

import (
	"fmt"
	"net"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"blockd/cmd/blockd/e2e"
	"blockd/internal/testkit"
)

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

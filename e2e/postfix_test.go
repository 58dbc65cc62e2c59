package e2e

import (
	"fmt"
	"os"
	"os/exec"
	"os/user"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"
)

// postfix is a real Postfix of a test's own: its own configuration, queue and
// log below one folder, one smtpd, and one Maildir that takes
// mail for everybody at here.example.
type postfix struct {
	smtp    string // HOST:PORT of its smtpd
	maildir string
	config  string // folder of main.cf, for MAIL_CONFIG
	dir     string
}

// mainCF trusts no client: blockd comes from loopback, and a Postfix that trusts
// loopback would be an open relay behind it (docs/postfix.md). What Postfix does to
// messages by itself is off, so that a difference is ours: rewriting of
// addresses, dropping of fields such as Content-Length, and the pause of
// in_flow_delay, which sets in when many transactions are given up.
const mainCF = `
compatibility_level = 3.6
queue_directory = %[1]s/queue
data_directory = %[1]s/data
command_directory = /usr/sbin
daemon_directory = /usr/lib/postfix/sbin
mail_owner = postfix
setgid_group = postdrop
maillog_file_prefixes = %[1]s
maillog_file = %[1]s/maillog
inet_interfaces = 127.0.0.1
inet_protocols = ipv4
smtpd_peername_lookup = no
myhostname = mail.here.example
mydestination =
mynetworks =
local_header_rewrite_clients =
message_drop_headers =
in_flow_delay = 0
smtpd_relay_restrictions = reject_unauth_destination
smtpd_forbid_bare_newline = normalize
smtpd_forbid_bare_newline_exclusions =
smtpd_client_connection_count_limit = 0
virtual_mailbox_domains = here.example
virtual_mailbox_base = %[1]s
virtual_mailbox_maps = static:inbox/
virtual_minimum_uid = 1
virtual_uid_maps = static:%[2]s
virtual_gid_maps = static:%[3]s
virtual_mailbox_limit = 0
`

const masterCF = `%s inet n - n - - smtpd
  -o smtpd_authorized_xclient_hosts=127.0.0.1
%scleanup   unix n - n - 0 cleanup
qmgr      unix n - n 300 1 qmgr
rewrite   unix - - n - - trivial-rewrite
bounce    unix - - n - 0 bounce
defer     unix - - n - 0 bounce
trace     unix - - n - 0 bounce
verify    unix - - n - 1 verify
flush     unix n - n 1000? 0 flush
proxymap  unix - - n - - proxymap
error     unix - - n - - error
retry     unix - - n - - error
virtual   unix - n n - - virtual
anvil     unix - - n - 1 anvil
tlsmgr    unix - - n 1000? 1 tlsmgr
postlog   unix-dgram n - n - 1 postlogd
`

// startPostfix runs a Postfix until the test ends, with its smtpd on the
// loopback address given. options are more of smtpd's own, "name=value".
func startPostfix(t *testing.T, smtp string, options ...string) *postfix {
	t.Helper()
	command := peer(t, "postfix")
	if os.Geteuid() != 0 {
		missing(t, "Postfix's master runs as root only, and these tests do not")
	}
	owner, err := user.Lookup("postfix")
	if err != nil {
		missing(t, "no user postfix: "+err.Error())
	}

	// Not t.TempDir: its parents are closed to the user postfix.
	dir, err := os.MkdirTemp("", "blockd-postfix-")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	p := &postfix{smtp: smtp, dir: dir, config: filepath.Join(dir, "config"), maildir: filepath.Join(dir, "inbox")}

	uid, _ := strconv.Atoi(owner.Uid)
	gid, _ := strconv.Atoi(owner.Gid)
	for _, sub := range []string{"config", "queue", "data", "inbox"} {
		if err := os.Mkdir(filepath.Join(dir, sub), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	for path, mode := range map[string]os.FileMode{dir: 0o755, filepath.Join(dir, "data"): 0o700, p.maildir: 0o700} {
		if err := os.Chmod(path, mode); err != nil {
			t.Fatal(err)
		}
	}
	for _, path := range []string{filepath.Join(dir, "data"), p.maildir} {
		if err := os.Chown(path, uid, gid); err != nil {
			t.Fatal(err)
		}
	}
	write(t, filepath.Join(p.config, "main.cf"), fmt.Sprintf(mainCF, dir, owner.Uid, owner.Gid))
	service := smtp
	if smtp == "127.0.0.1:25" {
		service = "smtp" // as on a mail server, and as documents call it
	}
	var more strings.Builder
	for _, option := range options {
		more.WriteString("  -o " + option + "\n")
	}
	write(t, filepath.Join(p.config, "master.cf"), fmt.Sprintf(masterCF, service, &more))

	if out, err := exec.Command(command, "-c", p.config, "start").CombinedOutput(); err != nil {
		t.Fatalf("postfix start: %v\n%s\n%s", err, out, p.log())
	}
	t.Cleanup(func() {
		if out, err := exec.Command(command, "-c", p.config, "stop").CombinedOutput(); err != nil {
			t.Errorf("postfix stop: %v\n%s", err, out)
		}
		if t.Failed() {
			log := p.log()
			t.Logf("log of Postfix, its end:\n%s", log[max(0, len(log)-4000):])
		}
	})
	wait(t, "Postfix to listen", time.Minute, func() bool { return listens(p.smtp) })
	return p
}

func (p *postfix) log() string {
	text, err := os.ReadFile(filepath.Join(p.dir, "maillog"))
	if err != nil {
		return err.Error()
	}
	return string(text)
}

package e2e

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"os/user"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"blockd/internal/testkit"
)

// Postfix is a real Postfix of a test's own: its own configuration, queue and
// log below one folder, one smtpd, and one Maildir that takes
// mail for everybody at here.example. It reads nothing below /etc/postfix and no
// /etc/aliases: neither need exist.
type Postfix struct {
	SMTP    string // HOST:PORT of its smtpd
	Maildir string
	Config  string // folder of main.cf, for MAIL_CONFIG
	Dir     string
	Master  *os.Process // once started
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
meta_directory = %[1]s/config
mail_owner = postfix
setgid_group = postdrop
maillog_file_prefixes = %[1]s
maillog_file = %[1]s/maillog
inet_interfaces = 127.0.0.1
inet_protocols = ipv4
smtpd_peername_lookup = no
myhostname = mail.here.example
mydestination =
alias_maps =
alias_database =
local_recipient_maps =
mynetworks =
local_header_rewrite_clients =
message_drop_headers =
in_flow_delay = 0
smtpd_relay_restrictions = permit_mynetworks, reject_unauth_destination
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

// postfixDaemons is the folder of Postfix's daemons. It is compiled in, so no main.cf is needed to ask for it.
var postfixDaemons = sync.OnceValues(func() (string, error) {
	command, err := testkit.FindPeer("postconf")
	if err != nil {
		return "", err
	}
	out, err := exec.Command(command, "-d", "-h", "daemon_directory").Output()
	return strings.TrimSpace(string(out)), err
})

// StartPostfix runs a Postfix until the test ends, with its smtpd on the
// loopback address given. options are more of smtpd's own, "name=value".
func StartPostfix(t *testing.T, smtp string, options ...string) *Postfix {
	t.Helper()
	p := ConfigurePostfix(t, smtp, options...)
	p.Start(t)
	return p
}

// ConfigurePostfix is startPostfix without the start: a test may first add to its
// configuration. It ends the test where no Postfix can run.
func ConfigurePostfix(t *testing.T, smtp string, options ...string) *Postfix {
	t.Helper()
	testkit.Peer(t, "postfix")
	if os.Geteuid() != 0 {
		testkit.Missing(t, "Postfix's master runs as root only, and these tests do not")
	}
	owner, err := user.Lookup("postfix")
	if err != nil {
		testkit.Missing(t, "no user postfix: "+err.Error())
	}
	drop, err := user.LookupGroup("postdrop")
	if err != nil {
		testkit.Missing(t, "no group postdrop: "+err.Error())
	}

	// Not t.TempDir: its parents are closed to the user postfix.
	dir := testkit.Value(os.MkdirTemp("", "blockd-postfix-"))(t)
	t.Cleanup(func() { os.RemoveAll(dir) })
	testkit.Must(t, os.Chmod(dir, 0o755))
	p := &Postfix{SMTP: smtp, Dir: dir, Config: filepath.Join(dir, "config"), Maildir: filepath.Join(dir, "inbox")}

	uid, _ := strconv.Atoi(owner.Uid)
	gid, _ := strconv.Atoi(owner.Gid)
	dropped, _ := strconv.Atoi(drop.Gid)
	folder := func(name string, uid, gid int, mode os.FileMode) {
		path := filepath.Join(dir, name)
		testkit.Must(t, os.Mkdir(path, 0o755))
		testkit.Must(t, os.Chown(path, uid, gid))
		testkit.Must(t, os.Chmod(path, mode))
	}
	folder("config", 0, 0, 0o755)
	folder("data", uid, gid, 0o700)
	folder("inbox", uid, gid, 0o700)
	// The queue as "postfix check" makes it. That script, and "postfix start", which
	// runs it, take two seconds.
	folder("queue", 0, 0, 0o755)
	folder("queue/pid", 0, 0, 0o755)
	folder("queue/public", uid, dropped, 0o710)
	folder("queue/maildrop", uid, dropped, 0o730)
	for _, name := range strings.Fields("active bounce corrupt defer deferred flush hold incoming private saved trace") {
		folder("queue/"+name, uid, 0, 0o700)
	}

	testkit.Write(t, filepath.Join(p.Config, "main.cf"), fmt.Sprintf(mainCF, dir, owner.Uid, owner.Gid))
	service := smtp
	if smtp == "127.0.0.1:25" {
		service = "smtp" // as on a mail server, and as documents call it
	}
	var more strings.Builder
	for _, option := range options {
		more.WriteString("  -o " + option + "\n")
	}
	testkit.Write(t, filepath.Join(p.Config, "master.cf"), fmt.Sprintf(masterCF, service, &more))
	return p
}

// Add writes more lines at the end of main.cf or master.cf.
func (p *Postfix) Add(t *testing.T, file, lines string) {
	t.Helper()
	path := filepath.Join(p.Config, file)
	text := testkit.Read(t, path)
	testkit.Write(t, path, string(text)+lines)
}

// PostmapConfig is a folder with a main.cf for postmap -c, which reads the machine's without it.
func PostmapConfig(t *testing.T) string {
	t.Helper()
	p := &Postfix{Config: t.TempDir()}
	testkit.Write(t, filepath.Join(p.Config, "main.cf"), "compatibility_level = 3.6\n")
	p.Age(t)
	return p.Config
}

// Age makes main.cf and master.cf look an hour old: each program of Postfix waits until
// the main.cf that it reads has not changed for two seconds.
func (p *Postfix) Age(t *testing.T) {
	t.Helper()
	old := time.Now().Add(-time.Hour)
	for _, file := range []string{"main.cf", "master.cf"} {
		if err := os.Chtimes(filepath.Join(p.Config, file), old, old); err != nil && !errors.Is(err, fs.ErrNotExist) {
			t.Fatal(err)
		}
	}
}

// Start runs Postfix's master until the test ends, and waits until smtpd listens. by is a
// command that runs another one in its own place.
func (p *Postfix) Start(t *testing.T, by ...string) {
	t.Helper()
	daemons, err := postfixDaemons()
	if err != nil {
		t.Fatalf("postconf -d daemon_directory: %v", err)
	}
	p.Age(t)
	// -s: in the foreground.
	args := append(by, filepath.Join(daemons, "master"), "-c", p.Config, "-s")
	cmd := exec.Command(args[0], args[1:]...)
	StartProgram(t, cmd, p.Log, func() bool {
		// postlogd has read main.cf when it writes the first line: a test may write another one. Nobody knocks before: what
		// smtpd logs of it could fill postlogd's socket, and postlogd, which warns through the same socket when it
		// starts, would wait for itself.
		return strings.Contains(p.Log(), "daemon started") && Listens(p.SMTP)
	})
	p.Master = cmd.Process
}

// Reload has Postfix read its configuration again, and waits until it has.
func (p *Postfix) Reload(t *testing.T) {
	t.Helper()
	p.Age(t)
	const done = "reload -- version"
	before := strings.Count(p.Log(), done)
	testkit.Must(t, p.Master.Signal(syscall.SIGHUP))
	testkit.Eventually(t, "Postfix to read its configuration again", func() bool { return strings.Count(p.Log(), done) > before })
}

// Held are the messages in Postfix's hold queue.
func (p *Postfix) Held(t *testing.T) []string {
	t.Helper()
	return testkit.Value(filepath.Glob(filepath.Join(p.Dir, "queue", "hold", "*")))(t)
}

func (p *Postfix) Log() string {
	text, err := os.ReadFile(filepath.Join(p.Dir, "maillog"))
	if err != nil {
		return err.Error()
	}
	return string(text)
}

// Restrictions is an option of startPostfix: what smtpd asks, and where.
func Restrictions(where, what string) string { return fmt.Sprintf("{ %s = %s }", where, what) }

var anyReference = regexp.MustCompile(`ref[ =][0-9a-z]{10}`)

// Plain is a reply without what differs from one to the next.
func Plain(reply string) string { return anyReference.ReplaceAllString(reply, "ref *") }

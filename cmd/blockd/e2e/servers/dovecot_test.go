package servers

import (
	"bufio"
	"fmt"
	"net"
	"os"
	"os/exec"
	"os/user"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"blockd/cmd/blockd/e2e"
	"blockd/internal/testkit"
)

// dovecot is a real Dovecot of a test's own, with the files of packaging/dovecot.
type dovecot struct {
	imap string // HOST:PORT
	dir  string // nobody's; mail/USER is a Maildir
}

const dovecotConf = `
base_dir = %[1]s/run
state_dir = %[1]s/run
log_path = %[1]s/log
protocols = imap
listen = 127.0.0.1
ssl = no
disable_plaintext_auth = no
first_valid_uid = 1
mail_location = maildir:%[1]s/mail/%%u
service imap-login {
  inet_listener imap {
    port = %[2]s
  }
  inet_listener imaps {
    port = 0
  }
}
passdb {
  driver = static
  args = password=secret
}
userdb {
  driver = static
  args = uid=nobody gid=nogroup home=%[1]s/mail/%%u
}
namespace inbox {
  inbox = yes
  mailbox Junk {
    auto = create
    special_use = \Junk
  }
  mailbox Trash {
    auto = create
  }
}
!include %[1]s/blockd.conf
`

// startDovecot gives it the program, and a token for d.
func startDovecot(t *testing.T, d *e2e.Daemon) *dovecot {
	t.Helper()
	bin := testkit.Peer(t, "dovecot")
	if _, err := os.Stat("/usr/lib/dovecot/modules/sieve/lib90_sieve_imapsieve_plugin.so"); err != nil {
		testkit.Missing(t, "dovecot-sieve is not installed (make peers)")
	}
	if os.Geteuid() != 0 {
		testkit.Missing(t, "Dovecot begins as root, and this user is not")
	}
	s := &dovecot{imap: e2e.FreeAddress(t), dir: publicDir(t)}
	testkit.Must(t, e2e.CopyFile(e2e.Program, filepath.Join(s.dir, "blockd")))
	testkit.Write(t, filepath.Join(s.dir, "config.toml"), fmt.Sprintf("[index]\npath = \"none/blockd.bdx\"\n[http]\nlisten = %q\n", d.HTTP))
	token := testkit.Write(t, filepath.Join(s.dir, "token"), string(testkit.Read(t, d.Path("blockd.bdx.token"))))
	from := strings.NewReplacer("/etc/dovecot/blockd", s.dir, "/etc/blockd/config.toml", filepath.Join(s.dir, "config.toml"), "$(blockd ", "$("+filepath.Join(s.dir, "blockd")+" ",
		"logger -p mail.notice -t blockd-junk --", "echo >>"+filepath.Join(s.dir, "mail/notes"))
	for _, name := range []string{"blockd.conf", "junk.sieve", "not-junk.sieve", "blockd-junk"} {
		testkit.Write(t, filepath.Join(s.dir, name), from.Replace(string(testkit.Read(t, filepath.Join(e2e.Root, "packaging/dovecot", name)))))
	}
	_, port, _ := net.SplitHostPort(s.imap)
	conf := testkit.Write(t, filepath.Join(s.dir, "dovecot.conf"), fmt.Sprintf(dovecotConf, s.dir, port))
	nobody := nobodyID(t)
	for path, mode := range map[string]os.FileMode{s.dir: 0o755, token: 0o644, conf: 0o644, filepath.Join(s.dir, "blockd"): 0o755, filepath.Join(s.dir, "blockd-junk"): 0o755} {
		testkit.Must(t, os.Chmod(path, mode))
	}
	for _, name := range []string{"mail", "mail/anna@here.example"} {
		testkit.Must(t, os.Mkdir(filepath.Join(s.dir, name), 0o700))
		testkit.Must(t, os.Chown(filepath.Join(s.dir, name), nobody, -1))
	}
	for _, name := range []string{"junk.sieve", "not-junk.sieve"} {
		e2e.Ran(t, exec.Command(testkit.Peer(t, "sievec"), "-c", conf, "-x", "+vnd.dovecot.pipe +imapsieve", filepath.Join(s.dir, name)))
	}
	logs := func() string {
		log, _ := os.ReadFile(filepath.Join(s.dir, "log"))
		return string(log)
	}
	e2e.StartProgram(t, exec.Command(bin, "-F", "-c", conf), logs, func() bool { return e2e.Listens(s.imap) })
	return s
}

// deliver puts a message into the user's mailbox, as a delivering server does.
func (s *dovecot) deliver(t *testing.T, user string, message []byte, name string) {
	t.Helper()
	dir := filepath.Join(s.dir, "mail", user, "new")
	testkit.Must(t, os.MkdirAll(dir, 0o700))
	path := testkit.Write(t, filepath.Join(dir, name), string(message))
	nobody := nobodyID(t)
	for _, path := range []string{dir, path} {
		testkit.Must(t, os.Chown(path, nobody, -1))
	}
}

// imap is a client's session.
type imap struct {
	t    *testing.T
	conn net.Conn
	r    *bufio.Reader
	tag  int
}

func (s *dovecot) login(t *testing.T, user string) *imap {
	t.Helper()
	conn := testkit.Value(net.Dial("tcp", s.imap))(t)
	t.Cleanup(func() { conn.Close() })
	conn.SetDeadline(time.Now().Add(time.Minute))
	c := &imap{t: t, conn: conn, r: bufio.NewReader(conn)}
	c.r.ReadString('\n')
	c.must("LOGIN %s secret", user)
	return c
}

// must sends a command that has to work.
func (c *imap) must(format string, args ...any) {
	c.t.Helper()
	c.tag++
	command := fmt.Sprintf(format, args...)
	fmt.Fprintf(c.conn, "a%d %s\r\n", c.tag, command)
	for {
		line, err := c.r.ReadString('\n')
		if err != nil {
			c.t.Fatalf("%s: %v", command, err)
		}
		if rest, ok := strings.CutPrefix(line, fmt.Sprintf("a%d ", c.tag)); ok {
			if !strings.HasPrefix(rest, "OK") {
				c.t.Fatalf("%s: %s", command, rest)
			}
			return
		}
	}
}

// move moves all of one folder to another.
func (c *imap) move(from, to string) {
	c.t.Helper()
	c.must("SELECT %s", from)
	c.must("MOVE 1:* %s", to)
}

// Anna moves a message to Junk in her mail program. The next message of that sender is refused for her alone. She moves it back, and the next
// one passes. The log has what is asked back.
func TestDovecotJunk(t *testing.T) {
	testkit.Peer(t, "dovecot")
	d := e2e.Serve(t, e2e.Setup{})
	s := startDovecot(t, d)
	rcpt := func(sender, user string) string {
		c := e2e.DialSMTP(t, d.SMTP)
		c.Command("EHLO client.there.example")
		c.Command("MAIL FROM:<%s>", sender)
		answer := c.Command("RCPT TO:<%s>", user)
		c.Command("QUIT")
		return answer
	}
	arrive := func(sender string) { // through blockd, whose Maildir has a Return-Path
		t.Helper()
		before := len(e2e.Messages(t, d.Maildir))
		c := e2e.DialSMTP(t, d.SMTP)
		e2e.MustBegin(t, sender, c.Send(sender, "anna@here.example", e2e.Crlf([]byte("From: My Bank <info@bank.example>\nSubject: offers\n\nhello\n"))), "250")
		all := e2e.Messages(t, d.Maildir)
		if len(all) != before+1 {
			t.Fatalf("%d messages", len(all))
		}
		for _, path := range all {
			if text := testkit.Read(t, path); strings.HasPrefix(string(text), "Return-Path: <"+sender+">") {
				s.deliver(t, "anna@here.example", text, filepath.Base(path))
			}
		}
	}
	const refused = "550 5.7.1 recipient does not accept mail from promo@bulk.example"
	arrive("promo@bulk.example")
	anna := s.login(t, "anna@here.example")
	anna.move("INBOX", "Junk") // it is answered after the script has run
	testkit.Begins(t, "moved to Junk", rcpt("promo@bulk.example", "anna@here.example"), refused)
	for _, pass := range [][2]string{{"promo@bulk.example", "bob@here.example"}, {"info@bank.example", "anna@here.example"}} {
		testkit.Begins(t, pass, rcpt(pass[0], pass[1]), "250")
	}
	anna.move("Junk", "Trash") // thrown away
	testkit.Begins(t, "thrown away", rcpt("promo@bulk.example", "anna@here.example"), refused)
	anna.move("Trash", "Junk")
	anna.move("Junk", "INBOX")
	testkit.Begins(t, "moved back", rcpt("promo@bulk.example", "anna@here.example"), "250")
	anna.move("INBOX", "Trash")
	arrive("bob@here.example")
	anna.move("INBOX", "Junk")
	if notes, _ := os.ReadFile(filepath.Join(s.dir, "mail/notes")); !strings.Contains(string(notes), "anna@here.example: nothing is blocked yet: bob@here.example is of your own domain") {
		t.Errorf("notes: %s", notes)
	}
	testkit.Begins(t, "a colleague", rcpt("bob@here.example", "anna@here.example"), "250")
}

// nobodyID is the user whose mail it is: Dovecot serves none of root's.
func nobodyID(t *testing.T) int {
	t.Helper()
	u := testkit.Value(user.Lookup("nobody"))(t)
	return testkit.Value(strconv.Atoi(u.Uid))(t)
}

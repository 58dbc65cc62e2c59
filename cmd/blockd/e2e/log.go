package e2e

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"blockd/internal/testkit"
	"blockd/records/quarantine"
)

// daemonLog is the file that a daemon writes its log to. A line is in it as soon as the daemon
// has written it; a pipe would bring it to the test at some later time.
//
// The daemon may write a line after it has answered a client. So a test waits for a line
// (logged), and looks for what must not be there when the daemon has ended (wholeLog).
type daemonLog struct{ path string }

func newDaemonLog(t *testing.T) (l daemonLog, out *os.File) {
	t.Helper()
	path := filepath.Join(t.TempDir(), "log")
	out = testkit.Value(os.OpenFile(path, os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o644))(t)
	return daemonLog{path}, out
}

// String returns the log as it is now, for the message of a failed test.
func (l daemonLog) String() string {
	text, err := os.ReadFile(l.path)
	if err != nil {
		return err.Error()
	}
	return string(text)
}

// Logged waits until so many lines of d's log have all of these texts.
func (d *Daemon) Logged(t *testing.T, number int, texts ...string) {
	t.Helper()
	testkit.Eventually(t, "the log to have "+strings.Join(texts, " and "), func() bool {
		found := 0
		for line := range strings.Lines(d.Log.String()) {
			if hasAll(line, texts) {
				found++
			}
		}
		return found >= number
	})
}

// WholeLog ends d and returns its log.
func (d *Daemon) WholeLog(t *testing.T) string {
	t.Helper()
	d.Stop(t)
	return d.Log.String()
}

// Quarantine runs blockd quarantine, and returns its exit code and both outputs.
func (d *Daemon) Quarantine(t *testing.T, what string, words ...string) (code int, out, notes string) {
	t.Helper()
	return d.Command(t, append([]string{"quarantine", what}, words...)...)
}

// Aside are the messages that blockd quarantine list shows.
func (d *Daemon) Aside(t *testing.T) (all []quarantine.Message) {
	t.Helper()
	code, out, notes := d.Quarantine(t, "list", "--json")
	if code > 1 {
		t.Fatalf("quarantine list: %d, %s", code, notes)
	}
	for line := range strings.Lines(out) {
		var m quarantine.Message
		testkit.Must(t, json.Unmarshal([]byte(line), &m))
		all = append(all, m)
	}
	return all
}

// Send sends a message of a listed sender through the filter, which sets it aside.
func (d *Daemon) Send(t *testing.T, subject string, recipients ...string) {
	t.Helper()
	c := DialSMTP(t, d.SMTP)
	lines := []string{"EHLO client.example", "MAIL FROM:<Spammer+tag@bulk.example>"}
	for _, r := range recipients {
		lines = append(lines, "RCPT TO:<"+r+">")
	}
	for _, line := range append(lines, "DATA") {
		if got := c.Command(line); got[0] > '3' {
			t.Fatalf("%s: %s", line, got)
		}
	}
	MustBegin(t, "the message", c.Command("Subject: "+subject+"\r\nDelivered-To: forged@here.example\r\n\r\n..a dot\r\nend\r\n."), "250")
	c.Command("QUIT")
}

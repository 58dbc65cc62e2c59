package e2e

import (
	"encoding/json"
	"os/exec"
	"strings"
	"testing"

	"blockd/internal/testkit"
	"blockd/records/quarantine"
)

// Quarantine runs blockd quarantine, and returns its exit code and both outputs.
func (d *Daemon) Quarantine(t *testing.T, what string, words ...string) (code int, out, notes string) {
	t.Helper()
	cmd := exec.Command(Program, append([]string{"quarantine", what, "-c", d.Path("config.toml")}, words...)...)
	var stdout, stderr strings.Builder
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	if err := cmd.Run(); err != nil && cmd.ProcessState == nil {
		t.Fatal(err)
	}
	return cmd.ProcessState.ExitCode(), stdout.String(), stderr.String()
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

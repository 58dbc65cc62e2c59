package servers

import (
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"blockd/cmd/blockd/e2e"
	"blockd/internal/testkit"
)

// publicDir makes a folder that any user may write to, as smtp-sink's user must.
func publicDir(t *testing.T) string {
	t.Helper()
	dir := testkit.Value(os.MkdirTemp("", "blockd-sink-"))(t)
	t.Cleanup(func() { os.RemoveAll(dir) })
	testkit.Must(t, os.Chmod(dir, 0o777))
	return dir
}

// TestLMTPUpstream relays into a real LMTP server (RFC 2033), by TCP and by Unix
// socket: one recipient a transaction, refused senders never seen there.
func TestLMTPUpstream(t *testing.T) {
	lists := "[[list]]\nname = \"bad\"\npath = \"bad.txt\"\n"
	files := map[string]string{"bad.txt": "bulk.example\n"}
	tests := []struct {
		name  string
		start func(t *testing.T, dir string) (upstream string)
	}{
		{"tcp", func(t *testing.T, dir string) string {
			return "lmtp://" + e2e.Sink(t, "-L", "-D", filepath.Join(dir, "mail."))
		}},
		{"unix", func(t *testing.T, dir string) string {
			socket := filepath.Join(dir, "lmtp")
			e2e.RunSink(t, []string{"-L", "-D", filepath.Join(dir, "mail."), "unix:" + socket})
			testkit.Eventually(t, "smtp-sink to listen", func() bool {
				conn, err := net.Dial("unix", socket)
				if err != nil {
					return false
				}
				conn.Close()
				return true
			})
			return "lmtp+unix:" + socket
		}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			dir := publicDir(t)
			d := e2e.Serve(t, e2e.Setup{Upstream: tt.start(t, dir), Lists: lists, Files: files, SMTP: `client_info = "none"`})
			c := e2e.DialSMTP(t, d.SMTP)
			for _, step := range []struct{ command, want string }{
				{"MAIL FROM:<a@bulk.example>", "250"},
				{"RCPT TO:<you@here.example>", "550 5.7.1 "},
				{"RSET", "250"},
				{"MAIL FROM:<friend@there.example>", "250"},
				{"RCPT TO:<you@here.example>", "250"},
				{"RCPT TO:<other@here.example>", "452 4.5.3 "},
				{"DATA", "354"},
				{"Subject: by LMTP\r\n\r\n..a line that begins with a dot\r\n.", "250"},
				{"QUIT", "221"},
			} {
				e2e.MustBegin(t, step.command, c.Command("%s", step.command), step.want)
			}
			var text []byte
			testkit.Eventually(t, "the message to be in the sink's file", func() bool {
				mails, _ := filepath.Glob(filepath.Join(dir, "mail.*"))
				for _, mail := range mails {
					more, _ := os.ReadFile(mail)
					text = append(text, more...)
				}
				return strings.Contains(string(text), "by LMTP")
			})
			if strings.Contains(string(text), "bulk.example") || !strings.Contains(string(text), ".a line that begins with a dot") {
				t.Errorf("the server has received:\n%s", text)
			}
		})
	}
}

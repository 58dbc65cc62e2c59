package program

import (
	"net/http"
	"os"
	"strings"
	"syscall"
	"testing"

	"blockd/cmd/blockd/e2e"
	"blockd/internal/testkit"
)

// TestBrokenListKeepsServing breaks a list in the ways that happen, under a
// running daemon: what served serves on, and the log, the metric and /readyz say
// so until it is cured.
func TestBrokenListKeepsServing(t *testing.T) {
	const good = "spammer@bulk.example\njunk.example\n"
	d := e2e.Serve(t, e2e.Setup{
		Lists: "[[list]]\nname = \"own\"\npath = \"own.txt\"\nformat = \"plain\"\n",
		Files: map[string]string{"own.txt": good},
	})
	own := d.Path("own.txt")
	const series = "blockd_reload_last_attempt_success"
	tests := []struct {
		name, class string
		damage      func(t *testing.T)
	}{
		{"removed", "missing", func(t *testing.T) {
			testkit.Must(t, os.Remove(own))
		}},
		{"emptied", "empty", func(t *testing.T) { e2e.Replace(t, own, "") }},
		{"a torn gzip file", "truncated", func(t *testing.T) { e2e.Replace(t, own, "\x1f\x8b\x08\x00\x00\x00\x00\x00\x00\x03\x4b") }},
		{"an error page", "html", func(t *testing.T) { e2e.Replace(t, own, "<!DOCTYPE html>\n<html>502 Bad Gateway</html>\n") }},
		{"mailbox providers among its entries", "protected", func(t *testing.T) {
			e2e.Replace(t, own, good+"there.example\ngmail.com\noutlook.com\nyahoo.com\nqq.com\nweb.de\nfree.fr\n")
		}},
		{"against its own test", "self-test", func(t *testing.T) { e2e.Replace(t, own, good+"there.example\n#? pass friend@there.example\n") }},
		{"full of bad lines", "bad-ratio", func(t *testing.T) { e2e.Replace(t, own, good+strings.Repeat("no entry at all\n", 200)) }},
		{"a folder in its place", "directory", func(t *testing.T) {
			testkit.Must(t, os.Remove(own))
			testkit.Must(t, os.Mkdir(own, 0o755))
		}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			tt.damage(t)
			testkit.Eventually(t, "/readyz to say "+tt.class, func() bool {
				status, body := d.Get("/readyz")
				return status == http.StatusOK && strings.HasPrefix(body, "degraded\n") && strings.Contains(body, tt.class)
			})
			// It is counted a moment after it shows.
			d.Counted(t, series, "0")
			d.Logged(t, 1, "lists refused", "class="+tt.class)
			testkit.Begins(t, "a listed sender", e2e.Ask(t, d.SMTP, "spammer@bulk.example"), "550 ")
			testkit.Begins(t, "a clear sender", e2e.Ask(t, d.SMTP, "friend@there.example"), "250")

			testkit.Must(t, os.RemoveAll(own))
			e2e.Replace(t, own, good)
			testkit.Eventually(t, "/readyz to be well again", func() bool {
				_, body := d.Get("/readyz")
				return body == "ok\n"
			})
			d.Counted(t, series, "1")
		})
	}

	t.Run("SIGHUP reads the lists at once", func(t *testing.T) {
		before := d.Metric(`blockd_reloads_total{result="unchanged"}`)
		testkit.Must(t, d.Cmd.Process.Signal(syscall.SIGHUP))
		testkit.Eventually(t, "the reload to be counted", func() bool {
			return d.Metric(`blockd_reloads_total{result="unchanged"}`) != before
		})
	})
}

package e2e

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"blockd/internal/testkit"
	"blockd/internal/testkit/nameserver"
)

// TestConsole has a person use the console in a real browser, headless: cmd/blockd/e2e/console has
// what they do. One daemon wants tokens, the other answers everybody on this machine.
func TestConsole(t *testing.T) {
	npm, chromium := testkit.Peer(t, "npm"), testkit.Peer(t, "chromium")
	if _, err := os.Stat("console/node_modules"); err != nil {
		testkit.Missing(t, "Playwright is not installed (npm --prefix cmd/blockd/e2e/console ci)")
	}
	lists := setup{files: map[string]string{"own.txt": "listed.example\n192.0.2.0/24\n", "other.txt": "second.example\n", "aside.txt": "aside.example\n"}, smtp: "quarantine = \"aside\"\n", lists: `
[[list]]
name = "own"
path = "own.txt"
format = "plain"
reason = "our own"
homepage = "https://own.list.example/"
complaints = "mailto:complaints@list.example"

[[list]]
name = "other"
path = "other.txt"
format = "plain"

[[list]]
name = "aside"
path = "aside.txt"
format = "plain"
on_match = "quarantine"
`}
	d, open := configure(t, lists), serve(t, lists)
	zone, receipts, text := freeAddress(t), freeAddress(t), testkit.Read(t, d.path("config.toml"))
	text = fmt.Appendf(text, "[dns]\nlisten = %q\n[[dns.zone]]\nname = %q\nkind = \"domain\"\n[[dns.zone]]\nname = %q\nkind = \"ip\"\n[receipts]\nlisten = %q\n[auth]\nresolver = %q\n", zone, domainZone, ipZone, receipts, nameserver.Serve(t, nil).Address)
	testkit.Write(t, d.path("config.toml"), strings.Replace(string(text), "[http]\n", "[http]\ntokens = \"tokens\"\n", 1))
	token := strings.TrimSpace(d.must(t, "token", "new", "--name", "helpdesk", "--write"))
	readToken := strings.TrimSpace(d.must(t, "token", "new", "--name", "viewer"))
	adminToken := strings.TrimSpace(d.must(t, "token", "new", "--name", "boss", "--admin"))
	d.unready = true // who has no token is not told
	d.start(t)
	testkit.Eventually(t, "the daemon's socket", func() bool {
		code, _, _ := d.command(t, "add", "kept.example", "--why", "phishing, ticket 4711", "--author", "jo")
		return code == 0
	})

	cmd := exec.Command(npm, "exec", "--", "playwright", "test")
	cmd.Dir = "console"
	cmd.Env = append(os.Environ(), "BLOCKD_TEST_CHROMIUM="+chromium, "BLOCKD_OUTPUT="+t.TempDir(), "BLOCKD_DIR="+d.dir, "BLOCKD_SMTP="+d.smtp,
		"BLOCKD_URL=http://"+d.http, "BLOCKD_OPEN_URL=http://"+open.http, "BLOCKD_TOKEN="+token, "BLOCKD_READ_TOKEN="+readToken, "BLOCKD_ADMIN_TOKEN="+adminToken, "BLOCKD_DNS="+zone, "BLOCKD_RECEIPTS=http://"+receipts)
	if *update {
		cmd.Args = append(cmd.Args, "receipt")
		cmd.Env = append(cmd.Env, "BLOCKD_TEST_SCREENSHOTS="+filepath.Join(root, "docs"))
	}
	cmd.Stdout, cmd.Stderr = t.Output(), t.Output() // line by line: a run that hangs says where
	if err := cmd.Run(); err != nil {
		t.Fatalf("playwright: %v", err)
	}
	log := d.wholeLog(t)
	for _, secret := range []string{token, readToken, adminToken} {
		if strings.Contains(log, secret) {
			t.Error("a token is in the log")
		}
	}
}

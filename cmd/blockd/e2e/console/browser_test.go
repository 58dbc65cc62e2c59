package console

import (
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"blockd/cmd/blockd/e2e"
	"blockd/internal/testkit"
)

// browser is Playwright with Debian's Chromium, headless. It runs what the *.spec.js files of its arguments say; they find
// their daemon in its environment. Runs are beside each other: each has daemons of its own.
func browser(t *testing.T, d *e2e.Daemon, env []string, specs ...string) *exec.Cmd {
	t.Helper()
	cmd := exec.Command(testkit.Peer(t, "node"), append([]string{"node_modules/.bin/playwright", "test"}, specs...)...)
	cmd.Env = append(os.Environ(), "BLOCKD_TEST_CHROMIUM="+testkit.Peer(t, "chromium"), "BLOCKD_OUTPUT="+t.TempDir(), "BLOCKD_DIR="+d.Dir, "BLOCKD_SMTP="+d.SMTP, "BLOCKD_URL=http://"+d.HTTP)
	cmd.Env = append(cmd.Env, env...)
	if *e2e.Update {
		cmd.Env = append(cmd.Env, "BLOCKD_TEST_SCREENSHOTS="+filepath.Join(e2e.Root, "docs"))
	}
	cmd.Stdout, cmd.Stderr = t.Output(), t.Output() // line by line: a run that hangs says where
	return cmd
}

// installed skips a test where Playwright is not.
func installed(t *testing.T) {
	t.Helper()
	testkit.Peer(t, "node")
	testkit.Peer(t, "chromium")
	if _, err := os.Stat("node_modules"); err != nil {
		testkit.Missing(t, "Playwright is not installed (npm --prefix cmd/blockd/e2e/console ci)")
	}
}

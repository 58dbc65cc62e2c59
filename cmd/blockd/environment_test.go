package main

import (
	"path/filepath"
	"strings"
	"testing"
)

// A command follows the environment, and a fault names the variable.
func TestCommandsFollowTheEnvironment(t *testing.T) {
	file := writeFile(t, t.TempDir(), "config.toml", "[smtp]\nhostname = \"file.example\"\n")
	t.Setenv("BLOCKD_SMTP_HOSTNAME", "env.example")
	t.Setenv("BLOCKD_SMTP_TRUSTED", "10.0.0.0/8, 192.0.2.7")
	code, out, stderr := blockd(t, "", "config", "--effective", "-c", file)
	if code != 0 || !strings.Contains(out, "env.example") || !strings.Contains(out, "192.0.2.7") || strings.Contains(out, "file.example") {
		t.Errorf("%d, %q\n%s", code, stderr, out)
	}
	t.Setenv("BLOCKD_SMTP_HOSTNAM", "mx.example")
	code, _, stderr = blockd(t, "", "config", "--check", "-c", file)
	want := "BLOCKD_SMTP_HOSTNAM: sets no key, did you mean BLOCKD_SMTP_HOSTNAME?\nblockd config: " + filepath.Clean(file) + ": 1 fault\n"
	if code != 1 || stderr != want {
		t.Errorf("%d, %q, want %q", code, stderr, want)
	}
}

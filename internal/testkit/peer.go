package testkit

import (
	"os"
	"os/exec"
	"path/filepath"
	"testing"
)

// Peer returns the path of a real peer's command. A developer who has not installed it skips
// the test with a word; under CI, where cmd/blockd/e2e/peers.sh has installed all of them, its absence is
// a failure.
func Peer(t testing.TB, command string) string {
	t.Helper()
	path, err := FindPeer(command)
	if err != nil {
		Missing(t, command+" is not installed (make peers)")
	}
	return path
}

// FindPeer returns the path of a command, also where Debian keeps servers, outside a user's PATH. The error is
// exec.ErrNotFound if it is not installed.
func FindPeer(command string) (string, error) {
	path, err := exec.LookPath(command)
	for _, dir := range []string{"/usr/sbin", "/sbin"} {
		if found, missing := exec.LookPath(filepath.Join(dir, command)); err != nil && missing == nil {
			return found, nil
		}
	}
	return path, err
}

// Missing ends a test that lacks something: skipped at home, failed under CI.
func Missing(t testing.TB, what string) {
	t.Helper()
	if os.Getenv("CI") == "true" {
		t.Fatal(what)
	}
	t.Skip(what)
}

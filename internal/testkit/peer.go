package testkit

import (
	"os"
	"os/exec"
	"path/filepath"
	"testing"
)

// Peers reports whether tests talk to real servers, browsers and other programs. make test sets BLOCKD_TEST_PEERS=no,
// and leaves the peers to make check.
func Peers() bool { return os.Getenv("BLOCKD_TEST_PEERS") != "no" }

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
// exec.ErrNotFound if it is not installed, or not to be used.
func FindPeer(command string) (string, error) {
	if !Peers() {
		return "", exec.ErrNotFound
	}
	path, err := exec.LookPath(command)
	for _, dir := range []string{"/usr/sbin", "/sbin"} {
		if found, missing := exec.LookPath(filepath.Join(dir, command)); err != nil && missing == nil {
			return found, nil
		}
	}
	return path, err
}

// Missing ends a test that lacks a peer: skipped at home, failed under CI.
func Missing(t testing.TB, what string) {
	t.Helper()
	if !Peers() {
		t.Skip("talks to a real peer, as make check does")
	}
	if os.Getenv("CI") == "true" {
		t.Fatal(what)
	}
	t.Skip(what)
}

package e2e

import (
	"os"
	"os/exec"
	"path/filepath"
	"testing"
)

// peer returns the path of a real peer's command. A developer who has not
// installed it skips the test with a word; under CI, where e2e/peers.sh has
// installed all of them, its absence is a failure.
func peer(t *testing.T, command string) string {
	t.Helper()
	path, err := findPeer(command)
	if err != nil {
		missing(t, command+" is not installed (make peers)")
	}
	return path
}

func findPeer(command string) (string, error) {
	path, err := exec.LookPath(command)
	for _, dir := range []string{"/usr/sbin", "/sbin"} { // where Debian keeps servers, outside a user's PATH
		if err != nil {
			path, err = exec.LookPath(filepath.Join(dir, command))
		}
	}
	return path, err
}

// missing ends a test that lacks something: skipped at home, failed under CI.
func missing(t *testing.T, what string) {
	t.Helper()
	if os.Getenv("CI") == "true" {
		t.Fatal(what)
	}
	t.Skip(what)
}

// shared returns a path below the folder of real lists and real mail that lies
// beside the checkout. It is not part of the project, so its absence is a skip
// everywhere.
func shared(t *testing.T, path string) string {
	t.Helper()
	path = filepath.Join(root, "..", "shared", "data", path)
	if _, err := os.Stat(path); err != nil {
		t.Skipf("no shared test data: %v", err)
	}
	return path
}

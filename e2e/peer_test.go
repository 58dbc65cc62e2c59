package e2e

import (
	"os"
	"path/filepath"
	"testing"
)

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

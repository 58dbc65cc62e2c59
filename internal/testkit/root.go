package testkit

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// Root returns the absolute path of the checkout's root: the first folder at or above the working folder whose go.mod
// says "module blockd". Tests name files of other folders by it, so that a package can move without its tests.
func Root(t testing.TB) string {
	t.Helper()
	root, err := FindRoot()
	if err != nil {
		t.Fatal(err)
	}
	return root
}

// FindRoot is Root for TestMain, which has no test yet. The error is that of the working folder, or fs.ErrNotExist
// outside of a checkout.
func FindRoot() (string, error) {
	dir, err := os.Getwd()
	if err != nil {
		return "", err
	}
	for {
		text, err := os.ReadFile(filepath.Join(dir, "go.mod"))
		if err == nil && strings.HasPrefix(string(text), "module blockd\n") {
			return dir, nil
		}
		above := filepath.Dir(dir)
		if above == dir {
			return "", &os.PathError{Op: "find the checkout of", Path: "blockd", Err: os.ErrNotExist}
		}
		dir = above
	}
}

// Shared returns the path of a file or folder of real lists and real mail, below the folder data of ../shared beside
// the checkout. It is no part of the project, so the test is skipped where it is not there.
func Shared(t testing.TB, name string) string {
	t.Helper()
	path := filepath.Join(Root(t), "..", "shared", "data", name)
	if _, err := os.Stat(path); err != nil {
		t.Skipf("no shared data beside the checkout: %s is not there", filepath.Join("..", "shared", "data", name))
	}
	return path
}

package reload

import (
	"os"
	"path/filepath"
	"testing"

	"blockd/internal/testkit"
)

// Root accepts in a folder that may be another user's: what stands under the note's name
// is replaced, and where a link there leads is left alone.
func TestAcceptFollowsNoLink(t *testing.T) {
	dir := t.TempDir()
	elsewhere, path := filepath.Join(dir, "elsewhere"), filepath.Join(dir, "blockd.bdx")
	testkit.Write(t, elsewhere, "root's own\n")
	testkit.Must(t, os.Symlink(elsewhere, acceptedPath(path)))
	if err := Accept(path, "g1"); err != nil || !readAcceptance(path).covers("g1", "a") || readAcceptance(path).covers("g2", "a") {
		t.Fatalf("accepted %v, %v", readAcceptance(path), err)
	}
	if err := Accept(path, "g1", "a", "b"); err != nil || !readAcceptance(path).covers("g1", "b") || readAcceptance(path).covers("g1", "c") {
		t.Fatalf("accepted %v, %v", readAcceptance(path), err)
	}
	if text, err := os.ReadFile(elsewhere); err != nil || string(text) != "root's own\n" {
		t.Errorf("the link's target: %q, %v", text, err)
	}
	files, err := os.ReadDir(dir)
	if err != nil || len(files) != 2 {
		t.Errorf("left behind: %v, %v", files, err)
	}
	if err := Accept(filepath.Join(dir, "none", "blockd.bdx"), "g1"); err == nil {
		t.Error("no error of a folder that is not there")
	}
}

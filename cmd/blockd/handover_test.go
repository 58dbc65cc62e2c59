package main

import (
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
)

// An administrator compiles as root what a daemon with a user of its own serves.
func TestWhatRootCompilesBelongsToTheFoldersOwner(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("needs root")
	}
	const daemon = 65534
	dir := t.TempDir()
	state := filepath.Join(dir, "state")
	if err := os.Mkdir(state, 0o700); err != nil {
		t.Fatal(err)
	}
	foreign := writeFile(t, state, "foreign", "root's own\n")
	linked := filepath.Join(state, "blockd.bdx.linked")
	if err := os.Link(foreign, linked); err != nil {
		t.Fatal(err)
	}
	if err := os.Chown(state, daemon, daemon); err != nil {
		t.Fatal(err)
	}
	writeFile(t, dir, "bulk.txt", "bulk.example\n")
	p := newPublisher(t)
	p.text("far.example\n")
	config := writeFile(t, dir, "config.toml", "[index]\npath = \"state/blockd.bdx\"\n[[list]]\nname = \"bulk\"\npath = \"bulk.txt\"\n"+
		strings.Replace(p.list(""), "copies/", "state/copies/", 1)+ // a folder that is made, and one that is there
		strings.NewReplacer(`"bad"`, `"near"`, "copies/", "state/").Replace(p.list("")))
	if code, _, stderr := blockd(t, "", "compile", "--accept", "-c", config); code != 0 {
		t.Fatalf("compile = %d, %s", code, stderr)
	}
	want := map[string]uint32{"foreign": 0, "blockd.bdx.linked": 0} // a name elsewhere is not given away
	seen := 0
	err := filepath.WalkDir(state, func(path string, _ fs.DirEntry, err error) error {
		if err != nil || path == state {
			return err
		}
		info, err := os.Lstat(path)
		if err != nil {
			return err
		}
		owner := uint32(daemon)
		if uid, ok := want[filepath.Base(path)]; ok {
			owner = uid
		}
		if have := info.Sys().(*syscall.Stat_t).Uid; have != owner {
			t.Errorf("%s belongs to user %d, want %d", path, have, owner)
		}
		seen++
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	// The index, its lock, its cache with two segments and the sources, the note, copies of
	// two lists and their receipts in folders that were made for them, and the two of ours.
	if seen < 16 {
		t.Errorf("%d files in the state folder, want 16 or more", seen)
	}
}

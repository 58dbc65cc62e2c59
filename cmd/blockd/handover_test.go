package main

import (
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"
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
	writeFile(t, state, "blockd.bdx2", "another index\n")
	writeFile(t, state, "copies-of-root", "no list\n")
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
	want := map[string]uint32{"foreign": 0, "blockd.bdx.linked": 0, "blockd.bdx2": 0, "copies-of-root": 0} // a name elsewhere is not given away
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

// The owner of the folder may exchange a file for another one with a name elsewhere, between
// any two of our looks at it.
func TestHandOverGivesAwayWhatItLookedAt(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("needs root")
	}
	const daemon = 65534
	dir := t.TempDir()
	state := filepath.Join(dir, "state")
	if err := os.Mkdir(state, 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.Chown(state, daemon, daemon); err != nil {
		t.Fatal(err)
	}
	secret := writeFile(t, dir, "secret", "root's own\n")
	ours, second, fresh := filepath.Join(state, "blockd.bdx"), filepath.Join(state, "second"), filepath.Join(state, "fresh")
	if err := os.Link(secret, second); err != nil {
		t.Fatal(err)
	}
	stop, ended := make(chan struct{}), make(chan error, 1)
	go func() {
		for {
			select {
			case <-stop:
				ended <- nil
				return
			default:
			}
			if err := turn(fresh, ours, second); err != nil {
				ended <- err
				return
			}
		}
	}()
	defer func() {
		close(stop)
		if err := <-ended; err != nil {
			t.Error(err)
		}
	}()
	for n := range 3000 {
		if err := handOver(ours); err != nil {
			t.Fatal(err)
		}
		info, err := os.Lstat(secret)
		if err != nil {
			t.Fatal(err)
		}
		if info.Sys().(*syscall.Stat_t).Uid != 0 {
			t.Fatalf("a file of another folder is given away in round %d", n)
		}
	}
}

// turn makes a new file of ours, and lets another be there for a moment in its place.
func turn(fresh, ours, other string) error {
	if err := os.WriteFile(fresh, nil, 0o600); err != nil {
		return err
	}
	if err := os.Rename(fresh, ours); err != nil {
		return err
	}
	for range 2 {
		if err := unix.Renameat2(unix.AT_FDCWD, ours, unix.AT_FDCWD, other, unix.RENAME_EXCHANGE); err != nil {
			return err
		}
	}
	return nil
}

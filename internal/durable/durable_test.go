package durable

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"blockd/internal/testkit"
)

func TestReplace(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "file")
	for _, text := range []string{"first", "second and longer", ""} {
		testkit.Must(t, WriteFile(path, []byte(text), 0o640))
		holds(t, dir, "file", text)
		if info, err := os.Stat(path); err != nil || info.Mode().Perm() != 0o640 {
			t.Errorf("%v, %v, want mode 0640", info.Mode(), err)
		}
	}
}

// TestReplaceOrNothing: whatever fails, the old file is there and nothing else.
func TestReplaceOrNothing(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "file")
	testkit.Must(t, WriteFile(path, []byte("old"), 0o644))
	failed := errors.New("failed")
	err := Replace(path, 0o644, func(w io.Writer) error {
		fmt.Fprint(w, "half of the n")
		return failed
	})
	testkit.IsError(t, "Replace", err, failed)
	holds(t, dir, "file", "old")

	testkit.Must(t, os.Mkdir(filepath.Join(dir, "folder"), 0o755))
	if err := WriteFile(filepath.Join(dir, "folder"), nil, 0o644); err == nil {
		t.Error("a folder was replaced by a file")
	}
	os.Remove(filepath.Join(dir, "folder"))
	holds(t, dir, "file", "old")

	testkit.IsError(t, "in a folder that is not there", WriteFile(filepath.Join(dir, "none", "file"), nil, 0o644), fs.ErrNotExist)
}

// What people read names the folder that is missing or closed, and not the draft.
func TestErrorNamesTheFolder(t *testing.T) {
	folder := filepath.Join(t.TempDir(), "out")
	err := WriteFile(filepath.Join(folder, "file"), nil, 0o640)
	if want := "create a file in " + folder + ": no such file or directory"; !errors.Is(err, fs.ErrNotExist) || err.Error() != want {
		t.Errorf("WriteFile = %v, want %s", err, want)
	}
}

func TestDraftIsSeenAtCommitAlone(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "file")
	d := testkit.Value(Create(path, 0o600))(t)
	defer d.Discard()
	fmt.Fprint(d, "content")
	testkit.Fails(os.Stat(path))(t, "before Commit", fs.ErrNotExist)
	testkit.Must(t, d.Commit())
	fmt.Fprint(d, ", and more") // a journal goes on in it
	d.Discard()
	holds(t, dir, "file", "content, and more")
	testkit.IsError(t, "a second Commit", d.Commit(), os.ErrClosed)
}

// TestReplaceALink replaces the link, not what it points to.
func TestReplaceALink(t *testing.T) {
	dir, other := t.TempDir(), filepath.Join(t.TempDir(), "other")
	testkit.Write(t, other, "other's")
	testkit.Must(t, os.Symlink(other, filepath.Join(dir, "file")))
	testkit.Must(t, WriteFile(filepath.Join(dir, "file"), []byte("new"), 0o644))
	holds(t, dir, "file", "new")
	holds(t, filepath.Dir(other), "other", "other's")
}

func TestLeftDraftsGo(t *testing.T) {
	dir := t.TempDir()
	old, young := filepath.Join(dir, ".file.123.new"), filepath.Join(dir, ".file.456.new")
	for _, name := range []string{old, young} {
		testkit.Write(t, name, "")
	}
	testkit.Must(t, os.Chtimes(old, time.Time{}, time.Now().Add(-2*draftAge)))
	testkit.Must(t, WriteFile(filepath.Join(dir, "file"), nil, 0o644))
	testkit.Fails(os.Stat(old))(t, "the old draft", fs.ErrNotExist)
	if _, err := os.Stat(young); err != nil {
		t.Errorf("one that is being written perhaps: %v", err)
	}
}

// TestRootKeepsTheOwner: a file belongs to whom the one before it did, a new one to the
// folder's owner.
func TestRootKeepsTheOwner(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("only root can give files away")
	}
	const daemon, editor = 12345, 23456
	dir := t.TempDir()
	testkit.Must(t, os.Chown(dir, daemon, daemon))
	path := filepath.Join(dir, "file")
	for _, want := range []int{daemon, editor} {
		testkit.Must(t, WriteFile(path, nil, 0o600))
		if want == editor {
			testkit.Must(t, os.Chown(path, editor, editor))
			testkit.Must(t, WriteFile(path, nil, 0o600))
		}
		info := testkit.Value(os.Stat(path))(t)
		if owner := info.Sys().(*syscall.Stat_t); int(owner.Uid) != want || int(owner.Gid) != want {
			t.Errorf("owner %d:%d, want %d", owner.Uid, owner.Gid, want)
		}
	}
}

func TestMakeFolder(t *testing.T) {
	path := filepath.Join(t.TempDir(), "above", "folder")
	for _, path := range []string{path + "/", path} { // what is there stays
		testkit.Must(t, MakeFolder(path))
	}
	if info, err := os.Stat(path); err != nil || !info.IsDir() || info.Mode().Perm()&0o007 != 0 {
		t.Errorf("%v, %v: want a folder that is closed to others", info, err)
	}
}

func TestLock(t *testing.T) {
	path := filepath.Join(t.TempDir(), "lock")
	locked := errors.New("somebody has it")
	held := testkit.Value(Lock(path, locked))(t)
	if _, err := Lock(path, locked); err != locked {
		t.Errorf("a second Lock = %v, want %v", err, locked)
	}
	forked := testkit.Value(syscall.Dup(int(held.Fd())))(t) // as a program has it that is started this moment
	defer syscall.Close(forked)
	testkit.Must(t, held.Close())
	again, err := Lock(path, locked)
	if err != nil {
		t.Errorf("after the end of the first: %v", err)
	}
	again.Close()
	link := path + ".link"
	testkit.Must(t, os.Symlink(path, link))
	testkit.Fails(Lock(link, locked))(t, "through a link", syscall.ELOOP)
}

// holds checks that a folder has this one file, with this text.
func holds(t *testing.T, dir, name, text string) {
	t.Helper()
	entries, err := os.ReadDir(dir)
	if err != nil || len(entries) != 1 || entries[0].Name() != name {
		t.Errorf("the folder has %v, %v; want %s alone", entries, err, name)
	}
	testkit.Equal(t, name, string(testkit.Read(t, filepath.Join(dir, name))), text)
}

// Root makes nothing where a link of another user leads, and follows its own.
func TestRootFollowsNoTrap(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("wants root, who may be two users")
	}
	elsewhere, dir := t.TempDir(), t.TempDir()
	trap, own := filepath.Join(dir, "trap"), filepath.Join(dir, "own")
	for _, link := range []string{trap, own} {
		testkit.Must(t, os.Symlink(elsewhere, link))
	}
	testkit.Must(t, os.Lchown(trap, 65533, 65533))
	testkit.Has(t, fmt.Sprint(MakeFolder(trap)), "a link that user 65533 has put there")
	testkit.Must(t, MakeFolder(own))
}

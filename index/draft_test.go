package index

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"blockd/index/internal/build"
	"blockd/internal/testkit"
)

// publishSteps are those at which a build can be made to fail.
var publishSteps = []string{"create", "write", "header", "sync", "reopen", "verify", "rename", "sync folder"}

func TestFailureLeavesOldOrNew(t *testing.T) {
	errDisk := errors.New("no space left on device")
	for i, failing := range publishSteps {
		t.Run(failing, func(t *testing.T) {
			folder := t.TempDir()
			path := filepath.Join(folder, "x.bdx")
			publish := func(line int, h build.Hooks) error {
				d, err := tryDraft(t, path, Options{}, h, rowsNamed(1), []listed{{key: domainKey(t, "bulk.test"), line: line}})
				if err != nil {
					return err
				}
				defer d.Discard()
				return d.Publish()
			}
			serves := func() int {
				ix := opened(t, path)
				got, err := ix.Lookup(nil, sender(t, "x@bulk.test"), testTime)
				if err != nil || len(got) != 1 {
					t.Fatalf("Lookup = %v, %v", got, err)
				}
				return got[0].Line
			}
			testkit.Must(t, publish(1, build.Hooks{}))

			var steps []string
			err := publish(2, build.Hooks{Fail: func(step string) error {
				steps = append(steps, step)
				if step == failing {
					return errDisk
				}
				return nil
			}})
			if !errors.Is(err, errDisk) || !strings.Contains(err.Error(), path) || strings.Contains(err.Error(), build.TempMark) {
				t.Errorf("error %v", err)
			}
			if want := fmt.Sprint(publishSteps[:i+1]); fmt.Sprint(steps) != want {
				t.Errorf("steps %v, want %v", steps, want)
			}
			want := 1
			if failing == "sync folder" {
				want = 2 // the rename has happened
			}
			if got := serves(); got != want {
				t.Errorf("after the failure line %d serves, want %d", got, want)
			}
			if left := temporaryFiles(t, folder); len(left) > 0 {
				t.Errorf("%q is left", left)
			}
			if err := publish(3, build.Hooks{}); err != nil || serves() != 3 {
				t.Errorf("the next build: %v", err)
			}
		})
	}
}

// A builder that was killed leaves its file, which the next one removes; files
// of other names are not touched.
func TestStaleDraftsAreRemoved(t *testing.T) {
	folder := t.TempDir()
	path := filepath.Join(folder, "[x]*.bdx") // no pattern
	for _, name := range []string{"[x]*.bdx.tmp-1", "[x]*.bdx.tmp-999999", "[x]*.bdx.tmp", "y.bdx.tmp-1", "x.bdx.tmp-1"} {
		testkit.Write(t, filepath.Join(folder, name), "half")
	}
	d := built(t, path, nil, Options{})
	publish(t, d)
	if got, want := fmt.Sprint(temporaryFiles(t, folder)), "[[x]*.bdx.tmp x.bdx.tmp-1 y.bdx.tmp-1]"; got != want {
		t.Errorf("left are %s, want %s", got, want)
	}
	if fi, err := os.Stat(path); err != nil || fi.Mode().Perm() != 0o600 {
		t.Errorf("the file holds its hash key and is readable by others: %v, %v", fi.Mode(), err)
	}
}

func TestOneBuildOfAPathAtATime(t *testing.T) {
	path := filepath.Join(t.TempDir(), "x.bdx")
	first := testkit.Value(Build(t.Context(), path, nil, Options{}))(t)
	if _, err := Build(t.Context(), path, nil, Options{}); !errors.Is(err, ErrLocked) {
		t.Errorf("second build: %v, want ErrLocked", err)
	}
	first.Discard()
	first.Discard()
	if err := first.Publish(); err == nil {
		t.Error("a discarded draft was published")
	}
	second, err := Build(t.Context(), path, nil, Options{})
	if err != nil {
		t.Fatalf("after Discard: %v", err)
	}
	publish(t, second)
	second.Discard()
	if _, err := Open(path); err != nil {
		t.Errorf("Discard after Publish: %v", err)
	}
	if third, err := Build(t.Context(), path, nil, Options{}); err != nil {
		t.Errorf("after Publish: %v", err)
	} else {
		third.Discard()
	}
}

func TestBuildIntoMissingFolder(t *testing.T) {
	if _, err := Build(t.Context(), filepath.Join(t.TempDir(), "none", "x.bdx"), nil, Options{}); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("Build = %v", err)
	}
}

// Root may build in a folder that is another user's: no link there has it make a file elsewhere.
func TestBuildLocksNoLink(t *testing.T) {
	dir := t.TempDir()
	path, elsewhere := filepath.Join(dir, "x.bdx"), filepath.Join(dir, "elsewhere")
	testkit.Must(t, os.Symlink(elsewhere, path+".lock"))
	if d, err := Build(t.Context(), path, nil, Options{}); err == nil {
		d.Discard()
		t.Error("a link was taken for the lock")
	}
	if _, err := os.Lstat(elsewhere); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("made elsewhere: %v", err)
	}
}

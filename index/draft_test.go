package index

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"time"

	"blockd/index/internal/build"
	"blockd/index/internal/format"
	"blockd/internal/testkit"
	"blockd/internal/testkit/race"
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
				got := testkit.Value(ix.Lookup(nil, sender(t, "x@bulk.test"), testTime))(t)
				testkit.MustEqual(t, fmt.Sprintf("Lookup = %v", got), len(got), 1)
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
			testkit.Equal(t, "after the failure line: serves", serves(), want)
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
	testkit.Fails(Build(t.Context(), path, nil, Options{}))(t, "second build", ErrLocked)
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
	testkit.Fails(Build(t.Context(), filepath.Join(t.TempDir(), "none", "x.bdx"), nil, Options{}))(t, "Build", os.ErrNotExist)
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
	testkit.Fails(os.Lstat(elsewhere))(t, "made elsewhere", os.ErrNotExist)
}

// flip flips one bit of the draft of an index at path.
func flip(t testing.TB, path string, offset int64) {
	t.Helper()
	f := testkit.Value(os.OpenFile(fmt.Sprintf("%s%s%d", path, build.TempMark, os.Getpid()), os.O_RDWR, 0))(t)
	defer f.Close()
	var b [1]byte
	testkit.Value(f.ReadAt(b[:], offset))(t)
	b[0] ^= 4
	testkit.Value(f.WriteAt(b[:], offset))(t)
}

// A disk that gives back other octets than were written ends the build, wherever
// they are, and what served before goes on to serve.
func TestDraftThatCameBackDamaged(t *testing.T) {
	race.Skip(t)
	const keys = 60_000
	folder := t.TempDir()
	path := filepath.Join(folder, "x.bdx")
	d := draftOf(t, path, seeded(1), build.Hooks{}, rowsNamed(1), manyDomains(keys))
	sections := d.Index().file.Sections
	d.Discard()
	for _, tt := range []struct {
		name   string
		step   string // "": when the pages are written
		offset uint64
		want   string
	}{
		{"first page", "", sections[format.SecPages].Offset + 2000, "page sum"},
		{"zeros of a page", "", sections[format.SecPages].Offset + format.PageSize - 1, "page sum"},
		{"header", "reopen", 112, "header sum"},
		{"directory", "reopen", sections[format.SecDirectory].Offset + 16, "section sum"},
		{"filter", "reopen", sections[format.SecFilter].Offset + 5000, "filter sum"},
	} {
		for _, direct := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s, direct %t", tt.name, direct), func(t *testing.T) {
				h := build.Hooks{Direct: direct, Wrote: func(unit int) {
					if tt.step == "" && unit == 0 {
						flip(t, path, int64(tt.offset))
					}
				}, Fail: func(step string) error {
					if step == tt.step {
						flip(t, path, int64(tt.offset))
					}
					return nil
				}}
				_, err := tryDraft(t, path, seeded(1), h, rowsNamed(1), manyDomains(keys))
				if !errors.Is(err, ErrCorrupt) || !strings.Contains(err.Error(), tt.want) {
					t.Errorf("build = %v, want %s", err, tt.want)
				}
				if left := temporaryFiles(t, folder); len(left) > 0 {
					t.Errorf("%q is left", left)
				}
			})
		}
	}
}

// Who gives up a build in the midst of its pages, some of whose records are in the
// temporary file, leaves neither a file nor a goroutine.
func TestCancelledBuildLeavesNothing(t *testing.T) {
	folder := t.TempDir()
	source := largeList(t, t.TempDir(), "new")
	before := runtime.NumGoroutine()
	for _, unit := range []int{0, 3} {
		ctx, cancel := context.WithCancel(t.Context())
		spilled := false
		h := build.Hooks{Direct: true, Wrote: func(n int) {
			if n == unit {
				cancel()
			}
		}, Fail: func(step string) error {
			spilled = spilled || step == "spill"
			return nil
		}}
		path := filepath.Join(folder, "x.bdx")
		if _, err := newDraft(ctx, path, []Source{source}, Options{Memory: build.MinMemory, Workers: 2}, h); !errors.Is(err, context.Canceled) || !spilled {
			t.Errorf("unit %d: build = %v, spilled %t", unit, err, spilled)
		}
		cancel()
		if left := temporaryFiles(t, folder); len(left) > 0 {
			t.Errorf("unit %d: %q is left", unit, left)
		}
	}
	for deadline := time.Now().Add(10 * time.Second); runtime.NumGoroutine() > before; runtime.Gosched() {
		if time.Now().After(deadline) {
			t.Fatalf("%d goroutines, %d before", runtime.NumGoroutine(), before)
		}
	}
}

// What was checked when it was written counts only for a file that says the same of it:
// here the header names another time, with a sum that is right.
func TestDraftWithAnotherHeader(t *testing.T) {
	path := filepath.Join(t.TempDir(), "x.bdx")
	h := build.Hooks{Fail: func(step string) error {
		if step != "reopen" {
			return nil
		}
		temp := fmt.Sprintf("%s%s%d", path, build.TempMark, os.Getpid())
		page := make([]byte, format.PageSize)
		f, err := os.OpenFile(temp, os.O_RDWR, 0)
		if err != nil {
			return err
		}
		defer f.Close()
		if _, err := f.ReadAt(page, 0); err != nil {
			return err
		}
		page[112] ^= 1
		binary.LittleEndian.PutUint32(page[format.HeaderSumAt:], crc32.Checksum(page[:format.HeaderSumAt], format.Castagnoli))
		_, err = f.WriteAt(page, 0)
		return err
	}}
	_, err := tryDraft(t, path, seeded(1), h, rowsNamed(1), manyDomains(100))
	if !errors.Is(err, ErrCorrupt) || !strings.Contains(err.Error(), "not the one that was written") {
		t.Errorf("build = %v", err)
	}
}

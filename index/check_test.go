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

// flip flips one bit of the draft of an index at path.
func flip(t testing.TB, path string, offset int64) {
	t.Helper()
	f := testkit.Value(os.OpenFile(fmt.Sprintf("%s%s%d", path, build.TempMark, os.Getpid()), os.O_RDWR, 0))(t)
	defer f.Close()
	var b [1]byte
	if _, err := f.ReadAt(b[:], offset); err != nil {
		t.Fatal(err)
	}
	b[0] ^= 4
	if _, err := f.WriteAt(b[:], offset); err != nil {
		t.Fatal(err)
	}
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

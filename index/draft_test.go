package index

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"blockd/index/internal/build"
	"blockd/index/internal/format"
	"blockd/index/internal/segment"
	"blockd/internal/testkit"
	"blockd/internal/testkit/race"
	"blockd/lists"
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
			nothingLeft(t, folder)
			testkit.Must(t, publish(3, build.Hooks{}))
			testkit.Equal(t, "the next build", serves(), 3)
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
	fi := testkit.Value(os.Stat(path))(t)
	testkit.Equal(t, "mode of the file, which holds its hash key", fi.Mode().Perm(), 0o600)
}

func TestOneBuildOfAPathAtATime(t *testing.T) {
	path := filepath.Join(t.TempDir(), "x.bdx")
	first := testkit.Value(Build(t.Context(), path, nil, Options{}))(t)
	testkit.Fails(Build(t.Context(), path, nil, Options{}))(t, "second build", ErrLocked)
	first.Discard()
	first.Discard()
	testkit.Equal(t, "a discarded draft is not published", first.Publish() != nil, true)
	second := testkit.Value(Build(t.Context(), path, nil, Options{}))(t)
	publish(t, second)
	second.Discard()
	testkit.Value(Open(path))(t)
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
				testkit.IsError(t, "build", err, ErrCorrupt)
				testkit.Has(t, fmt.Sprint(err), tt.want)
				nothingLeft(t, folder)
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
		nothingLeft(t, folder)
	}
	testkit.Eventually(t, "no goroutine is left", func() bool { return runtime.NumGoroutine() <= before })
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
	testkit.IsError(t, "build", err, ErrCorrupt)
	testkit.Has(t, fmt.Sprint(err), "not the one that was written")
}

// killAt is the variable that makes this test a builder that dies.
const killAt = "BLOCKD_TEST_KILL_AT"

// largeList does not fit into the least memory of a build. Its first entry tells
// which version it is.
func largeList(t testing.TB, folder, version string) Source {
	t.Helper()
	var b strings.Builder
	fmt.Fprintf(&b, "%s.test\n", version)
	for i := range 40_000 {
		fmt.Fprintf(&b, "d%d.of-a-list-that-spills.test\n", i)
	}
	path := testkit.Write(t, filepath.Join(folder, version+".txt"), b.String())
	return Source{List: "l", Path: path, Settings: lists.Settings{Format: "plain"}}
}

// publishLarge builds and publishes that list, with a cache beside the index.
func publishLarge(t testing.TB, folder, version string, h build.Hooks) error {
	path := filepath.Join(folder, "x.bdx")
	d, err := newDraft(t.Context(), path, []Source{largeList(t, folder, version)}, Options{Memory: build.MinMemory, Cache: path + CacheSuffix}, h)
	if err != nil {
		return err
	}
	defer d.Discard()
	return d.Publish()
}

// served tells which version the index in folder is of.
func served(t testing.TB, folder string) string {
	t.Helper()
	ix := opened(t, filepath.Join(folder, "x.bdx"))
	testkit.Must(t, ix.Verify(t.Context()))
	for _, version := range []string{"old", "new", "last"} {
		got := testkit.Value(ix.Lookup(nil, sender(t, "x@"+version+".test"), testTime))(t)
		if len(got) > 0 {
			return version
		}
	}
	return ""
}

// A builder that is killed by the system, between any two steps, leaves the old
// file or the new one, and nothing that the next build does not clear away.
func TestKilledBetweenAnyTwoSteps(t *testing.T) {
	race.Skip(t)
	if step := os.Getenv(killAt); step != "" {
		err := publishLarge(t, os.Getenv(killAt+"_IN"), "new", build.Hooks{Fail: func(at string) error {
			if at == step {
				unix.Kill(os.Getpid(), unix.SIGKILL)
				select {} // the signal is on its way
			}
			return nil
		}})
		t.Fatalf("still alive: %v", err)
	}
	for _, step := range append([]string{"spill"}, publishSteps...) {
		t.Run(step, func(t *testing.T) {
			folder := t.TempDir()
			testkit.Must(t, publishLarge(t, folder, "old", build.Hooks{}))
			child := exec.Command(os.Args[0], "-test.run=^TestKilledBetweenAnyTwoSteps$")
			child.Env = append(os.Environ(), killAt+"="+step, killAt+"_IN="+folder)
			var dead *exec.ExitError
			if out, err := child.CombinedOutput(); !errors.As(err, &dead) || dead.ExitCode() != -1 {
				t.Fatalf("the builder was not killed: %v, %s", err, out)
			}
			want := "old"
			if step == "sync folder" {
				want = "new" // the rename has happened
			}
			testkit.Equal(t, "serves", served(t, folder), want)
			testkit.Must(t, publishLarge(t, folder, "last", build.Hooks{}))
			testkit.Equal(t, "the next build serves", served(t, folder), "last")
			testkit.Equal(t, "is left", len(testkit.Value(filepath.Glob(filepath.Join(folder, "*"+build.TempMark+"*")))(t)), 0)
			if names := segments(t, filepath.Join(folder, "x.bdx"+CacheSuffix)); len(names) != 2 {
				t.Errorf("the cache holds %q, want a segment and the memo", names)
			}
		})
	}
}

// smallDisk is a file system of so many octets.
func smallDisk(t *testing.T, octets int) string {
	t.Helper()
	folder := t.TempDir()
	if err := unix.Mount("tmpfs", folder, "tmpfs", 0, fmt.Sprintf("size=%d", octets)); err != nil {
		t.Skip("a small file system wants the rights to mount one: ", err)
	}
	t.Cleanup(func() {
		testkit.Should(t, unix.Unmount(folder, unix.MNT_DETACH))
	})
	return folder
}

// The disk runs full at one write after the other: of records, of pages, of the
// filter, of the tables.
func TestFullDiskLeavesTheOldIndex(t *testing.T) {
	lists := t.TempDir()
	source := largeList(t, lists, "new")
	oldSource := plain("l", testkit.File(t, "l.txt", "old.test\n"))
	failed := 0
	for size := 64 << 10; size < 8<<20; size += size/6 + 4096 {
		folder := smallDisk(t, size)
		path := filepath.Join(folder, "x.bdx")
		testkit.Must(t, publishAt(t, path, oldSource, Options{}))
		err := publishAt(t, path, source, Options{Memory: build.MinMemory, Workers: 2})
		want := "new"
		if err != nil {
			failed++
			want = "old"
			if !errors.Is(err, unix.ENOSPC) || strings.Contains(err.Error(), "\n") {
				t.Errorf("%d octets: %v", size, err)
			}
		}
		testkit.Equal(t, fmt.Sprintf("%d octets: serves", size), served(t, folder), want)
		nothingLeft(t, folder)
	}
	testkit.AtLeast(t, "builds at which the disk was full", failed, 10)
}

func publishAt(t testing.TB, path string, s Source, o Options) error {
	d, err := Build(t.Context(), path, []Source{s}, o)
	if err != nil {
		return err
	}
	defer d.Discard()
	return d.Publish()
}

// A full disk under the cache is told of, and does not matter.
func TestFullDiskUnderTheCache(t *testing.T) {
	source := largeList(t, t.TempDir(), "new")
	want, _ := builtBytes(t, []Source{source}, seeded(4))
	for _, size := range []int{4096, 64 << 10, 512 << 10, 1 << 20} {
		o := seeded(4)
		o.Cache = filepath.Join(smallDisk(t, size), "cache")
		for range 2 {
			got, report := builtBytes(t, []Source{source}, o)
			if !bytes.Equal(got, want) {
				t.Errorf("%d octets: other bytes", size)
			}
			if len(report.Notes) == 0 || report.Cached > 0 {
				t.Errorf("%d octets: notes %q, %d from segments", size, report.Notes, report.Cached)
			}
		}
		if files, err := os.ReadDir(o.Cache); err == nil {
			for _, f := range files {
				if strings.HasSuffix(f.Name(), segment.Suffix) {
					t.Errorf("%d octets: %s is left", size, f.Name())
				}
			}
		}
	}
}

// A failing disk under the temporary file ends the build.
func TestSpillFaults(t *testing.T) {
	folder := t.TempDir()
	fault := fmt.Errorf("input/output error")
	err := publishLarge(t, folder, "new", build.Hooks{Fail: func(step string) error {
		if step == "spill" {
			return fault
		}
		return nil
	}})
	if want := "temporary file in " + folder + ": input/output error"; !errors.Is(err, fault) || err.Error() != want {
		t.Errorf("build without a temporary file: %v, want %s: the list is not to blame", err, want)
	}
}

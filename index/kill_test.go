package index

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"blockd/index/internal/build"
	"blockd/index/internal/segment"
	"blockd/internal/testkit"
	"blockd/internal/testkit/race"
	"blockd/lists"
)

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
			if left, err := filepath.Glob(filepath.Join(folder, "*"+build.TempMark+"*")); err != nil || len(left) > 0 {
				t.Errorf("%q is left", left)
			}
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
		if left := temporaryFiles(t, folder); len(left) > 0 {
			t.Errorf("%d octets: %q is left", size, left)
		}
	}
	if failed < 10 {
		t.Errorf("the disk was full at %d builds: this test proves too little", failed)
	}
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

package build

import (
	"errors"
	"os"
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"

	"blockd/internal/testkit"
)

// What comes back is not what was written.
func TestDamagedSpillFile(t *testing.T) {
	file := newSpillFile(filepath.Join(t.TempDir(), "x.bdx"), Hooks{})
	defer file.close()
	s := testkit.Value(newScatter(1, 2, MinMemory, MinMemory, file))(t)
	defer s.close()
	for range 3 * MinMemory / 512 {
		b := testkit.Value(s.lanes[0].add(1, 512))(t)
		b[0] = 7
	}
	testkit.Must(t, s.finish())
	if file.written() == 0 {
		t.Fatal("nothing was spilled")
	}
	if _, err := loadPart(s, 1); err != nil {
		t.Fatal(err)
	}
	// Memory that does not begin at a page is for the system's cache.
	first, odd := make([]byte, s.block), make([]byte, s.block+1)[1:]
	for _, b := range [][]byte{first, odd} {
		if err := file.read(b, 0); err != nil || !whole(b, s.block) {
			t.Fatalf("a block that was written: %v", err)
		}
	}
	if _, err := unix.Pwrite(file.fd, []byte{1}, file.written()/2+100); err != nil {
		t.Fatal(err)
	}
	if _, err := loadPart(s, 1); !errors.Is(err, errSpill) {
		t.Errorf("load of a damaged file: %v", err)
	}
	testkit.Must(t, unix.Ftruncate(file.fd, 1000))
	if _, err := loadPart(s, 1); !errors.Is(err, errSpill) {
		t.Errorf("load of a file that was cut off: %v", err)
	}
}

// Counts of parts and places of records are 64 bits wide wherever they are added up.
func TestSpillFileOver4GiB(t *testing.T) {
	file := newSpillFile(filepath.Join(t.TempDir(), "x.bdx"), Hooks{})
	defer file.close()
	file.reserve(5 << 30) // a hole
	s := testkit.Value(newScatter(1, 2, MinMemory, MinMemory, file))(t)
	defer s.close()
	const records = 3 * MinMemory / 512
	for i := range records {
		b := testkit.Value(s.lanes[0].add(i%4, 512))(t)
		clear(b)
		b[0] = byte(i)
	}
	testkit.Must(t, s.finish())
	seen := 0
	for part := range 4 {
		b := testkit.Value(loadPart(s, part))(t)
		for ; len(b) > 0; b = b[s.block:] {
			for at := scatterHead; at < blockEnd(b); at += 512 {
				if int(b[at])%4 != part {
					t.Fatalf("part %d has a record of part %d", part, b[at]%4)
				}
				seen++
			}
		}
	}
	if seen != records || file.written() < 5<<30 {
		t.Errorf("%d records of %d came back, %d octets written", seen, records, file.written())
	}
}

// A file system without files that have no name.
func TestSpillFileWithAName(t *testing.T) {
	folder := t.TempDir()
	fd := testkit.Value(unlinkedFile(filepath.Join(folder, "x.bdx")))(t)
	defer unix.Close(fd)
	if _, err := unix.Pwrite(fd, []byte("x"), 10); err != nil {
		t.Error(err)
	}
	if left, err := os.ReadDir(folder); err != nil || len(left) > 0 {
		t.Errorf("%v is left, %v", left, err)
	}
}

package build

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"

	"blockd/bloom"
	"blockd/index/internal/format"
	"blockd/internal/testkit"
	"blockd/lists"
	"blockd/mail/addr"
)

// The same two sources of keys under equal hashes are merged by comparing keys.
func TestEqualHashesAreNotEqualKeys(t *testing.T) {
	same := func([]byte) bloom.Hash { return bloom.Hash{Hi: 7, Lo: 7} }
	names := []string{"b.test", "a.test", "b.test", "c.test", "a.test"}
	sources := make([]format.Source, len(names))
	for i, name := range names {
		sources[i].List = name
	}
	b := testkit.Value(New(filepath.Join(t.TempDir(), "x.bdx"), sources, Options{Workers: 1}, Hooks{Weak: same}))(t)
	b.Rows = make([]format.ListInfo, len(names))
	testkit.Must(t, b.open())
	defer b.Close()
	for i, name := range names {
		key := testkit.Value(addr.DomainKey(name))(t)
		b.in.Begin(i)
		testkit.Must(t, b.in.Workers[0].Take(&lists.Item{Kind: lists.Domain, Key: key}, 0))
		b.in.End(i, true)
	}
	testkit.Must(t, b.in.records.finish())
	testkit.Value(b.in.numberReasons())(t)
	parts := b.in.records.reader(t.Context())
	defer parts.end()
	m := merger{in: b.in, parts: parts, rows: b.Rows, worth: format.NewWorthCounter(b.Rows)}
	testkit.Must(t, m.merge(0, 1<<b.in.records.bits))
	var got []string
	for _, p := range m.records {
		c := format.Cursor{Rest: m.buf[p.At : p.At+p.N]}
		text := string(c.Key())
		count, _ := c.Sources()
		for range count {
			text += fmt.Sprint(" ", c.Entry().Row)
		}
		got = append(got, text)
	}
	n := m.counts
	if want := "[a.test 1 4 b.test 0 2 c.test 3]"; fmt.Sprint(got) != want || n.Keys != 3 || n.Entries != 5 {
		t.Errorf("merged %v with %d keys, %d entries, want %s", got, n.Keys, n.Entries, want)
	}
}

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
	testkit.Value(loadPart(s, 1))(t)
	// Memory that does not begin at a page is for the system's cache.
	first, odd := make([]byte, s.block), make([]byte, s.block+1)[1:]
	for _, b := range [][]byte{first, odd} {
		if err := file.read(b, 0); err != nil || !whole(b, s.block) {
			t.Fatalf("a block that was written: %v", err)
		}
	}
	testkit.Value(unix.Pwrite(file.fd, []byte{1}, file.written()/2+100))(t)
	testkit.Fails(loadPart(s, 1))(t, "load of a damaged file", errSpill)
	testkit.Must(t, unix.Ftruncate(file.fd, 1000))
	testkit.Fails(loadPart(s, 1))(t, "load of a file that was cut off", errSpill)
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
	testkit.Value(unix.Pwrite(fd, []byte("x"), 10))(t)
	if left, err := os.ReadDir(folder); err != nil || len(left) > 0 {
		t.Errorf("%v is left, %v", left, err)
	}
}

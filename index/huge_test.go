package index

import (
	"os"
	"path/filepath"
	"testing"

	"blockd/addr"
	"blockd/index/internal/format"
)

// A file above 4 GiB, most of which is a hole: every offset behind it, those of
// pages, tables and reasons, needs more than 32 bits.
func TestFileOver4GiB(t *testing.T) {
	const gap = 5 << 30
	path := filepath.Join(t.TempDir(), "x.bdx")
	entries := manyDomains(30_000)
	for i := range entries {
		entries[i].reason = "why"
	}
	d, err := draftOf(t, path, seeded(1), hooks{gap: gap / format.PageSize}, rowsNamed(1), entries)
	if err != nil {
		t.Fatal(err)
	}
	if err := d.Publish(); err != nil {
		t.Fatal(err)
	}
	if info, err := os.Stat(path); err != nil || info.Size() < gap || d.Report.Bytes != info.Size() {
		t.Fatalf("file of %d octets, %v; the report says %d", info.Size(), err, d.Report.Bytes)
	}
	ix, err := Open(path)
	if err != nil {
		t.Fatal(err)
	}
	if err := ix.Verify(t.Context()); err != nil {
		t.Error(err)
	}
	for _, e := range entries {
		got, err := ix.lookup(nil, []addr.Key{e.key}, 0)
		if err != nil || len(got) != 1 || got[0].Line != e.line || got[0].Reason != "why" {
			t.Fatalf("lookup(%s) = %v, %v", e.key.Text, got, err)
		}
	}
}

// Counts of parts and places of records are 64 bits wide wherever they are added up.
func TestSpillFileOver4GiB(t *testing.T) {
	file := newSpillFile(filepath.Join(t.TempDir(), "x.bdx"), hooks{})
	defer file.close()
	file.reserve(5 << 30) // a hole
	s, err := newScatter(1, 2, minMemory, minMemory, file)
	if err != nil {
		t.Fatal(err)
	}
	defer s.close()
	const records = 3 * minMemory / 512
	for i := range records {
		b, err := s.lanes[0].add(i%4, 512)
		if err != nil {
			t.Fatal(err)
		}
		clear(b)
		b[0] = byte(i)
	}
	if err := s.finish(); err != nil {
		t.Fatal(err)
	}
	seen := 0
	for part := range 4 {
		b, err := loadPart(s, part)
		if err != nil {
			t.Fatal(err)
		}
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

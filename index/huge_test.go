package index

import (
	"os"
	"path/filepath"
	"testing"

	"blockd/index/internal/build"
	"blockd/index/internal/format"
	"blockd/mail/addr"
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
	d := draftOf(t, path, seeded(1), build.Hooks{Gap: gap / format.PageSize}, rowsNamed(1), entries)
	publish(t, d)
	if info, err := os.Stat(path); err != nil || info.Size() < gap || d.Report.Bytes != info.Size() {
		t.Fatalf("file of %d octets, %v; the report says %d", info.Size(), err, d.Report.Bytes)
	}
	ix := opened(t, path)
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

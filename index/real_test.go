package index

import (
	"bufio"
	"compress/gzip"
	"os"
	"path/filepath"
	"testing"

	"blockd/internal/testkit"
	"blockd/internal/testkit/race"
	"blockd/lists"
)

// realList is a list of a million real names, where the shared data is present.
func realList(t testing.TB) Source {
	t.Helper()
	return Source{List: "union", Path: testkit.Shared(t, "lists/union-domains.txt.gz"), Settings: lists.Settings{Format: "plain"}}
}

func TestRealListIsFoundLineByLine(t *testing.T) {
	if testing.Short() || race.Enabled {
		t.Skip("a million names take a while")
	}
	source := realList(t)
	d, err := Build(t.Context(), filepath.Join(t.TempDir(), "x.bdx"), []Source{source}, Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer d.Discard()
	row := d.Report.Lists[0]
	t.Logf("%d keys, %d entries, %d refused lines; %d bytes in %v", d.Report.Keys, d.Report.Entries, row.Summary.Errors, d.Report.Bytes, d.Report.Elapsed)
	if row.Summary.Lines != 1_006_826 || d.Report.Entries+d.Report.Duplicates != uint64(row.Summary.Entries) {
		t.Errorf("summary %+v, report %+v", row.Summary, d.Report)
	}

	f, err := os.Open(source.Path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	unpacked, err := gzip.NewReader(f)
	if err != nil {
		t.Fatal(err)
	}
	ix, names := d.Index(), bufio.NewScanner(unpacked)
	missed := 0
	for line := 1; names.Scan(); line++ {
		got, err := ix.Lookup(nil, sender(t, "someone@"+names.Text()), testTime)
		if err != nil {
			t.Fatal(err)
		}
		if len(got) == 0 || got[0].Line != line {
			if missed++; missed > row.Summary.Errors+int(d.Report.Duplicates) {
				t.Fatalf("%s of line %d: %v", names.Text(), line, got)
			}
		}
	}
	if err := names.Err(); err != nil {
		t.Fatal(err)
	}
}

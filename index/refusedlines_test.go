package index

import (
	"fmt"
	"path/filepath"
	"reflect"
	"testing"

	"blockd/internal/testkit"
	"blockd/lists"
)

// Which lines were refused is known alike after a parse, from a segment, after an update, and of an
// index file that is opened again.
func TestRefusedLinesAreToldFromAnySource(t *testing.T) {
	list := longList(t, "a")
	bad := ""
	for i := range 12 {
		bad += fmt.Sprintf("no entry %d\n", i)
	}
	rewrite(t, list, "a.test\n"+bad+"*glob.test\n")
	other := longList(t, "b")
	sources := []Source{list, other}
	old(t, sources)
	o := Options{Cache: filepath.Join(t.TempDir(), "cache")}
	path := filepath.Join(t.TempDir(), "lists.bdx")

	var want lists.Dropped
	for round, how := range []string{"parsed", "from a segment"} {
		d := built(t, path, sources, o)
		publish(t, d)
		opened := opened(t, path)
		if want.Classes == nil {
			want = d.Report.Lists[0].Summary.Dropped
			if want.Count(lists.Syntax) != 12 || want.Count(lists.Unsupported) != 1 || len(want.First) != 10 || want.First[9].Line != 6011 {
				t.Fatalf("refused lines %+v", want)
			}
		}
		if d.Report.Cached != 2*round {
			t.Errorf("%s: %d sources from segments", how, d.Report.Cached)
		}
		for _, table := range [][]ListInfo{d.Report.Lists, d.Index().Lists(), opened.Lists()} {
			if got := table[0].Summary.Dropped; !reflect.DeepEqual(got, want) {
				t.Errorf("%s: %+v, want %+v", how, got, want)
			}
			if got := table[1].Summary.Dropped; got.Total() != 0 || got.First != nil {
				t.Errorf("%s: a sound list with %+v", how, got)
			}
		}
	}
	ix := opened(t, path)
	rewrite(t, list, "a.test\nb..test\n"+bad)
	updated, _, err := ix.Update(t.Context(), sources, o)
	testkit.Must(t, err)
	if got := updated.Lists()[0].Summary.Dropped; got.Count(lists.Syntax) != 13 || got.Count(lists.Unsupported) != 0 || got.First[0].Text != "b..test" {
		t.Errorf("updated: %+v", got)
	}
}

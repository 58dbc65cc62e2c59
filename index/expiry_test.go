package index

import (
	"fmt"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"blockd/internal/testkit"
	"blockd/lists"
)

// TestEntriesOfAListEnd: a file may say when an entry ends, and the index keeps to it, whether the entry came from the
// text, from the cache, or by an update.
func TestEntriesOfAListEnd(t *testing.T) {
	dir := t.TempDir()
	source := Source{List: "desk", Path: filepath.Join(dir, "desk.ent"), Settings: lists.Settings{Format: "entries"}}
	soon, late := time.Now().Add(time.Hour).Truncate(time.Second), time.Now().Add(48*time.Hour).Truncate(time.Second)
	write := func(middle time.Time) {
		var b strings.Builder
		b.WriteString(lists.EntriesHead + "\n")
		fmt.Fprintf(&b, "ended@bulk.test\tb\tx\t%d\t\t\n", 1)
		fmt.Fprintf(&b, "ends@bulk.test\tb\tx\t%d\trow 7\tby the desk\n", middle.Unix())
		fmt.Fprintf(&b, "stays@bulk.test\tb\tx\t\t\t\n")
		testkit.Write(t, source.Path, b.String())
	}
	check := func(what string, ix *Index, ends time.Time) {
		t.Helper()
		for _, tt := range []struct {
			sender string
			at     time.Time
			listed bool
		}{
			{"ended@bulk.test", time.Now(), false},
			{"ends@bulk.test", ends.Add(-time.Second), true},
			{"ends@bulk.test", ends, false},
			{"stays@bulk.test", ends, true},
		} {
			got, err := ix.Lookup(nil, sender(t, tt.sender), tt.at)
			if err != nil || len(got) > 0 != tt.listed {
				t.Errorf("%s: %s at %v: %v, %v", what, tt.sender, tt.at, got, err)
			}
		}
		for e, err := range ix.Entries(t.Context(), nil) {
			if err != nil || e.Item.Name() == "ends@bulk.test" && e.Item.Expires != ends.Unix() {
				t.Errorf("%s: %+v, %v, want it to end at %d", what, e, err, ends.Unix())
			}
		}
	}
	path := filepath.Join(dir, "test.bdx")
	write(soon)
	ix := published(t, path, []Source{source})
	check("from the text", ix, soon)
	ix = published(t, path, []Source{source})
	check("from the cache", ix, soon)
	write(late)
	updated, report, err := ix.Update(t.Context(), []Source{source}, Options{Cache: path + CacheSuffix})
	if err != nil || report.Keys != 1 {
		t.Fatalf("%+v, %v", report, err)
	}
	check("by an update", updated, late)
	check("from the text again", published(t, path, []Source{source}), late)
}

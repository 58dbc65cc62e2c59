package reload

import (
	"fmt"
	"maps"
	"path/filepath"
	"testing"
	"time"

	"blockd/index"
	"blockd/internal/testkit"
	"blockd/lists"
)

// TestHundredThousandHeldEntries: as many are written, read and left out of the answers,
// and those that have gone are found to be gone.
func TestHundredThousandHeldEntries(t *testing.T) {
	const n = 100_000
	text, held := "", heldEntries{}
	b := make([]byte, 0, 16*n)
	for i := range n {
		name := fmt.Sprintf("d%d.example", i)
		b = append(append(b, name...), '\n')
		key := index.HeldEntry{List: "a", Kind: lists.Domain, Scope: lists.Tree, Name: name}
		held[key] = HeldEntry{HeldEntry: key, Since: time.Unix(1, 0).UTC(), Senders: i, Example: "a@" + name}
	}
	text = string(b) + "bulk.example\n"
	d := newDaemon(t, map[string]string{"a.txt": text}).open()
	began := time.Now()
	d.must(writeHeld(d.settings.Path, held))
	back, err := readHeld(d.settings.Path)
	d.must(err)
	if !maps.Equal(held, back) {
		t.Fatalf("%d entries, want %d", len(back), len(held))
	}
	d.open()
	t.Logf("%v", time.Since(began))
	if got := d.Status().Held["a"]; got != n || d.listed("a@d99999.example") || !d.listed("a@bulk.example") {
		t.Errorf("%d held back", got)
	}
	d.write("a.txt", "d7.example\nbulk.example\n"+text[len(text)/2:])
	d.look(t.Context(), true)
	if got, p := d.Status().Held["a"], d.Status().Problems; got >= n || got < n/3 || d.listed("a@d7.example") || len(p) > 0 {
		t.Errorf("%d held back after half has gone, %q", got, p)
	}
}

// FuzzHeldFile: whatever stands in the file, it is refused or read back as it is written.
func FuzzHeldFile(f *testing.F) {
	line := `{"list":"a","kind":"domain","scope":"tree","entry":"bulk.example","since":"2026-11-22T00:00:00Z","senders":3,"example":"x@bulk.example"}` + "\n"
	f.Add(line)
	f.Add(line + line + `{"list":"a","kind":"regexp","scope":"exact","entry":"/^x/","since":"2026-11-22T00:00:00Z","senders":-1,"example":""}` + "\n")
	f.Fuzz(func(t *testing.T, text string) {
		all, err := parseHeld(fmt.Appendf([]byte(text), "{\"sum\":%q}\n", checksum([]byte(text))))
		if err != nil {
			return
		}
		path := filepath.Join(t.TempDir(), "x.bdx")
		testkit.Must(t, writeHeld(path, all))
		if back, err := readHeld(path); err != nil || len(back) != len(all) {
			t.Errorf("%d entries, then %d, %v", len(all), len(back), err)
		}
	})
}

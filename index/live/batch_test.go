package live

import (
	"bytes"
	"fmt"
	"maps"
	"slices"
	"testing"

	"blockd/internal/testkit"
)

// TestBatchesAreWhole cuts a journal at every octet, and puts zeros in the place of every tail, as a crash of the machine
// may: what is left is what some whole batches came to, and all that were acknowledged before the last write are among them.
func TestBatchesAreWhole(t *testing.T) {
	set := open(t, Settings{})
	type state struct {
		size int
		want map[string]string
	}
	states := []state{{len(journalHead), map[string]string{}}}
	for n := range 6 {
		var changes []Change
		for i := range 1 + 3*(n%3) {
			changes = append(changes, Change{Entry: fmt.Sprintf("x%d@batch%d.example", i, n/2), Why: fmt.Sprint(n), Remove: n == 5 && i == 0})
		}
		apply(t, set, changes...)
		states = append(states, state{len(testkit.Read(t, journalPath(set.folder))), reasons(set)})
	}
	whole := testkit.Read(t, journalPath(set.folder))
	hold := func(what string, n int, text []byte) {
		t.Helper()
		folder := t.TempDir()
		testkit.Write(t, journalPath(folder), text)
		again, err := Open(Settings{Folder: folder})
		if err != nil {
			t.Fatalf("%s %d: %v", what, n, err)
		}
		defer again.Close()
		at := 0
		for i, s := range states {
			if s.size <= n {
				at = i
			}
		}
		allowed := states[at : at+1]
		if what == "zeros from" && at+1 < len(states) {
			allowed = states[at : at+2] // zeros may fall on nothing but a line's end
		}
		if got := reasons(again); !slices.ContainsFunc(allowed, func(s state) bool { return maps.Equal(s.want, got) }) {
			t.Fatalf("%s %d: %v, want %v", what, n, got, states[at].want)
		}
		apply(t, again, Change{Entry: "goes-on.example"}, Change{Entry: "well.example"})
		seen, err := Read(folder)
		if err != nil || !maps.Equal(reasons(seen), reasons(again)) {
			t.Fatalf("%s %d, read again: %v, %v", what, n, reasons(seen), err)
		}
	}
	for n := len(journalHead); n <= len(whole); n += 1 + n%13 {
		hold("cut at", n, whole[:n])
	}
	last := states[len(states)-2].size // zeros come with the last write alone: those before are on the disk
	for n := last; n < len(whole); n += 11 {
		hold("zeros from", n, append(slices.Clone(whole[:n]), make([]byte, len(whole)-n)...))
	}
	for n := last; n+16 < len(whole); n += 31 {
		text := slices.Clone(whole)
		copy(text[n:], make([]byte, 16)) // a page of the midst that never came
		hold("zeros from", n, text)
	}
}

// A damaged line of an acknowledged batch costs that line alone.
func TestDamageInABatchIsOneLine(t *testing.T) {
	set := open(t, Settings{})
	apply(t, set, Change{Entry: "a.example"}, Change{Entry: "b.example"}, Change{Entry: "c.example"})
	apply(t, set, Change{Entry: "d.example"})
	text := bytes.Replace(testkit.Read(t, journalPath(set.folder)), []byte("b.example"), []byte("B.example"), 1)
	folder := t.TempDir()
	testkit.Write(t, journalPath(folder), text)
	again, err := Open(Settings{Folder: folder})
	if err != nil {
		t.Fatal(err)
	}
	defer again.Close()
	if got := texts(again); got != "block d.example, block c.example, block a.example" || again.damaged != 1 {
		t.Errorf("%s, %d damaged", got, again.damaged)
	}
}

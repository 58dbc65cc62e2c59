package lists

import (
	"fmt"
	"reflect"
	"strings"
	"testing"

	"blockd/internal/testkit"
)

// A summary counts the refused lines by class and shows the first ten, also of a file that several
// workers read.
func TestSummaryTellsOfRefusedLines(t *testing.T) {
	var text strings.Builder
	for i := 1; i <= 30_000; i++ {
		switch {
		case i%1000 == 0:
			fmt.Fprintf(&text, "no entry %d\n", i)
		case i == 4321:
			text.WriteString("a..test\n")
		case i%10 == 0:
			text.WriteString("x*y@bulk.test*\n")
		default:
			fmt.Fprintf(&text, "d%d.test\n", i)
		}
	}
	path := testkit.File(t, "list.txt", text.String())
	for _, workers := range []int{1, 2, 5} {
		sum := testkit.Value(ReadBlocks(t.Context(), path, Settings{Format: "plain"}, workers, func(int, *Item) error { return nil }))(t)
		d := sum.Dropped
		want := []ClassCount{{Syntax, 31}, {Unsupported, 2970}}
		if !reflect.DeepEqual(d.Classes, want) || d.Total() != sum.Errors || d.Count(Syntax) != 31 || d.Count(IDNA) != 0 {
			t.Errorf("%d workers: %v of %d refused lines, want %v", workers, d.Classes, sum.Errors, want)
		}
		if got, want := d.String(), "2970 unsupported, 31 syntax"; got != want {
			t.Errorf("%d workers: %q, want %q", workers, got, want)
		}
		var lines []int
		for _, l := range d.First {
			if l.Class != Syntax || l.Message == "" {
				t.Errorf("%d workers: %+v, want a syntax error: patterns nobody declared give way", workers, l)
			}
			lines = append(lines, l.Line)
		}
		if want := []int{1000, 2000, 3000, 4000, 4321, 5000, 6000, 7000, 8000, 9000}; !reflect.DeepEqual(lines, want) {
			t.Errorf("%d workers: lines %v, want %v", workers, lines, want)
		}
		if d.First[4].Text != "a..test" {
			t.Errorf("%d workers: text %q", workers, d.First[4].Text)
		}
	}
}

func TestRefusedLinesAreShownInOrder(t *testing.T) {
	path := testkit.File(t, "list.txt", "ok.test\n*x.test\nno entry\n~x\n"+strings.Repeat("ä", 300)+" ß\n")
	sum := testkit.Value(ReadFile(t.Context(), path, Settings{Format: "plain"}, func(*Item) error { return nil }))(t)
	var got []string
	for _, l := range sum.Dropped.First {
		got = append(got, fmt.Sprintf("%d %s", l.Line, l.Class))
	}
	if want := []string{"2 unsupported", "3 syntax", "4 unsupported", "5 syntax"}; !reflect.DeepEqual(got, want) {
		t.Errorf("%q, want %q", got, want)
	}
	if text := sum.Dropped.First[3].Text; text != strings.Repeat("ä", 60) {
		t.Errorf("a long line is shown as %d octets: %q", len(text), text)
	}
}

package runs

import (
	"fmt"
	"slices"
	"testing"

	"blockd/internal/testkit"
)

func TestPartsAreApartAndWhole(t *testing.T) {
	const parts = 3
	for _, size := range []int{1, 50, 1 << 20} { // each line alone in the file, some in memory, all in memory
		p := NewParts(t.TempDir(), parts, size)
		var want [parts][]string
		for i := range 1000 {
			line := fmt.Sprintf("%d.example\n", i*7919%1000)
			want[i%parts] = append(want[i%parts], line)
			testkit.Must(t, p.Add(i%parts, []byte(line)))
		}
		for n := range parts {
			s := New(t.TempDir(), 0)
			testkit.Must(t, p.Sort(n, s))
			var got []string
			for line, err := range s.Lines() {
				testkit.Must(t, err)
				got = append(got, string(line))
			}
			s.Close()
			slices.Sort(want[n])
			testkit.EqualSlices(t, fmt.Sprintf("size %d, part %d", size, n), got, want[n])
		}
		p.Close()
	}
}

package runs_test

import (
	"bytes"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"blockd/internal/runs"
	"blockd/internal/testkit"
)

// TestLinesComeInOrder sorts lines in memory, in a few runs, and in so many that runs are merged to larger ones.
func TestLinesComeInOrder(t *testing.T) {
	for _, n := range []int{0, 1, 1000, 10_000, 200_000} {
		folder := t.TempDir()
		s := runs.New(folder, 1)
		rng := rand.New(rand.NewPCG(uint64(n), 1))
		var want []string
		for range n {
			line := make([]byte, rng.IntN(40))
			for i := range line {
				line[i] = byte(rng.IntN(256))
			}
			want = append(want, string(line))
			testkit.Must(t, s.Add(line))
		}
		slices.Sort(want)
		i := 0
		for line, err := range s.Lines() {
			if err != nil || i == n || string(line) != want[i] {
				t.Fatalf("%d lines: line %d is %q, %v", n, i, line, err)
			}
			i++
		}
		if left, err := os.ReadDir(folder); i != n || err != nil || len(left) > 0 {
			t.Errorf("%d of %d lines; %d files are left, %v", i, n, len(left), err)
		}
		s.Close()
		s.Close()
	}
}

func TestLongLines(t *testing.T) {
	s := runs.New(t.TempDir(), 1)
	defer s.Close()
	for i := range 5 {
		testkit.Must(t, s.Add(bytes.Repeat([]byte{byte('e' - i)}, 1<<20)))
	}
	if err := s.Add(make([]byte, 1<<20+1)); err == nil || !strings.Contains(err.Error(), "1048577 octets") {
		t.Errorf("a line of more than a MiB: %v", err)
	}
	var first []byte
	for line, err := range s.Lines() {
		if err != nil || len(line) != 1<<20 {
			t.Fatalf("%d octets, %v", len(line), err)
		}
		first = append(first, line[0])
	}
	testkit.Equal(t, "the first octets", string(first), "abcde")
}

// TestNoFolder: what the disk says comes with the line that did not fit.
func TestNoFolder(t *testing.T) {
	s := runs.New(filepath.Join(t.TempDir(), "none"), 1)
	defer s.Close()
	for range 3 {
		if err := s.Add(make([]byte, 1<<19)); err != nil {
			return
		}
	}
	t.Error("no error")
}

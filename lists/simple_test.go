package lists

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"

	"blockd/internal/testkit"
	"blockd/internal/testkit/race"
)

// readSlow reads data as the plain format without its short way.
func readSlow(data []byte, s Settings) (items []Item, err error) {
	slow := formats[0]
	slow.read = eachLine(plainComment, plainLine)
	return readAs(&slow, data, s)
}

func readAs(f *format, data []byte, s Settings) (items []Item, err error) {
	r := newReading(f, "", s, func(it *Item) error {
		c := keepItem(it)
		c.Test, c.pattern = nil, nil // are others each time
		items = append(items, c)
		it.Class, it.Message = Dup, "as Lint does" // shows in no later item
		return nil
	})
	r.lines = newLineReader(bytes.NewReader(data), '\n')
	err = f.read(r)
	return append(items, Item{Message: fmt.Sprint(r.sum, r.tally)}), err
}

// checkSimple holds the short way of the plain format against the long one: items,
// counts and what the guard refuses.
func checkSimple(t *testing.T, data []byte, s Settings) {
	t.Helper()
	want, wantErr := readSlow(data, s)
	got, err := readAs(&formats[0], data, s)
	if fmt.Sprint(err) != fmt.Sprint(wantErr) || !slices.Equal(got, want) {
		t.Fatalf("%q: %v, %v; the long way %v, %v", data, got, err, want, wantErr)
	}
}

func TestSimpleLinesAgreeWithTheLongWay(t *testing.T) {
	race.Skip(t)
	guard := testkit.Value(NewGuard(DefaultGuard()))(t)
	words := []string{"a", "bulk", "test", "gmail", "com", "co", "uk", "10", "198", "fe80", "0x7f", "mailto", "from", "xn--p1ai", "ab", "K",
		"@", "@", ".", ".", ".", "-", "_", "+", "=", "!", "#", "/", ":", "*", " ", "\t", "\r", "<", ">", "ü", "\x00", "~", "^", ";"}
	no := false
	for seed := range uint64(2000) {
		rng := rand.New(rand.NewPCG(seed, 9))
		var data []byte
		for range 30 {
			for range rng.IntN(9) {
				data = append(data, words[rng.IntN(10+rng.IntN(len(words)-9))]...)
			}
			data = append(data, '\n')
		}
		s := Settings{Reason: "because", Patterns: rng.IntN(2) == 0}
		if rng.IntN(2) == 0 {
			s.Guard = guard
		}
		if rng.IntN(2) == 0 {
			s.Action, s.Subdomains = Allow, &no
		}
		checkSimple(t, data, s)
	}
}

func FuzzSimple(f *testing.F) {
	guard := testkit.Value(NewGuard(DefaultGuard()))(f)
	f.Fuzz(func(t *testing.T, data []byte, patterns bool) {
		checkSimple(t, data, Settings{Guard: guard, Patterns: patterns})
	})
}

// TestReadingAllocatesNothingPerLine: the usual lines, and a hundred thousand of them.
func TestReadingAllocatesNothingPerLine(t *testing.T) {
	for _, text := range []string{"promo@bulk.test\n", "=mail.bulk.test\n", "!press@bulk.test\n", "# people\n", "\n", "198.51.100.23\n"} {
		data := bytes.Repeat([]byte(text), 100_000)
		allocs := testing.AllocsPerRun(2, func() {
			if _, err := read(sourceOf(data), nil, Settings{Format: "plain"}, func(*Item) error { return nil }); err != nil {
				t.Fatal(err)
			}
		})
		if allocs > 1000 { // one in a hundred lines: the whole process is counted, and the collector of a loaded machine has added 206
			t.Errorf("%q: %v allocations for 100,000 lines", text, allocs)
		}
	}
}

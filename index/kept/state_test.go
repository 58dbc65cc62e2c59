package kept

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"blockd/internal/testkit"
)

func newStore(t *testing.T) *Store {
	return &Store{Folder: filepath.Join(t.TempDir(), "kept"), Keep: 3, Bytes: 1 << 30}
}

// TestDamagedPinsAreSeen: whichever octet of the pins is another one, or missing, they are not taken for pins.
func TestDamagedPinsAreSeen(t *testing.T) {
	s := newStore(t)
	pin := Pin{List: "bulk", Content: Content{{Path: []byte("bulk.txt"), Hash: "00", Segment: strings.Repeat("a", 32), Entries: 3}}, How: Rollback}
	testkit.Must(t, s.ChangePins(func([]Pin) ([]Pin, error) { return []Pin{pin}, nil }))
	path := filepath.Join(s.Folder, pinsName)
	good := testkit.Value(os.ReadFile(path))(t)
	try := func(what string, at int, text []byte) {
		t.Helper()
		testkit.Must(t, os.WriteFile(path, text, 0o600))
		if all, err := s.Pins(); !errors.Is(err, ErrTorn) && !(err == nil && len(all) == 1 && all[0].Content.Equal(pin.Content)) {
			t.Fatalf("%s at %d: %v, %v", what, at, all, err)
		}
	}
	for i := range good {
		flipped := append([]byte(nil), good...)
		flipped[i] ^= 1
		try("a flipped bit", i, flipped)
		try("cut", i, good[:i])
	}
}

// TestClockThatGoesBack: the order in which generations served is kept, and a time is looked up in that order.
func TestClockThatGoesBack(t *testing.T) {
	s, now := newStore(t), time.Date(2026, 11, 24, 12, 0, 0, 0, time.UTC)
	content := func(c string) []State {
		return []State{{Name: "bulk", Files: Content{{Path: []byte("bulk.txt"), Segment: strings.Repeat(c, 32)}}}}
	}
	for i, g := range []Generation{
		{ID: "aaaaaaaaaaaa", Time: now, Lists: content("a")},
		{ID: "bbbbbbbbbbbb", Time: now.Add(24 * time.Hour), Lists: content("b")}, // the clock was wrong
		{ID: "cccccccccccc", Time: now.Add(time.Minute), Lists: content("c")},
	} {
		if err := s.record(g); err != nil {
			t.Fatal(i, err)
		}
	}
	for when, want := range map[string]string{"": "b", "0h": "a", "2026-11-26T00:00:00Z": "c", "bbbbbbbb": "b"} {
		testkit.Equal(t, when, testkit.Value(s.Then("bulk", when, now.Add(2*time.Minute)))(t).Content[0].Segment[:1], want)
	}
}

// TestPinsThatCannotBeWritten: an error, and the pins are as before.
func TestPinsThatCannotBeWritten(t *testing.T) {
	s := newStore(t)
	if err := os.WriteFile(s.Folder, nil, 0o600); err != nil { // no folder can be made there
		t.Fatal(err)
	}
	if err := s.ChangePins(func([]Pin) ([]Pin, error) { return []Pin{{List: "bulk"}}, nil }); err == nil {
		t.Error("noted, where nothing can be written")
	}
}

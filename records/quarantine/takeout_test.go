package quarantine

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"blockd/internal/testkit"
)

// A message goes to the recipients that are left, octet for octet, and is gone when none is.
func TestTakeOut(t *testing.T) {
	id, text := "1700000001.M1P1Q1.host", "To: u@here.example\r\n\r\nDelivered-To: u@here.example\r\n\x00\r"
	f := folder(t, map[string]string{id: message("a@bulk.example", []string{"u@here.example", "v@here.example", "u@here.example"}, text)})
	is := func(who string) func(string) bool { return func(r string) bool { return r == who } }
	testkit.Must(t, f.TakeOut(id, is("w@here.example")))
	testkit.Must(t, f.TakeOut(id, is("u@here.example")))
	now, err := os.ReadFile(filepath.Join(string(f), "new", id))
	if err != nil || string(now) != message("a@bulk.example", []string{"v@here.example"}, text) {
		t.Errorf("%q, %v", now, err)
	}
	var got []string
	if r, err := f.Release(t.Context(), id, "", false, taken(&got, "v@here.example")); err != nil || !r.Left || len(r.Deliveries) != 1 {
		t.Errorf("%+v, %v", r, err) // and nobody holds it
	}
	testkit.Must(t, f.TakeOut(id, is("v@here.example")))
	if err := f.TakeOut(id, is("v@here.example")); !errors.Is(err, ErrNotThere) {
		t.Error(err)
	}
	for _, name := range []string{"tmp", "new", "cur"} {
		if left, err := os.ReadDir(filepath.Join(string(f), name)); err != nil || len(left) > 0 {
			t.Errorf("%s has %v, %v", name, left, err)
		}
	}
	foreign := folder(t, map[string]string{id: "Subject: x\r\n\r\n"})
	if err := foreign.TakeOut(id, is("u@here.example")); !errors.Is(err, ErrForeign) {
		t.Error(err)
	}
	if now := ids(t, foreign); !slices.Contains(now, id) {
		t.Error(now)
	}
}

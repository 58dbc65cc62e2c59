package live

import (
	"context"
	"slices"
	"strings"
	"testing"
)

// A change that is made on this machine alone has one line in the audit journal, and a second one only if it was not made after all.
func TestAChangeAloneIsNotedOnce(t *testing.T) {
	set, _, said := journalled(t)
	set.SetShare(func(context.Context, []Want, Terms) ([]Given, error) { return nil, ErrAlone })
	if _, err := set.Apply(Change{Entry: "bad.example", Author: "anna"}, Change{Entry: "other.example", Author: "anna"}); err != nil {
		t.Fatal(err)
	}
	stale := uint64(4711)
	if _, err := set.Apply(Change{Entry: "stale.example", Author: "anna", IfRev: &stale}); err == nil {
		t.Fatal("a change of another revision was made")
	}
	var got []string
	for _, line := range said() {
		parts := strings.Split(line, "|")
		got = append(got, parts[1]+" "+parts[2])
	}
	want := []string{"entry.add block bad.example", "entry.add block other.example", "entry.add block stale.example", "failed block stale.example"}
	if !slices.Equal(got, want) {
		t.Errorf("the journal has %q, want %q", got, want)
	}
}

package junk

import (
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"blockd/internal/testkit"
)

const day = 24 * time.Hour

func newBox(t *testing.T, agree, domains int) *Box {
	t.Helper()
	return NewBox(Settings{Path: filepath.Join(t.TempDir(), "box"), Agree: agree, Domains: domains, Keep: 30 * day})
}

// shown are the proposals in a line: entry, state, users/domains/complaints.
func shown(t *testing.T, b *Box, now time.Time) string {
	t.Helper()
	all, _, err := b.All("", now)
	testkit.Must(t, err)
	var texts []string
	for _, p := range all {
		texts = append(texts, fmt.Sprintf("%s %s %d/%d/%d", p.Entry, p.State, p.Users, p.Domains, p.Complaints))
	}
	return strings.Join(texts, "; ")
}

func TestBox(t *testing.T) {
	const promo, other = "promo@bulk.example", "other@bulk.example"
	b, now := newBox(t, 3, 2), time.Now().Truncate(time.Second)
	say := func(entry, user string, kind Kind, at time.Time) {
		t.Helper()
		testkit.Must(t, b.Say(entry, user, kind, at))
	}
	for _, step := range []struct {
		do   func()
		want string
	}{
		{func() {}, ""},
		{func() { say(promo, "a@x.example", Moved, now); say(promo, "b@x.example", Moved, now) }, ""},
		{func() { say(promo, "a@x.example", Moved, now); say(promo, "a@x.example", Complaint, now) }, ""}, // counts once
		{func() { say(promo, "c@x.example", Moved, now) }, ""},                                            // of one domain
		{func() { say(promo, "d@y.example", Complaint, now) }, "promo@bulk.example open 4/2/2"},
		{func() { b.Unsay(promo, "b@x.example", now) }, "promo@bulk.example open 3/2/2"},
		{func() { b.Unsay(promo, "nobody@x.example", now) }, "promo@bulk.example open 3/2/2"},
		{func() { b.Unsay(promo, "c@x.example", now) }, ""},
		{func() { say(promo, "c@x.example", Moved, now) }, "promo@bulk.example open 3/2/2"},
		{func() { b.Decide(promo, Declined, "jo", time.Time{}, now) }, "promo@bulk.example declined 0/0/0"},
		{func() { say(promo, "c@x.example", Moved, now.Add(time.Second)) }, "promo@bulk.example declined 1/1/0"}, // afresh
		{func() {
			say(promo, "d@y.example", Moved, now.Add(time.Second))
			say(promo, "e@y.example", Moved, now.Add(time.Second))
		}, "promo@bulk.example open 3/2/0"},
		{func() { b.Decide(promo, Adopted, "jo", now.Add(90*day), now.Add(2*time.Second)) }, "promo@bulk.example adopted 0/0/0"},
	} {
		step.do()
		testkit.MustEqual(t, "shown(t, b, now.Add(3*time.Second))", shown(t, b, now.Add(3*time.Second)), step.want)
		if got := shown(t, NewBox(b.settings), now.Add(3*time.Second)); got != step.want { // another process
			t.Fatalf("read again: %q, want %q", got, step.want)
		}
	}
	testkit.Fails(b.Decide(promo, Adopted, "jo", time.Time{}, now))(t, "decided twice", ErrDecided)
	testkit.Fails(b.Decide(other, Adopted, "jo", time.Time{}, now))(t, "nobody is proposed", ErrNoProposal)
	// Voices end.
	for i := range 3 {
		say(other, fmt.Sprintf("u@%d.example", i), Moved, now.Add(-time.Duration(i)*10*day))
	}
	testkit.Begins(t, "after nine days", shown(t, b, now.Add(9*day)), "other@bulk.example open 3/3/0")
	if got := shown(t, b, now.Add(11*day)); strings.Contains(got, "other") {
		t.Errorf("after eleven days: %q", got)
	}
	// A person is forgotten as a user, and as a sender.
	if n, err := b.Forget(func(a string) bool { return a == promo }, func(a string) bool { return a == "u@0.example" }); err != nil || n < 2 {
		t.Errorf("forgotten: %d, %v", n, err)
	}
	text, _ := os.ReadFile(b.settings.Path)
	if strings.Contains(string(text), "promo") || strings.Contains(string(text), "u@0") || !strings.Contains(string(text), "u@1.example") {
		t.Errorf("after it was forgotten:\n%s", text)
	}
}

// What a hand has damaged costs its line alone; what a crash has cut goes.
func TestBoxDamage(t *testing.T) {
	b, now := newBox(t, 2, 1), time.Now()
	for _, text := range []string{`{"time":"2026-11-24T00:00:00Z","entry":"x@y.exa`, "\n", `nonsense` + "\n", `{"entry":"","user":"a@b.example"}` + "\n", strings.Repeat("x", mostLine+1) + "\n", "{\"entry\":\"torn"} {
		f := testkit.Value(os.OpenFile(b.settings.Path, os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o600))(t)
		f.WriteString(text)
		f.Close()
		b.CountOpen()
	}
	for _, user := range []string{"a@x.example", "b@x.example"} {
		testkit.Must(t, b.Say("promo@bulk.example", user, Moved, now))
	}
	all, damaged, err := b.All(Open, now)
	if err != nil || len(all) != 1 || damaged != 4 || NewBox(b.settings).Damaged() != 4 {
		t.Errorf("%d proposals, %d damaged, %v", len(all), damaged, err)
	}
}

// Many boxes of one file, which is written anew meanwhile, come to what a map does.
func TestBoxShared(t *testing.T) {
	first, now := newBox(t, 1, 1), time.Now()
	var all sync.WaitGroup
	const writers, words = 4, 300
	for w := range writers {
		all.Go(func() {
			b, random := NewBox(first.settings), rand.New(rand.NewPCG(1, uint64(w)))
			for i := range words {
				entry := fmt.Sprintf("s%d@bulk.example", random.IntN(5))
				testkit.Should(t, b.Say(entry, fmt.Sprintf("u%d@x.example", w), Moved, now.Add(time.Duration(i)*time.Second)))
			}
		})
	}
	all.Wait()
	want := map[string]map[int]bool{}
	for w := range writers {
		random := rand.New(rand.NewPCG(1, uint64(w)))
		for range words {
			entry := fmt.Sprintf("s%d@bulk.example", random.IntN(5))
			if want[entry] == nil {
				want[entry] = map[int]bool{}
			}
			want[entry][w] = true
		}
	}
	got, damaged, err := first.All(Open, now)
	if err != nil || damaged != 0 || len(got) != len(want) {
		t.Fatalf("%d senders, want %d; %d damaged, %v", len(got), len(want), damaged, err)
	}
	for _, p := range got {
		testkit.Equal(t, fmt.Sprintf("%s: users", p.Entry), p.Users, len(want[p.Entry]))
	}
	if text, _ := os.ReadFile(first.settings.Path); strings.Count(string(text), "\n") > tidyFrom+1 {
		t.Errorf("%d lines for %d words that count", strings.Count(string(text), "\n"), writers*5)
	}
}

// A decision stands as long as what was said before it, and a rewrite does not bring that back.
func TestDecisionStands(t *testing.T) {
	now := time.Now()
	b := NewBox(Settings{Path: filepath.Join(t.TempDir(), "junk"), Agree: 2, Domains: 1, Keep: 365 * day})
	for _, user := range []string{"a@x.example", "b@x.example"} {
		testkit.Must(t, b.Say("promo@bulk.example", user, Moved, now.Add(-130*day)))
	}
	testkit.Value(b.Decide("promo@bulk.example", Declined, "op", time.Time{}, now.Add(-120*day)))(t)
	testkit.Must(t, b.Say("z@other.example", "c@x.example", Moved, now))
	none := func(string) bool { return false }
	if n, err := b.Forget(none, func(a string) bool { return a == "c@x.example" }); err != nil || n != 1 { // which writes the file anew
		t.Fatal(n, err)
	}
	all, _, err := b.All("", now)
	if err != nil || len(all) != 1 || all[0].State != Declined {
		t.Errorf("%+v, %v", all, err)
	}
}

package live

import (
	"errors"
	"os"
	"strings"
	"testing"
	"time"

	"blockd/internal/testkit/indexes"
	"blockd/mail/addr"
)

// An exception that needs proof says so in each answer: from the journal, from the snapshot, and after a build, which does not
// have it; and no more after it was replaced by one that needs none.
func TestNeedsProof(t *testing.T) {
	dir := t.TempDir()
	open := func() *Set {
		t.Helper()
		s, err := Open(Settings{Folder: dir})
		if err != nil {
			t.Fatal(err)
		}
		return s
	}
	s := open()
	ix := indexes.Build(t, indexes.Source(t, "bad", "bad.example\n"))
	add := func(changes ...Change) {
		t.Helper()
		if _, err := s.Apply(changes...); err != nil {
			t.Fatal(err)
		}
	}
	needs := func(when string, want bool) {
		t.Helper()
		sender, err := addr.Parse("a@bad.example")
		if err != nil {
			t.Fatal(err)
		}
		matches, err := ix.Lookup(nil, sender, time.Now())
		if err != nil {
			t.Fatal(err)
		}
		matches, table := s.Amend(matches, ix, Question{Sender: sender}, time.Now())
		for i := range matches {
			if table[matches[i].Row].Source.List == ListName {
				if matches[i].NeedsProof != want {
					t.Errorf("%s: it needs proof: %t", when, matches[i].NeedsProof)
				}
				if want != s.NeedsProof() && want {
					t.Errorf("%s: the set does not know", when)
				}
				return
			}
		}
		t.Errorf("%s: there is no live entry", when)
	}
	if s.NeedsProof() {
		t.Error("an empty set has entries that need proof")
	}
	proved := Change{Entry: "a@bad.example", Action: 1, NeedsProof: true, Why: "request"}
	add(proved, Change{Entry: "other.example"})
	needs("from the journal", true)
	if out, err := s.Apply(proved); err != nil || out[0].Changed() {
		t.Errorf("once more: %v, %v", out, err)
	}
	s.Close()
	s = open()
	needs("after a restart", true)

	fold := func() {
		t.Helper()
		if wrote, err := s.Fold(t.Context()); err != nil || !wrote {
			t.Fatalf("fold: %t, %v", wrote, err)
		}
		ix = indexes.Build(t, indexes.Source(t, "bad", "bad.example\n"), folded(dir))
		s.Served(ix)
	}
	fold()
	text, err := os.ReadFile(listPath(dir))
	if err != nil || strings.Contains(string(text), "a@bad.example") || !strings.Contains(string(text), "other.example") {
		t.Errorf("the list for a build: %s, %v", text, err)
	}
	needs("after a build", true)
	if err := s.rewriteNow(); err != nil {
		t.Fatal(err)
	}
	needs("from the snapshot", true)
	s.Close()
	s = open()
	s.Served(ix)
	needs("from the snapshot after a restart", true)
	if got := s.view.Load().base.version; got != provedVersion {
		t.Errorf("the snapshot has version %d: an older program believes the exception", got)
	}

	add(Change{Entry: "a@bad.example", Action: 1, Why: "request"})
	needs("replaced", false)
	fold()
	needs("replaced, after a build", false)
	add(proved)
	needs("again", true)
	add(Change{Entry: "a@bad.example", Remove: true})
	if err := s.rewriteNow(); err != nil {
		t.Fatal(err)
	}
	if got := s.view.Load().base.version; got != plainVersion {
		t.Errorf("without one the snapshot has version %d", got)
	}
	s.Close()

	for _, c := range []Change{
		{Entry: "a@bad.example", NeedsProof: true},
		{Entry: "192.0.2.1", Action: 1, NeedsProof: true},
		{Entry: "offers@", Action: 1, NeedsProof: true},
		{Entry: "a@bad.example", Action: 1, NeedsProof: true, Owner: "b@here.example"},
	} {
		if _, err := newEntry(c, nil, time.Now()); !errors.Is(err, ErrInvalid) {
			t.Errorf("%+v: %v", c, err)
		}
	}
}

package live

import (
	"cmp"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"blockd/internal/testkit"
	"blockd/lists"
	"blockd/mail/digest"
)

// slowly is a walk over all pages as one would write it down.
func slowly(s *Set, q Query) (all []*Entry) {
	for e := range s.All() {
		if slices.ContainsFunc([]string{e.Text, e.Why, e.Author}, func(t string) bool {
			return strings.Contains(strings.ToLower(t), strings.ToLower(q.Text))
		}) {
			all = append(all, e)
		}
	}
	slices.SortFunc(all, func(a, b *Entry) int {
		switch q.Order {
		case Newest:
			return cmp.Compare(b.Number, a.Number)
		case Oldest:
			return cmp.Compare(a.Number, b.Number)
		case ByEntry:
			return cmp.Or(strings.Compare(a.key, b.key), cmp.Compare(a.Item.Scope, b.Item.Scope))
		}
		never := func(e *Entry) int {
			if e.expiry == 0 {
				return 1
			}
			return 0
		}
		return cmp.Or(cmp.Compare(never(a), never(b)), cmp.Compare(a.expiry, b.expiry), cmp.Compare(a.Number, b.Number))
	})
	return all
}

// walk is all pages of a search.
func walk(t *testing.T, s *Set, q Query) (all []*Entry) {
	t.Helper()
	for {
		found := testkit.Value(s.Search(t.Context(), q))(t)
		if most := cmp.Or(q.Limit, MaxFound); len(found.Entries) > most || found.Next != "" && len(found.Entries) < most {
			t.Fatalf("%+v: a page of %d, and then %q", q, len(found.Entries), found.Next)
		}
		all = append(all, found.Entries...)
		if found.Next == "" {
			return all
		}
		q.After = found.Next
	}
}

// TestSearch holds every walk against a slow one: over a snapshot with changes since, in each order, by texts that
// stand in all parts of an entry.
func TestSearch(t *testing.T) {
	set := open(t, Settings{})
	r := rand.New(rand.NewPCG(1, 2))
	spell := []string{"x%d@bulk%d.example", "Bulk%[2]d-%[1]d.example", ".sub%d.bulk%d.example", "=one%d.example", "10.%d.%d.0/24", "2001:db8:%x::/48", "local%d@", "bücher%d.example", `"odd name%d"@bulk%d.example`, `"a#b%d"@bulk%d.example`, "@[192.0.%[2]d.%[1]d]", "c#%d@"}
	change := func(n int) {
		var changes []Change
		for range n {
			a, b := r.IntN(40), r.IntN(3)
			form := spell[r.IntN(len(spell))]
			args := []any{a, b}
			if !strings.Contains(form, "[") {
				args = args[:strings.Count(form, "%")]
			}
			c := Change{Entry: fmt.Sprintf(form, args...), Remove: r.IntN(4) == 0, Why: []string{"", "Phishing, TICKET 7", "Größe, ÄRGER", "10.1."}[r.IntN(4)],
				Author: []string{"jo", "Kim"}[r.IntN(2)], Action: []lists.Action{lists.Block, lists.Allow}[r.IntN(2)]}
			if !c.Remove && r.IntN(3) == 0 {
				c.Expires = time.Now().Add(time.Duration(1+r.IntN(5)) * time.Hour)
			}
			if form == spell[0] && r.IntN(2) == 0 {
				c.Owner = "own@here.example" // nobody else's page has it
			}
			changes = append(changes, c)
		}
		apply(t, set, changes...)
	}
	some := 0
	hold := func() {
		t.Helper()
		for _, order := range []Order{Newest, Oldest, ByEntry, ByEnd} {
			for _, text := range []string{"", "bulk1", "BULK", "phish", "ticket", "ärger", "größe", "kim", "10.1.", "2001:db8", "/24", "=one", ".sub1", "xn--", `"odd`, "@", "1@bulk", "nowhere",
				".", "...", "=", `"`, `""`, `@"`, `="`, `."`, `"@`, `b1"@bulk`, `#`, "=bulk", ".example", "@[192", "@bulk", " 7", "7jo", "/", "/24 ", "0/2", "2001:db8:1::/48", `"c#`, "]", "k"} {
				q := Query{Text: text, Order: order, Limit: []int{1, 7, 60, 0}[r.IntN(4)]}
				have, want := walk(t, set, q), slowly(set, q)
				if !slices.EqualFunc(have, want, func(a, b *Entry) bool { return a.Number == b.Number && a.Text == b.Text && a.reason == b.reason }) {
					t.Fatalf("%+v: %d entries, want %d", q, len(have), len(want))
				}
				some += len(want)
			}
		}
	}
	change(300)
	hold() // all are changes
	testkit.Must(t, set.rewriteNow())
	hold() // all are in the snapshot
	change(60)
	hold()
	testkit.AtLeast(t, "entries that were found in all", some, 1000)
}

// rewriteNow writes a snapshot, due or not.
func (s *Set) rewriteNow() error {
	s.writing.Lock()
	s.stale = true
	s.writing.Unlock()
	return s.rewrite(true)
}

// A walk shows what was there from its beginning to its end, whatever is added and removed meanwhile.
func TestSearchGoesOnBesideChanges(t *testing.T) {
	set := open(t, Settings{})
	for i := range 50 {
		apply(t, set, Change{Entry: fmt.Sprintf("stays%02d.example", i)}, Change{Entry: fmt.Sprintf("goes%02d.example", i)})
	}
	for _, order := range []Order{Newest, Oldest, ByEntry, ByEnd} {
		q, stayed := Query{Order: order, Limit: 3}, map[string]int{}
		for n := 0; ; n++ {
			found := testkit.Value(set.Search(t.Context(), q))(t)
			for _, e := range found.Entries {
				stayed[e.Text]++
			}
			apply(t, set, Change{Entry: fmt.Sprintf("goes%02d.example", n), Remove: true}, Change{Entry: fmt.Sprintf("comes%d.example", n)})
			if n%5 == 0 {
				testkit.Must(t, set.rewriteNow())
			}
			if q.After = found.Next; q.After == "" || n > 200 {
				break
			}
		}
		for i := range 50 {
			if name := fmt.Sprintf("stays%02d.example", i); stayed[name] != 1 {
				t.Errorf("order %d: %s was shown %d times", order, name, stayed[name])
			}
		}
	}
}

func TestCursorsThatNoAnswerHad(t *testing.T) {
	set := open(t, Settings{})
	apply(t, set, Change{Entry: "a.example"}, Change{Entry: "b.example"})
	next := ""
	for _, order := range []Order{Newest, Oldest, ByEntry, ByEnd} {
		for _, cursor := range []string{next, "x", "n", "n0", "n-1", "o", "o1x", "k", "k!", "kAA", "e", "e1", "e-1-2", "e1-", "n99999999999999999999", strings.Repeat("n", 9999)} {
			if cursor == "" {
				continue
			}
			if _, err := set.Search(t.Context(), Query{Order: order, After: cursor}); !errors.Is(err, ErrCursor) {
				t.Errorf("order %d, cursor %.20q: %v", order, cursor, err)
			}
		}
		found, err := set.Search(t.Context(), Query{Order: order, Limit: 1})
		if err != nil || found.Next == "" {
			t.Fatalf("%+v, %v", found, err)
		}
		next = found.Next // of another order, the next time
	}
}

func TestDigestsOfLiveEntries(t *testing.T) {
	folder := t.TempDir()
	open := func(hashes digest.Set) *Set { return open(t, Settings{Folder: folder, Hashes: hashes}) }
	set := open(digest.SetOf(digest.MD5, digest.SHA256))
	now := time.Now()
	for _, c := range []Change{
		{Entry: "a@bücher.test"}, {Entry: "bulk.test"}, {Entry: "offers@"}, {Entry: "192.0.2.1"},
		{Entry: "short@bulk.test", Expires: now.Add(time.Hour)},
	} {
		apply(t, set, c)
	}
	want := func(a digest.Algorithm, text string, at time.Time, want string) {
		t.Helper()
		got, ok := set.AddressOf(digest.Of(a, text), at)
		testkit.Got(got.String(), ok)(t, fmt.Sprintf("AddressOf(%v of %s)", a, text), want, want != "")
	}
	all := func() {
		t.Helper()
		for _, a := range []digest.Algorithm{digest.MD5, digest.SHA256} {
			want(a, "a@bücher.test", now, "a@xn--bcher-kva.test")
			want(a, "a@xn--bcher-kva.test", now, "a@xn--bcher-kva.test")
			want(a, "short@bulk.test", now, "short@bulk.test")
			want(a, "short@bulk.test", now.Add(2*time.Hour), "")
			want(a, "bulk.test", now, "")
			want(a, "offers@", now, "")
		}
		want(digest.SHA1, "a@bücher.test", now, "")
	}
	all()
	testkit.Must(t, set.Close())
	set = open(digest.SetOf(digest.MD5, digest.SHA256))
	defer set.Close()
	all()
	apply(t, set, Change{Entry: "a@xn--bcher-kva.test", Remove: true})
	want(digest.MD5, "a@bücher.test", now, "")
	want(digest.MD5, "a@xn--bcher-kva.test", now, "")
	testkit.Must(t, set.sweep(now.Add(2*time.Hour)))
	testkit.Equal(t, "digests of entries that have gone", set.view.Load().digests.body.Load(), nil)
	if _, ok := (*Set)(nil).AddressOf(digest.Of(digest.MD5, "a@b.test"), now); ok {
		t.Error("an address of no set")
	}
}

package live

import (
	"context"
	"fmt"
	"math/rand/v2"
	"net/netip"
	"os"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"blockd/index"
	"blockd/internal/durable"
	"blockd/internal/testkit"
	"blockd/internal/testkit/indexes"
	"blockd/internal/testkit/race"
	"blockd/lists"
	"blockd/mail/addr"
)

// ask asks for all matches, with the text of each and the list it is of.
func ask(t testing.TB, set *Set, ix *index.Index, q Question, now time.Time) []string {
	t.Helper()
	var matches []index.Match
	var err error
	if !q.Sender.Null() {
		matches, err = ix.Lookup(matches, q.Sender, now)
	}
	if err == nil && q.Domain.Text != "" {
		matches, err = ix.LookupDomain(matches, q.Domain, now)
	}
	if err == nil && q.Client.IsValid() {
		matches, err = ix.LookupClient(matches, q.Client, now)
	}
	testkit.Must(t, err)
	matches, table := set.Amend(matches, ix, q, now)
	all := []string{}
	for i := range matches {
		m := &matches[i]
		all = append(all, table[m.Row].Source.List+" "+m.Action.String()+" "+plain(m))
	}
	return all
}

func sender(t testing.TB, text string) addr.Addr {
	t.Helper()
	return testkit.Value(addr.Parse(text))(t)
}

// A live entry stands among those of the lists where it belongs: the most specific
// first, and before a list's of the same rank.
func TestOrderAmongLists(t *testing.T) {
	ix := indexes.Build(t, indexes.Source(t, "l", "x@a.b.example\n=a.b.example\na.b.example\nb.example\nexample\nx@\n192.0.2.1\n192.0.2.0/24\n"))
	set := open(t, Settings{})
	for _, text := range []string{"192.0.2.0/25", "192.0.2.1", "x@", "b.example", ".b.example", "a.b.example", "=a.b.example", "x@a.b.example"} {
		apply(t, set, Change{Entry: text})
	}
	apply(t, set, Change{Entry: ".a.b.example"}, Change{Entry: "=b.example"}, Change{Entry: "y@a.b.example"}) // which cover none of it
	got := ask(t, set, ix, Question{Sender: sender(t, "x@a.b.example"), Client: netip.MustParseAddr("::ffff:192.0.2.1")}, time.Now())
	want := []string{"live block x@a.b.example", "l block x@a.b.example", "live block =a.b.example", "l block =a.b.example",
		"live block a.b.example", "l block a.b.example", "live block b.example", "live block .b.example", "l block b.example", "l block example",
		"live block x@", "l block x@",
		"live block 192.0.2.1", "l block 192.0.2.1", "live block 192.0.2.0/25", "l block 192.0.2.0/24"}
	slices.Sort(got[6:8]) // two scopes of one name
	slices.Sort(want[6:8])
	if !slices.Equal(got, want) {
		t.Errorf("matches\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
}

// A verdict names the user that added an entry, the reason, and the end.
func TestReasonOfAMatch(t *testing.T) {
	ix := indexes.Build(t, indexes.Source(t, "l", "other.example"))
	set := open(t, Settings{})
	until := time.Now().Add(time.Hour)
	e := apply(t, set, Change{Entry: "x.example", Why: "phishing, ticket 4711", Author: "jo", Expires: until})[0].Entry
	matches, table := set.Amend(nil, ix, Question{Sender: sender(t, "a@x.example")}, time.Now())
	want := "phishing, ticket 4711 (added " + e.Added.Format(time.DateOnly) + " by jo, until " + e.Expires.Format(time.RFC3339) + ")"
	if len(matches) != 1 || matches[0].Reason != want || matches[0].Line != int(e.Number) || table[matches[0].Row].Source.List != ListName {
		t.Errorf("matches %+v, want one with reason %q", matches, want)
	}
}

// What was folded into an index is of no other effect than what was not: removals,
// replacements and expiry act on it too, and a look-up in an older index still finds
// everything.
func TestFoldedEntries(t *testing.T) {
	set := open(t, Settings{})
	other := indexes.Source(t, "l", "listed.example")
	first := indexes.Build(t, other)
	set.Served(first)
	now := time.Now()
	apply(t, set, Change{Entry: "stays.example", Why: "a"}, Change{Entry: "goes.example"}, Change{Entry: "turns.example"},
		Change{Entry: "ends.example", Expires: now.Add(time.Hour)}, Change{Entry: "192.0.2.0/24"})
	if written, err := set.Fold(t.Context()); !written || err != nil {
		t.Fatalf("Fold = %t, %v", written, err)
	}
	if written, err := set.Fold(t.Context()); written || err != nil {
		t.Fatalf("Fold again = %t, %v", written, err)
	}
	second := indexes.Build(t, other, folded(set.folder))
	testkit.MustEqual(t, "entries that are newer than the first index", set.newer(), 5)
	set.Served(second)
	testkit.MustEqual(t, "entries that are newer than the second index", set.newer(), 0)
	apply(t, set, Change{Entry: "goes.example", Remove: true}, Change{Entry: "turns.example", Action: lists.Allow}, Change{Entry: "new.example"})
	tests := []struct {
		sender string
		at     time.Time
		want   []string
	}{
		{"x@stays.example", now, []string{"live block stays.example"}},
		{"x@goes.example", now, []string{}},
		{"x@turns.example", now, []string{"live allow turns.example"}},
		{"x@ends.example", now, []string{"live block ends.example"}},
		{"x@ends.example", now.Add(time.Hour), []string{}},
		{"x@new.example", now, []string{"live block new.example"}},
		{"x@listed.example", now, []string{"l block listed.example"}},
	}
	check := func(set *Set, indexes ...*index.Index) {
		t.Helper()
		for n, ix := range indexes {
			for _, tt := range tests {
				testkit.EqualSlices(t, fmt.Sprintf("index %d: %s", n, tt.sender), ask(t, set, ix, Question{Sender: sender(t, tt.sender)}, tt.at), tt.want)
			}
		}
	}
	check(set, first, second)
	seen, err := Read(set.folder) // as blockd check does
	testkit.Must(t, err)
	check(seen, first, second)

	// After a restart the journal says what that index has.
	folder := set.folder
	set.Close()
	set = open(t, Settings{Folder: folder})
	set.Served(second)
	testkit.Equal(t, "entries that are newer than the second index after a restart", set.newer(), 2)
	check(set, first, second)
}

// A list file that was edited is not what the journal says was folded.
func TestEditedListFileIsNotTrusted(t *testing.T) {
	set := open(t, Settings{})
	apply(t, set, Change{Entry: "a.example"}, Change{Entry: "b.example"})
	mustFold(t, set)
	testkit.Must(t, durable.WriteFile(listPath(set.folder), []byte("a.example\nmine.example\n"), 0o600))
	ix := indexes.Build(t, folded(set.folder))
	set.Served(ix)
	for text, want := range map[string][]string{"x@a.example": {"live block a.example"}, "x@b.example": {"live block b.example"}, "x@mine.example": {}} {
		testkit.EqualSlices(t, text, ask(t, set, ix, Question{Sender: sender(t, text)}, time.Now()), want)
	}
}

// covers is what an entry means, written down apart from the code of look-ups.
func covers(text string, q Question) bool {
	if p, err := netip.ParsePrefix(text); err == nil {
		return q.Client.IsValid() && p.Contains(q.Client)
	}
	if ip, err := netip.ParseAddr(text); err == nil {
		return q.Client == ip
	}
	local, domain := q.Sender.Local(), q.Sender.Domain()
	if q.Domain.Text != "" {
		local, domain = "", q.Domain.Text
	}
	switch at := strings.IndexByte(text, '@'); {
	case domain == "":
		return false
	case at == len(text)-1:
		return local == text[:at] && local != ""
	case at > 0:
		return text == local+"@"+domain
	case text[0] == '=':
		return domain == text[1:]
	case text[0] == '.':
		return strings.HasSuffix(domain, text)
	}
	return domain == text || strings.HasSuffix(domain, "."+text)
}

var modelTexts = []string{"x@", "y@", "x@a.b.example", "y@b.example", "=a.b.example", ".a.b.example", "a.b.example", "=b.example", ".b.example", "b.example",
	"example", ".example", "192.0.2.1", "192.0.2.0/24", "192.0.0.0/16", "2001:db8::1", "2001:db8::/32"}

func modelQuestions(t testing.TB) (all []Question) {
	clients := []netip.Addr{{}, netip.MustParseAddr("192.0.2.1"), netip.MustParseAddr("192.0.3.1"), netip.MustParseAddr("2001:db8::1"), netip.MustParseAddr("2001:db8::2")}
	for i, text := range []string{"x@a.b.example", "y@b.example", "x@c.a.b.example", "z@example", "x@other.example", "y@" + strings.Repeat("s.", 30) + "b.example"} {
		all = append(all, Question{Sender: sender(t, text), Client: clients[i%len(clients)]}, Question{Sender: sender(t, text)})
	}
	for _, c := range clients[1:] {
		all = append(all, Question{Client: c})
	}
	for _, name := range []string{"a.b.example", "b.example"} {
		key := testkit.Value(addr.DomainKey(name))(t)
		all = append(all, Question{Domain: key})
	}
	return all
}

// Adds, removals, folds, builds and restarts in any order: every question is answered
// as a walk over a map would.
func TestAgreesWithAModel(t *testing.T) {
	race.Skip(t)
	questions := modelQuestions(t)
	for seed := range uint64(20) {
		rng := rand.New(rand.NewPCG(seed, 0))
		want := map[string]lists.Action{}
		folder := t.TempDir()
		settings := Settings{Folder: folder, compactFrom: 10}
		set := open(t, settings)
		base := indexes.Source(t, "l", "listed.example")
		built := []*index.Index{indexes.Build(t, base)}
		for step := range 120 {
			switch rng.IntN(12) {
			case 0:
				mustFold(t, set)
			case 1:
				built = append(built, indexes.Build(t, base, folded(folder)))
				set.Served(built[len(built)-1])
			case 2:
				testkit.Must(t, set.Tidy())
			case 3:
				set.Close()
				set = open(t, settings)
				set.Served(built[rng.IntN(len(built))])
			default:
				text := modelTexts[rng.IntN(len(modelTexts))]
				c := Change{Entry: text, Remove: rng.IntN(3) == 0, Action: lists.Action(rng.IntN(2))}
				apply(t, set, c)
				if delete(want, text); !c.Remove {
					want[text] = c.Action
				}
			}
			ix := built[rng.IntN(len(built))]
			for _, q := range questions {
				var expect []string
				for text, action := range want {
					if covers(text, q) {
						expect = append(expect, "live "+action.String()+" "+text)
					}
				}
				got := ask(t, set, ix, q, time.Now())
				slices.Sort(got)
				slices.Sort(expect)
				if !slices.Equal(got, expect) {
					t.Fatalf("seed %d, step %d, %+v:\n%q\nwant\n%q", seed, step, q, got, expect)
				}
			}
		}
	}
}

// While entries come and go, and indexes are built and swapped, a look-up that began
// after a change was acknowledged sees it, and never one that was not made.
func TestConcurrentChangesAndLookups(t *testing.T) {
	folder := t.TempDir()
	set := open(t, Settings{Folder: folder, compactFrom: 50})
	base := indexes.Source(t, "l", "listed.example")
	var serving atomic.Pointer[index.Index]
	swap := func() {
		ix := indexes.Build(t, base, folded(folder))
		serving.Store(ix)
		set.Served(ix)
	}
	swap()
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Second)
	defer cancel()
	var group sync.WaitGroup
	var lookups atomic.Int64
	always := sender(t, "x@always.example")
	apply(t, set, Change{Entry: "always.example"})
	for w := range 4 { // each owner of some keys knows what they are
		group.Go(func() {
			rng := rand.New(rand.NewPCG(uint64(w), 7))
			mine := map[string]lists.Action{}
			for n := 0; ctx.Err() == nil; n++ {
				text := fmt.Sprintf("k%d@w%d.example", rng.IntN(8), w)
				c := Change{Entry: text, Remove: rng.IntN(2) == 0, Action: lists.Action(rng.IntN(2))}
				outcomes, err := set.Apply(c)
				if err != nil {
					t.Error(err)
					return
				}
				if was, had := mine[text]; (outcomes[0].Was != nil) != had || had && outcomes[0].Was.Item.Action != was {
					t.Errorf("%s was %v, want %v, %v", text, outcomes[0].Was, was, had)
				}
				if delete(mine, text); !c.Remove {
					mine[text] = c.Action
				}
				for k := range 8 {
					text := fmt.Sprintf("k%d@w%d.example", k, w)
					want := []string{}
					if action, ok := mine[text]; ok {
						want = append(want, "live "+action.String()+" "+text)
					}
					if got := ask(t, set, serving.Load(), Question{Sender: sender(t, text)}, time.Now()); !slices.Equal(got, want) {
						t.Errorf("%s = %q, want %q", text, got, want)
						cancel()
						return
					}
				}
			}
		})
	}
	for range 2 {
		group.Go(func() {
			for ctx.Err() == nil {
				lookups.Add(1)
				if got := ask(t, set, serving.Load(), Question{Sender: always}, time.Now()); len(got) != 1 {
					t.Errorf("an entry that is always there is missing: %q", got)
					cancel()
					return
				}
			}
		})
	}
	builds := 0
	for ctx.Err() == nil {
		if _, err := set.Fold(ctx); err != nil && ctx.Err() == nil {
			t.Error(err)
		}
		swap()
		builds++
		testkit.Should(t, set.Tidy())
	}
	group.Wait()
	t.Logf("%d look-ups, %d changes, %d builds", lookups.Load(), set.last, builds)
	before := held(set)
	set.Close()
	again := open(t, Settings{Folder: folder})
	testkit.Equal(t, "after a restart", sum(held(again)), sum(before))
}

// A sender without an entry costs no memory.
func TestClearCostsNoAllocation(t *testing.T) {
	ix := indexes.Build(t, indexes.Source(t, "l", "listed.example"))
	set := open(t, Settings{})
	set.Served(ix)
	changes := []Change{{Entry: "192.0.2.0/24"}, {Entry: "2001:db8::/48"}, {Entry: "bulk.example"}, {Entry: "promo@"}}
	for i := range 500 {
		changes = append(changes, Change{Entry: fmt.Sprintf("x%d@y.example", i)})
	}
	apply(t, set, changes...)
	q, now := Question{Sender: sender(t, "someone@mail.example.org"), Client: netip.MustParseAddr("198.51.100.1")}, time.Now()
	if n := testing.AllocsPerRun(1000, func() { set.Amend(nil, ix, q, now) }); n > 0 {
		t.Errorf("%v allocations", n)
	}
}

// An exception that needs proof says so in each answer: from the journal, from the snapshot, and after a build, which does not
// have it; and no more after it was replaced by one that needs none.
func TestNeedsProof(t *testing.T) {
	dir := t.TempDir()
	open := func() *Set { return open(t, Settings{Folder: dir}) }
	s := open()
	ix := indexes.Build(t, indexes.Source(t, "bad", "bad.example\n"))
	add := func(changes ...Change) { apply(t, s, changes...) }
	needs := func(when string, want bool) {
		t.Helper()
		sender := testkit.Value(addr.Parse("a@bad.example"))(t)
		matches := testkit.Value(ix.Lookup(nil, sender, time.Now()))(t)
		matches, table := s.Amend(matches, ix, Question{Sender: sender}, time.Now())
		for i := range matches {
			if table[matches[i].Row].Source.List == ListName {
				testkit.Equal(t, fmt.Sprintf("%s: it needs proof", when), matches[i].NeedsProof, want)
				if want != s.NeedsProof() && want {
					t.Errorf("%s: the set does not know", when)
				}
				return
			}
		}
		t.Errorf("%s: there is no live entry", when)
	}
	testkit.Equal(t, "an empty set has entries that need proof", s.NeedsProof(), false)
	proved := Change{Entry: "a@bad.example", Action: 1, NeedsProof: true, Why: "request"}
	add(proved, Change{Entry: "other.example"})
	needs("from the journal", true)
	out := testkit.Value(s.Apply(proved))(t)
	testkit.Equal(t, fmt.Sprintf("once more: %v", out), out[0].Changed(), false)
	s.Close()
	s = open()
	needs("after a restart", true)

	fold := func() {
		t.Helper()
		testkit.MustEqual(t, "fold", testkit.Value(s.Fold(t.Context()))(t), true)
		ix = indexes.Build(t, indexes.Source(t, "bad", "bad.example\n"), folded(dir))
		s.Served(ix)
	}
	fold()
	text := testkit.Value(os.ReadFile(listPath(dir)))(t)
	testkit.Lacks(t, string(text), "a@bad.example")
	testkit.Has(t, string(text), "other.example")
	needs("after a build", true)
	testkit.Must(t, s.rewriteNow())
	needs("from the snapshot", true)
	s.Close()
	s = open()
	s.Served(ix)
	needs("from the snapshot after a restart", true)
	testkit.Equal(t, "the version of the snapshot, by which an older program does not believe the exception", s.view.Load().base.version, provedVersion)

	add(Change{Entry: "a@bad.example", Action: 1, Why: "request"})
	needs("replaced", false)
	fold()
	needs("replaced, after a build", false)
	add(proved)
	needs("again", true)
	add(Change{Entry: "a@bad.example", Remove: true})
	testkit.Must(t, s.rewriteNow())
	testkit.Equal(t, "without one the snapshot has version", s.view.Load().base.version, plainVersion)
	s.Close()

	for _, c := range []Change{
		{Entry: "a@bad.example", NeedsProof: true},
		{Entry: "192.0.2.1", Action: 1, NeedsProof: true},
		{Entry: "offers@", Action: 1, NeedsProof: true},
		{Entry: "a@bad.example", Action: 1, NeedsProof: true, Owner: "b@here.example"},
	} {
		testkit.Fails(newEntry(c, nil, time.Now()))(t, c, ErrInvalid)
	}
}

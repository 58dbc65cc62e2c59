package index

import (
	"encoding/csv"
	"flag"
	"fmt"
	"math/rand/v2"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"blockd/internal/testkit"
	"blockd/internal/testkit/race"
	"blockd/lists"
	"blockd/mail/addr"
)

var soak = flag.Bool("soak", false, "ten million cases of owned entries")

// ownedEntry is one entry of the golden model, as a portal has it.
type ownedEntry struct{ owner, entry, action string }

// ownedModel answers slowly, by comparing texts: it knows nothing of keys.
type ownedModel []ownedEntry

// covers reports whether an entry covers a sender, in the words of docs/lists.md, section 2.
func covers(entry, local, domain string) bool {
	switch name, ok := strings.CutPrefix(entry, "="); {
	case ok:
		return domain == name
	case strings.HasPrefix(entry, "."):
		return strings.HasSuffix(domain, entry)
	case strings.Contains(entry, "@") && len(local+"@"+domain) > 254:
		return false // no list can hold such an address
	case strings.HasSuffix(entry, "@"):
		return local+"@" == entry
	case strings.Contains(entry, "@"):
		return entry == local+"@"+domain
	}
	return domain == entry || strings.HasSuffix(domain, "."+entry)
}

// say is what an owner says: what LookupOwned finds, in any order.
func (m ownedModel) say(owner, recipient, local, domain string) (said []string) {
	for _, e := range m {
		rest, about := strings.CutPrefix(e.entry, "recipient:")
		if e.owner == owner && (about && rest == recipient || !about && local != "" && covers(e.entry, local, domain)) {
			said = append(said, e.owner+" "+strings.Trim(e.entry, "=.")+" "+e.action)
		}
	}
	slices.Sort(said)
	return slices.Compact(said)
}

func (m ownedModel) csv() string {
	var b strings.Builder
	b.WriteString("owner,entry,action,reason\n")
	w := csv.NewWriter(&b)
	for _, e := range m {
		w.Write([]string{e.owner, e.entry, e.action, ""})
	}
	w.Flush()
	return b.String()
}

func someOwner(rng *rand.Rand) string {
	name := fmt.Sprintf("u%d@d%d.here.example", rng.IntN(40), rng.IntN(3))
	if rng.IntN(5) == 0 {
		name = fmt.Sprintf("d%d.here.example", rng.IntN(4))
	}
	return name
}

func someEntry(rng *rand.Rand) ownedEntry {
	e := ownedEntry{owner: someOwner(rng), action: []string{"block", "allow"}[rng.IntN(2)]}
	switch rng.IntN(7) {
	case 0:
		e.entry = testLocals[rng.IntN(len(testLocals))] + "@"
	case 1:
		e.entry = "=" + randomDomain(rng)
	case 2:
		e.entry = "." + randomDomain(rng)
	case 3:
		e.entry, e.action = fmt.Sprintf("recipient:u%d+t%d@d%d.here.example", rng.IntN(40), rng.IntN(2), rng.IntN(3)), "block"
	case 4:
		e.entry = randomDomain(rng)
	default:
		e.entry = randomSender(rng)
	}
	if e.entry[0] == '.' && strings.Contains(e.entry, "[") || e.entry[0] == '[' {
		e.entry = "bulk.test" // where a list has an address literal is a client's address
	}
	return e
}

// checkOwned asks for so many random pairs of recipient and sender.
func checkOwned(t *testing.T, ix *Index, m ownedModel, rng *rand.Rand, cases int) {
	t.Helper()
	var b Batch
	for range cases {
		user := fmt.Sprintf("u%d", rng.IntN(42))
		domain := fmt.Sprintf("d%d.here.example", rng.IntN(4))
		address, recipient := user+"@"+domain, user+"@"+domain
		if rng.IntN(4) == 0 {
			recipient = fmt.Sprintf("%s+t%d@%s", user, rng.IntN(3), domain)
		}
		sender, err := addr.Parse(randomSender(rng))
		testkit.Must(t, err)
		q := OwnedQuestion{Sender: sender}
		for i, text := range []string{address, domain} {
			q.Owners[i] = testkit.Value(addr.ParseOwner(text))(t)
		}
		q.Recipient = testkit.Value(addr.ParseOwner(recipient))(t)
		matches := testkit.Value(ix.LookupOwned(nil, &q, time.Now()))(t)
		var got []string
		for i, match := range matches {
			if match.Owner != q.Owners[0] && match.Owner != q.Owners[1] {
				t.Fatalf("an entry of %q for the owners %v", match.Owner.Text, q.Owners)
			}
			if i > 0 && match.Owner == q.Owners[0] && matches[i-1].Owner == q.Owners[1] {
				t.Fatalf("the domain's entry comes before the mailbox's: %v", matches)
			}
			got = append(got, match.Owner.Text+" "+match.Name()+" "+match.Action.String())
		}
		slices.Sort(got)
		got = slices.Compact(got)
		want := append(m.say(address, recipient, sender.Local(), sender.Domain()), m.say(domain, recipient, sender.Local(), sender.Domain())...)
		slices.Sort(want)
		if !slices.Equal(got, want) {
			t.Fatalf("%s writes to %s: got %q, want %q", sender, recipient, got, want)
		}
		testkit.MustEqual(t, "without a recipient", len(testkit.Value(ix.Lookup(nil, sender, time.Now()))(t)), 0)
		if ix.LookupBatch(&b, []addr.Addr{sender}, time.Now()); len(b.matches) > 0 {
			t.Fatalf("without a recipient, of a batch: %v", b.matches)
		}
	}
}

// TestOwnersHearTheirOwnEntriesAlone holds LookupOwned against the golden model: after a build, after updates, and
// after the build that follows. Whatever another owner has changes nothing.
func TestOwnersHearTheirOwnEntriesAlone(t *testing.T) {
	rounds, cases := 4, 2_000
	switch {
	case *soak:
		race.Skip(t)
		rounds, cases = 1_000, 10_000
	case testing.Short():
		cases = 500
	}
	for round := range rounds {
		rng := rand.New(rand.NewPCG(1, uint64(round)))
		folder := t.TempDir()
		var m ownedModel
		for range 50 + rng.IntN(1_000) {
			m = append(m, someEntry(rng))
		}
		source := Source{List: "users", Path: filepath.Join(folder, "users.csv"), Settings: lists.Settings{Format: "csv:entry", PerRecipient: true}}
		other := Source{List: "other", Path: testkit.File(t, "other", "unrelated.invalid\n"), Settings: lists.Settings{Format: "plain"}}
		write := func() { testkit.Write(t, source.Path, m.csv()) }
		write()
		path := filepath.Join(folder, "test.bdx")
		ix := published(t, path, []Source{other, source})
		testkit.Must(t, ix.Verify(t.Context()))
		checkOwned(t, ix, m, rng, cases/2)
		for range 3 {
			for range 1 + rng.IntN(20) {
				switch at := rng.IntN(len(m)); rng.IntN(3) {
				case 0:
					m = slices.Delete(m, at, at+1)
				case 1:
					m[at] = someEntry(rng)
				default:
					m = append(m, someEntry(rng), ownedEntry{fmt.Sprintf("new%d@d0.here.example", rng.IntN(3)), randomSender(rng), "block"})
				}
			}
			write()
			updated, _, err := ix.Update(t.Context(), []Source{other, source}, Options{Cache: path + CacheSuffix, Workers: 2})
			testkit.Must(t, err)
			checkOwned(t, updated, m, rng, cases/8)
			checkNoLeaks(t, updated)
			fresh := published(t, filepath.Join(folder, "fresh.bdx"), []Source{other, source})
			keys, entries := updated.Counts()
			k, e := fresh.Counts()
			testkit.MustGot(k, e)(t, "keys and entries of a build, as of an update", keys, entries)
		}
		checkOwned(t, ix, parseModel(t, ix), rng, cases/8) // the first generation, as it was
	}
}

// parseModel reads a model back out of an index.
func parseModel(t *testing.T, ix *Index) (m ownedModel) {
	t.Helper()
	for e, err := range ix.OwnedEntries(t.Context(), addr.Key{}) {
		testkit.Must(t, err)
		text := e.Item.Plain() // which has quotes where a list needs them, and not where the key does
		switch {
		case e.Item.Kind == lists.Addr:
			text = e.Item.Key.Text
		case strings.HasPrefix(text, "@"): // an address literal
			text = "=" + text[1:]
		}
		m = append(m, ownedEntry{e.Item.Owner.Text, text, e.Item.Action.String()})
	}
	return m
}

// checkNoLeaks: the walks that exports, filters and the console go by know nothing of owners.
func checkNoLeaks(t *testing.T, ix *Index) {
	t.Helper()
	for e, err := range ix.Entries(t.Context(), nil) {
		if err != nil || e.Item.Personal() {
			t.Fatal(e.Item.Name(), err)
		}
	}
	for e, err := range ix.Unordered(t.Context()) {
		if err != nil || e.Item.Personal() {
			t.Fatal(e.Item.Name(), err)
		}
	}
}

// TestRecipientsThatAreRefused: an entry of everybody about a recipient, for any sender.
func TestRecipientsThatAreRefused(t *testing.T) {
	source := Source{List: "own", Path: testkit.File(t, "own", "recipient:leaked+shop@here.example\nbulk.example\n"), Settings: lists.Settings{Format: "plain"}}
	ix := published(t, filepath.Join(t.TempDir(), "test.bdx"), []Source{source})
	testkit.Got(ix.Owners(), ix.Personal())(t, "owners, and whether entries are personal", 0, true)
	for recipient, want := range map[string]int{"leaked+shop@here.example": 1, "leaked@here.example": 0, "here.example": 0} {
		key := testkit.Value(addr.ParseOwner(recipient))(t)
		matches, err := ix.LookupOwned(nil, &OwnedQuestion{Recipient: key}, time.Now())
		if err != nil || len(matches) != want || want == 1 && (matches[0].Kind != lists.Recipient || matches[0].Name() != "recipient:"+recipient) {
			t.Errorf("%s: %v, %v", recipient, matches, err)
		}
	}
	sender, _ := addr.Parse("leaked+shop@here.example")
	testkit.Equal(t, "as a sender", len(testkit.Value(ix.Lookup(nil, sender, time.Now()))(t)), 0)
}

// ownedIndex has n owners with 20 entries each.
func ownedIndex(t testing.TB, n int) *Index {
	var b strings.Builder
	b.WriteString("owner,entry,action,reason\n")
	for owner := range n {
		for i := range 20 {
			fmt.Fprintf(&b, "user%d@here.example,promo%d@bulk%d.example,block,\n", owner, i, owner%1000)
		}
	}
	source := Source{List: "users", Path: testkit.File(t, "users.csv", b.String()), Settings: lists.Settings{Format: "csv:entry", PerRecipient: true, MaxPerOwner: 1000}}
	plain := Source{List: "plain", Path: testkit.File(t, "plain", "bulk.example\n"), Settings: lists.Settings{Format: "plain"}}
	ix := published(t, filepath.Join(t.TempDir(), "test.bdx"), []Source{source, plain})
	testkit.Must(t, ix.Promote(t.Context()))
	return ix
}

func question(t testing.TB, recipient, sender string) *OwnedQuestion {
	t.Helper()
	a, err := addr.Parse(recipient)
	testkit.Must(t, err)
	q := &OwnedQuestion{}
	q.Recipient, _ = a.Key()
	q.Owners[0] = q.Recipient
	q.Owners[1] = testkit.Value(addr.ParseOwner(a.Domain()))(t)
	q.Sender = testkit.Value(addr.Parse(sender))(t)
	return q
}

func TestOwnersWithoutAMatchCostNoAllocation(t *testing.T) {
	ix := ownedIndex(t, 100)
	for _, recipient := range []string{"user7@here.example", "stranger@here.example"} {
		q := question(t, recipient, "press@mx.shop.example")
		var room [4]Match
		if n := testing.AllocsPerRun(100, func() {
			if m, err := ix.LookupOwned(room[:0], q, time.Now()); err != nil || len(m) > 0 {
				t.Fatal(m, err)
			}
		}); n > 0 {
			t.Errorf("%s: %v allocations", recipient, n)
		}
	}
}

// TestOwnersWithTooManyEntries: which entries are refused does not depend on how many workers read the file.
func TestOwnersWithTooManyEntries(t *testing.T) {
	var b strings.Builder
	b.WriteString("owner,entry\n")
	for i := range 20_000 {
		fmt.Fprintf(&b, "user%d@here.example,promo%d@bulk.example\n", i%5_000, i)
	}
	source := Source{List: "users", Path: testkit.File(t, "users.csv", b.String()), Settings: lists.Settings{Format: "csv:entry", PerRecipient: true, MaxPerOwner: 3}}
	for _, workers := range []int{1, 3} {
		path := filepath.Join(t.TempDir(), "test.bdx")
		d := built(t, path, []Source{source}, Options{Workers: workers, Cache: path + CacheSuffix})
		publish(t, d)
		ix := d.Index()
		sum := ix.Lists()[0].Summary
		n := sum.Dropped.Count(lists.OwnerFull)
		testkit.Got(n, sum.Entries)(t, fmt.Sprintf("%d workers: refused, and entries", workers), 5_000, 15_000)
		for i, want := range []int{0: 1, 3: 0} {
			q := question(t, "user7@here.example", fmt.Sprintf("promo%d@bulk.example", 7+5_000*i))
			if m, err := ix.LookupOwned(nil, q, time.Now()); i%3 == 0 && (err != nil || len(m) != want) {
				t.Errorf("%d workers: entry %d of an owner: %v, %v", workers, i, m, err)
			}
		}
	}
}

func BenchmarkLookupOwned(b *testing.B) {
	ix := ownedIndex(b, 20_000)
	for _, c := range []struct{ name, recipient, sender string }{
		{"without entries", "stranger@here.example", "press@mx.shop.example"},
		{"with entries, none matches", "user7@here.example", "press@mx.shop.example"},
		{"with entries, one matches", "user7@here.example", "promo3@bulk7.example"},
	} {
		q := question(b, c.recipient, c.sender)
		var room [4]Match
		now := time.Now()
		b.Run(c.name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				if _, err := ix.LookupOwned(room[:0], q, now); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

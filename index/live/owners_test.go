package live

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"blockd/index"
	"blockd/internal/testkit"
	"blockd/internal/testkit/indexes"
	"blockd/lists"
	"blockd/mail/addr"
)

// nothing is an index without live entries.
func nothing(t testing.TB) *index.Index {
	return indexes.Build(t, indexes.Source(t, "bad", "nothing.example\n"))
}

func owner(t testing.TB, text string) addr.Key {
	t.Helper()
	return testkit.Value(addr.ParseOwner(text))(t)
}

// coveringFor tells which live entries of owners cover a sender.
func coveringFor(t testing.TB, set *Set, ix *index.Index, sender string, owners ...string) string {
	t.Helper()
	a := testkit.Value(addr.Parse(sender))(t)
	q := index.OwnedQuestion{Sender: a}
	for i, o := range owners {
		q.Owners[i] = owner(t, o)
	}
	matches, table := set.AmendOwned(nil, ix.Lists(), &q, time.Now())
	var all []string
	for i := range matches {
		m := &matches[i]
		testkit.Equal(t, fmt.Sprintf("row %d is list", m.Row), table[m.Row].Source.List, ListName)
		all = append(all, m.Action.String()+" "+plain(m))
	}
	return strings.Join(all, ", ")
}

// Random changes by random owners, over snapshots and starts, beside a map.
func TestOwnersAgreeWithMap(t *testing.T) {
	folder, now := t.TempDir(), time.Now()
	open := func() *Set { return open(t, Settings{Folder: folder, compactFrom: 40, MaxPerOwner: 12}) }
	owners := []string{"", "ann@here.example", "bob@here.example", "here.example", "\"a b\"@here.example", "ann@here.exampl", "xn--bcher-kva.example"}
	entries := []string{"a@x.example", "b@x.example", "x.example", "=x.example", ".x.example", "offers@", "a@sub.x.example", "sub.x.example", "y.example", "c@y.example", "d@y.example", "e@y.example", "f@y.example", "g@y.example", "h@y.example", "recipient:ann+shop@here.example", "recipient:bob@here.example"}
	senders := []string{"a@x.example", "b@x.example", "offers@else.example", "a@sub.x.example", "z@deep.sub.x.example", "c@y.example", "nobody@none.example"}
	set, ix := open(), nothing(t)
	model := map[string]map[string]lists.Action{}
	rng := rand.New(rand.NewPCG(1, 2))
	for step := range 3000 {
		o, e := owners[rng.IntN(len(owners))], entries[rng.IntN(len(entries))]
		c := Change{Owner: o, Entry: e, Action: lists.Action(rng.IntN(2)) * lists.Allow, Remove: rng.IntN(3) == 0}
		if strings.HasPrefix(e, "recipient:") {
			c.Action = lists.Block // an exception for a recipient is refused
		}
		if model[o] == nil {
			model[o] = map[string]lists.Action{}
		}
		_, has := model[o][e]
		_, err := set.Apply(c)
		switch full := o != "" && !c.Remove && !has && len(model[o]) == 12; {
		case full != errors.Is(err, ErrOwnerFull):
			t.Fatalf("step %d: %q has %d entries: %v", step, o, len(model[o]), err)
		case full:
		case err != nil:
			t.Fatal(err)
		case c.Remove:
			delete(model[o], e)
		default:
			model[o][e] = c.Action
		}
		switch rng.IntN(60) {
		case 0:
			testkit.Must(t, set.Tidy())
		case 1:
			set.Close()
			set = open()
		}
		if step%50 > 0 {
			continue
		}
		for _, o := range owners[1:] {
			all, _ := set.Of(owner(t, o))
			got := map[string]lists.Action{}
			for i, e := range all {
				got[e.Text] = e.Item.Action
				if e.Item.Owner != owner(t, o) || i > 0 && e.Number >= all[i-1].Number {
					t.Fatalf("step %d: the entries of %s: %v", step, o, e)
				}
			}
			if fmt.Sprint(got) != fmt.Sprint(model[o]) || len(all) != len(got) {
				t.Fatalf("step %d: %s has %v, want %v", step, o, got, model[o])
			}
			for _, s := range senders {
				a, _ := addr.Parse(s)
				var want []string
				for text, action := range model[o] {
					if coversOwned(t, text, a) {
						want = append(want, action.String()+" "+text)
					}
				}
				var have []string
				if text := coveringFor(t, set, ix, s, o); text != "" {
					have = strings.Split(text, ", ")
				}
				slices.Sort(want)
				slices.Sort(have)
				if !slices.Equal(have, want) {
					t.Fatalf("step %d: %s for %s: %q, want %q", step, s, o, have, want)
				}
			}
		}
		n := 0
		for e := range set.All() {
			if n++; e.Item.Owner.Text != "" {
				t.Fatalf("All has an entry of %s", e.Item.Owner.Text)
			}
		}
		if total := set.Len(); n != len(model[""]) || total != n+len(model[owners[1]])+len(model[owners[2]])+len(model[owners[3]])+len(model[owners[4]])+len(model[owners[5]])+len(model[owners[6]]) {
			t.Fatalf("step %d: %d entries of everybody, %d in all; want %d", step, n, total, len(model[""]))
		}
	}
	testkit.Fails(set.Apply(Change{Owner: "ann@here.example", Entry: "192.0.2.1"}))(t, "a client address", ErrInvalid)
	if _, err := set.Apply(Change{Owner: "ann@here.example", Entry: "gmail.com", Expires: now.Add(time.Hour)}); errors.Is(err, ErrGuarded) {
		t.Errorf("a user's block of a provider: %v", err)
	}
}

// coversOwned is the golden model of what an entry covers.
func coversOwned(t testing.TB, text string, a addr.Addr) bool {
	it := testkit.Value(lists.ParseEntry(text, lists.Settings{}))(t)
	if it.Kind == lists.Recipient {
		return false
	}
	domain, name := a.Domain(), it.Key.Text
	switch it.Scope {
	case lists.Local:
		return a.Local()+"@" == name
	case lists.Exact:
		return a.String() == name || it.Kind == lists.Domain && domain == name
	case lists.Sub:
		return strings.HasSuffix(domain, "."+name)
	}
	return domain == name || strings.HasSuffix(domain, "."+name)
}

// Live entries refuse a recipient, whoever writes: everybody's each mail to it, an owner's the mail to its own.
func TestRecipientsThatAreRefused(t *testing.T) {
	folder, ix := t.TempDir(), nothing(t)
	open := func() *Set { return open(t, Settings{Folder: folder}) }
	set := open()
	apply(t, set, Change{Entry: "recipient:Shop@here.example"}, Change{Owner: "ann@here.example", Entry: "recipient:ann+leak@here.example"},
		Change{Owner: "ann@here.example", Entry: "x.example", Action: lists.Allow})
	testkit.Fails(set.Apply(Change{Entry: "recipient:shop@here.example", Action: lists.Allow}))(t, "an exception for a recipient", ErrInvalid)
	said := func(recipient string, listed ...index.Match) (all string) {
		q := index.OwnedQuestion{Recipient: owner(t, recipient)}
		q.Owners[1] = owner(t, "ann@here.example")
		q.Sender, _ = addr.Parse("a@x.example")
		matches, _ := set.AmendOwned(listed, ix.Lists(), &q, time.Now())
		for i := range matches {
			all += fmt.Sprintf("%s %s for %q from line %d; ", matches[i].Action, plain(&matches[i]), matches[i].Owner.Text, matches[i].Line)
		}
		return all
	}
	for range 2 {
		if got, want := said("ann+leak@here.example"), `block recipient:ann+leak@here.example for "ann@here.example" from line 2; allow x.example for "ann@here.example" from line 3; `; got != want {
			t.Errorf("a leaked tag: %q, want %q", got, want)
		}
		of := index.Match{Kind: lists.Recipient, Key: owner(t, "shop@here.example"), Line: 77}
		if got, want := said("shop@here.example", of), `allow x.example for "ann@here.example" from line 3; block recipient:shop@here.example for "" from line 1; `; got != want {
			t.Errorf("a recipient that a list refuses too: %q, want %q", got, want)
		}
		testkit.Lacks(t, said("ann@here.example"), "recipient:")
		// From the snapshot as from memory, and in no list for a build.
		testkit.Must(t, set.Tidy())
		testkit.Equal(t, "entries that the index lacks", set.newer(), 0)
		set.Close()
		set = open()
	}
	found := testkit.Value(set.Search(t.Context(), Query{Text: "shop@here"}))(t)
	testkit.MustEqual(t, fmt.Sprintf("found %v", found.Entries), len(found.Entries), 1)
	testkit.Equal(t, fmt.Sprintf("found %v", found.Entries), found.Entries[0].Text, "recipient:shop@here.example")
	o := testkit.Value(set.Apply(Change{Entry: "recipient:shop@here.example", Remove: true}))(t)
	testkit.Equal(t, fmt.Sprintf("removed %v", o), o[0].Was != nil, true)
	testkit.Lacks(t, said("shop@here.example"), "recipient:")
	set.Close()
}

// Entries of owners are in no list for a build, and do not make one due.
func TestOwnersAreNotFolded(t *testing.T) {
	folder, ix := t.TempDir(), nothing(t)
	set := open(t, Settings{Folder: folder})
	apply(t, set, Change{Entry: "all@x.example"})
	testkit.MustEqual(t, "the first fold", testkit.Value(set.Fold(t.Context()))(t), true)
	apply(t, set, Change{Owner: "ann@here.example", Entry: "own@x.example"})
	testkit.Equal(t, "a fold for an owner's entry", testkit.Value(set.Fold(t.Context()))(t), false)
	testkit.Equal(t, "the index lacks entries beside that of everybody", set.newer(), 1)
	testkit.Equal(t, "for another recipient", coveringFor(t, set, ix, "own@x.example", "bob@here.example"), "")
	testkit.Equal(t, "for both", coveringFor(t, set, ix, "own@x.example", "bob@here.example", "ann@here.example"), "block own@x.example")
}

// Of many writers that know the same state, one wins.
func TestApplyIf(t *testing.T) {
	set := open(t, Settings{Folder: t.TempDir()})
	ann := owner(t, "ann@here.example")
	_, tag := set.Of(ann)
	var wg sync.WaitGroup
	won := make(chan int, 20)
	for i := range 20 {
		wg.Go(func() {
			_, err := set.ApplyIf(ann, tag, Change{Owner: ann.Text, Entry: fmt.Sprintf("u%d@x.example", i)})
			if err == nil {
				won <- i
			} else if !errors.Is(err, ErrChanged) {
				t.Error(err)
			}
		})
	}
	wg.Wait()
	testkit.Equal(t, "writers that have won", len(won), 1)
	all, now := set.Of(ann)
	if len(all) != 1 || now == tag {
		t.Errorf("%d entries, tag %s after %s", len(all), now, tag)
	}
	testkit.Fails(set.ApplyIf(ann, now, Change{Owner: "bob@here.example", Entry: "x@y.example"}))(t, "a change of another owner", ErrInvalid)
}

// A program that knows no owners reads files without them, and leaves out journal lines with them.
func TestFilesOfOlderVersions(t *testing.T) {
	folder, ix := t.TempDir(), nothing(t)
	set := open(t, Settings{Folder: folder, compactFrom: 1})
	version := func(c ...Change) uint32 {
		t.Helper()
		apply(t, set, c...)
		testkit.Must(t, set.Tidy())
		return set.view.Load().base.version
	}
	testkit.Equal(t, "without owners: version", version(Change{Entry: "a@x.example"}, Change{Entry: "b@x.example"}, Change{Entry: "c@x.example"}), 1)
	if v := version(Change{Owner: "ann@here.example", Entry: "a@x.example"}, Change{Owner: "ann@here.example", Entry: "b@x.example"}); v != 2 {
		t.Errorf("with owners: version %d", v)
	}
	set.Close()
	set = open(t, Settings{Folder: folder})
	testkit.Equal(t, "after a start", coveringFor(t, set, ix, "a@x.example", "ann@here.example"), "block a@x.example")
}

func TestNoOwnedEntryCostsNothing(t *testing.T) {
	set := open(t, Settings{Folder: t.TempDir()})
	ix := indexes.Build(t, indexes.Source(t, "bad", "nothing.example\n"))
	a, _ := addr.Parse("someone@some.shop.example")
	q := index.OwnedQuestion{Owners: [2]addr.Key{owner(t, "bob@here.example"), owner(t, "here.example")}, Sender: a}
	clear := func() { set.AmendOwned(nil, ix.Lists(), &q, time.Now()) }
	if n := testing.AllocsPerRun(100, clear); n > 0 {
		t.Errorf("without owned entries: %v allocations", n)
	}
	apply(t, set, Change{Owner: "ann@here.example", Entry: "x@y.example"})
	if n := testing.AllocsPerRun(100, clear); n > 0 {
		t.Errorf("beside another owner's entries: %v allocations", n)
	}
}

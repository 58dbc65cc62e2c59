package reload

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"blockd/addr"
	"blockd/index"
	"blockd/lists"
)

func parsed(t testing.TB, sender string) addr.Addr {
	t.Helper()
	a, err := addr.Parse(sender)
	if err != nil {
		t.Fatal(err)
	}
	return a
}

// TestRecentIsTheLastDistinctSenders holds the ring against a slice that is cut.
func TestRecentIsTheLastDistinctSenders(t *testing.T) {
	for seed := range uint64(50) {
		rng := rand.New(rand.NewPCG(seed, 0))
		n := 1 + rng.IntN(20)
		r, model := NewRecent(n), []string(nil)
		for range 500 {
			sender := fmt.Sprintf("s%d@bulk.example", rng.IntN(40))
			r.Add(parsed(t, sender))
			if !slices.Contains(model, sender) {
				model = append(model, sender)
			}
			model = model[max(0, len(model)-n):]
			if got := slices.Sorted(slices.Values(r.senders())); !slices.Equal(got, slices.Sorted(slices.Values(model))) {
				t.Fatalf("seed %d: %q, want %q", seed, got, model)
			}
			if len(r.known) != len(r.ring) || cap(r.ring) > 2*max(n, 8) {
				t.Fatalf("seed %d: %d known, %d in the ring of %d", seed, len(r.known), len(r.ring), n)
			}
		}
	}
}

func TestRecentRemembersNobody(t *testing.T) {
	r := NewRecent(0)
	r.Add(parsed(t, "a@bulk.example"))
	if r != nil || r.senders() != nil {
		t.Errorf("%+v remembers", r)
	}
	r = NewRecent(3)
	r.Add(addr.Addr{})
	if got := r.senders(); len(got) > 0 {
		t.Errorf("the null sender is remembered: %q", got)
	}
}

func TestRecentCostsNothingForWhoIsKnown(t *testing.T) {
	r, sender := NewRecent(10), parsed(t, "a@bulk.example")
	r.Add(sender)
	if n := testing.AllocsPerRun(100, func() { r.Add(sender) }); n > 0 {
		t.Errorf("%v allocations", n)
	}
}

func TestRecentIsSafeForAllSessions(t *testing.T) {
	r := NewRecent(50)
	var all sync.WaitGroup
	for g := range 8 {
		all.Go(func() {
			for i := range 1000 {
				r.Add(parsed(t, fmt.Sprintf("s%d@bulk.example", (g*i)%200)))
				if i%100 == 0 && len(r.senders()) > 50 {
					t.Error("more than there is room for")
				}
			}
		})
	}
	all.Wait()
}

func BenchmarkRecentAddKnown(b *testing.B) {
	r, sender := NewRecent(10_000), parsed(b, "someone@bulk.example")
	r.Add(sender)
	b.RunParallel(func(p *testing.PB) {
		for p.Next() {
			r.Add(sender)
		}
	})
}

// blocks is what policy makes of matches, as far as these tests need it.
func blocks(ix *index.Index, sender addr.Addr) (index.Match, bool) {
	found, err := ix.Lookup(nil, sender, time.Now())
	for _, m := range found {
		if m.Action != lists.Allow && ix.Lists()[m.Row].Source.Mode == index.Enforce && err == nil {
			return m, true
		}
	}
	return index.Match{}, false
}

// newRecentDaemon serves a list that names nobody who writes, and has accepted n
// senders s0@d0.example, s1@d1.example, and so on.
func newRecentDaemon(t *testing.T, n int) *daemon {
	d := newDaemon(t, map[string]string{"a.txt": "old.example\n", "b.txt": "always.example\n"})
	for i := range d.settings.Lists {
		d.settings.Lists[i].MaxRecentBlocked = 0.01
	}
	d.settings.Recent, d.settings.Blocks = NewRecent(1000), blocks
	d.open()
	for i := range n {
		d.settings.Recent.Add(parsed(t, fmt.Sprintf("s%d@d%d.example", i, i)))
	}
	return d
}

// domains lists d0.example to d(n-1).example, the first in line 2.
func domains(n int) string {
	text := "old.example\n"
	for i := range n {
		text += fmt.Sprintf("d%d.example\n", i)
	}
	return text
}

func TestListThatWouldRefuseWhomMailWasTakenFrom(t *testing.T) {
	tests := []struct {
		rule    string
		senders int
		change  func(*daemon) // nil: nothing
		list    string        // what is then written to a.txt
		want    string        // of the problem; "": it serves
	}{
		{"one in a hundred", 100, nil, domains(1), ""},
		{"two in a hundred", 100, nil, domains(2),
			"recent: would refuse 2 of the 100 senders accepted lately, more than max_recent_blocked = 0.01 of them: s0@d0.example, s1@d1.example; by d0.example (line 2), d1.example (line 3)"},
		{"too few to say anything", 99, nil, domains(99), ""},
		{"ten in a thousand", 1000, nil, domains(10), ""},
		{"examples are three", 1000, nil, domains(11),
			"recent: would refuse 11 of the 1000 senders accepted lately, more than max_recent_blocked = 0.01 of them: s0@d0.example, s1@d1.example, s2@d2.example; by d0.example (line 2), d1.example (line 3), d2.example (line 4) and 8 more entries"},
		{"the entry that refuses most comes first", 200, nil, "old.example\nd7.example\nexample\n",
			"recent: would refuse 200 of the 200 senders accepted lately, more than max_recent_blocked = 0.01 of them: s0@d0.example, s1@d1.example, s2@d2.example; by example (line 3), d7.example (line 2)"},
		{"a list that may", 200, func(d *daemon) { d.settings.Lists[0].MaxRecentBlocked = 1 }, domains(200), ""},
		{"a list that may refuse nobody", 1000, func(d *daemon) { d.settings.Lists[0].MaxRecentBlocked = 0 }, domains(1),
			"recent: would refuse 1 of the 1000 senders"},
		{"a shadow list refuses nobody", 200, func(d *daemon) { d.settings.Lists[0].Mode = index.Shadow; d.open() }, domains(200), ""},
		{"senders that another list refuses already", 200, func(d *daemon) {
			d.write("b.txt", domains(2))
			d.wait("two of them refused", func() bool { d.look(d.t.Context(), true); return d.listed("s1@d1.example") })
		}, domains(4), ""},
		{"nobody is remembered", 200, func(d *daemon) { d.Reloader.settings.Recent = nil }, domains(200), ""},
	}
	for _, tt := range tests {
		t.Run(tt.rule, func(t *testing.T) {
			t.Parallel()
			d := newRecentDaemon(t, tt.senders)
			if tt.change != nil {
				tt.change(d)
			}
			d.write("a.txt", tt.list)
			before := d.Live().Generation()
			d.look(t.Context(), true)
			problems := strings.Join(d.Status().Problems, "\n")
			if tt.want == "" && (problems != "" || d.Live().Generation() == before) {
				t.Errorf("refused: %s", problems)
			}
			if want := "list a: " + d.path("a.txt") + ": " + tt.want; tt.want != "" && (!strings.HasPrefix(problems, want) || d.Live().Generation() != before) {
				t.Errorf("problems %q, want %q", problems, want)
			}
		})
	}
}

// TestTwoListsThatRefuseTheSameSenders: the second is found only when the first is
// held, since a sender counts for the list whose entry decides. Neither may hold back
// a third.
func TestTwoListsThatRefuseTheSameSenders(t *testing.T) {
	d := newRecentDaemon(t, 200)
	d.write("c.txt", "c0.example\n")
	d.settings.Lists = append(d.settings.Lists, List{Name: "c", Path: d.path("c.txt"), Settings: lists.Settings{Format: "plain"}, MaxRecentBlocked: 0.01})
	d.open()
	d.write("a.txt", domains(10))
	d.write("b.txt", "always.example\n"+domains(10))
	d.write("c.txt", "c1.example\n")
	d.look(t.Context(), true)
	if !d.listed("x@c1.example") || d.listed("x@d1.example") || !d.listed("x@always.example") || len(d.Status().Problems) != 2 {
		t.Errorf("problems %q", d.Status().Problems)
	}
}

// TestPoisonedListIsTakenWhenAccepted has another process compile what the daemon
// has refused: without a person's word it is refused still, and with it it serves
// and the log has what it was refused for.
func TestPoisonedListIsTakenWhenAccepted(t *testing.T) {
	d := newRecentDaemon(t, 200)
	d.start()
	d.write("a.txt", domains(50))
	d.waitProblem("list a", "recent", "would refuse 50 of the 200")
	d.wantCount("max_recent_blocked of the list", 1) // the hint
	compile := func(accept bool) string {
		draft, err := index.Build(t.Context(), d.settings.Path, d.sources(), index.Options{})
		d.must(err)
		if accept {
			d.must(Accept(d.settings.Path, draft.Index().Generation()))
		}
		d.must(draft.Publish())
		return draft.Index().Generation()
	}
	compile(false)
	d.looks(2)
	if d.listed("s0@d0.example") {
		t.Fatal("an index that nobody has accepted serves")
	}
	generation := compile(true)
	d.waitListed("s0@d0.example")
	d.waitWell()
	d.wantCount("lists accepted", 1)
	d.wantCount("would refuse 50 of the 200", 2)
	if got := d.Status().Generation; got != generation {
		t.Errorf("generation %s, want %s; log:\n%s", got, generation, d.log)
	}
}

package policy_test

import (
	"fmt"
	"log/slog"
	"math"
	"math/rand/v2"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"blockd/index"
	"blockd/internal/testkit"
	"blockd/internal/testkit/race"
	"blockd/lists"
	"blockd/policy"
	"blockd/policy/rule"
	"blockd/policy/verdict"
)

var shareKey = [verdict.ShareKeySize]byte{1, 2, 3}

// counting returns Settings with lists that count for these shares.
func counting(percents map[string]float64) policy.Settings {
	s := policy.Settings{Lists: map[string]rule.List{}, ShareKey: shareKey}
	for name, p := range percents {
		s.Lists[name] = rule.List{Percent: p}
	}
	return s
}

// A list of p percent refuses p percent of 100,000 senders, to a point; with more percent all of these and others; and two
// lists do not try themselves on the same senders.
func TestPercentIsExact(t *testing.T) {
	race.Skip(t)
	const senders = 100_000
	var text strings.Builder
	for i := range senders {
		fmt.Fprintf(&text, "domain%d.example\n", i)
	}
	ix := build(t, block("a", text.String()), block("b", text.String()))
	batch := make([]policy.Question, 1000)
	refused := func(s policy.Settings) []bool {
		c, _ := checker(t, ix, s)
		var b policy.Batch
		all := make([]bool, 0, senders)
		for len(all) < senders {
			for i := range batch {
				batch[i] = policy.Question{Text: fmt.Sprintf("someone@mx.domain%d.example", len(all)+i)}
			}
			for _, v := range c.AskAll(&b, batch) {
				all = append(all, v.Kind == verdict.Blocked)
			}
		}
		return all
	}
	count := func(all []bool) (n int) {
		for _, is := range all {
			if is {
				n++
			}
		}
		return n
	}
	before := make([]bool, senders)
	for _, p := range []float64{0.5, 1, 10, 33.3, 50, 90, 99, 100} {
		now := refused(counting(map[string]float64{"a": p, "b": 0.01}))
		if got := float64(count(now)) / senders * 100; math.Abs(got-p) > 1 {
			t.Errorf("%v percent refuse %v percent", p, got)
		}
		for i := range now {
			if before[i] && !now[i] {
				t.Fatalf("%v percent: sender %d was refused with less", p, i)
			}
		}
		before = now
	}
	a, b, both := refused(counting(map[string]float64{"a": 10, "b": 0.01})), refused(counting(map[string]float64{"a": 0.01, "b": 10})), 0
	for i := range a {
		if a[i] && b[i] {
			both++
		}
	}
	if got := float64(both) / senders * 100; math.Abs(got-1) > 0.3 {
		t.Errorf("two lists of 10 percent have %v percent in common, want one", got)
	}
	other := counting(map[string]float64{"a": 10, "b": 0.01})
	other.ShareKey[0]++
	if c := refused(other); count(c) < senders/11 || fmt.Sprint(c) == fmt.Sprint(a) {
		t.Error("another key has the same senders")
	}
}

// TestPercentRefusesNobody holds a list of some percent against the same one without percent, and against one that is paused: of
// each sender the verdict is one of these two. So it refuses nobody else, and 100 percent are no percent.
func TestPercentRefusesNobody(t *testing.T) {
	clients := []netip.Addr{{}, netip.MustParseAddr("192.0.2.1"), netip.MustParseAddr("2001:db8::1")}
	spared, refused := 0, 0
	for seed := range uint64(150) {
		rng := rand.New(rand.NewPCG(seed, 78))
		s := policy.Settings{Lists: map[string]rule.List{}, Policies: []rule.Recipients{{Recipients: []string{"some.example"}, Lists: []string{"a", "b"}}}}
		s.ShareKey[0] = byte(seed)
		var all []list
		for i := range 1 + rng.IntN(4) {
			l := randomList(rng, string(rune('a'+i)))
			s.Lists[l.name] = l.rule
			all = append(all, l.list)
		}
		ix := build(t, all...)
		full, _ := checker(t, ix, s)
		rest := s
		rest.Paused = func(time.Time) map[string]bool { return map[string]bool{"a": true} }
		paused, _ := checker(t, ix, rest)
		with := func(p float64) *policy.Checker {
			partial := s
			partial.Lists = map[string]rule.List{}
			for name, r := range s.Lists {
				if name == "a" {
					r.Percent = p
				}
				partial.Lists[name] = r
			}
			c, _ := checker(t, ix, partial)
			return c
		}
		half, whole := with(50), with(100)
		for _, client := range clients {
			for _, sender := range []string{"", "x@a.example", "x@b.a.example", "y@c.b.a.example", "z@b.example"} {
				for _, recipient := range []string{"bob@some.example", "bob@all.example"} {
					ask := func(c *policy.Checker) verdict.Verdict { return c.For(askEnvelope(c, client, sender), recipient) }
					f, p, h, w := ask(full), ask(paused), ask(half), ask(whole)
					if w.Kind != f.Kind || w.Decider != f.Decider || w.Shadow != f.Shadow {
						t.Fatalf("seed %d: 100 percent make %s of %s from %v, want %s\n%+v", seed, w.Kind, sender, client, f.Kind, all)
					}
					if h.Kind == verdict.Blocked && f.Kind != verdict.Blocked {
						t.Fatalf("seed %d: half of the senders: %s from %v to %s is refused, and by the whole list not\n%+v", seed, sender, client, recipient, all)
					}
					if is := func(v verdict.Verdict) bool {
						return h.Kind == v.Kind && h.Decider == v.Decider && h.Shadow == v.Shadow
					}; !is(f) && !is(p) && !mixed(h) {
						t.Fatalf("seed %d: half of the senders: %s from %v to %s is %s, with all of them %s, with none %s\n%+v", seed, sender, client, recipient, h.Kind, f.Kind, p.Kind, all)
					}
					if f.Kind == verdict.Blocked && p.Kind != verdict.Blocked {
						if h.Kind == verdict.Blocked {
							refused++
						} else {
							spared++
						}
					}
				}
			}
		}
	}
	if spared < 100 || refused < 100 {
		t.Errorf("%d spared, %d refused: the property is hardly asked", spared, refused)
	}
}

// mixed reports whether a list has entries for the sender and for the client, whose places differ.
func mixed(v verdict.Verdict) bool {
	sender, client := false, false
	for i := range v.Matches {
		if v.ListName(i) == "a" {
			sender, client = sender || !v.AboutClient(i), client || v.AboutClient(i)
		}
	}
	return sender && client
}

// What the share goes by: the registered domain of a sender, the network of a client, whatever the sender. It is the same for every
// question about them.
func TestPlaces(t *testing.T) {
	text := "one.example\ntwo.example\nthree.example\nfour.example\nfive.example\n2001:db8::/32\n"
	for i := range 40 {
		text += fmt.Sprintf("203.0.%d.0/24\n", i)
	}
	c, _ := checker(t, build(t, block("a", text)), counting(map[string]float64{"a": 50}))
	for _, name := range []string{"one", "two", "three", "four", "five"} {
		want := askSender(c, "x@"+name+".example").Kind
		for _, sender := range []string{"y@" + name + ".example", "x@mx.a." + name + ".example", "X@" + strings.ToUpper(name) + ".Example"} {
			if got := askSender(c, sender).Kind; got != want {
				t.Errorf("%s is %s, and its registered domain %s", sender, got, want)
			}
		}
		if got := askDomain(c, "www."+name+".example").Kind; got != want {
			t.Errorf("the domain of %s is %s, and senders there are %s", name, got, want)
		}
	}
	blocked := 0
	for i := range 40 {
		first := netip.AddrFrom4([4]byte{203, 0, byte(i), 3})
		other := netip.AddrFrom4([4]byte{203, 0, byte(i), 250})
		want := askClient(c, first).Kind
		for _, v := range []verdict.Verdict{askClient(c, other), askEnvelope(c, first, ""), askEnvelope(c, first, "x@clear.example"), askEnvelope(c, netip.AddrFrom16(other.As16()), "x@other.example")} {
			if v.Kind != want {
				t.Errorf("%v is %s, and its network %s", v.Client, v.Kind, want)
			}
		}
		if want == verdict.Blocked {
			blocked++
		}
	}
	six := func(text string) verdict.Kind { return askClient(c, netip.MustParseAddr(text)).Kind }
	for i := range 20 {
		if a, b := six(fmt.Sprintf("2001:db8:%x::1", i)), six(fmt.Sprintf("2001:db8:%x:5::2", i)); a != b {
			t.Errorf("one /48: %s and %s", a, b)
		}
	}
	if blocked < 5 || blocked > 35 {
		t.Errorf("%d of 40 networks are blocked, want about half", blocked)
	}
}

func TestPercentShows(t *testing.T) {
	s := counting(map[string]float64{"a": 10})
	c, _ := checker(t, build(t, block("a", "bulk.example\nother.example\n!boss@bulk.example\n")), s)
	out := "bulk.example"
	if askSender(c, "x@"+out).Kind == verdict.Blocked { // by the key of the test
		out = "other.example"
	}
	v := askSender(c, "x@mx."+out)
	if v.Kind != verdict.Clear || v.Shadow != 0 || v.Mode(0) != "percent" {
		t.Fatalf("%s, shadow %d, %q", v.Kind, v.Shadow, v.Mode(0))
	}
	if a := v.Answer("x"); a.Matches[0].Mode != "percent" || a.Matches[0].Percent != 10 {
		t.Errorf("%+v", a)
	}
	testkit.Has(t, slog.GroupValue(v.AppendLog(nil)...).String(), "mode=percent")
	if v := askSender(c, "boss@bulk.example"); v.Kind != verdict.Allowed || v.Mode(0) != "" {
		t.Errorf("the exception: %s, %q", v.Kind, v.Mode(0))
	}
	testkit.Equal(t, "Percent", fmt.Sprint(c.Percent("a"), " ", c.Percent("none")), "10 100")
	c.Renew(policy.Settings{})
	testkit.Equal(t, "afterwards", askSender(c, "x@mx."+out).Kind, verdict.Blocked)
}

// TestPausedList holds a paused list against one from which its blocks were taken: the verdicts are the same, for all
// lists beside it, every client and every policy, and the paused one is named as what would have refused.
func TestPausedList(t *testing.T) {
	clients := []netip.Addr{{}, netip.MustParseAddr("192.0.2.1"), netip.MustParseAddr("2001:db8::1")}
	spared, would := 0, 0
	for seed := range uint64(150) {
		rng := rand.New(rand.NewPCG(seed, 77))
		var all, golden []list
		s := policy.Settings{Lists: map[string]rule.List{}, Policies: []rule.Recipients{{Recipients: []string{"some.example"}, Lists: []string{"a", "b"}}}}
		for i := range 1 + rng.IntN(4) {
			l := randomList(rng, string(rune('a'+i)))
			s.Lists[l.name] = l.rule
			all = append(all, l.list)
			bare := l.list
			if l.name == "a" {
				bare.text = "# nothing\n"
				for line := range strings.Lines(l.text) {
					if strings.HasPrefix(line, "!") || strings.HasSuffix(line, " OK\n") {
						bare.text += line
					}
				}
			}
			golden = append(golden, bare)
		}
		want, _ := checker(t, build(t, golden...), s)
		before, _ := checker(t, build(t, all...), s)
		s.Paused = func(time.Time) map[string]bool { return map[string]bool{"a": true} }
		got, _ := checker(t, build(t, all...), s)
		for _, client := range clients {
			for _, sender := range []string{"x@a.example", "x@b.a.example", "y@c.b.a.example", "z@b.example"} {
				for _, recipient := range []string{"bob@some.example", "bob@all.example"} {
					g, w, b := got.For(askEnvelope(got, client, sender), recipient), want.For(askEnvelope(want, client, sender), recipient), before.For(askEnvelope(before, client, sender), recipient)
					if g.Kind != w.Kind {
						t.Fatalf("seed %d: %s from %v to %s is %s while a is paused, and %s without its blocks\n%+v", seed, sender, client, recipient, g.Kind, w.Kind, all)
					}
					if b.Kind != verdict.Blocked && g.Kind == verdict.Blocked {
						t.Fatalf("seed %d: a pause blocks %s from %v to %s", seed, sender, client, recipient)
					}
					if b.Kind == verdict.Blocked && g.Kind != verdict.Blocked {
						spared++
						if g.Shadow < 0 && !slices.ContainsFunc(g.Matches, func(m index.Match) bool { return m.Action == lists.Allow }) {
							t.Fatalf("seed %d: nothing says that %s would have been refused", seed, sender)
						}
						if g.Shadow >= 0 {
							would++
						}
					}
				}
			}
		}
	}
	if spared < 100 || would < 100 {
		t.Errorf("%d spared, of %d it is said who would have refused: the property is hardly asked", spared, would)
	}
}

func TestPausedShows(t *testing.T) {
	paused := map[string]bool{"a": true}
	s := policy.Settings{Paused: func(time.Time) map[string]bool { return paused }}
	c, _ := checker(t, build(t, block("a", "bulk.example\n!boss@bulk.example")), s)
	v := askSender(c, "x@bulk.example")
	if v.Kind != verdict.Clear || v.Shadow != 0 || v.Mode(0) != "paused" {
		t.Fatalf("%s, shadow %d, %q", v.Kind, v.Shadow, v.Mode(0))
	}
	if a := v.Answer("x@bulk.example"); a.Matches[0].Mode != "paused" {
		t.Errorf("%+v", a)
	}
	testkit.Has(t, slog.GroupValue(v.AppendLog(nil)...).String(), "mode=paused")
	if v := askSender(c, "boss@bulk.example"); v.Kind != verdict.Allowed || v.Mode(0) != "" {
		t.Errorf("the exception: %s, %q", v.Kind, v.Mode(0))
	}
	var b policy.Batch
	if all := c.AskAll(&b, []policy.Question{{Text: "x@bulk.example"}}); all[0].Kind != verdict.Clear || all[0].Shadow != 0 {
		t.Errorf("in a batch: %s", all[0].Kind)
	}
	paused = nil
	testkit.Equal(t, "afterwards", askSender(c, "x@bulk.example").Kind, verdict.Blocked)
}

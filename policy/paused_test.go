package policy_test

import (
	"log/slog"
	"math/rand/v2"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"blockd/index"
	"blockd/lists"
	"blockd/policy"
	"blockd/policy/rule"
	"blockd/policy/verdict"
)

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
	if line := slog.GroupValue(v.AppendLog(nil)...).String(); !strings.Contains(line, "mode=paused") {
		t.Error(line)
	}
	if v := askSender(c, "boss@bulk.example"); v.Kind != verdict.Allowed || v.Mode(0) != "" {
		t.Errorf("the exception: %s, %q", v.Kind, v.Mode(0))
	}
	var b policy.Batch
	if all := c.AskAll(&b, []policy.Question{{Text: "x@bulk.example"}}); all[0].Kind != verdict.Clear || all[0].Shadow != 0 {
		t.Errorf("in a batch: %s", all[0].Kind)
	}
	paused = nil
	if v := askSender(c, "x@bulk.example"); v.Kind != verdict.Blocked {
		t.Errorf("afterwards: %s", v.Kind)
	}
}

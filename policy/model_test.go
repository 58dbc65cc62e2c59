package policy_test

import (
	"fmt"
	"math/rand/v2"
	"net/netip"
	"slices"
	"strings"
	"testing"

	"blockd/index"
	"blockd/lists"
	"blockd/policy"
	"blockd/policy/rule"
)

// modelEntry is one line of a random list, with what it means written down apart
// from all code of ours.
type modelEntry struct {
	text   string
	action lists.Action
	covers func(local, domain string, client netip.Addr) bool
	rank   int // the higher, the more specific
}

func modelAddress(local, domain string) modelEntry {
	return modelEntry{text: local + "@" + domain, rank: 1000,
		covers: func(l, d string, _ netip.Addr) bool { return l == local && d == domain }}
}

func modelLocal(local string) modelEntry {
	return modelEntry{text: local + "@", rank: 200, covers: func(l, _ string, _ netip.Addr) bool { return l == local }}
}

func modelExact(domain string) modelEntry {
	return modelEntry{text: "=" + domain, rank: 900, covers: func(_, d string, _ netip.Addr) bool { return d == domain }}
}

func modelBelow(domain string, tree bool) modelEntry {
	e := modelEntry{text: "." + domain, rank: 300 + strings.Count(domain, "."),
		covers: func(_, d string, _ netip.Addr) bool {
			return strings.HasSuffix(d, "."+domain) || tree && d == domain
		}}
	if tree {
		e.text = domain
	}
	return e
}

func modelNet(p netip.Prefix) modelEntry {
	return modelEntry{text: p.String(), rank: p.Bits(),
		covers: func(_, _ string, c netip.Addr) bool { return c.IsValid() && p.Contains(c) }}
}

// modelEntries are few names and networks, so that most questions meet several.
func modelEntries() (all []modelEntry) {
	for _, local := range []string{"x", "y"} {
		all = append(all, modelLocal(local))
	}
	for _, d := range modelDomains {
		all = append(all, modelAddress("x", d), modelExact(d), modelBelow(d, true), modelBelow(d, false))
	}
	for _, text := range []string{"192.0.2.1/32", "192.0.2.0/31", "192.0.2.0/24", "2001:db8::/64", "2001:db8::/32"} {
		all = append(all, modelNet(netip.MustParsePrefix(text)))
	}
	return all
}

var modelDomains = []string{"a.example", "b.a.example", "c.b.a.example"}

// modelList is a random list in order of its lines.
type modelList struct {
	list
	entries []modelEntry
	rule    rule.List
}

// randomList is a plain list with exceptions, or a Postfix table with actions.
func randomList(rng *rand.Rand, name string) modelList {
	l := modelList{list: list{name: name, mode: index.Mode(rng.IntN(4) / 3)}}
	l.rule.OnMatch = []rule.OnMatch{"", "tempfail", "quarantine", "tag"}[rng.IntN(4)]
	l.rule.Discard = rng.IntN(2) == 0
	l.exceptions = index.Exceptions(rng.IntN(3))
	words := map[lists.Action]string{lists.Block: "REJECT", lists.Allow: "OK", lists.Tempfail: "450 later", lists.Discard: "DISCARD"}
	postfix, all := rng.IntN(2) == 0, modelEntries()
	for range 1 + rng.IntN(5) {
		e := all[rng.IntN(len(all))]
		if strings.HasPrefix(e.text, "=") && postfix {
			continue // no such form there
		}
		line := e.text
		switch action := lists.Action(rng.IntN(4)); {
		case postfix:
			e.action, line = action, line+" "+words[action]
		case action == lists.Allow:
			e.action, line = action, "!"+line
		}
		l.text += line + "\n"
		l.entries = append(l.entries, e)
	}
	if l.text == "" {
		l.text = "# nothing\n"
	}
	return l
}

// modelOutcome decides as docs/lists.md, section 4, says it in words.
func modelOutcome(all []modelList, only []string, local, domain string, client netip.Addr, drops bool) policy.Outcome {
	var best *modelEntry
	var own rule.List
	for i := range all {
		l := &all[i]
		if l.mode == index.Shadow || only != nil && !slices.Contains(only, l.name) {
			continue
		}
		covering := slices.DeleteFunc(slices.Clone(l.entries), func(e modelEntry) bool { return !e.covers(local, domain, client) })
		if slices.ContainsFunc(covering, func(e modelEntry) bool { return e.action == lists.Allow }) {
			switch l.exceptions {
			case index.AllExceptions:
				return policy.Accept
			case index.OwnExceptions:
				continue // nothing that this list blocks counts
			}
		}
		for _, e := range covering {
			if e.action != lists.Allow && (best == nil || e.rank > best.rank) {
				best, own = &e, l.rule
			}
		}
	}
	switch {
	case best == nil:
		return policy.Accept
	case best.action == lists.Tempfail:
		return policy.Defer
	case best.action == lists.Discard && own.Discard && drops:
		return policy.Discard
	}
	return map[rule.OnMatch]policy.Outcome{"": policy.Refuse, "tempfail": policy.Defer, "quarantine": policy.Quarantine, "tag": policy.Mark}[own.OnMatch]
}

// TestDecisionAgreesWithModel asks about every sender from every client to every
// recipient of a small world, over random lists and policies.
func TestDecisionAgreesWithModel(t *testing.T) {
	clients := []netip.Addr{{}, netip.MustParseAddr("192.0.2.1"), netip.MustParseAddr("192.0.2.200"), netip.MustParseAddr("2001:db8::1"), netip.MustParseAddr("203.0.113.1")}
	seen := map[policy.Outcome]int{}
	for seed := range uint64(150) {
		rng := rand.New(rand.NewPCG(seed, 2))
		var all []modelList
		var sources []list
		s := policy.Settings{Lists: map[string]rule.List{}}
		for i := range 1 + rng.IntN(4) {
			l := randomList(rng, string(rune('a'+i)))
			all, sources = append(all, l), append(sources, l.list)
			s.Lists[l.name] = l.rule
		}
		only := []string{}
		for _, l := range all {
			if rng.IntN(2) == 0 {
				only = append(only, l.name)
			}
		}
		s.Policies = []rule.Recipients{{Recipients: []string{"some.example"}, Lists: only}}
		c, _ := checker(t, build(t, sources...), s)
		for _, client := range clients {
			for _, local := range []string{"x", "y", "z"} {
				for _, domain := range append(modelDomains, "b.example") {
					v := askEnvelope(c, client, local+"@"+domain)
					for recipient, counting := range map[string][]string{"bob@some.example": only, "bob@all.example": nil} {
						for drops, door := range map[bool]*policy.Door{false: relay, true: mailer} {
							got, want := c.RecipientAt(door, v, recipient).Outcome, modelOutcome(all, counting, local, domain, client, drops)
							if got != want {
								t.Fatalf("seed %d: %s@%s from %v to %s (discarding %v): outcome %d, model says %d; lists %s",
									seed, local, domain, client, recipient, drops, got, want, shown(all))
							}
							seen[got]++
						}
					}
				}
			}
		}
	}
	for o := policy.Accept; o <= policy.Discard; o++ {
		if seen[o] < 100 {
			t.Errorf("outcome %d came %d times: the model is hardly asked", o, seen[o])
		}
	}
}

func shown(all []modelList) string {
	var b strings.Builder
	for _, l := range all {
		fmt.Fprintf(&b, "\n%s (%s, exceptions %s, %+v):\n%s", l.name, l.mode, l.exceptions, l.rule, l.text)
	}
	return b.String()
}

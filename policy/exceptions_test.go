package policy_test

import (
	"log/slog"
	"math/rand/v2"
	"net/netip"
	"slices"
	"testing"

	"blockd/index"
	"blockd/index/live"
	"blockd/internal/testkit"
	"blockd/policy"
	"blockd/policy/rule"
	"blockd/policy/verdict"
)

// TestExceptionsReach shows each word of `exceptions` beside another list that blocks.
func TestExceptionsReach(t *testing.T) {
	own := block("own", "bulk.example\n!boss@bulk.example\n!com")
	for _, tt := range []struct {
		name   string
		reach  index.Exceptions
		lists  []list
		sender string
		want   verdict.Kind
		by     string
		why    string // Objection of the first exception among the matches
	}{
		{"own lifts its own block", index.OwnExceptions, []list{own}, "boss@bulk.example", verdict.Allowed, "own:boss@bulk.example", ""},
		{"own leaves another list alone", index.OwnExceptions, []list{own, block("b", "bulk.example")}, "boss@bulk.example", verdict.Blocked, "b:bulk.example",
			`exceptions = "own": it lifts what list own blocks, and nothing else`},
		{"own for everybody frees nobody", index.OwnExceptions, []list{own, block("b", "bad.com")}, "x@bad.com", verdict.Blocked, "b:bad.com",
			`exceptions = "own": it lifts what list own blocks, and nothing else`},
		{"all goes before every list", index.AllExceptions, []list{own, block("b", "bad.com")}, "x@bad.com", verdict.Allowed, "own:com", ""},
		{"none lifts nothing", index.NoExceptions, []list{own}, "boss@bulk.example", verdict.Blocked, "own:bulk.example", `the list has exceptions = "none"`},
		{"a shadow list's exceptions never act", index.AllExceptions, []list{own.shadow(), block("b", "bad.com")}, "x@bad.com", verdict.Blocked, "b:bad.com", ""},
		{"a list that allows reaches all", index.OwnExceptions, []list{allow("own", "bad.com"), block("b", "bad.com")}, "x@bad.com", verdict.Allowed, "own:bad.com", ""},
		{"live entries reach all", index.AllExceptions, []list{block(live.ListName, "!bad.com"), block("b", "bad.com")}, "x@bad.com", verdict.Allowed, "live:bad.com", ""},
	} {
		t.Run(tt.name, func(t *testing.T) {
			tt.lists[0].exceptions = tt.reach
			c, _ := checker(t, build(t, tt.lists...), policy.Settings{})
			v := askSender(c, tt.sender)
			if by := decidedBy(v); v.Kind != tt.want || by != tt.by {
				t.Errorf("%s by %q, want %s by %q", v.Kind, by, tt.want, tt.by)
			}
			i := slices.IndexFunc(v.Matches, func(m index.Match) bool { return m.Action.Allows() })
			if why := v.Objection(i); why != tt.why {
				t.Errorf("objection %q, want %q", why, tt.why)
			}
			var batch policy.Batch
			if many := c.AskAll(&batch, []policy.Question{{Text: tt.sender}})[0]; many.Kind != v.Kind || many.Decider != v.Decider {
				t.Errorf("asked with others: %s by %d", many.Kind, many.Decider)
			}
		})
	}
}

// TestOwnExceptionsStayHome: what another list refuses stays refused, whatever is in a
// list whose exceptions are its own, or have no effect, and for whichever recipient.
func TestOwnExceptionsStayHome(t *testing.T) {
	clients := []netip.Addr{{}, netip.MustParseAddr("192.0.2.1"), netip.MustParseAddr("2001:db8::1")}
	refused := 0
	for seed := range uint64(120) {
		rng := rand.New(rand.NewPCG(seed, 3))
		var others []modelList
		for i := range 1 + rng.IntN(3) {
			others = append(others, randomList(rng, string(rune('b'+i))))
		}
		guest := randomList(rng, "a")
		guest.exceptions = []index.Exceptions{index.OwnExceptions, index.NoExceptions}[rng.IntN(2)]
		s := policy.Settings{Lists: map[string]rule.List{}, Policies: []rule.Recipients{{Recipients: []string{"some.example"}, Lists: []string{"a", "b"}}}}
		var all []list
		for _, l := range append(slices.Clone(others), guest) {
			l.rule.Match = sources(t, "envelope", "from")
			s.Lists[l.name] = l.rule
			all = append(all, l.list)
		}
		at := rng.IntN(len(all)) // it may stand before the others
		all[at], all[len(all)-1] = all[len(all)-1], all[at]
		alone, _ := checker(t, build(t, slices.DeleteFunc(slices.Clone(all), func(l list) bool { return l.name == "a" })...), s)
		with, _ := checker(t, build(t, all...), s)
		for _, client := range clients {
			for _, sender := range []string{"x@a.example", "x@b.a.example", "y@c.b.a.example", "z@b.example"} {
				for _, recipient := range []string{"bob@some.example", "bob@all.example"} {
					before, after := alone.For(askEnvelope(alone, client, sender), recipient), with.For(askEnvelope(with, client, sender), recipient)
					if before.Kind == verdict.Blocked && after.Kind != verdict.Blocked {
						t.Fatalf("seed %d: %s from %v to %s was blocked, and is %s with %s beside\n%s", seed, sender, client, recipient, after.Kind, guest.text, shown(others))
					}
					if before.Kind == verdict.Blocked {
						refused++
					}
					// An envelope that such an exception allows does not keep the header from being read.
					was, is := alone.Group(recipient, askEnvelope(alone, client, sender)), with.Group(recipient, askEnvelope(with, client, sender))
					if was != policy.Unread && is == policy.Unread {
						t.Fatalf("seed %d: the header of %s is read no more with %s beside", seed, sender, guest.text)
					}
				}
				before, after := alone.Header(verdict.FromSource, sender), with.Header(verdict.FromSource, sender)
				if before.Kind == verdict.Blocked && after.Kind != verdict.Blocked {
					t.Fatalf("seed %d: From %s was blocked, and is %s with %s beside", seed, sender, after.Kind, guest.text)
				}
			}
		}
	}
	if refused < 200 {
		t.Errorf("%d refusals: the property is hardly asked", refused)
	}
}

// TestShadowBesideOwnException: an exception that stays home does not hide what a list
// in shadow mode would refuse.
func TestShadowBesideOwnException(t *testing.T) {
	c, _ := checker(t, build(t, block("a", "bulk.example\n!boss@bulk.example"), block("s", "bulk.example").shadow()), policy.Settings{})
	v := askSender(c, "boss@bulk.example")
	if v.Kind != verdict.Allowed || v.Shadow < 0 || v.ListName(v.Shadow) != "s" {
		t.Fatalf("%s, shadow %d", v.Kind, v.Shadow)
	}
	if d := c.Recipient(v, "bob@here.example"); d.Outcome != policy.Accept || !d.Shadow || d.Event(v) != "sender would be blocked" {
		t.Errorf("%+v, %s", d, d.Event(v))
	}
	testkit.Has(t, slog.GroupValue(v.AppendLog(nil)...).String(), "list=s", "mode=shadow")
}

// TestProofOfOwnExceptions: only what could change the decision is looked for, and an
// exception that is proved lifts no more than its list's block.
func TestProofOfOwnExceptions(t *testing.T) {
	p := newPost(t)
	ask := func(lists ...list) (*policy.Checker, verdict.Verdict) {
		c, _ := checker(t, build(t, lists...), policy.Settings{Auth: rule.Auth{Resolver: p.resolver},
			Lists:    map[string]rule.List{"a": {Require: verdict.DKIMProof}, "b": {OnMatch: rule.Tag}},
			Policies: []rule.Recipients{{Recipients: []string{"some@"}, Lists: []string{"a"}}}})
		return c, askSender(c, "x@bad.example")
	}
	first := block("a", "bad.example\n!x@bad.example")
	if _, v := ask(block("b", "bad.example"), first); tentative(v) {
		t.Error("the message is waited for, and cannot change the decision: list b decides in any case")
	}
	c, v := ask(first, block("b", "bad.example"))
	if !tentative(v) || v.ListName(v.Decider) != "a" {
		t.Fatalf("decided by %s, tentative %v; want a, until the message is there", v.ListName(v.Decider), tentative(v))
	}
	if all, some := c.Unsettled(v, "bob@here.example"), c.Unsettled(v, "some@here.example"); all == some {
		t.Error("two recipients share an answer: a proof leaves one of them tagged, the other one free")
	}
	proved := v.Prove(verdict.Evidence{Tried: verdict.DKIMProof, Found: verdict.DKIMProof})
	if proved.Kind != verdict.Blocked || proved.ListName(proved.Decider) != "b" {
		t.Errorf("with proof: %s", proved.Kind)
	}
	testkit.Equal(t, "with proof, list a alone", c.For(proved, "some@here.example").Kind, verdict.Allowed)
}

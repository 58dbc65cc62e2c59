package policy_test

import (
	"testing"

	"blockd/policy"
	"blockd/policy/rule"
	"blockd/policy/verdict"
)

// TestUnsettled: recipients with the same open facts share one answer to the end of a message.
func TestUnsettled(t *testing.T) {
	p := newPost(t)
	c, _ := checker(t, build(t, block("bad", "x.example"), block("worse", "a@x.example"), allow("exempt", "x.example")), policy.Settings{
		Auth: rule.Auth{Resolver: p.resolver}, RecipientsExempt: []string{"postmaster"},
		Lists: map[string]rule.List{"exempt": {Require: verdict.DKIMProof | verdict.SPFProof}, "worse": {OnMatch: rule.Tempfail}},
		Policies: []rule.Recipients{
			{Recipients: []string{"sales@"}, Lists: []string{"bad", "exempt"}},
			{Recipients: []string{"plain@"}, Lists: []string{"bad"}},
			{Recipients: []string{"free@"}},
		},
	})
	v := askSender(c, "a@x.example")
	if !c.Asks(v, "bob@here.example") || c.Asks(v, "postmaster@here.example") || c.Asks(v, "plain@here.example") {
		t.Error("Asks: want SPF to be asked for bob, and for nobody whom it cannot help")
	}
	v = c.ProveOrigin(t.Context(), v, "bob@here.example", policy.Origin{}) // of an unknown client
	if c.Asks(v, "bob@here.example") {
		t.Error("Asks: SPF was asked")
	}
	bob := c.Unsettled(v, "bob@here.example")
	if bob == (policy.Unsettled{}) || bob.Otherwise != policy.Defer {
		t.Errorf("Unsettled of bob = %+v, want one that ends in a 451", bob)
	}
	if eve := c.Unsettled(v, "eve@here.example"); eve != bob {
		t.Errorf("Unsettled of eve = %+v, and of bob %+v", eve, bob)
	}
	if sales := c.Unsettled(v, "sales@here.example"); sales == bob || sales.Otherwise != policy.Refuse {
		t.Errorf("Unsettled of sales, blocked by another entry = %+v", sales)
	}
	for _, known := range []string{"postmaster@here.example", "plain@here.example", "free@here.example"} {
		if s := c.Unsettled(v, known); s != (policy.Unsettled{}) {
			t.Errorf("Unsettled of %s = %+v, want none: the answer is known", known, s)
		}
	}
	if s := c.Unsettled(askSender(c, "a@clear.example"), "bob@here.example"); s != (policy.Unsettled{}) {
		t.Errorf("Unsettled of a clear sender = %+v", s)
	}
}

package policy_test

import (
	"log/slog"
	"testing"

	"github.com/prometheus/client_golang/prometheus"

	"blockd/index"
	"blockd/policy"
	"blockd/policy/rule"
	"blockd/policy/verdict"
)

// Messages are asked for where an entry may need one, by the lists that serve now.
func TestNeedsOfMessages(t *testing.T) {
	p := newPost(t)
	auth := rule.Auth{Resolver: p.resolver}
	plain, author := []list{block("bad", "x.example"), allow("exempt", "x.example")}, []list{block("bad", "x.example"), allow("exempt", "welcomelist_auth *@x.example")}
	for _, tt := range []struct {
		name    string
		lists   []list
		require verdict.Proof
		auth    rule.Auth
		want    bool
	}{
		{"no list needs proof", plain, 0, auth, false},
		{"SPF", plain, verdict.SPFProof, auth, false},
		{"a signature", plain, verdict.SPFProof | verdict.DKIMProof, auth, true},
		{"allow-if-auth", author, 0, auth, true},
		{"nobody to ask", author, verdict.DKIMProof, rule.Auth{}, false},
	} {
		c, _ := checker(t, build(t, tt.lists...), requiring(tt.require, tt.auth))
		if got := c.Needs().Message; got != tt.want {
			t.Errorf("%s: %v, want %v", tt.name, got, tt.want)
		}
	}
}

// What doors want to know of the configuration is told without a generation, too.
func TestNeedsWithoutAGeneration(t *testing.T) {
	set := policy.Settings{Auth: rule.Auth{Resolver: newPost(t).resolver}, Lists: map[string]rule.List{"bulk": {OnMatch: rule.Tag}}}
	c := policy.New(func() *index.Index { return nil }, set, slog.New(slog.DiscardHandler), prometheus.NewRegistry())
	if n := c.Needs(); !n.Marks || n.Message {
		t.Errorf("%+v", n)
	}
}

// An exempt recipient has its mail without proof, so none is looked for.
func TestExemptRecipientNeedsNoProof(t *testing.T) {
	p := newPost(t)
	set := requiring(verdict.SPFProof|verdict.DKIMProof, rule.Auth{Resolver: p.resolver})
	set.RecipientsExempt = []string{"postmaster"}
	c, _ := checker(t, build(t, block("bad", "x.example"), allow("exempt", "x.example")), set)
	v := askSender(c, "a@x.example")
	if c.Awaits(v, "postmaster@here.example") || !c.Awaits(v, "bob@here.example") {
		t.Error("Awaits: want false for postmaster and true for bob")
	}
	if v = c.ProveOrigin(t.Context(), v, "postmaster@here.example", policy.Origin{}); v.Evidence.Tried != 0 || p.Count() != 0 {
		t.Errorf("looked for %s with %d queries", v.Evidence.Tried, p.Count())
	}
}

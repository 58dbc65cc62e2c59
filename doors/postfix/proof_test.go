package postfix

import (
	"fmt"
	"strings"
	"testing"

	"blockd/internal/testkit"
	"blockd/internal/testkit/nameserver"
	"blockd/internal/testkit/sealed"
	"blockd/lists"
	"blockd/mail/msgauth"
	"blockd/policy/rule"
	"blockd/policy/verdict"
)

// proving is a rig whose list "good" needs proof, with a post to have it from.
func proving(t *testing.T, require verdict.Proof, zone nameserver.Zone) (*rig, *sealed.Post) {
	t.Helper()
	p := sealed.NewPost(t, zone)
	resolver := testkit.Value(msgauth.NewResolver(msgauth.Settings{Server: p.Address}))(t)
	r := newRig(t, testList{name: "bad", text: "x.example\nbad.example\n"},
		testList{name: "good", text: "x.example\n", action: lists.Allow, rule: rule.List{Require: require}})
	r.verdicts.Auth.Resolver = resolver
	return r, p
}

func TestProof(t *testing.T) {
	const ours, other, listed = "client_address=192.0.2.7", "client_address=198.51.100.7", "550 5.7.1 listed in bad (ref *)"
	silent := nameserver.Zone{"TXT x.example": {"!SERVFAIL"}}
	for _, tt := range []struct {
		name    string
		require verdict.Proof
		zone    nameserver.Zone
		defers  bool
		more    []string
		want    string
		queries int
	}{
		{"SPF", verdict.SPFProof, nil, false, []string{ours}, "DUNNO", 1},
		{"SPF that fails", verdict.SPFProof, nil, false, []string{other}, listed, 1},
		{"SPF where DNS fails", verdict.SPFProof, silent, false, []string{ours}, listed, 1},
		{"SPF where DNS fails and that defers", verdict.SPFProof, silent, true, []string{ours}, "DEFER_IF_PERMIT 4.4.3 not verified: try again later (ref *)", 1},
		{"login", verdict.AuthProof | verdict.SPFProof, nil, false, []string{other, "sasl_username=ann"}, "DUNNO", 0},
		{"nobody logged in", verdict.AuthProof, nil, false, []string{other}, listed, 0},
		{"a signature cannot be seen", verdict.DKIMProof, nil, false, []string{ours}, listed, 0},
		{"exempt recipient", verdict.SPFProof, nil, false, []string{other, "recipient=postmaster@here.example"}, "DUNNO", 0},
		{"clear sender", verdict.SPFProof, nil, false, []string{ours, "sender=a@there.example"}, "DUNNO", 0},
		{"listed sender without an exception", verdict.SPFProof, nil, false, []string{ours, "sender=a@bad.example"}, listed, 0},
	} {
		t.Run(tt.name, func(t *testing.T) {
			r, p := proving(t, tt.require, tt.zone)
			r.verdicts.Auth.Tempfail = tt.defers
			d := r.speak(Policy)
			question := request(append([]string{"sender=a@x.example"}, tt.more...)...)
			for range 3 { // recipients
				wants(t, tt.want, d, question)
			}
			if p.Count() > 0 != (tt.queries > 0) || tt.zone == nil && p.Count() != tt.queries {
				t.Errorf("%d queries, want %d: %v", p.Count(), tt.queries, p.Asked())
			}
		})
	}
}

// What was found is of one message: the next one, of another client, is asked about anew.
func TestProofIsOfTheInstance(t *testing.T) {
	r, _ := proving(t, verdict.SPFProof, nil)
	d := r.speak(Policy)
	for _, tt := range []struct{ instance, client, want string }{
		{"1", "192.0.2.7", "DUNNO"}, {"1", "192.0.2.7", "DUNNO"}, {"2", "198.51.100.7", "550 5.7.1 listed in bad (ref *)"},
		{"3", "192.0.2.7", "DUNNO"},
	} {
		wants(t, tt.want, d, request("sender=a@x.example", "client_address="+tt.client, "instance="+tt.instance))
	}
	if pass, no := r.count("blockd_proofs_total", "spf", "pass"), r.count("blockd_proofs_total", "spf", "no"); pass != 2 || no != 1 {
		t.Errorf("SPF was looked for: %v passed, %v not, want 2 and 1: once a message", pass, no)
	}
}

// Tables are told a sender alone.
func TestTablesLookForNoProof(t *testing.T) {
	r, p := proving(t, verdict.SPFProof|verdict.DKIMProof, nil)
	_, got, _ := strings.Cut(ask(t, r.speak(Socketmap), netstring("senders a@x.example")), ":")
	if got, want := shown(got), "OK 550 5.7.1 listed in bad (ref *),"; got != want {
		t.Errorf("socketmap: %q, want %q", got, want)
	}
	testkit.Equal(t, fmt.Sprintf("queries: %v", p.Asked()), p.Count(), 0)
}

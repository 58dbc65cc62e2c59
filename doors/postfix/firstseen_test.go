package postfix

import (
	"strings"
	"testing"

	"blockd/internal/testkit"
	"blockd/internal/testkit/domains"
	"blockd/policy"
)

// TestFirstSeen shows recipients of some messages to the policy service. It does not hear whether a message
// comes, so the first question about a recipient makes the domain known.
func TestFirstSeen(t *testing.T) {
	const field, later = "PREPEND X-Blockd-First-Seen: yes", "DEFER_IF_PERMIT 4.7.1 domain new here, try again later (ref *)"
	for _, tt := range []struct {
		name   string
		defers bool
		asked  string // RECIPIENT:INSTANCE
		want   []string
	}{
		{"tagged once a message", false, "postmaster:1 bob:1 carol:1 bob:2", []string{"DUNNO", field, "DUNNO", "DUNNO"}},
		{"put off once", true, "bob:1 postmaster:1 carol:1 bob:2", []string{later, "DUNNO", later, "DUNNO"}},
	} {
		r := newRig(t)
		r.verdicts.FirstSeen = policy.FirstSeen{Domains: domains.Known(t), Defers: tt.defers}
		d := r.speak(Policy)
		var got []string
		for asked := range strings.FieldsSeq(tt.asked) {
			to, instance, _ := strings.Cut(asked, ":")
			got = append(got, shown(ask(t, d, request("sender=a@new.example", "recipient="+to+"@here.example", "instance="+instance))))
		}
		testkit.EqualSlices(t, tt.name, got, tt.want)
		for _, more := range []string{"sasl_username=bob", "sender="} {
			wants(t, "DUNNO", d, request("sender=a@other.example", "instance=3", more))
		}
	}
	r := newRig(t)
	r.verdicts.FirstSeen = policy.FirstSeen{Domains: domains.Known(t), Defers: true}
	testkit.Lacks(t, shown(ask(t, r.speak(Socketmap), "21:senders a@new.example,")), "DEFER")
}

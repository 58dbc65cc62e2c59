package policy_test

import (
	"strings"
	"testing"
	"time"

	"blockd/policy"
	"blockd/policy/reply"
	"blockd/policy/rule"
	"blockd/policy/verdict"
)

func TestWhatAMatchLeadsTo(t *testing.T) {
	const (
		refused  = "550 5.7.1 <x@bad.example>: Sender address rejected: listed in a (ref REF)"
		deferred = "451 4.7.1 <x@bad.example>: Sender address deferred: listed in a (ref REF)"
	)
	tagged := reply.Tag{List: "a", Ref: "REF"}
	tests := []struct {
		name, text string
		rule       rule.List
		want       said // with REF for the reference
	}{
		{"nothing said", "bad.example REJECT", rule.List{}, said{policy.Decision{Outcome: policy.Refuse}, refused}},
		{"refuse", "bad.example REJECT", rule.List{OnMatch: rule.Refuse}, said{policy.Decision{Outcome: policy.Refuse}, refused}},
		{"tempfail", "bad.example REJECT", rule.List{OnMatch: rule.Tempfail}, said{policy.Decision{Outcome: policy.Defer}, deferred}},
		{"quarantine", "bad.example REJECT", rule.List{OnMatch: rule.Quarantine}, said{policy.Decision{Outcome: policy.Quarantine, Tag: tagged}, ""}},
		{"tag", "bad.example REJECT", rule.List{OnMatch: rule.Tag}, said{policy.Decision{Outcome: policy.Mark, Tag: tagged}, ""}},
		{"tarpit", "bad.example REJECT", rule.List{Tarpit: time.Second}, said{policy.Decision{Outcome: policy.Refuse, Tarpit: time.Second}, refused}},
		{"tarpit beyond its bound", "bad.example REJECT", rule.List{Tarpit: time.Hour},
			said{policy.Decision{Outcome: policy.Refuse, Tarpit: rule.MaxTarpit}, refused}},
		{"tempfail entry of a list that tags", "bad.example DEFER", rule.List{OnMatch: rule.Tag, Tarpit: time.Second},
			said{policy.Decision{Outcome: policy.Defer}, deferred}},
		{"discard entry", "bad.example DISCARD", rule.List{}, said{policy.Decision{Outcome: policy.Refuse}, refused}},
		{"discard entry of a list that tags", "bad.example DISCARD", rule.List{OnMatch: rule.Tag},
			said{policy.Decision{Outcome: policy.Mark, Tag: tagged}, ""}},
		{"discard entry of a list that discards", "bad.example DISCARD", rule.List{Discard: true},
			said{policy.Decision{Outcome: policy.Discard}, ""}},
		{"block entry of a list that discards", "bad.example REJECT", rule.List{Discard: true}, said{policy.Decision{Outcome: policy.Refuse}, refused}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			c, _ := checker(t, build(t, block("a", tt.text)), policy.Settings{
				Lists: map[string]rule.List{"a": tt.rule}, RecipientsExempt: []string{"abuse"}})
			d := c.RecipientAt(mailer, askSender(c, "x@bad.example"), "bob@here.example")
			if got := named(d); got != tt.want || !refForm.MatchString(d.Ref) {
				t.Errorf("Recipient = %+v, want %+v", got, tt.want)
			}
			if d := c.RecipientAt(mailer, askSender(c, "x@bad.example"), "abuse@here.example"); d.Outcome != policy.Accept || !d.Exempt || d.Tarpit != 0 {
				t.Errorf("exempt: %+v", d)
			}
			if got, want := c.Needs().Marks, tt.rule.OnMatch == rule.Tag; got != want {
				t.Errorf("Needs().Marks = %v, want %v", got, want)
			}
			// Every other door, and nowhere else.
			want := tt.want
			if want.Outcome == policy.Discard {
				want = said{policy.Decision{Outcome: policy.Refuse}, refused}
			}
			if got := named(c.Recipient(askSender(c, "x@bad.example"), "bob@here.example")); got != want {
				t.Errorf("at a door that cannot discard: %+v, want %+v", got, want)
			}
		})
	}
}

// said is a decision as the client and the next server see it.
type said struct {
	policy.Decision
	Reply string
}

// named is d with REF in place of its reference, and without it.
func named(d policy.Decision) said {
	s := said{d, d.Reply.String()}
	if d.Ref != "" {
		s.Reply, s.Tag.Ref = strings.Replace(s.Reply, d.Ref, "REF", 1), strings.Replace(d.Tag.Ref, d.Ref, "REF", 1)
	}
	s.Ref, s.Decision.Reply = "", reply.Reply{}
	return s
}

func TestClientReplies(t *testing.T) {
	long := "a-list-whose-name-is-quite-long-indeed"
	tests := []struct{ name, list, text, client, want string }{
		{"refused", "a", "192.0.2.0/24 REJECT", "192.0.2.1", "550 5.7.1 Client address [192.0.2.1] rejected: listed in a (ref REF)"},
		{"deferred", "a", "192.0.2.0/24 450 later", "192.0.2.1", "450 4.7.1 Client address [192.0.2.1] rejected: later"},
		{"deferred in the standard words", "a", "192.0.2.0/24 DEFER\nx.example OK", "192.0.2.1", "451 4.7.1 Client address [192.0.2.1] deferred: listed in a (ref REF)"},
		{"mapped", "a", "192.0.2.0/24 REJECT", "::ffff:192.0.2.1", "550 5.7.1 Client address [192.0.2.1] rejected: listed in a (ref REF)"},
		{"the address stays whole", long, "2001:db8:1111:2222:3333:4444:5555:6666", "2001:db8:1111:2222:3333:4444:5555:6666",
			"550 5.7.1 Client address [2001:db8:1111:2222:3333:4444:5555:6666] rejected: listed in a-li...ong-indeed (ref REF)"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			c, _ := checker(t, build(t, block(tt.list, tt.text)), policy.Settings{})
			for _, v := range []verdict.Verdict{askClient(c, client(t, tt.client)), askEnvelope(c, client(t, tt.client), "x@good.example")} {
				if got := named(c.Recipient(v, "")).Reply; got != tt.want || len(got) > 120 {
					t.Errorf("reply is\n%s, want\n%s", got, tt.want)
				}
			}
		})
	}
}

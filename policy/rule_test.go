package policy_test

import (
	"fmt"
	"math/rand/v2"
	"net/netip"
	"strings"
	"testing"
	"time"

	"blockd/internal/testkit"
	"blockd/lists"
	"blockd/mail/addr"
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
			testkit.Equal(t, "at a door that cannot discard", named(c.Recipient(askSender(c, "x@bad.example"), "bob@here.example")), want)
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

func sources(t *testing.T, words ...string) verdict.Sources {
	t.Helper()
	return testkit.Value(verdict.ParseSources(words))(t)
}

// A list is asked about the sources that it names, and about no other: at each way
// to ask.
func TestListsAreAskedAboutTheirSources(t *testing.T) {
	ix := build(t, block("envelope", "e@x.example\n"), block("from", "f@x.example\n192.0.2.0/24\n"), block("both", "b@x.example\n"))
	set := policy.Settings{Lists: map[string]rule.List{
		"from": {Match: sources(t, "from")}, "both": {Match: sources(t, "envelope", "reply-to")},
	}}
	c, _ := checker(t, ix, set)
	const blocked, clear = verdict.Blocked, verdict.Clear
	for _, tt := range []struct {
		sender                  string
		envelope, from, replyTo verdict.Kind
	}{
		{"e@x.example", blocked, clear, clear},
		{"f@x.example", clear, blocked, clear},
		{"b@x.example", blocked, clear, blocked},
	} {
		testkit.Equal(t, fmt.Sprintf("Sender(%q)", tt.sender), askSender(c, tt.sender).Kind, tt.envelope)
		var b policy.Batch
		testkit.Equal(t, fmt.Sprintf("Ask(%q)", tt.sender), c.AskAll(&b, []policy.Question{{Text: tt.sender}})[0].Kind, tt.envelope)
		testkit.Equal(t, fmt.Sprintf("From: %q", tt.sender), c.Header(verdict.FromSource, tt.sender).Kind, tt.from)
		testkit.Equal(t, fmt.Sprintf("Reply-To: %q", tt.sender), c.Header(verdict.ReplyToSource, tt.sender).Kind, tt.replyTo)
		parsed := testkit.Value(addr.Parse(tt.sender))(t)
		testkit.Equal(t, fmt.Sprintf("Blocks(%q)", tt.sender), len(set.Blocks(ix, parsed, netip.Addr{})) > 0, tt.envelope == blocked)
	}
	testkit.Equal(t, "a client in a list for headers", askClient(c, netip.MustParseAddr("192.0.2.1")).Kind, clear)
	x := c.Begin(relay, policy.Client{})
	x.Mail(policy.Mail{Sender: "e@there.example"})
	recipients(x, "bob")
	if !c.Needs().Header || !x.ReadsField("FROM ") || x.ReadsField("Return-Path") || x.ReadsField("Subject") {
		t.Error("want From and Reply-To to be read")
	}
}

// The refusal names the field, and nobody is remembered as a sender by it.
func TestHeaderDecision(t *testing.T) {
	var accepted []string
	c, reg := checker(t, build(t, block("from", "bad.example\n")), policy.Settings{
		Lists:     map[string]rule.List{"from": {Match: sources(t, "from")}},
		Completed: func(a addr.Addr, _ netip.Addr) { accepted = append(accepted, a.String()) },
	})
	d := c.Recipient(c.Header(verdict.FromSource, "a@bad.example"), "bob@here.example")
	if !strings.HasPrefix(d.Reply.String(), "550 5.7.1 <a@bad.example>: From address rejected: listed in from (ref ") {
		t.Errorf("Reply = %q", d.Reply.String())
	}
	c.Recipient(c.Header(verdict.FromSource, "a@there.example"), "bob@here.example")
	c.Completed(c.Header(verdict.FromSource, "a@there.example"))
	testkit.Equal(t, fmt.Sprintf("remembered %q", accepted), len(accepted), 0)
	for _, v := range testkit.Samples(t, reg, "blockd_verdicts_total") {
		testkit.Equal(t, "a header is counted as an envelope", v, 0)
	}
}

// Who passes is whom no list has anything on; that sender's message is told of once it is
// complete, and not before.
func TestPasses(t *testing.T) {
	var accepted []string
	c, _ := checker(t, build(t, block("bad", "bad.example\n"), block("shadow", "shadow.example\n").shadow(), allow("good", "good.example\n")),
		policy.Settings{Completed: func(a addr.Addr, _ netip.Addr) { accepted = append(accepted, a.String()) }})
	for sender, want := range map[string]bool{
		"a@there.example": true, "": true, "a@bad.example": false, "a@shadow.example": false, "a@good.example": false, "a b": false,
	} {
		x := c.Begin(mailer, policy.Client{})
		testkit.Equal(t, fmt.Sprintf("MAIL of %q: passed", sender), x.Mail(policy.Mail{Sender: sender}).Passed, want)
	}
	testkit.Equal(t, fmt.Sprintf("told of %q before there was a message", accepted), len(accepted), 0)
	for _, sender := range []string{"a@there.example", "", "a@bad.example", "a@shadow.example", "a@good.example", "a b"} {
		if got, want := c.WantsCompleted(askSender(c, sender)), sender == "a@there.example"; got != want {
			t.Errorf("WantsCompleted(%q) = %v, want %v", sender, got, want)
		}
		c.Completed(askSender(c, sender))
	}
	testkit.EqualSlices(t, "remembered", accepted, []string{"a@there.example"})
}

// Recipients of one group get the same decision of every header.
func TestGroups(t *testing.T) {
	c, _ := checker(t, build(t, block("from", "bad.example\n"), block("plain", "other.example\n"), allow("friends", "friend.example\n")), policy.Settings{
		RecipientsExempt: []string{"abuse"},
		Lists:            map[string]rule.List{"from": {Match: sources(t, "from")}, "plain": {}, "friends": {}},
		Policies: []rule.Recipients{
			{Recipients: []string{"none.example"}, Lists: nil}, {Recipients: []string{"plain.example"}, Lists: []string{"plain"}},
			{Recipients: []string{"from.example"}, Lists: []string{"from"}}, {Recipients: []string{"all.example"}, Lists: []string{"from", "plain", "friends"}},
		},
	})
	recipients := []string{"a@none.example", "a@plain.example", "a@from.example", "a@all.example", "a@here.example", "abuse@here.example", "abuse@from.example"}
	v := c.Header(verdict.FromSource, "x@bad.example")
	for _, a := range recipients {
		for _, b := range recipients {
			same := c.Recipient(v, a).Outcome == c.Recipient(v, b).Outcome
			if got := c.Group(a) == c.Group(b); got != same {
				t.Errorf("%s and %s: one group %v, one decision %v", a, b, got, same)
			}
		}
		testkit.Equal(t, fmt.Sprintf("%s: unread", a), c.Group(a) == policy.Unread, c.Recipient(v, a).Outcome == policy.Accept)
		if c.Group(a) == 0 {
			t.Errorf("%s: nobody's group", a)
		}
	}
	for recipient, want := range map[string]policy.Group{"a@from.example": c.Group("a@from.example"), "a@all.example": policy.Unread, "a@here.example": policy.Unread} {
		if got := c.Group(recipient, askSender(c, "x@there.example"), askSender(c, "x@friend.example")); got != want {
			t.Errorf("%s of an allowed sender: group %d, want %d", recipient, got, want)
		}
	}
}

// TestRecipientsAreWrittenAsListEntries compares with the plain format, over texts
// made of the marks that matter: what is a recipient means there the same.
func TestRecipientsAreWrittenAsListEntries(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 5))
	pieces := []string{"@", "@", "*", ".", "=", "a", "Example", ".org", "bücher.example", `"a b"`, "[192.0.2.1]", "<", ">"}
	var texts []string
	seen := map[string]bool{}
	for len(texts) < 3000 {
		var text strings.Builder
		for range 1 + rng.IntN(5) {
			text.WriteString(pieces[rng.IntN(len(pieces))])
		}
		if !seen[text.String()] {
			seen[text.String()] = true
			texts = append(texts, text.String())
		}
	}
	file := testkit.File(t, "plain.txt", strings.Join(texts, "\n")+"\n")
	entries := map[int]string{}
	_, _, err := lists.Lint(t.Context(), file, lists.Settings{Format: "plain"}, func(it *lists.Item) error {
		if it.Kind == lists.Addr || it.Kind == lists.Domain {
			entries[it.Line] = it.Key.Text + " " + it.Scope.String()
		}
		return nil
	})
	testkit.Must(t, err)
	good := 0
	for i, text := range texts {
		key, scope, err := rule.RecipientKey(text)
		if err != nil {
			continue
		}
		good++
		if got, want := key.Text+" "+scope.String(), entries[i+1]; got != want {
			t.Errorf("RecipientKey(%q) = %s, a list has %q", text, got, want)
		}
	}
	if good < 200 {
		t.Errorf("only %d of %d texts are recipients", good, len(texts))
	}
}

func TestMostSpecificPolicyDecides(t *testing.T) {
	// Each policy has a list of its own, so the list that refuses names it.
	recipients := []string{"sales@", "example.org", ".example.org", "=mx.example.org", "bob@example.org", "shop.example.org", ".tree.example"}
	s := policy.Settings{RecipientsExempt: []string{"postmaster"}}
	var all []list
	for i, r := range recipients {
		name := fmt.Sprint("list", i)
		all = append(all, block(name, "bad.example"))
		s.Policies = append(s.Policies, rule.Recipients{Recipients: []string{r}, Lists: []string{name}})
	}
	s.Policies = append(s.Policies, rule.Recipients{Recipients: []string{"none.example", "no recipient"}},
		rule.Recipients{Recipients: []string{"example.org"}, Lists: []string{"list6"}}) // the second of this name
	c, _ := checker(t, build(t, all...), s)
	v := askSender(c, "x@bad.example")
	tests := []struct{ name, recipient, want string }{
		{"address before all", "Bob@Example.org", "bob@example.org"},
		{"tree", "eve@example.org", "example.org"},
		{"of tree and names below, the first", "eve@a.example.org", "example.org"},
		{"exact name before tree", "eve@mx.example.org", "=mx.example.org"},
		{"longer name", "eve@a.shop.example.org", "shop.example.org"},
		{"name before local-part", "sales@example.org", "example.org"},
		{"local-part", "sales@elsewhere.example", "sales@"},
		{"names below do not reach the name", "eve@tree.example", "all"},
		{"names below", "eve@a.tree.example", ".tree.example"},
		{"no policy", "eve@elsewhere.example", "all"},
		{"other ending", "eve@myexample.org", "all"},
		{"no list counts", "eve@none.example", "none"},
		{"source route", "@relay.example:bob@example.org", "bob@example.org"},
		{"no recipient yet", "", "all"},
		{"no address", "bob@", "all"},
		{"without a domain", "bob", "all"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			got := "none"
			switch own := c.For(v, tt.recipient); {
			case own.Decider >= 0 && c.Recipient(v, tt.recipient).Outcome == policy.Refuse:
				i := 0
				fmt.Sscanf(own.ListName(own.Decider), "list%d", &i)
				if got = recipients[i]; i == 0 && len(own.Matches) > 0 && tt.want == "all" {
					got = "all" // by the first of all lists
				}
			case own.Kind != verdict.Clear || c.Recipient(v, tt.recipient).Outcome != policy.Accept:
				got = fmt.Sprint(own.Kind)
			}
			testkit.Equal(t, fmt.Sprintf("%s goes by the policy of", tt.recipient), got, tt.want)
		})
	}
}

func TestListsThatDoNotCountForARecipient(t *testing.T) {
	c, _ := checker(t, build(t, block("spam", "bad.example\n192.0.2.0/24"), allow("friends", "x@bad.example\n192.0.2.9"), block("trial", "odd.example").shadow()),
		policy.Settings{Policies: []rule.Recipients{
			{Recipients: []string{"strict.example"}, Lists: []string{"spam"}},
			{Recipients: []string{"free.example"}, Lists: []string{}},
			{Recipients: []string{"trial.example"}, Lists: []string{"trial"}},
		}})
	tests := []struct {
		name, client, sender, recipient string
		want                            policy.Outcome
		shadow                          bool
	}{
		{"all lists: the allow wins", "", "x@bad.example", "bob@here.example", policy.Accept, false},
		{"the allow does not count", "", "x@bad.example", "bob@strict.example", policy.Refuse, false},
		{"nor that of the client", "192.0.2.9", "x@ok.example", "bob@strict.example", policy.Refuse, false},
		{"no list counts", "192.0.2.1", "y@bad.example", "bob@free.example", policy.Accept, false},
		{"a shadow list stays one", "", "x@odd.example", "bob@trial.example", policy.Accept, true},
		{"a shadow list that does not count", "", "x@odd.example", "bob@strict.example", policy.Accept, false},
		{"another list than the one that matches", "", "y@bad.example", "bob@trial.example", policy.Accept, false},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			v := askEnvelope(c, client(t, tt.client), tt.sender)
			if to := c.Ask(policy.Question{Text: tt.sender, Client: client(t, tt.client), Recipient: tt.recipient}); to.Outcome != tt.want.String() {
				t.Errorf("Ask: %s, want what a door does, %s", to.Outcome, tt.want)
			}
			if d := c.Recipient(v, tt.recipient); d.Outcome != tt.want || d.Shadow != tt.shadow || d.Ref == "" {
				t.Errorf("Recipient = %+v, want outcome %d, shadow %v", d, tt.want, tt.shadow)
			}
		})
	}
}

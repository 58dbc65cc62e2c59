package policy_test

import (
	"fmt"
	"net/netip"
	"strings"
	"testing"

	"blockd/internal/testkit"
	"blockd/internal/testkit/domains"
	"blockd/policy"
	"blockd/policy/rule"
	"blockd/records/history"
)

// doorsOfMail are those that hear of recipients, by the name of what they are.
func doorsOfMail() map[string]*policy.Door {
	filter, milter := *relay, *mailer
	filter.HearsEnd, milter.HearsEnd = true, true
	return map[string]*policy.Door{"smtp": &filter, "milter": &milter, "policy": service}
}

// first shows a message to a transaction: what each recipient hears, and "+" where the message gets the
// field. A message that is complete is accepted by the next server.
func first(x *policy.Transaction, sender, to string, complete bool) string {
	var b strings.Builder
	if x.Mail(policy.Mail{Sender: sender, Written: sender}).Passed {
		if complete {
			x.Completed()
		}
		return "P"
	}
	for name := range strings.FieldsSeq(to) {
		d := x.Recipient(name + "@here.example")
		if !d.Refuses() && !x.PutOff(&d) {
			x.Join(&d)
		}
		b.WriteByte(letter(d))
	}
	if x.FirstSeen() {
		b.WriteByte('+')
	}
	if complete {
		x.Completed()
	}
	return b.String()
}

// TestFirstSeen shows messages in a row to all doors. They agree, but that a milter is not told the
// recipients of a known domain, and that the policy service does not hear whether a message came.
func TestFirstSeen(t *testing.T) {
	ix := build(t, block("bad", "promo@new.example\nbad.example"), allow("good", "friend.example"), block("maybe", "shadow.example").shadow(),
		block("odd", "odd.example"), block("net", "198.51.100.0/24"))
	lists := map[string]rule.List{"odd": {OnMatch: rule.Tag}}
	type step struct {
		client     policy.Client
		sender, to string
		complete   bool
		want       string
		at         map[string]string // by door, where that says another thing
	}
	there := policy.Client{Addr: netip.MustParseAddr("192.0.2.7")}
	login, own, listed := there, there, there
	login.Authenticated, own.Trusted, listed.Addr = true, true, netip.MustParseAddr("198.51.100.9")
	passes := func(want string) map[string]string {
		return map[string]string{"milter": "P", "smtp": want, "policy": want}
	}
	left := []step{ // alone, whatever on_first says
		{there, "", "bob", true, "A", passes("A")},
		{there, "root", "bob", true, "A", passes("A")},
		{there, "a@friend.example", "bob", true, "A", nil},
		{there, "a@bad.example", "bob postmaster", true, "RA", nil},
		{there, "a@odd.example", "bob", true, "T", nil},
		{login, "a@new.example", "bob", true, "A", passes("A")},
		{own, "a@new.example", "bob", true, "A", passes("A")},
		{listed, "a@new.example", "bob", true, "R", nil},
		{there, "a@known.example", "bob", true, "A", passes("A")},
		{there, "promo@new.example", "bob", true, "R", nil},
		{there, "a@new.example", "postmaster free", true, "AA", nil},
		{there, "a@b..c", "bob", true, "S", nil},
	}
	for _, tt := range []struct {
		name   string
		defers bool
		steps  []step
	}{
		{"tempfail", true, append(left,
			step{there, "a@new.example", "bob postmaster carol", false, "DAD", nil},
			step{there, "b@NEW.example", "bob carol", false, "AA", passes("AA")},
			step{there, "a@shadow.example", "bob", false, "D", nil},
			step{there, "a@shadow.example", "bob", false, "A", nil},
		)},
		{"tag", false, append(left,
			step{there, "a@new.example", "bob", false, "A+", nil}, // and no message comes
			step{there, "a@new.example", "postmaster bob free", true, "AAA+", map[string]string{"policy": "AAA"}},
			step{there, "b@NEW.example", "bob", true, "A", passes("A")},
			step{there, "a@shadow.example", "bob", true, "A+", nil},
			step{there, "a@shadow.example", "bob", true, "A", nil},
		)},
	} {
		for name, door := range doorsOfMail() {
			c, _ := checker(t, ix, policy.Settings{RecipientsExempt: []string{"postmaster"}, Lists: lists,
				Policies:  []rule.Recipients{{Recipients: []string{"free@"}}},
				FirstSeen: policy.FirstSeen{Domains: domains.Known(t, "known.example"), Defers: tt.defers}})
			for i, s := range tt.steps {
				want := s.want
				if other, ok := s.at[name]; ok {
					want = other
				}
				if got := first(c.Begin(door, s.client), s.sender, s.to, s.complete); got != want {
					t.Errorf("%s, %s, step %d, <%s> to %s: %s, want %s", tt.name, name, i, s.sender, s.to, got, want)
				}
			}
		}
	}
}

// TestFirstSeenIsNoMatterOf what sees no recipient, marks nothing, or is no mail.
func TestFirstSeenIsNoMatterOf(t *testing.T) {
	for _, defers := range []bool{true, false} {
		known := domains.Known(t)
		c, _ := checker(t, build(t), policy.Settings{FirstSeen: policy.FirstSeen{Domains: known, Defers: defers}})
		testkit.Equal(t, "a table", c.Begin(table, policy.Client{}).Mail(policy.Mail{Sender: "a@new.example"}).Outcome, policy.Accept)
		if v := c.Ask(policy.Question{Text: "a@new.example", Recipient: "bob@here.example"}); v.Outcome != "accept" {
			t.Errorf("a question is answered %v", v.Outcome)
		}
		if d := c.Begin(old, policy.Client{}).Mail(policy.Mail{Sender: "a@new.example"}); d.Passed != !defers {
			t.Errorf("a mail server that lets nobody add a field: passed %v", d.Passed)
		}
		if known.Known("new.example") {
			t.Error("the domain is known, and no mail came")
		}
		if c.Needs().Marks == defers {
			t.Errorf("marks are needed: %v", c.Needs().Marks)
		}
	}
}

// TestFirstSeenLeave: without the recipients that were to have the field there is none, and no message of
// theirs makes the domain known.
func TestFirstSeenLeave(t *testing.T) {
	known := domains.Known(t)
	c, _ := checker(t, build(t), policy.Settings{RecipientsExempt: []string{"postmaster"}, FirstSeen: policy.FirstSeen{Domains: known}})
	x := c.Begin(doorsOfMail()["smtp"], policy.Client{})
	if got := first(x, "a@new.example", "bob postmaster", false); got != "AA+" {
		t.Fatal(got)
	}
	x.Leave("postmaster@here.example")
	if !x.FirstSeen() {
		t.Error("postmaster has left, and so has the field")
	}
	x.Leave("bob@here.example")
	x.Completed()
	if x.FirstSeen() || known.Known("new.example") {
		t.Error("all have left, and the field has not")
	}
}

// TestFirstSeenIsTold: one record, one line with the same reference, and the count.
func TestFirstSeenIsTold(t *testing.T) {
	var told []history.Record
	var log testkit.Log
	known := domains.Known(t)
	c, reg := checker(t, build(t), policy.Settings{Decided: func(r history.Record) { told = append(told, r) },
		FirstSeen: policy.FirstSeen{Domains: known, Defers: true}})
	known.Register(reg)
	door := *relay
	door.Log = log.Logger()
	x := c.Begin(&door, policy.Client{Addr: netip.MustParseAddr("192.0.2.7")})
	x.Mail(policy.Mail{Sender: "a@new.example", Written: "a@new.example"})
	d := x.Recipient("bob@here.example")
	x.PutOff(&d)
	want := fmt.Sprintf("451 4.7.1 <a@new.example>: Sender address deferred: domain new here, try again later (ref %s)", d.Ref)
	if d.Reply.String() != want || d.Reply.AfterSubject(500) != fmt.Sprintf("domain new here, try again later (ref %s)", d.Ref) {
		t.Errorf("%q, %q", d.Reply.String(), d.Reply.AfterSubject(500))
	}
	if len(told) != 1 || told[0].Outcome != "defer" || !told[0].FirstSeen || told[0].List != "" || told[0].Ref != d.Ref {
		t.Errorf("remembered: %+v", told)
	}
	if text := log.String(); strings.Count(text, "\n") != 1 || !strings.Contains(text, "sender deferred") || !strings.Contains(text, "first_seen=true") ||
		!strings.Contains(text, "ref="+d.Ref) {
		t.Errorf("log: %s", text)
	}
	testkit.Equal(t, "counted", testkit.Samples(t, reg, "blockd_first_seen_total", "deferred")[0], 1)
	long := strings.Repeat("a", 64) + "@" + strings.Repeat("b", 60) + ".example"
	x.Mail(policy.Mail{Sender: long, Written: long})
	d = x.Recipient("bob@here.example")
	if x.PutOff(&d); len(d.Reply.String()) > 120 {
		t.Errorf("a reply of %d octets: %s", len(d.Reply.String()), d.Reply)
	}
}

// TestFirstSeenCosts nothing for a known domain.
func TestFirstSeenCosts(t *testing.T) {
	c, _ := checker(t, build(t), policy.Settings{FirstSeen: policy.FirstSeen{Domains: domains.Known(t, "there.example"), Defers: true}})
	x := c.Begin(mailer, policy.Client{Addr: netip.MustParseAddr("192.0.2.7")})
	m := policy.Mail{Sender: "a@there.example", Written: "a@there.example"}
	if n := testing.AllocsPerRun(100, func() {
		if !x.Mail(m).Passed {
			t.Fatal("a known domain does not pass")
		}
	}); n > 0 {
		t.Errorf("%g allocations", n)
	}
}

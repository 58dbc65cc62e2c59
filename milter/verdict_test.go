package milter_test

import (
	"fmt"
	"net/netip"
	"regexp"
	"strings"
	"testing"

	"blockd/internal/testkit"
	"blockd/milter"
	"blockd/policy/rule"
)

// The reply that a listed sender gets; no other sender's reply contains the second text.
var refused = regexp.MustCompile(`^550 5\.7\.1 <.*>: Sender address rejected: listed in bad \(ref [0-9a-z]{10}\)$`)

// refuses checks that bob is not reached by a listed sender.
func (m *mta) refuses(when string) {
	m.t.Helper()
	if got := m.rcpt("bob@here.example"); !refused.MatchString(got) {
		m.t.Errorf("%s: %q", when, got)
	}
}

// A clear sender costs one round trip: the message is accepted at MAIL.
func TestClearSenderCostsOneRoundTrip(t *testing.T) {
	d := open(t, setup{lists: map[string]string{"bad": "bad.example\n"}})
	m := d.greet("192.0.2.1")
	for range 3 {
		testkit.MustEqual(t, "MAIL answered", m.mail("friend@there.example", "friend@there.example"), "a")
	}
	testkit.Equal(t, "answers for three messages", m.events, 3)
	testkit.Equal(t, "passed", d.metric("blockd_milter_senders_total", "passed"), 3)
}

// The table of docs/milter.md: what Postfix passes, and what is looked up.
func TestWhichSenderIsLookedUp(t *testing.T) {
	const list = "bad@x.example\n\"bad b\"@x.example\nu@d.example\nlocal@up.example\ndots.example\n"
	d := open(t, setup{lists: map[string]string{"bad": list}})
	tests := []struct{ name, argument, macro, want string }{
		{"quoted local-part that must be", `"bad b"@x.example`, `"bad b"@x.example`, "550"},
		{"quoted local-part that need not be", `"bad"@x.example`, "bad@x.example", "550"},
		{"source route", "@r1.example:u@d.example", "u@d.example", "550"},
		{"capitals", "bad@X.Example", "bad@x.example", "550"},
		{"trailing dot", "bad@x.example.", "bad@x.example", "550"},
		{"comment in front of it", "(c)<bad@x.example>", "bad@x.example", "550"},
		{"no domain, which the server adds", "local", "local@up.example", "550"},
		{"null sender", "", "", "a"},
		{"null sender as Sendmail writes it", "", "<>", "a"},
		{"clear sender", "good@x.example", "good@x.example", "a"},
		{"clear sender with a comment", "(c)<good@x.example>", "good@x.example", "a"},
		{"listed as written, another to the server", "bad@x.example", "good@x.example", "550"},
		{"listed to the server, another as written", "good@x.example", "bad@x.example", "550"},
		{"two clear spellings", "good@x.example", "fine@x.example", "a"},
		{"no macro", "bad@x.example", "-", "550"},
		{"empty macro", "bad@x.example", "", "550"},
		{"macro that is no address", "bad@x.example", "(c)bad", "550"},
		{"empty argument and a listed macro", "", "bad@x.example", "550"},
		{"two dots in a row, as Sendmail hands them over", "a..b@x.example", "a..b@x.example", "a"},
		{"a dot in front and none of the server", ".a@x.example", "-", "a"},
		{"a dot behind a listed local-part", "bad.@dots.example", "bad.@dots.example", "550"},
		{"dots in a comment's place", "(c)a..b@dots.example", "a..b@dots.example", "550"},
		{"neither is an address", "a b@x.example", "a b@x.example", "553 5.1.7"},
		{"no address and no macro", "a@b@c", "-", "553 5.1.7"},
	}
	m := d.greet("192.0.2.1")
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			m.t = t
			defer m.abort()
			lines := strings.Count(d.log.String(), `msg="sender not understood" door=milter`)
			got := m.mail(tt.argument, tt.macro)
			if got == "c" {
				testkit.Equal(t, "postmaster", m.rcpt("postmaster@here.example"), "c")
				got = m.rcpt("bob@here.example")
			}
			if !strings.HasPrefix(got, tt.want) || tt.want == "550" && !refused.MatchString(got) {
				t.Errorf("MAIL FROM:<%s> with %q: %q, want %s", tt.argument, tt.macro, got, tt.want)
			}
			if now := strings.Count(d.log.String(), `msg="sender not understood" door=milter`); (now > lines) != (tt.want == "553 5.1.7") {
				t.Errorf("%d lines of a sender that is not understood, %d before\n%s", now, lines, d.log)
			}
		})
	}
}

// abort ends a transaction, as RSET does.
func (m *mta) abort() { m.send('A', "") }

// The recipient that counts is the one that the strict grammar accepts.
func TestWhichRecipientIsExempt(t *testing.T) {
	d := open(t, setup{lists: map[string]string{"bad": "bad.example\n"}})
	tests := []struct{ name, argument, macro, want string }{
		{"bare postmaster", "postmaster", "postmaster", "c"},
		{"postmaster, which the server completes", "postmaster", "postmaster@here.example", "c"},
		{"abuse, which the server completes", "abuse", "abuse@here.example", "c"},
		{"somebody as written, postmaster to the server", "bob@here.example", "postmaster@here.example", "550"},
		{"postmaster as written, somebody to the server", "postmaster@here.example", "bob@here.example", "c"},
		{"postmaster in a comment", "(postmaster@here.example)<bob@here.example>", "bob@here.example", "550"},
		{"bob with a comment, who is postmaster to the server", "(c)<postmaster@here.example>", "postmaster@here.example", "c"},
		{"no address at all", "a b", "a b", "550"},
		{"no macro", "postmaster@here.example", "-", "c"},
	}
	m := d.greet("192.0.2.1")
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			m.t = t
			defer m.abort()
			m.mail("a@bad.example", "a@bad.example")
			if tt.macro != "-" {
				m.macro('R', "{rcpt_addr}", tt.macro)
			}
			testkit.Begins(t, fmt.Sprintf("RCPT TO:<%s> with %q", tt.argument, tt.macro), m.event('R', "<"+tt.argument+">\x00"), tt.want)
		})
	}
}

// The milter skips the same clients and senders as the SMTP filter.
func TestTrustedAndAuthenticatedClients(t *testing.T) {
	lists := map[string]string{"bad": "bad.example\n203.0.113.0/24\n"}
	trusted := []netip.Prefix{netip.MustParsePrefix("198.51.100.0/24")}
	tests := []struct {
		name, client, sender, user string
		skip                       bool
		want                       string
	}{
		{"listed sender", "192.0.2.1", "a@bad.example", "", true, "550"},
		{"listed sender in a trusted network", "198.51.100.7", "a@bad.example", "", true, "a"},
		{"listed sender who has authenticated", "192.0.2.1", "a@bad.example", "bob", true, "a"},
		{"listed sender who has authenticated, and that is not skipped", "192.0.2.1", "a@bad.example", "bob", false, "550"},
		{"listed client", "203.0.113.9", "a@there.example", "", true, "550"},
		{"listed client, null sender", "203.0.113.9", "", "", true, "550"},
		{"listed client that has authenticated", "203.0.113.9", "a@there.example", "bob", true, "550"},
		{"IPv4 client in IPv6 form", "::ffff:203.0.113.9", "a@there.example", "", true, "550"},
		{"client that is not known", "", "a@there.example", "", true, "a"},
		{"listed sender of a client that is not known", "", "a@bad.example", "", true, "550"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			d := open(t, setup{lists: lists, settings: milter.Settings{Trusted: trusted, SkipAuthenticated: tt.skip}})
			m := d.greet(tt.client)
			got := m.mail(tt.sender, tt.sender, "{auth_authen}", tt.user)
			if got == "c" {
				got = m.rcpt("bob@here.example")
			}
			testkit.Begins(t, tt.sender, got, tt.want)
		})
	}
}

// reject_at = "mail" and client_reject_at = "connect" refuse earlier.
func TestWhereIsRefused(t *testing.T) {
	lists := map[string]string{"bad": "bad.example\n203.0.113.0/24\n"}
	t.Run("sender at MAIL", func(t *testing.T) {
		d := open(t, setup{lists: lists, settings: milter.Settings{RejectAt: "mail"}})
		m := d.greet("192.0.2.1")
		if got := m.mail("a@bad.example", "a@bad.example"); !refused.MatchString(got) {
			t.Errorf("MAIL: %q", got)
		}
		testkit.Begins(t, "MAIL with no address", m.mail("a b", "a b"), "553 5.1.7 ")
		testkit.Equal(t, "a clear sender behind it", m.mail("a@there.example", "a@there.example"), "a")
	})
	t.Run("client at connect", func(t *testing.T) {
		d := open(t, setup{lists: lists, settings: milter.Settings{ClientRejectAt: "connect"}})
		for client, want := range map[string]string{"203.0.113.9": "554 5.7.1 Client address [203.0.113.9] rejected", "192.0.2.1": "c"} {
			m := d.dial()
			m.negotiate(6, offeredActions, offeredProtocol)
			testkit.Begins(t, fmt.Sprintf("connect from %s", client), m.connect(client), want)
		}
		testkit.Equal(t, "clients refused", d.metric("blockd_milter_clients_refused_total"), 1)
	})
	t.Run("client put off at connect", func(t *testing.T) {
		d := open(t, setup{lists: lists, rules: map[string]rule.List{"bad": {OnMatch: rule.Tempfail}},
			settings: milter.Settings{ClientRejectAt: "connect"}})
		m := d.dial()
		m.negotiate(6, offeredActions, offeredProtocol)
		testkit.Begins(t, "connect", m.connect("203.0.113.9"), "421 4.7.1 ")
	})
}

// The mail server tells the client the text and codes of an entry, in ASCII unless the client
// has used SMTPUTF8. A percent sign is two on the wire of a milter.
func TestEntriesOwnWords(t *testing.T) {
	d := open(t, setup{lists: map[string]string{"bad": "bulk.example REJECT 100% bulk – nein\ncode.example 550 5.7.9 ask us\nslow.example 450 4.7.2 later\nlast.example 421 4.7.0 bye\n"}})
	for _, tt := range []struct{ sender, parameters, want string }{
		{"a@bulk.example", "SIZE=100", "550 5.7.1 <a@bulk.example>: Sender address rejected: 100%% bulk - nein"},
		{"a@bulk.example", "SIZE=100 smtputf8", "550 5.7.1 <a@bulk.example>: Sender address rejected: 100%% bulk – nein"},
		{"a@code.example", "SIZE=100", "550 5.7.9 <a@code.example>: Sender address rejected: ask us"},
		{"a@slow.example", "SIZE=100", "450 4.7.2 <a@slow.example>: Sender address rejected: later"},
		{"a@last.example", "SIZE=100", "421 4.7.0 <a@last.example>: Sender address rejected: bye"},
	} {
		m := d.greet("192.0.2.1")
		m.macro('M', "{mail_addr}", tt.sender)
		m.event('M', "<"+tt.sender+">\x00"+tt.parameters+"\x00")
		testkit.Equal(t, fmt.Sprintf("%s %s", tt.sender, tt.parameters), m.rcpt("bob@here.example"), tt.want)
	}
}

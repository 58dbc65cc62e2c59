package policy_test

import (
	"net/netip"
	"strings"
	"testing"
	"unicode"

	"blockd/internal/testkit"
	"blockd/mail/addr"
	"blockd/mail/header"
	"blockd/policy"
	"blockd/policy/rule"
	"blockd/policy/verdict"
	"blockd/records/history"
)

// A sender that cannot be read is judged by what can be: an address, or a domain and
// the names above it. Where that is in no list it passes, as unknown.
func TestUnreadableSenders(t *testing.T) {
	lists := []list{block("bad", "bad.example\n=exact.example\n.below.example\npromo@shop.example\n!good@bad.example\n/^wild[0-9]+@/"),
		allow("good", "news.bad.example"), block("shadow", "shadow.example").shadow(), block("clients", "192.0.2.0/24")}
	client := netip.MustParseAddr("192.0.2.7")
	tests := []struct {
		name, sender string
		client       netip.Addr
		want         verdict.Kind
		by           string
	}{
		{"listed domain", "x@bad.example@", netip.Addr{}, verdict.Blocked, "bad:bad.example"},
		{"name below a listed domain", "\x01x@mx.bad.example", netip.Addr{}, verdict.Blocked, "bad:bad.example"},
		{"unreadable label below it", "x@xn--zz.bad.example", netip.Addr{}, verdict.Blocked, "bad:bad.example"},
		{"exact name", "\x01x@exact.example", netip.Addr{}, verdict.Blocked, "bad:exact.example"},
		{"unreadable label below an exact name", "x@xn--zz.exact.example", netip.Addr{}, verdict.Unknown, ""},
		{"names below, and the name itself", "\x01x@below.example", netip.Addr{}, verdict.Unknown, ""},
		{"names below, and an unreadable label", "x@xn--zz.below.example", netip.Addr{}, verdict.Blocked, "bad:below.example"},
		{"listed address", "promo@shop.example@", netip.Addr{}, verdict.Blocked, "bad:promo@shop.example"},
		{"listed address with a control", "\x01promo@shop.example", netip.Addr{}, verdict.Unknown, ""},
		{"clear domain", "x@there.example@", netip.Addr{}, verdict.Unknown, ""},
		{"listed domain in the local-part", "x@bad.example@there.example", netip.Addr{}, verdict.Unknown, ""},
		{"listed domain in quotes", "\"x@bad.example\x01\"@there.example", netip.Addr{}, verdict.Unknown, ""},
		{"exception for the domain", "\x01x@news.bad.example", netip.Addr{}, verdict.Allowed, "good:news.bad.example"},
		{"exception for an address, which is not known to be this one", "\x01good@bad.example", netip.Addr{}, verdict.Blocked, "bad:bad.example"},
		{"exception for an address", "good@bad.example@", netip.Addr{}, verdict.Allowed, "bad:good@bad.example"},
		{"pattern", "wild7@there.example@", netip.Addr{}, verdict.Blocked, "bad:/^wild[0-9]+@/"},
		{"shadow list", "\x01x@shadow.example", netip.Addr{}, verdict.Unknown, "(shadow:shadow.example)"},
		{"its client", "x@there.example@", client, verdict.Blocked, "clients:192.0.2.0/24"},
		{"before its client", "x@bad.example@", client, verdict.Blocked, "bad:bad.example"},
		{"no domain", "\x01", netip.Addr{}, verdict.Unknown, ""},
		{"percent for an @", "x%bad.example", netip.Addr{}, verdict.Blocked, "bad:bad.example"},
		{"bang path", "bad.example!x", netip.Addr{}, verdict.Blocked, "bad:bad.example"},
		{"percent for an @, and an unreadable label", "x%xn--zz.bad.example", netip.Addr{}, verdict.Blocked, "bad:bad.example"},
		{"percent for an @ before a clear domain", "x%there.example", netip.Addr{}, verdict.Clear, ""},
		{"domain of 254 octets", "x@" + strings.Repeat("a.", 121) + "bad.example", netip.Addr{}, verdict.Blocked, "bad:bad.example"},
	}
	c, _ := checker(t, build(t, lists...), policy.Settings{})
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			var b policy.Batch
			q := policy.Question{Text: tt.sender, Client: tt.client}
			for _, v := range []verdict.Verdict{c.Ask(q), c.AskAll(&b, []policy.Question{q})[0]} {
				if by := decidedBy(v); v.Kind != tt.want || by != tt.by {
					t.Errorf("Envelope(%q) = %s by %q, want %s by %q", tt.sender, v.Kind, by, tt.want, tt.by)
				}
				if _, err := addr.Parse(tt.sender); (err != nil || v.Sender.Null()) != (v.Unread == tt.sender) || v.Internal() {
					t.Errorf("Envelope(%q): unread %q, error %v, internal %v", tt.sender, v.Unread, v.Err, v.Internal())
				}
			}
		})
	}
}

// The refused client reads its own words, and what cannot be read proves nothing.
func TestUnreadableSenderIsAnswered(t *testing.T) {
	c, reg := checker(t, build(t, block("bad", "bad.example"), allow("ours", "bad.example")), policy.Settings{
		Lists: map[string]rule.List{"ours": {Require: verdict.SPFProof | verdict.DKIMProof}}})
	v := askSender(c, "\x01x@bad.example")
	if v.Kind != verdict.Blocked || v.Wants != 0 {
		t.Errorf("%s, wants %s", v.Kind, v.Wants)
	}
	d := c.Recipient(v, "bob@here.example")
	if want := "550 5.7.1 <?x@bad.example>: Sender address rejected: listed in bad (ref " + d.Ref + ")"; d.Reply.String() != want {
		t.Errorf("%s, want %s", d.Reply, want)
	}
	askSender(c, "x@there.example@")
	wantMetric(t, reg, "blockd_unreadable_senders_total", `
		blockd_unreadable_senders_total{source="envelope",verdict="blocked"} 1
		blockd_unreadable_senders_total{source="envelope",verdict="unknown"} 1`)
}

// The history has what the client wrote, so that replay judges the same text again.
func TestUnreadableSenderIsRememberedAsWritten(t *testing.T) {
	var records []history.Record
	c, _ := checker(t, build(t, block("bad", "bad.example\npromo@shop.example")), policy.Settings{Decided: func(r history.Record) { records = append(records, r) }})
	for _, sender := range []string{`"x@bad.example"@`, "promo@shop.example@", "x@there.example@", "\x01x@bad.example"} {
		v := askSender(c, sender)
		v.Seen.Sender = sender
		c.Recipient(v, "bob@here.example")
		if r := records[len(records)-1]; r.Sender != sender || r.Verdict != string(v.Kind) || askSender(c, r.Sender).Kind != v.Kind {
			t.Errorf("%q, which is %s, is remembered as %q, %s", sender, v.Kind, r.Sender, r.Verdict)
		}
	}
}

// ignored are all code points that show nothing.
func ignored() (all []rune) {
	for r := rune(0x80); r <= unicode.MaxRune; r++ {
		if addr.Ignorable(r) {
			all = append(all, r)
		}
	}
	return all
}

// What a reader sees is what is matched: a character that shows nothing, wherever it
// stands in the address of a listed sender, changes no verdict, and none within a name
// makes one.
func TestWhatShowsNothingChangesNoVerdict(t *testing.T) {
	ix := build(t, block("bad", "bad.example\npromo@shop.example\nx@نامه\u200Cای.example"))
	c, _ := checker(t, ix, policy.Settings{Lists: map[string]rule.List{"bad": {Match: sources(t, "from")}}})
	kindOf := func(text string) verdict.Kind {
		for _, address := range header.Addresses(text) {
			if v := c.Header(verdict.FromSource, address); v.Kind == verdict.Blocked {
				return v.Kind
			}
		}
		return verdict.Clear
	}
	all := ignored()
	if len(all) < 300 {
		t.Fatalf("%d characters that show nothing", len(all))
	}
	fields := []struct{ before, address, behind string }{
		{"", "x@bad.example", ""}, {"Bank <", "promo@shop.example", ">"}, {`"Bank, Inc." <`, "x@mx.bad.example", ">"},
		{"staff: a@b.example, ", "promo@shop.example", ";"}, {"<@r.example:", "x@bad.example", ">"}, {"<", `"promo"@shop.example`, ">"},
		{"(hello) ", "promo @ shop.example", ""}, {"y@z.example <", "promo@shop.example", "> <"}, {"<", `promo@"shop.example"`, ">"},
		{"<", "promo\uFF20shop.example", ">"}, {"<", "=?utf-8?Q?promo?=@shop.example", ">"}, {"a@b.example, <", "=?utf-8?Q?promo=40shop.example?=", ">"},
	}
	for _, f := range fields {
		testkit.Equal(t, f.before+f.address+f.behind, kindOf(f.before+f.address+f.behind), verdict.Blocked)
		for at := range f.address + " " {
			for i, r := range all {
				if i%7 != at%7 && r != '\u00AD' && r != '\u200D' { // all of them within seven places
					continue
				}
				if text := f.before + f.address[:at] + string(r) + f.address[at:] + f.behind; kindOf(text) != verdict.Blocked {
					t.Fatalf("%q passes", text)
				}
			}
		}
	}
	for _, text := range []string{
		"\U0001F468\u200D\U0001F469\u200D\U0001F467 <x@there.example>", "pro\u00ADmo@shop.example <x@there.example>",
		"=?utf-8?Q?promo=40shop.example?= <x@there.example>", "\"promo\uFF20shop.example\" <x@there.example>",
		"x@there.example (promo@shop.\u200Bexample)", "promo@there.example\u200B",
	} {
		testkit.Equal(t, text, kindOf(text), verdict.Clear)
	}
	for _, text := range []string{"x@نامه\u200Cای.example", "<x@نامه\u200Cا\u00ADی.example>", "x\u200D@نامه\u200Cای.example"} {
		testkit.Equal(t, text, kindOf(text), verdict.Blocked)
	}
}

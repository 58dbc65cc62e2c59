package policy_test

import (
	"net/netip"
	"strings"
	"testing"
	"unicode"
	"unicode/utf8"

	"blockd/internal/testkit"
	"blockd/policy"
	"blockd/policy/rule"
	"blockd/policy/verdict"
)

// What the refused reads: the entry's own words, those of its list, or the standard
// ones, and where to ask.
func TestWhatTheRefusedReads(t *testing.T) {
	const at = "<x@bad.example>: Sender address "
	tests := []struct {
		name, text string
		rule       rule.List
		contact    string
		utf8       bool
		want       string
	}{
		{"standard", "bad.example REJECT", rule.List{}, "", false, "550 5.7.1 " + at + "rejected: listed in a (ref REF)"},
		{"own text", "bad.example REJECT no bulk mail", rule.List{}, "", false, "550 5.7.1 " + at + "rejected: no bulk mail"},
		{"own status", "bad.example REJECT 5.7.9 no bulk mail", rule.List{}, "", false, "550 5.7.9 " + at + "rejected: no bulk mail"},
		{"own codes", "bad.example 554 5.7.9 no bulk mail", rule.List{}, "", false, "554 5.7.9 " + at + "rejected: no bulk mail"},
		{"own codes without a text", "bad.example 554 5.7.9", rule.List{}, "", false, "554 5.7.9 " + at + "rejected: listed in a (ref REF)"},
		{"a status of another class", "bad.example 554 4.7.9 no", rule.List{}, "", false, "554 5.7.9 " + at + "rejected: no"},
		{"own code of the last reply", "bad.example 521 5.7.1 no", rule.List{}, "", false, "521 5.7.1 " + at + "rejected: no"},
		{"deferred with own text", "bad.example DEFER later", rule.List{}, "", false, "451 4.7.1 " + at + "rejected: later"},
		{"a list that defers has no refusal's code", "bad.example 554 5.7.9 no", rule.List{OnMatch: rule.Tempfail}, "", false,
			"451 4.7.9 " + at + "rejected: no"},
		{"a text of DISCARD is not for the client", "bad.example DISCARD sneaky", rule.List{}, "", false, "550 5.7.1 " + at + "rejected: listed in a (ref REF)"},
		{"a note of a plain list is not for the client", "bad.example # seen in May", rule.List{}, "", false, "550 5.7.1 " + at + "rejected: listed in a (ref REF)"},

		{"the list's text", "bad.example REJECT", rule.List{Text: "%sender is in %list, 100%% sure (%ref)"}, "", false,
			"550 5.7.1 x@bad.example is in a, 100% sure (REF)"},
		{"the list's text and codes", "bad.example REJECT", rule.List{Text: "554 5.7.9 no"}, "", false, "554 5.7.9 no"},
		{"the entry says more than its list", "bad.example REJECT go away", rule.List{Text: "no"}, "", false, "550 5.7.1 " + at + "rejected: go away"},
		{"a list's text of which nothing is left", "bad.example REJECT", rule.List{Text: "554 5.7.9 %reason"}, "tel:1", false,
			"554 5.7.9 " + at + "rejected: listed in a (ref REF) tel:1"},
		{"a reason is no format", "bad.example REJECT", rule.List{Text: "no: %reason"}, "", false, "550 5.7.1 no:"},

		{"contact", "bad.example REJECT", rule.List{}, "https://here.example/r/%ref", false,
			"550 5.7.1 " + at + "rejected: listed in a (ref REF) https://here.example/r/REF"},
		{"the list's contact", "bad.example REJECT", rule.List{Contact: "mailto:%list@here.example"}, "https://here.example/r/%ref", false,
			"550 5.7.1 " + at + "rejected: listed in a (ref REF) mailto:a@here.example"},
		{"contact of an own text", "bad.example REJECT go away", rule.List{}, "https://here.example/%c3%bc?%ref", false,
			"550 5.7.1 " + at + "rejected: go away https://here.example/%c3%bc?REF"},
		{"contact within the text", "bad.example REJECT", rule.List{Text: "ask %contact first"}, "tel:+49-30-1234", false, "550 5.7.1 ask tel:+49-30-1234 first"},
		{"contact of a deferral", "bad.example DEFER", rule.List{}, "tel:+49-30-1234", false, "451 4.7.1 " + at + "deferred: listed in a (ref REF) tel:+49-30-1234"},

		{"transcribed", "bad.example REJECT Grüße aus Łódź – „nein“ 你好", rule.List{}, "", false, "550 5.7.1 " + at + `rejected: Grusse aus Lodz - "nein" ??`},
		{"as it is", "bad.example REJECT Grüße aus Łódź – „nein“ 你好", rule.List{}, "", true, "550 5.7.1 " + at + "rejected: Grüße aus Łódź – „nein“ 你好"},
		{"bidi controls, joiners and a line separator", "bad.example REJECT a\u202eb\u200bc\u2028d\u2066e", rule.List{}, "", true, "550 5.7.1 " + at + "rejected: abc de"},
		{"bidi controls of a list's text", "bad.example REJECT", rule.List{Text: "a\u202eb\r\n250 ok\x00\x1b[31m"}, "", true, "550 5.7.1 ab  250 ok  [31m"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			c, _ := checker(t, build(t, block("a", tt.text)), policy.Settings{Lists: map[string]rule.List{"a": tt.rule}, Contact: tt.contact})
			v := askSender(c, "x@bad.example")
			v.Seen.UTF8 = tt.utf8
			d := c.Recipient(v, "bob@here.example")
			testkit.Equal(t, "reply", strings.ReplaceAll(d.Reply.String(), d.Ref, "REF"), tt.want)
		})
	}
}

func TestCodesThatDependOnThePlace(t *testing.T) {
	for _, tt := range []struct{ text, rcpt, end, connection string }{
		{"192.0.2.1 REJECT", "550", "554", "554"},
		{"192.0.2.1 REJECT no", "550", "554", "554"},
		{"192.0.2.1 550 no", "550", "550", "550"},
		{"192.0.2.1 521 no", "521", "521", "521"},
		{"192.0.2.1 450 later", "450", "450", "421"},
		{"192.0.2.1 DEFER", "451", "451", "421"},
	} {
		c, _ := checker(t, build(t, block("a", tt.text)), policy.Settings{})
		v := askClient(c, client(t, "192.0.2.1"))
		for want, d := range map[string]policy.Decision{
			tt.rcpt + " RCPT":             c.Recipient(v, "bob@here.example"),
			tt.end + " end":               c.EndOfMessage(v, "bob@here.example"),
			tt.connection + " connection": connect(c, client(t, "192.0.2.1")),
		} {
			if code, place, _ := strings.Cut(want, " "); !strings.HasPrefix(d.Reply.String(), code+" ") {
				t.Errorf("%s, %s: %q, want %s", tt.text, place, d.Reply, code)
			}
		}
	}
}

func connect(c *policy.Checker, client netip.Addr) policy.Decision {
	x := c.Begin(relay, policy.Client{Addr: client})
	return x.Connect()
}

func TestContactIsWholeHoweverLongTheRest(t *testing.T) {
	contact := strings.Repeat("c", 149) // reply.CheckContact lets no longer one pass
	sender := strings.Repeat("l", 64) + "@" + strings.Repeat(strings.Repeat("d", 55)+".", 3) + "example"
	for _, text := range []string{sender + " REJECT " + strings.Repeat("é ", 199), sender + " REJECT"} {
		c, _ := checker(t, build(t, block("a", text)), policy.Settings{Contact: contact})
		v := askSender(c, sender)
		v.Seen.UTF8 = true
		d := c.Recipient(v, "bob@here.example")
		got := d.Reply.String()
		if len(got) > 510 || !strings.HasSuffix(got, " "+contact) || !utf8.ValidString(got) {
			t.Errorf("%d octets: %s", len(got), got)
		}
		if words := d.Reply.AfterSubject(200); len(words) > 200 || !strings.HasSuffix(words, " "+contact) {
			t.Errorf("%d octets behind a subject: %s", len(words), words)
		}
	}
}

// The text of all lists is for those without one, and for entries without one; it stands nowhere twice, and a sender that looks like
// a placeholder is none.
func TestTextOfAllLists(t *testing.T) {
	for _, tt := range []struct {
		entry, sender string
		rule          rule.List
		text, want    string
	}{
		{"bad.example REJECT", "x@bad.example", rule.List{}, "%sender is in %list (%ref) %contact", "550 5.7.1 x@bad.example is in a (REF) tel:1"},
		{"bad.example REJECT", "x@bad.example", rule.List{}, "554 5.7.9 not here", "554 5.7.9 not here tel:1"},
		{"bad.example REJECT", "x@bad.example", rule.List{OnMatch: rule.Tempfail}, "554 5.7.9 not now", "451 4.7.9 not now tel:1"},
		{"bad.example REJECT", "x@bad.example", rule.List{Text: "mine"}, "not here", "550 5.7.1 mine tel:1"},
		{"bad.example REJECT go away", "x@bad.example", rule.List{}, "not here", "550 5.7.1 <x@bad.example>: Sender address rejected: go away tel:1"},
		{"bad.example REJECT", "%ref%sender%contact@bad.example", rule.List{}, "%sender (%ref)", "550 5.7.1 %ref%sender%contact@bad.example (REF) tel:1"},
		{"bad.example REJECT", "x@bad.example", rule.List{}, strings.Repeat("%sender", 72), "550 5.7.1 " + strings.Repeat("x@bad.example", 38)[:510-len("550 5.7.1 ")-len(" tel:1")] + " tel:1"},
	} {
		c, _ := checker(t, build(t, block("a", tt.entry)), policy.Settings{Lists: map[string]rule.List{"a": tt.rule}, Contact: "tel:1", Text: tt.text})
		d := c.Recipient(askSender(c, tt.sender), "bob@here.example")
		testkit.Equal(t, "reply", strings.ReplaceAll(d.Reply.String(), d.Ref, "REF"), tt.want)
	}
}

// Whatever a list, its configuration or a sender says, the client reads one line.
func FuzzOwnReply(f *testing.F) {
	f.Add("550 5.7.9 no", "554 %sender %reason %contact", "tel:%ref", "x@bad.example", true)
	f.Add("a\r\n250 ok", "\x00\u202e%ref", "\u2066%list", "\"a\r\n\"@bad.example", false)
	f.Add(strings.Repeat("é", 300), strings.Repeat("ü%sender", 90), strings.Repeat("x", 200), "x@bad.example", true)
	ix := build(f, block("a", "bad.example REJECT"))
	f.Fuzz(func(t *testing.T, own, text, contact, sender string, smtputf8 bool) {
		c, _ := checker(t, ix, policy.Settings{Contact: contact, Lists: map[string]rule.List{"a": {Text: text}}})
		v := askSender(c, sender)
		if v.Kind != verdict.Blocked {
			v = askSender(c, "x@bad.example")
		}
		v.Seen.UTF8 = smtputf8
		for _, reason := range []string{"", own} {
			v.Matches[v.Decider].Reason = reason
			d := c.Recipient(v, "bob@here.example")
			for _, line := range []string{d.Reply.String(), d.Reply.AfterSubject(200)} {
				if len(line) > 510 || !utf8.ValidString(line) {
					t.Errorf("%d octets: %q", len(line), line)
				}
				if i := strings.IndexFunc(line, func(r rune) bool {
					return unicode.IsControl(r) || unicode.Is(unicode.Cf, r) || r == '\u2028' || r == '\u2029' || !smtputf8 && r > '~'
				}); i >= 0 {
					t.Errorf("%q at %d", line, i)
				}
			}
			if line := d.Reply.String(); line[0] != '5' || line[3] != ' ' || line[4] != '5' {
				t.Errorf("no refusal: %q", line)
			}
		}
	})
}

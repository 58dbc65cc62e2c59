package policy_test

import (
	"encoding/json"
	"fmt"
	"log/slog"
	"net/netip"
	"regexp"
	"strings"
	"testing"
	"unicode"
	"unicode/utf8"

	"blockd/index"
	"blockd/internal/testkit"
	"blockd/mail/addr"
	"blockd/policy"
	"blockd/policy/reply"
	"blockd/policy/rule"
	"blockd/policy/verdict"
)

func TestExemptRecipients(t *testing.T) {
	ix := build(t, block("a", "bad.example"))
	c, _ := checker(t, ix, policy.Settings{RecipientsExempt: []string{"Postmaster", "abuse", "no good", "odd.one"}})
	v := askSender(c, "x@bad.example")
	tests := []struct {
		name, recipient string
		exempt          bool
	}{
		{"ordinary recipient", "bob@here.example", false},
		{"exempt recipient", "abuse@here.example", true},
		{"capitals", "ABUSE@Here.Example", true},
		{"any domain", "abuse@elsewhere.example", true},
		{"address literal", "abuse@[192.0.2.1]", true},
		{"quoted local-part", `"abuse"@here.example`, true},
		{"quoted pairs", `"ab\use"@here.example`, true},
		{"quoted dot-atom", `"odd.one"@here.example`, true},
		{"source route", "@relay.example:abuse@here.example", true},
		{"setting in capitals", "postmaster@here.example", true},
		{"postmaster without a domain", "Postmaster", true},
		{"quoted postmaster without a domain", `"postmaster"`, true},
		{"another one without a domain", "abuse", false},
		{"longer local-part", "abuse2@here.example", false},
		{"subaddress", "abuse+x@here.example", false},
		{"exempt name as domain", "bob@abuse", false},
		{"exempt name within quotes with more", `"abuse@here.example"@evil.example`, false},
		{"setting that is no local-part", "no good@here.example", false},
		{"no address", "abuse@", false},
		{"two addresses", "abuse@here.example,bob@here.example", false},
		{"the sender alone", "", false},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			d := c.Recipient(v, tt.recipient)
			if d.Exempt != tt.exempt || (d.Outcome == policy.Accept) != tt.exempt {
				t.Errorf("Recipient(%q) = %+v, want exempt %v", tt.recipient, d, tt.exempt)
			}
			if d.Ref == "" || strings.Contains(d.Reply.String(), d.Ref) == tt.exempt {
				t.Errorf("Recipient(%q): ref %q, reply %q", tt.recipient, d.Ref, d.Reply.String())
			}
		})
	}
	bare, _ := checker(t, ix, policy.Settings{})
	if d := bare.Recipient(v, "postmaster@here.example"); d.Exempt {
		t.Error("exempt without a setting")
	}
}

var refForm = regexp.MustCompile(`^[0-9a-hjkmnp-tv-z]{10}$`)

func TestEveryDecisionHasItsOwnRef(t *testing.T) {
	c, _ := checker(t, build(t, block("a", "bad.example")), policy.Settings{})
	v, seen := askSender(c, "x@bad.example"), map[string]bool{}
	for range 1000 {
		ref := c.Recipient(v, "").Ref
		if seen[ref] {
			t.Fatalf("ref %s twice", ref)
		}
		seen[ref] = true
	}
}

var replyForm = regexp.MustCompile(`^(550 5\.7\.1|451 4\.7\.1) (<[ -;=?-~]*>: Sender address|Client address \[[0-9a-f.:]{2,39}\]) (rejected|deferred): ` +
	`listed in [ -~]{1,64} \(ref [0-9a-z]{10}\)$`)

func checkReply(t *testing.T, d policy.Decision) {
	t.Helper()
	if len(d.Reply.String()) > 120 || !replyForm.MatchString(d.Reply.String()) {
		t.Errorf("reply of %d octets: %q", len(d.Reply.String()), d.Reply.String())
	}
}

func TestReplyIsShortenedSenderFirst(t *testing.T) {
	long := "newsletter-bounces-and-more@customer.mailing-platform.example"
	tests := []struct{ list, sender, want string }{
		{"spam", "promo@bulk.example", "550 5.7.1 <promo@bulk.example>: Sender address rejected: listed in spam (ref REF)"},
		{"spam", long, "550 5.7.1 <newsletter-boun...ustomer.mailing-platform.example>: Sender address rejected: listed in spam (ref REF)"},
		{"a-list-whose-name-is-quite-long-indeed", "x@bulk.example",
			"550 5.7.1 <x@bulk.example>: Sender address rejected: listed in a-list-whose-name-is-quite-long-indeed (ref REF)"},
		{"a-list-whose-name-is-quite-long-indeed", long,
			"550 5.7.1 <newsletter...ling-platform.example>: Sender address rejected: listed in a-lis...-long-indeed (ref REF)"},
	}
	for _, tt := range tests {
		c, _ := checker(t, build(t, block(tt.list, "bulk.example\nmailing-platform.example")), policy.Settings{})
		d := c.Recipient(askSender(c, tt.sender), "bob@here.example")
		testkit.Equal(t, "reply", strings.Replace(d.Reply.String(), d.Ref, "REF", 1), tt.want)
	}
}

// FuzzReply holds the form of the reply against any sender that has matched.
func FuzzReply(f *testing.F) {
	f.Add("x@bad.example", "a", []byte{192, 0, 2, 1}, uint8(0))
	f.Add(`"a>b\\ \"c"@bad.example`, "two words", []byte{}, uint8(1))
	f.Add(strings.Repeat("ü", 200)+"@bad.example", strings.Repeat("é", 64), []byte("0123456789abcdef"), uint8(2))
	f.Add("x@"+strings.Repeat("d.", 120)+"bad.example", "\r\n250 ok", []byte("0123456789abcdef"), uint8(3))
	ix := build(f, block("a", "bad.example\n192.0.2.1"))
	plain, _ := checker(f, ix, policy.Settings{})
	matches := askEnvelope(plain, netip.MustParseAddr("192.0.2.1"), "x@bad.example").Matches
	f.Fuzz(func(t *testing.T, sender, list string, octets []byte, choice uint8) {
		a, err := addr.Parse(sender)
		if err != nil || list == "" {
			return
		}
		onMatch := []rule.OnMatch{"refuse", "tempfail", "quarantine", "tag"}[choice%4]
		c, _ := checker(t, ix, policy.Settings{Lists: map[string]rule.List{list: {OnMatch: onMatch}}})
		v := verdict.Verdict{Kind: verdict.Blocked, Sender: a, Matches: matches, Shadow: -1,
			Lists: []index.ListInfo{{Source: index.Source{List: list}}}}
		checkSaid(t, c.Recipient(v, "bob@here.example"))
		if got := askSender(c, sender); got.Decider >= 0 {
			checkSaid(t, c.Recipient(got, ""))
		}
		var ok bool
		if v.Client, ok = netip.AddrFromSlice(octets); ok {
			v.Decider = len(matches) - 1
			checkSaid(t, c.Recipient(v, "bob@here.example"))
		}
	})
}

var tagForm = regexp.MustCompile(`^list=[!-~]+ ref=[0-9a-z]{10}$`)

// checkSaid holds what a client or a header's reader is told to its form.
func checkSaid(t *testing.T, d policy.Decision) {
	t.Helper()
	switch d.Outcome {
	case policy.Refuse, policy.Defer:
		if checkReply(t, d); d.Tag != (reply.Tag{}) {
			t.Errorf("tag %q of a refusal", d.Tag)
		}
	case policy.Quarantine, policy.Mark:
		if d.Reply.String() != "" || !tagForm.MatchString(d.Tag.String()) || strings.Count(d.Tag.String(), "=") != 2 {
			t.Errorf("reply %q, tag %q", d.Reply.String(), d.Tag)
		}
	default:
		t.Errorf("outcome %d", d.Outcome)
	}
}

func TestAnswer(t *testing.T) {
	c, _ := checker(t, build(t, block("disposable", "sub.example REJECT Not <here> & now"), block("trial", "x@").shadow()), policy.Settings{})
	tests := []struct{ name, input, want string }{
		{"blocked", "X@Sub.Example", `{"input":"X@Sub.Example","sender":"x@sub.example","verdict":"blocked",` +
			`"matches":[{"list":"disposable","file":"FILE","line":1,"entry":"sub.example","kind":"domain","scope":"tree","action":"block","reason":"Not <here> & now"},` +
			`{"list":"trial","file":"FILE","line":1,"entry":"x@","kind":"addr","scope":"local","action":"block","reason":"","mode":"shadow"}],"generation":"GEN"}`},
		{"clear", "y@good.example", `{"input":"y@good.example","sender":"y@good.example","verdict":"clear","matches":[],"generation":"GEN"}`},
		{"null sender", "<>", `{"input":"<>","sender":"","verdict":"clear","matches":[],"generation":"GEN"}`},
		{"no sender", "what is this", `{"input":"what is this","sender":"","verdict":"unknown","matches":[],"generation":"GEN"}`},
	}
	files := regexp.MustCompile(`"file":"[^"]*"`)
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			var b strings.Builder
			e := json.NewEncoder(&b)
			e.SetEscapeHTML(false)
			v := askSender(c, tt.input)
			testkit.Must(t, e.Encode(v.Answer(tt.input)))
			got := files.ReplaceAllString(strings.TrimSpace(b.String()), `"file":"FILE"`)
			got = strings.Replace(got, v.Generation, "GEN", 1)
			testkit.Equal(t, fmt.Sprintf("Answer(%q)", tt.input), got, tt.want)
		})
	}
}

func TestExplain(t *testing.T) {
	c, _ := checker(t, build(t, block("a", "sub.example\nx@")), policy.Settings{})
	e := explain(c, policy.Question{Text: "x@a.sub.example"})
	got := fmt.Sprint(e.Keys, e.Decider, e.Shadow, " ", e.Reply)
	want := "[{x@a.sub.example addr    []} {x@ addr  perhaps listed [1]} {a.sub.example domain    []} " +
		"{sub.example domain  perhaps listed [0]} {example domain    []}] 0 -1 550 5.7.1 <x@a.sub.example>: Sender address rejected: listed in a (ref ID)"
	testkit.Equal(t, "Explain", got, want)
	if e := explain(c, policy.Question{Text: "no sender"}); e.Error == "" || e.Decider != -1 || len(e.Keys) != 0 {
		t.Errorf("of what is no sender: %+v", e)
	}
}

func TestExplainClientsPatternsAndDomains(t *testing.T) {
	c, _ := checker(t, build(t, block("a", "192.0.2.0/24\n192.0.2.7\npromo-*@*.example\n=bad.example")), policy.Settings{})
	tests := []struct {
		name string
		q    policy.Question
		want string // of the keys
	}{
		{"client and pattern", policy.Question{Text: "promo-1@shop.example", Client: netip.MustParseAddr("192.0.2.1")},
			"[{promo-1@shop.example addr    []} {promo-1@ addr    []} {shop.example domain  no  []} {example domain    []} " +
				"{192.0.2.1 ip  no  []} {192.0.2.0/24 cidr  perhaps listed [1]} {promo-*@*.example glob    [0]}]"},
		{"domain", policy.Question{About: policy.AboutDomain, Text: "bad.example"}, "[{bad.example domain  perhaps listed [0]} {example domain    []}]"},
		{"an entry that does not reach so far", policy.Question{About: policy.AboutDomain, Text: "mx.bad.example"},
			"[{mx.bad.example domain    []} {bad.example domain  perhaps listed []} {example domain    []}]"},
		{"nothing", policy.Question{}, "[]"},
	}
	for _, tt := range tests {
		testkit.Equal(t, fmt.Sprintf("%s: keys", tt.name), fmt.Sprint(explain(c, tt.q).Keys), tt.want)
	}
	// The generation that can say how the verdict came about is gone.
	var b policy.Batch
	v := c.AskAll(&b, []policy.Question{{About: policy.AboutDomain, Text: "bad.example"}})[0]
	b.Reset()
	if got, want := fmt.Sprint(b.Explain(&v).Keys), "[{bad.example domain    [0]} {example domain    []}]"; got != want {
		t.Errorf("after Reset: %s, want %s", got, want)
	}
}

func explain(c *policy.Checker, q policy.Question) policy.Explanation {
	var b policy.Batch
	v := c.AskAll(&b, []policy.Question{q})[0]
	return b.Explain(&v)
}

func TestLogLine(t *testing.T) {
	c, _ := checker(t, build(t, block("a", "bad.example REJECT Go away"), block("b", "odd.example").shadow()), policy.Settings{})
	tests := []struct{ sender, want string }{
		{"x@bad.example", `verdict=blocked list=a file=FILE line=1 entry=bad.example scope=tree action=block reason="Go away" generation=GEN`},
		{"x@odd.example", `verdict=clear list=b file=FILE line=1 entry=odd.example scope=tree action=block mode=shadow generation=GEN`},
		{"x@good.example", `verdict=clear generation=GEN`},
		{"no sender", `verdict=unknown error="\"no sender\": MESSAGE" generation=GEN`},
	}
	for _, tt := range tests {
		var b strings.Builder
		log := slog.New(slog.NewTextHandler(&b, &slog.HandlerOptions{ReplaceAttr: func(_ []string, a slog.Attr) slog.Attr {
			switch a.Key {
			case slog.TimeKey, slog.LevelKey, slog.MessageKey:
				return slog.Attr{}
			case "file":
				a.Value = slog.StringValue("FILE")
			case "generation":
				a.Value = slog.StringValue("GEN")
			case "error":
				a.Value = slog.StringValue(`"no sender": MESSAGE`)
			}
			return a
		}}))
		v := askSender(c, tt.sender)
		if !utf8.ValidString(v.Generation) || len(v.Generation) != 32 {
			t.Errorf("generation %q", v.Generation)
		}
		log.Info("decision", slog.GroupAttrs("", v.AppendLog(nil)...))
		testkit.Equal(t, fmt.Sprintf("log line of %s", tt.sender), strings.TrimSpace(b.String()), tt.want)
	}
}

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

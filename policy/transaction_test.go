package policy_test

import (
	"bytes"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"net/netip"
	"regexp"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"blockd/index"
	"blockd/internal/testkit"
	"blockd/mail/header"
	"blockd/policy"
	"blockd/policy/reply"
	"blockd/policy/rule"
	"blockd/policy/verdict"
	"blockd/records/history"
)

// The doors of these tests can do what those of blockd can.
var (
	relay   = &policy.Door{Name: "smtp", Log: quiet, Marks: true, Quarantines: true, Splits: true, SeesHeader: true, SeesMessage: true, Streams: true, Greets: true}
	mailer  = &policy.Door{Name: "milter", Log: quiet, Marks: true, Quarantines: true, Discards: true, SeesHeader: true, SeesMessage: true, Greets: true, PassesAtMail: true}
	old     = &policy.Door{Name: "milter", Log: quiet, Discards: true, Greets: true, PassesAtMail: true} // that can neither mark nor set aside
	service = &policy.Door{Name: "policy", Log: quiet, Marks: true, Quarantines: true, Holds: true}
	table   = &policy.Door{Name: "socketmap", Log: quiet, Marks: true, Quarantines: true, SendersOnly: true}

	quiet = slog.New(slog.DiscardHandler)
)

// letters are those of docs/agreement.md.
func letter(d policy.Decision) byte {
	switch {
	case d.AwaitsMessage:
		return '?'
	case d.Unreadable:
		return 'S'
	}
	return "ARDQTX2"[d.Outcome]
}

// recipients asks about some, each of which is taken if it can be, and shows the answers.
func recipients(x *policy.Transaction, names string) string {
	var b strings.Builder
	for to := range strings.FieldsSeq(names) {
		d := x.Recipient(to + "@here.example")
		if !d.Refuses() {
			x.Join(&d)
		}
		b.WriteByte(letter(d))
	}
	return b.String()
}

// TestSharing is the table of who can share a message, at each kind of door.
func TestSharing(t *testing.T) {
	p := newPost(t)
	ix := build(t, block("bad", "bad.example"), block("odd", "odd.example"), block("hold", "hold.example"), block("too", "odd.example\nhold.example"),
		block("gone", "gone.example DISCARD"), block("x", "x.example\n"), allow("signed", "x.example"), block("from", "from.example"))
	c, _ := checker(t, ix, policy.Settings{
		Auth: rule.Auth{Resolver: p.resolver}, RecipientsExempt: []string{"postmaster"},
		Lists: map[string]rule.List{"odd": {OnMatch: rule.Tag}, "hold": {OnMatch: rule.Quarantine}, "too": {OnMatch: rule.Quarantine},
			"gone": {Discard: true}, "signed": {Require: verdict.DKIMProof}, "from": {Match: sources(t, "from")}},
		Policies: []rule.Recipients{
			{Recipients: []string{"too@"}, Lists: []string{"too", "from"}}, {Recipients: []string{"free@"}},
		},
	})
	for _, tt := range []struct {
		name, sender, recipients           string
		relay, mailer, old, service, table string
	}{
		{"clear", "a@there.example", "bob carol postmaster bob", "AA2A", "AA2A", "P", "AAAA", "A"},
		{"refused, and who is excused", "a@bad.example", "bob postmaster free bob", "RAAR", "RAAR", "RAAR", "RAAR", "R"},
		{"tagged", "a@odd.example", "bob postmaster carol", "T2T", "T2T", "AAA", "T2T", "T"},
		{"tagged behind an exempt one", "a@odd.example", "postmaster bob free", "A2A", "A2A", "AAA", "A2A", "T"},
		{"tagged, and set aside for another", "a@odd.example", "bob too", "TQ", "T2", "AD", "T2", "T"},
		{"set aside, by two lists", "a@hold.example", "bob too postmaster", "QQ2", "Q22", "DDA", "QQ2", "Q"},
		{"discarded", "a@gone.example", "bob postmaster carol", "RAR", "X2X", "X2X", "RAR", "R"},
		{"what a message decides is for those alone who await it", "a@x.example", "bob postmaster bob free", "?2?2", "?2?2", "RARA", "RARA", "R"},
		{"and behind others", "a@x.example", "postmaster bob free", "A2A", "A2A", "ARA", "ARA", "R"},
	} {
		for _, door := range []struct {
			*policy.Door
			want string
		}{{relay, tt.relay}, {mailer, tt.mailer}, {old, tt.old}, {service, tt.service}, {table, tt.table}} {
			x := c.Begin(door.Door, policy.Client{Addr: netip.MustParseAddr("198.51.100.7")})
			for range 2 { // Reset leaves nothing behind
				got := ""
				if d := x.Mail(policy.Mail{Sender: tt.sender}); door.SendersOnly {
					got = string(letter(d))
				} else if d.Passed {
					got = "P"
				} else {
					got = recipients(x, tt.recipients)
				}
				testkit.Equal(t, fmt.Sprintf("%s: at %s (marks: %v)", tt.name, door.Name, door.Marks), got, door.want)
				x.Reset()
			}
		}
	}
}

// Who has left has settled nothing.
func TestWhoHasLeftSharesNothing(t *testing.T) {
	c, _ := checker(t, build(t, block("odd", "odd.example")), policy.Settings{RecipientsExempt: []string{"postmaster"},
		Lists: map[string]rule.List{"odd": {OnMatch: rule.Tag}}})
	x := c.Begin(relay, policy.Client{})
	x.Mail(policy.Mail{Sender: "a@odd.example"})
	if got := recipients(x, "bob"); got != "T" || x.Tag().List != "odd" {
		t.Fatalf("%s, marked %q", got, x.Tag())
	}
	x.Leave("bob@here.example")
	if got := recipients(x, "postmaster bob"); got != "A2" || x.Tag() != (reply.Tag{}) {
		t.Errorf("%s, marked %q; want the first that is left to settle it", got, x.Tag())
	}
}

// TestTheMessageDecides goes to the last word.
func TestTheMessageDecides(t *testing.T) {
	p := newPost(t)
	ix := build(t, block("x", "x.example\n"), allow("signed", "x.example"), block("from", "evil.example"), block("mark", "mark.example"), block("side", "side.example"))
	c, _ := checker(t, ix, policy.Settings{Auth: rule.Auth{Resolver: p.resolver}, RecipientsExempt: []string{"postmaster"},
		Lists: map[string]rule.List{"signed": {Require: verdict.DKIMProof, Match: sources(t, "envelope", "from")}, "x": {Match: sources(t, "envelope", "from")},
			"from": {Match: sources(t, "from")}, "mark": {Match: sources(t, "from"), OnMatch: rule.Tag}, "side": {Match: sources(t, "from"), OnMatch: rule.Quarantine}}})
	unreadable := reply.Reply{Code: 554, Enhanced: "5.6.0", Text: "too much"}
	for _, tt := range []struct {
		name, sender, recipient, from, signedBy string
		fault                                   reply.Reply
		relay, mailer                           string // at the end of the header and of the message; a code: refused so
	}{
		{"nothing in it", "a@there.example", "bob", "a@there.example", "", reply.Reply{}, "A A", "A A"},
		{"a listed author", "a@there.example", "bob", "a@evil.example", "", reply.Reply{}, "554", "550"},
		{"a listed author, to an exempt recipient", "a@there.example", "postmaster", "a@evil.example", "", reply.Reply{}, "A A", "A A"},
		{"an author that is marked", "a@there.example", "bob", "a@mark.example", "", reply.Reply{}, "T T", "T T"},
		{"an author that is set aside", "a@there.example", "bob", "a@side.example", "", reply.Reply{}, "Q Q", "Q Q"},
		{"a header that cannot be read", "a@there.example", "bob", "", "", unreadable, "554", "554"},
		{"a header that cannot be read, to an exempt recipient", "a@there.example", "postmaster", "", "", unreadable, "A A", "A A"},
		{"an author that may prove itself, and does", "a@there.example", "bob", "a@x.example", "x.example", reply.Reply{}, "? A", "? A"},
		{"an author that may prove itself, and does not", "a@there.example", "bob", "a@x.example", "", reply.Reply{}, "? 554", "? 554"},
		{"a sender that proves itself", "a@x.example", "bob", "a@x.example", "x.example", reply.Reply{}, "? A", "? A"},
		{"a sender that does not", "a@x.example", "bob", "a@x.example", "", reply.Reply{}, "? 554", "? 554"},
		{"to an exempt recipient it need not", "a@x.example", "postmaster", "a@x.example", "", reply.Reply{}, "A A", "A A"},
	} {
		for _, door := range []struct {
			*policy.Door
			want string
		}{{relay, tt.relay}, {mailer, tt.mailer}} {
			x := c.Begin(door.Door, policy.Client{Addr: netip.MustParseAddr("198.51.100.7")})
			x.Mail(policy.Mail{Sender: tt.sender})
			recipients(x, tt.recipient)
			got, word := "", func(d policy.Decision) string {
				if d.Refuses() {
					return d.Reply.String()[:3]
				}
				return string(letter(d))
			}
			d := x.Header([]header.Field{{Name: "From", Text: tt.from}}, tt.fault)
			if got = word(d); !d.Refuses() {
				if x.AwaitsMessage() != d.AwaitsMessage {
					t.Errorf("%s: AwaitsMessage is %v at the header's end, and %v later", tt.name, d.AwaitsMessage, x.AwaitsMessage())
				}
				testkit.Must(t, x.Examine(t.Context(), strings.NewReader(p.letter(t, tt.from, tt.signedBy))))
				got += " " + word(x.Message())
			}
			testkit.Equal(t, fmt.Sprintf("%s, at %s", tt.name, door.Name), got, door.want)
		}
	}
}

// TestOneGenerationATransaction: a list that changes changes nothing for a message that
// has begun, and neither for the addresses of its header.
func TestOneGenerationATransaction(t *testing.T) {
	set := policy.Settings{Lists: map[string]rule.List{"bad": {Match: sources(t, "envelope", "from")}}}
	ix, next := build(t, block("bad", "bad.example")), build(t, block("bad", "there.example\nfrom.example"))
	c := policy.New(func() *index.Index { return ix }, set, quiet, prometheus.NewRegistry())
	x := c.Begin(relay, policy.Client{})
	x.Mail(policy.Mail{Sender: "a@there.example"})
	ix = next
	testkit.Equal(t, "RCPT", recipients(x, "bob"), "A")
	if d := x.Header([]header.Field{{Name: "From", Text: "a@from.example"}}, reply.Reply{}); d.Refuses() {
		t.Errorf("header: %s", d.Reply)
	}
	x.Mail(policy.Mail{Sender: "a@there.example"})
	testkit.Equal(t, "the next message", recipients(x, "bob"), "R")
}

// TestTransactionAgreesWithModel asks in random worlds about each recipient by itself: two
// spellings of a sender are answered as the worse of them.
func TestTransactionAgreesWithModel(t *testing.T) {
	for seed := range uint64(60) {
		rng := rand.New(rand.NewPCG(seed, 3))
		var all []modelList
		var lists []list
		s := policy.Settings{Lists: map[string]rule.List{}}
		for i := range 1 + rng.IntN(4) {
			l := randomList(rng, string(rune('a'+i)))
			all, lists = append(all, l), append(lists, l.list)
			s.Lists[l.name] = l.rule
		}
		c, _ := checker(t, build(t, lists...), s)
		for range 40 {
			local, domain := []string{"x", "y", "z"}[rng.IntN(3)], append(modelDomains, "b.example")[rng.IntN(4)]
			client := []netip.Addr{{}, netip.MustParseAddr("192.0.2.1"), netip.MustParseAddr("203.0.113.1")}[rng.IntN(3)]
			for _, door := range []*policy.Door{relay, mailer, service} {
				x := c.Begin(door, policy.Client{Addr: client})
				want := modelOutcome(all, nil, local, domain, client, door.Discards)
				d := x.Mail(policy.Mail{Sender: local + "@" + domain})
				if !d.Passed {
					d = x.Recipient("bob@here.example")
				}
				if d.Outcome != want {
					t.Fatalf("seed %d: %s@%s from %v at %s: %s, model says %s; lists %s", seed, local, domain, client, door.Name, d.Outcome, want, shown(all))
				}
				if other := modelOutcome(all, nil, "y", "c.b.a.example", client, door.Discards); worse(other, want) {
					want = other
				}
				if d = x.Mail(policy.Mail{Sender: local + "@" + domain, Other: "y@c.b.a.example"}); !d.Passed {
					d = x.Recipient("bob@here.example")
				}
				if d.Outcome != want {
					t.Fatalf("seed %d: %s@%s or y@c.b.a.example from %v at %s: %s, model says %s; lists %s", seed, local, domain, client, door.Name, d.Outcome, want, shown(all))
				}
			}
		}
	}
}

func worse(a, b policy.Outcome) bool {
	order := []policy.Outcome{policy.Accept, policy.Mark, policy.Quarantine, policy.Discard, policy.Defer, policy.Refuse}
	place := func(o policy.Outcome) (at int) {
		for i := range order {
			if order[i] == o {
				at = i
			}
		}
		return at
	}
	return place(a) > place(b)
}

// A client in a trusted network, and one that has logged in where that is enough, is asked
// about no list of senders; at connect a door that greets has other codes.
func TestWhoTheClientIs(t *testing.T) {
	c, _ := checker(t, build(t, block("bad", "bad.example\n192.0.2.7")), policy.Settings{})
	skips := *relay
	skips.SkipAuthenticated = true
	clean, listed := netip.MustParseAddr("198.51.100.7"), netip.MustParseAddr("192.0.2.7")
	for _, tt := range []struct {
		door    *policy.Door
		client  policy.Client
		connect string
		rcpt    string
	}{
		{relay, policy.Client{Addr: clean}, "", "R"},
		{relay, policy.Client{Addr: clean, Authenticated: true}, "", "R"},
		{&skips, policy.Client{Addr: clean, Authenticated: true}, "", "A"},
		{&skips, policy.Client{Addr: listed, Authenticated: true}, "554", "R"},
		{relay, policy.Client{Addr: listed, Trusted: true}, "", "A"},
		{service, policy.Client{Addr: listed}, "550", "R"},
	} {
		x := c.Begin(tt.door, tt.client)
		connect := ""
		if d := x.Connect(); d.Refuses() {
			connect = d.Reply.String()[:3]
		}
		x.Mail(policy.Mail{Sender: "a@bad.example"})
		if rcpt := recipients(x, "bob"); connect != tt.connect || rcpt != tt.rcpt {
			t.Errorf("%+v: %q and %s, want %q and %s", tt.client, connect, rcpt, tt.connect, tt.rcpt)
		}
	}
}

// A clear sender costs no allocation, whatever the door.
func TestClearTransactionDoesNotAllocate(t *testing.T) {
	c, _ := checker(t, build(t, block("bad", "bad.example")), policy.Settings{RecipientsExempt: []string{"postmaster"}})
	for _, door := range []*policy.Door{relay, mailer, service, table} {
		x := c.Begin(door, policy.Client{Addr: netip.MustParseAddr("198.51.100.7"), Line: func() []slog.Attr { t.Error("a line is written"); return nil }})
		got := testing.AllocsPerRun(1000, func() {
			if d := x.Mail(policy.Mail{Sender: "alice@there.example", Written: "alice@there.example"}); !d.Passed && !door.SendersOnly {
				d = x.Recipient("bob@here.example")
				if !x.Shares(&d) || !x.Join(&d) || d.Outcome != policy.Accept {
					t.Error(d)
				}
			}
			x.Completed()
			x.Reset()
		})
		testkit.Equal(t, fmt.Sprintf("at %s: allocations", door.Name), got, 0)
	}
}

// The doors of one Checker write the same line about a decision, but for their own fields.
func TestAllDoorsWriteTheSameLine(t *testing.T) {
	var log bytes.Buffer
	c, _ := checker(t, build(t, block("bad", "bad.example"), allow("good", "good@bad.example")), policy.Settings{})
	own := regexp.MustCompile(`time=\S+ |door=\S+ | ref=\S+|\(ref \w+\)`)
	for _, sender := range []string{"a@bad.example", "good@bad.example", "x@bad.example@"} {
		lines := map[string]bool{}
		for _, door := range []*policy.Door{relay, mailer, old, service} {
			here := *door
			here.Log = slog.New(slog.NewTextHandler(&log, nil))
			x := c.Begin(&here, policy.Client{Addr: netip.MustParseAddr("198.51.100.7"), Helo: "mx.there.example"})
			x.Mail(policy.Mail{Sender: sender, Written: sender})
			recipients(x, "bob")
			lines[own.ReplaceAllString(log.String(), "")] = true
			log.Reset()
		}
		if len(lines) != 1 || lines[""] {
			t.Errorf("%s: %v", sender, lines)
		}
	}
}

// A recipient to which the door says something else than its decision has a line all the same.
func TestUnjoinedRecipientHasALine(t *testing.T) {
	var log bytes.Buffer
	door := *relay
	door.Log = slog.New(slog.NewTextHandler(&log, nil))
	c, _ := checker(t, build(t, block("bad", "bad.example"), block("odd", "odd.example"), block("trial", "192.0.2.0/24").shadow()), policy.Settings{
		RecipientsExempt: []string{"postmaster"}, Lists: map[string]rule.List{"odd": {OnMatch: rule.Tag}}})
	x := c.Begin(&door, policy.Client{Addr: netip.MustParseAddr("192.0.2.1")})
	for _, tt := range []struct {
		sender, recipient string
		join              bool
		want              string
	}{
		{"a@odd.example", "bob@here.example", false, "recipient put off"},
		{"a@odd.example", "bob@here.example", true, "sender tagged"},
		{"a@bad.example", "postmaster@here.example", false, "recipient put off"},
		{"a@bad.example", "bob@here.example", false, "sender blocked"},
		{"a@odd.example", "", false, ""},
		{"a b@@", "bob@here.example", false, "sender would be blocked"},
	} {
		log.Reset()
		x.Mail(policy.Mail{Sender: tt.sender, Written: tt.sender})
		if d := x.Recipient(tt.recipient); tt.join {
			x.Join(&d)
		}
		x.Reset()
		got := log.String()
		if n := strings.Count(got, "\n"); n != bit(tt.want != "") || !strings.Contains(got, tt.want) {
			t.Errorf("%s to %q, joined %v: %q, want one line %q", tt.sender, tt.recipient, tt.join, got, tt.want)
		}
	}
}

func bit(b bool) int {
	if b {
		return 1
	}
	return 0
}

// At MAIL a door that cannot set aside goes on: postmaster is still to be reached, and others
// hear of it themselves.
func TestAtMailNothingIsPutOff(t *testing.T) {
	c, _ := checker(t, build(t, block("hold", "hold.example")), policy.Settings{RecipientsExempt: []string{"postmaster"},
		Lists: map[string]rule.List{"hold": {OnMatch: rule.Quarantine}}})
	x := c.Begin(old, policy.Client{})
	x.Mail(policy.Mail{Sender: "a@hold.example"})
	if d := x.Recipient(""); d.Refuses() {
		t.Errorf("MAIL: %s", d.Reply)
	}
	testkit.Equal(t, "postmaster", x.Recipient("postmaster@here.example").Outcome, policy.Accept)
	testkit.Equal(t, "bob", x.Recipient("bob@here.example").Outcome, policy.Defer)
}

// A recipient has one line, and the history one record, whatever becomes of it.
func TestOneLineARecipient(t *testing.T) {
	var log bytes.Buffer
	var kept []history.Record
	door := *relay
	door.Log = slog.New(slog.NewTextHandler(&log, nil))
	c, _ := checker(t, build(t, block("bad", "bad.example"), block("odd", "odd.example")), policy.Settings{RecipientsExempt: []string{"postmaster"},
		Lists: map[string]rule.List{"odd": {OnMatch: rule.Tag}}, Decided: func(r history.Record) { kept = append(kept, r) }})
	x := c.Begin(&door, policy.Client{Helo: "mx.there.example", Line: func() []slog.Attr { return []slog.Attr{slog.String("session", "s1")} }})
	for sender, want := range map[string]string{
		"a@clear.example": "",
		"a@bad.example":   "sender blocked, recipient exempt, sender blocked",
		"a@odd.example":   "sender tagged, recipient put off, sender tagged",
	} {
		x.Mail(policy.Mail{Sender: sender, Written: sender})
		recipients(x, "bob postmaster bob")
		var events []string
		for line := range strings.Lines(log.String()) {
			_, rest, _ := strings.Cut(line, `msg="`)
			event, rest, _ := strings.Cut(rest, `"`)
			events = append(events, event)
			testkit.Has(t, rest, " door=smtp client=unknown helo=mx.there.example session=s1 ref=", " sender="+sender+" recipient=")
		}
		if got := strings.Join(events, ", "); got != want || len(kept) != 3 {
			t.Errorf("%s: %d records, lines %s; want 3 and %s", sender, len(kept), got, want)
		}
		log.Reset()
		kept = nil
	}
}

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
		testkit.Equal(t, tt.name, c.Needs().Message, tt.want)
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

func TestToldRemembersTenASecond(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var records []history.Record
		c, _ := checker(t, build(t, block("spam", "*.bulk.example\n")), policy.Settings{Decided: func(r history.Record) { records = append(records, r) }})
		told := c.Told("dns")
		v := askDomain(c, "a.bulk.example")
		for range 25 {
			told.Listed(&v)
		}
		time.Sleep(time.Second)
		for range 25 {
			told.Listed(&v)
		}
		testkit.MustEqual(t, "records of two seconds", len(records), 20)
		r := records[0]
		if r.Door != "dns" || r.Outcome != "listed" || r.Sender != "a.bulk.example" || r.List != "spam" || r.Line != 1 || r.Ref != "" {
			t.Errorf("record: %+v", r)
		}
	})
}

func TestQuestionAboutSomeLists(t *testing.T) {
	c, _ := checker(t, build(t, block("spam", "bulk.example\n"), block("ads", "ads.example\n"), allow("good", "good@bulk.example\n")), policy.Settings{})
	var b policy.Batch
	for _, row := range []struct {
		text  string
		lists map[string]bool
		want  string
	}{
		{"a@bulk.example", nil, "blocked"},
		{"a@bulk.example", map[string]bool{"spam": true}, "blocked"},
		{"a@bulk.example", map[string]bool{"ads": true}, "clear"},
		{"a@bulk.example", map[string]bool{}, "clear"},
		{"good@bulk.example", map[string]bool{"spam": true}, "blocked"},
		{"good@bulk.example", map[string]bool{"spam": true, "good": true}, "allowed"},
		{"a@ads.example", map[string]bool{"ads": true, "spam": true}, "blocked"},
	} {
		q := policy.Question{Text: row.text, Lists: row.lists}
		if v := c.Ask(q); string(v.Kind) != row.want {
			t.Errorf("Ask(%+v) = %s, want %s", q, v.Kind, row.want)
		}
		if v := c.AskAll(&b, []policy.Question{q})[0]; string(v.Kind) != row.want {
			t.Errorf("AskAll(%+v) = %s, want %s", q, v.Kind, row.want)
		}
	}
}

// TestUnsettled: recipients with the same open facts share one answer to the end of a message.
func TestUnsettled(t *testing.T) {
	p := newPost(t)
	c, _ := checker(t, build(t, block("bad", "x.example"), block("worse", "a@x.example"), allow("exempt", "x.example")), policy.Settings{
		Auth: rule.Auth{Resolver: p.resolver}, RecipientsExempt: []string{"postmaster"},
		Lists: map[string]rule.List{"exempt": {Require: verdict.DKIMProof | verdict.SPFProof}, "worse": {OnMatch: rule.Tempfail}},
		Policies: []rule.Recipients{
			{Recipients: []string{"sales@"}, Lists: []string{"bad", "exempt"}},
			{Recipients: []string{"plain@"}, Lists: []string{"bad"}},
			{Recipients: []string{"free@"}},
		},
	})
	v := askSender(c, "a@x.example")
	if !c.Asks(v, "bob@here.example") || c.Asks(v, "postmaster@here.example") || c.Asks(v, "plain@here.example") {
		t.Error("Asks: want SPF to be asked for bob, and for nobody whom it cannot help")
	}
	v = c.ProveOrigin(t.Context(), v, "bob@here.example", policy.Origin{}) // of an unknown client
	if c.Asks(v, "bob@here.example") {
		t.Error("Asks: SPF was asked")
	}
	bob := c.Unsettled(v, "bob@here.example")
	if bob == (policy.Unsettled{}) || bob.Otherwise != policy.Defer {
		t.Errorf("Unsettled of bob = %+v, want one that ends in a 451", bob)
	}
	if eve := c.Unsettled(v, "eve@here.example"); eve != bob {
		t.Errorf("Unsettled of eve = %+v, and of bob %+v", eve, bob)
	}
	if sales := c.Unsettled(v, "sales@here.example"); sales == bob || sales.Otherwise != policy.Refuse {
		t.Errorf("Unsettled of sales, blocked by another entry = %+v", sales)
	}
	for _, known := range []string{"postmaster@here.example", "plain@here.example", "free@here.example"} {
		if s := c.Unsettled(v, known); s != (policy.Unsettled{}) {
			t.Errorf("Unsettled of %s = %+v, want none: the answer is known", known, s)
		}
	}
	if s := c.Unsettled(askSender(c, "a@clear.example"), "bob@here.example"); s != (policy.Unsettled{}) {
		t.Errorf("Unsettled of a clear sender = %+v", s)
	}
}

// What has begun goes on by the Settings that it began with; the next message of the same client goes by new ones.
func TestRenewedSettingsBeginWithTheNextMessage(t *testing.T) {
	c, _ := checker(t, build(t, list{name: "spam", text: "bad.example\n"}), policy.Settings{})
	tx := c.Begin(&policy.Door{Marks: true, Log: slog.New(slog.DiscardHandler)}, policy.Client{})
	mail := policy.Mail{Sender: "a@bad.example"}
	tx.Mail(mail)
	c.Renew(policy.Settings{RecipientsExempt: []string{"desk"}, Policies: []rule.Recipients{{Recipients: []string{"vip@here.example"}, Lists: []string{}}}})
	if d := tx.Recipient("desk@here.example"); !d.Refuses() {
		t.Error("an open message follows new settings", d.Outcome)
	}
	if tx.Exempts("desk@here.example") {
		t.Error("an open message has new exempt recipients")
	}
	tx.Mail(mail)
	if d := tx.Recipient("desk@here.example"); d.Refuses() {
		t.Error("the next message goes by settings of before", d.Outcome)
	}
	if !tx.Exempts("desk@here.example") {
		t.Error("the next message has the exempt recipients of before")
	}
}

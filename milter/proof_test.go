package milter_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/emersion/go-msgauth/dkim"

	"blockd/internal/testkit"
	"blockd/internal/testkit/nameserver"
	"blockd/internal/testkit/sealed"
	"blockd/mail/msgauth"
	"blockd/milter"
	"blockd/policy/rule"
	"blockd/policy/verdict"
)

const ours, other = "192.0.2.7", "198.51.100.7" // clients for which SPF of x.example passes, and fails

// proving returns a door whose list "allow" needs proof, and a DNS server that has it.
func proving(t testing.TB, require verdict.Proof, s setup) (*door, *sealed.Post) {
	t.Helper()
	p := sealed.NewPost(t, nameserver.Zone{"TXT silent.x.example": {"!SERVFAIL"}})
	r := testkit.Value(msgauth.NewResolver(msgauth.Settings{Server: p.Address}))(t)
	s.policy.Auth.Resolver = r
	if s.lists == nil {
		s.lists = map[string]string{"bad": "x.example\n", "allow": "x.example\n"}
	}
	if s.rules == nil {
		s.rules = map[string]rule.List{}
	}
	own := s.rules["allow"]
	own.Require = require
	s.rules["allow"] = own
	return open(t, s), p
}

// letter sends a message as Postfix does, and returns the answer to its end.
func (m *mta) letter(text string) (changes []string, answer string) {
	m.t.Helper()
	head, body, _ := strings.Cut(text, "\r\n\r\n")
	header := fields(head)
	for i, field := range header {
		name, value, _ := strings.Cut(field, ":")
		if m.protocol>>20&1 == 0 {
			value = strings.TrimPrefix(value, " ")
		}
		header[i] = name + "\x00" + strings.ReplaceAll(value, "\r\n", "\n") + "\x00"
	}
	return m.message(header, body)
}

// fields are the fields of a header, each with its folds.
func fields(header string) (all []string) {
	for line := range strings.SplitSeq(header, "\r\n") {
		if len(all) > 0 && (line[0] == ' ' || line[0] == '\t') {
			all[len(all)-1] += "\r\n" + line
		} else {
			all = append(all, line)
		}
	}
	return all
}

// at sends one message of a@x.example to bob. It returns the answers at RCPT and, "" without
// one, at its end.
func (d *door) at(client, sender, text string) (rcpt, end string) {
	d.t.Helper()
	m := d.greet(client)
	testkit.MustEqual(d.t, "MAIL", m.mail(sender, sender), "c")
	if rcpt = m.rcpt("bob@here.example"); rcpt == "c" {
		_, end = m.letter(text)
	}
	return rcpt, end
}

func TestProofInTheMessage(t *testing.T) {
	d, p := proving(t, verdict.SPFProof|verdict.DKIMProof, setup{settings: milter.Settings{MaxCopy: 300 << 10}})
	plain := sealed.Letter("a@x.example")
	folded := strings.Replace(plain, "Subject: hello\r\n", "Subject:  a\r\n\tfolded\r\n   one \r\nX-Empty:\r\nX-None:no blank\r\n", 1)
	large := plain + strings.Repeat("A line of some length, as there are many.\r\n", 7000) // 290 KiB
	relaxed := func(o *dkim.SignOptions) {
		o.HeaderCanonicalization, o.BodyCanonicalization = dkim.CanonicalizationRelaxed, dkim.CanonicalizationRelaxed
	}
	const refused = "554 5.7.1 <a@x.example>: Sender address rejected: listed in bad (ref "
	sign := func(text, domain string) string { return p.Sign(t, text, domain, sealed.Ed25519, nil) }
	for _, tt := range []struct{ name, text, want string }{
		{"simple", sign(plain, "x.example"), "a"},
		{"folded fields", sign(folded, "x.example"), "a"},
		{"folded fields, relaxed, RSA", p.Sign(t, folded, "x.example", sealed.RSA, relaxed), "a"},
		{"large", sign(large, "x.example"), "a"},
		{"larger than a copy may be", sign(large+strings.Repeat("x\r\n", 10_000), "x.example"), refused},
		{"without a body", sign(strings.TrimSuffix(plain, "Text.\r\n"), "x.example"), "a"},
		{"empty lines at the end", sign(plain+"\r\n\r\n", "x.example"), "a"},
		{"no signature", plain, refused},
		{"signature over another body", sign(plain, "x.example") + "More.\r\n", refused},
		{"signature of another domain", sign(plain, "evil.example"), refused},
		{"From of another domain", sign(sealed.Letter("a@evil.example"), "evil.example"), refused},
		{"a header beyond our bound", strings.TrimSuffix(sign(plain, "x.example"), "\r\n\r\nText.\r\n") + "\r\nX-Long: " + strings.Repeat("x", 60_000) + strings.Repeat("\r\nX-Long: "+strings.Repeat("y", 60_000), 4) + "\r\n\r\nText.\r\n", "451 4.4.3 "},
	} {
		t.Run(tt.name, func(t *testing.T) {
			rcpt, end := d.at(other, "a@x.example", tt.text)
			if rcpt != "c" || !strings.HasPrefix(end, tt.want) {
				t.Errorf("RCPT %q, end %q, want %q", rcpt, end, tt.want)
			}
		})
	}
	testkit.Equal(t, "messages accepted", d.metric("blockd_milter_messages_total", "accepted"), 6)
	testkit.Equal(t, "messages refused", d.metric("blockd_milter_messages_total", "refused"), 5)
}

// The list decides what happens to a message that proves nothing.
func TestTentativeMessageOfOtherActions(t *testing.T) {
	lists := map[string]string{"bad": "x.example\n", "allow": "x.example\n"}
	for action, want := range map[rule.OnMatch]string{rule.Tag: "a", rule.Quarantine: "a", rule.Tempfail: "451 4.7.1 "} {
		d, p := proving(t, verdict.DKIMProof, setup{lists: lists, rules: map[string]rule.List{"bad": {OnMatch: action}}})
		for _, signed := range []bool{true, false} {
			text, want, changed := sealed.Letter("a@x.example"), want, 1
			if signed {
				text, want, changed = p.Sign(t, text, "x.example", sealed.Ed25519, nil), "a", 0
			}
			m := d.greet(other)
			m.mail("a@x.example", "a@x.example")
			m.rcpt("bob@here.example")
			changes, end := m.letter(text)
			if want != "a" {
				changed = 0
			}
			if len(changes) > 0 && changes[0] == "p" {
				changes = changes[1:]
			}
			if !strings.HasPrefix(end, want) || len(changes) != changed {
				t.Errorf("%s, signed %v: %q %q, want %q and %d changes", action, signed, changes, end, want, changed)
			}
			if action == rule.Tag && !signed && !strings.Contains(changes[0], "X-Blockd\x00 list=bad ref=") {
				t.Errorf("tag %q, want a blank behind the colon, which the mail server does not add", changes[0])
			}
		}
	}
}

// A mail server that connected before a list needed messages is not asked for them, and the
// block stands. Its next connection is asked.
func TestListThatBeginsToNeedMessages(t *testing.T) {
	lists := map[string]string{"bad": "x.example\n"}
	d, p := proving(t, 0, setup{lists: lists})
	early := d.greet(other)
	if early.protocol>>4&1 == 0 {
		t.Error("bodies are asked for, and nothing needs them")
	}
	lists["friends"] = "welcomelist_auth *@x.example\n"
	d.swap(build(t, lists))
	early.mail("a@x.example", "a@x.example")
	early.refuses("a connection of before")
	if rcpt, end := d.at(other, "a@x.example", p.Sign(t, sealed.Letter("a@x.example"), "x.example", sealed.RSA, nil)); rcpt != "c" || end != "a" {
		t.Errorf("a connection of now: %q, %q", rcpt, end)
	}
}

func TestTooManyRecipientsAwait(t *testing.T) {
	d, _ := proving(t, verdict.DKIMProof, setup{})
	m := d.greet(other)
	m.mail("a@x.example", "a@x.example")
	for i := range 1000 {
		testkit.MustEqual(t, fmt.Sprintf("recipient %d", i), m.rcpt(fmt.Sprintf("u%d@here.example", i)), "c")
	}
	testkit.Begins(t, "one too many", m.rcpt("one@here.example"), "452 ")
}

// If a mail server leaves out the header, its message proves nothing.
func TestMessageWithoutHeaderProvesNothing(t *testing.T) {
	d, _ := proving(t, verdict.DKIMProof, setup{})
	m := d.greet(other)
	m.mail("a@x.example", "a@x.example")
	m.rcpt("bob@here.example")
	m.send('E', "")
	for {
		command, data, ok := m.receive()
		if ok && command == 'p' {
			continue
		}
		if command != 'y' || !strings.HasPrefix(data, "554 ") {
			t.Errorf("end: %q %q, want 554", command, data)
		}
		break
	}
	testkit.Equal(t, "panics", d.metric("blockd_milter_panics_total"), 0)
}

// Fields that carry our name are removed from every message, from any sender, and however the
// name is written. Other fields stay.
func TestForgedResultsAreTakenOut(t *testing.T) {
	d, p := proving(t, verdict.DKIMProof, setup{settings: milter.Settings{Results: "mx.here.example"}})
	m := d.greet(other)
	fields := strings.Join([]string{
		"Authentication-Results: mx.here.example; dkim=pass header.d=paypal.com",
		"Authentication-Results: mx.elsewhere.example; spf=pass",
		"AUTHENTICATION-RESULTS: (a comment) MX.Here.Example. 1; spf=pass",
		"Subject: x",
		"Authentication-Results: \"mx.here.example\"; none",
		"Authentication-Results: mx.else.example; x=y (mx.here.example; spf=pass)",
		"Authentication-Results: mx.here.(in)example; none",
		"Authentication-Results: (never closed mx.here.example; spf=pass",
	}, "\r\n") + "\r\n\r\nText.\r\n"
	for _, sender := range []string{"a@there.example", ""} {
		testkit.Equal(t, "MAIL of a clear sender whose header has to be seen", m.mail(sender, sender), "c")
		testkit.Equal(t, "RCPT", m.rcpt("bob@here.example"), "c")
		changes, end := m.letter(fields)
		places := ""
		for _, c := range changes {
			if !strings.HasPrefix(c, "m\x00\x00\x00") || !strings.HasSuffix(c, "Authentication-Results\x00\x00") {
				t.Errorf("change %q", c)
				continue
			}
			places += string('0' + c[4])
		}
		if end != "a" || places != wantPlaces {
			t.Errorf("end %q, taken out: %q, want %q, from the last up", end, places, wantPlaces)
		}
	}
	m.mail("a@there.example", "a@there.example")
	m.rcpt("bob@here.example")
	m.event('L', "Subject\x00 x\x00")
	testkit.Equal(t, "a message with nothing to take out: at the end of its header", m.event('N', ""), "a")
	testkit.Equal(t, fmt.Sprintf("queries of ordinary mail: %v", p.Asked()), p.Count(), 0)
	testkit.Equal(t, "counted", d.metric("blockd_milter_forged_results_total"), 2*float64(len(wantPlaces)))
}

// Of seven fields of this kind, these carry our name: the first, the third with its comment,
// the fourth in quotes, the sixth, and the last, which has no end.
const wantPlaces = "76431"

func TestResultsAreWritten(t *testing.T) {
	d, p := proving(t, verdict.SPFProof|verdict.DKIMProof, setup{settings: milter.Settings{Results: "mx.here.example"}})
	send := func(client, text string) (changes []string, end string) {
		t.Helper()
		m := d.greet(client)
		m.mail("a@x.example", "a@x.example")
		m.rcpt("bob@here.example")
		changes, end = m.letter(text)
		return slices.DeleteFunc(changes, func(c string) bool { return c == "p" }), end
	}
	field := func(text string) string {
		return "i\x00\x00\x00\x00Authentication-Results\x00 mx.here.example" + text + "\x00"
	}

	changes, end := send(ours, "Authentication-Results: mx.here.example; forged=1\r\n"+sealed.Letter("a@x.example"))
	want := []string{"m\x00\x00\x00\x01Authentication-Results\x00\x00", field(";\n\tspf=pass smtp.mailfrom=a@x.example")}
	if end != "a" || !slices.Equal(changes, want) {
		t.Errorf("SPF: %q %q, want %q", changes, end, want)
	}
	changes, end = send(other, p.Sign(t, sealed.Letter("a@x.example"), "x.example", sealed.Ed25519, nil))
	want = []string{field(";\n\tspf=fail smtp.mailfrom=a@x.example;\n\tdkim=pass header.d=x.example header.s=s1 header.a=ed25519-sha256")}
	if end != "a" || !slices.Equal(changes, want) {
		t.Errorf("a signature: %q %q, want %q", changes, end, want)
	}
	if changes, end = send(other, sealed.Letter("a@x.example")); !strings.HasPrefix(end, "554 ") || len(changes) != 0 {
		t.Errorf("a refused message: %q %q", changes, end)
	}
}

func TestTooManyForgedResults(t *testing.T) {
	d, _ := proving(t, verdict.DKIMProof, setup{settings: milter.Settings{Results: "mx.here.example"}})
	m := d.greet(other)
	m.mail("a@there.example", "a@there.example")
	m.rcpt("bob@here.example")
	if _, end := m.letter(strings.Repeat("Authentication-Results: mx.here.example; none\r\n", 101) + "\r\n"); !strings.HasPrefix(end, "550 5.6.0 ") {
		t.Errorf("end %q, want 550", end)
	}
}

// A mail server that allows no change of headers gets neither.
func TestResultsWhereHeadersCannotBeChanged(t *testing.T) {
	d, _ := proving(t, verdict.DKIMProof, setup{settings: milter.Settings{Results: "mx.here.example"}})
	m := d.dial()
	m.negotiate(6, offeredActions&^0x10, offeredProtocol)
	m.connect(other)
	m.event('H', "client.there.example\x00")
	testkit.Equal(t, "MAIL", m.mail("a@there.example", "a@there.example"), "a")
}

package milter_test

import (
	"fmt"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/emersion/go-msgauth/dkim"

	"blockd/internal/testkit/nameserver"
	"blockd/internal/testkit/sealed"
	"blockd/mail/msgauth"
	"blockd/milter"
	"blockd/policy"
	"blockd/policy/rule"
	"blockd/policy/verdict"
)

const ours, other = "192.0.2.7", "198.51.100.7" // clients for which SPF of x.example passes, and fails

// proving returns a door whose list "allow" needs proof, and a DNS server that has it.
func proving(t testing.TB, require verdict.Proof, s setup) (*door, *sealed.Post) {
	t.Helper()
	p := sealed.NewPost(t, nameserver.Zone{"TXT silent.x.example": {"!SERVFAIL"}})
	r, err := msgauth.NewResolver(msgauth.Settings{Server: p.Address})
	if err != nil {
		t.Fatal(err)
	}
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
	m.event('T', "")
	header, body, _ := strings.Cut(text, "\r\n\r\n")
	for _, field := range fields(header) {
		name, value, _ := strings.Cut(field, ":")
		if m.protocol>>20&1 == 0 {
			value = strings.TrimPrefix(value, " ")
		}
		if got := m.event('L', name+"\x00"+strings.ReplaceAll(value, "\r\n", "\n")+"\x00"); got != "" && got != "c" {
			return nil, got
		}
	}
	if got := m.event('N', ""); got != "c" {
		return nil, got
	}
	for len(body) > 0 {
		n := min(len(body), 65535)
		m.event('B', body[:n])
		body = body[n:]
	}
	m.send('E', "")
	for {
		command, data, ok := m.receive()
		switch {
		case !ok:
			m.t.Fatal("no answer to the end of the message")
		case command == 'y':
			return changes, strings.TrimSuffix(data, "\x00")
		case strings.ContainsRune("acdrt", rune(command)):
			return changes, string(command)
		}
		changes = append(changes, string(command)+data)
	}
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
	if got := m.mail(sender, sender); got != "c" {
		d.t.Fatalf("MAIL = %q", got)
	}
	if rcpt = m.rcpt("bob@here.example"); rcpt == "c" {
		_, end = m.letter(text)
	}
	return rcpt, end
}

func TestProofBeforeTheMessage(t *testing.T) {
	const form = `^550 5\.7\.1 <[^>]*>: Sender address rejected: listed in bad \(ref \w{10}\)$`
	d, p := proving(t, verdict.SPFProof|verdict.AuthProof, setup{})
	for range 3 { // recipients
		m := d.greet(ours)
		m.mail("a@x.example", "a@x.example")
		for range 3 {
			if got := m.rcpt("bob@here.example"); got != "c" {
				t.Errorf("SPF: %q", got)
			}
		}
		if got := m.event('N', ""); got != "" && got != "a" {
			t.Errorf("end of header: %q", got)
		}
	}
	m := d.greet(other)
	m.mail("a@x.example", "a@x.example")
	for range 2 {
		if got := m.rcpt("bob@here.example"); !regexp.MustCompile(form).MatchString(got) {
			t.Errorf("SPF of another client: %q", got)
		}
	}
	m.mail("a@x.example", "a@x.example", "{auth_authen}", "ann")
	if got := m.rcpt("bob@here.example"); got != "c" {
		t.Errorf("logged in: %q", got)
	}
	if p.Count() != 1 {
		t.Errorf("queries: %v, want one: the answer is remembered", p.Asked())
	}
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
		{"second From on top", "From: a@evil.example\r\n" + sign(plain, "x.example"), refused},
		{"d= in capitals", sign(plain, "X.Example"), "a"},
		{"expired", p.Sign(t, plain, "x.example", sealed.Ed25519, func(o *dkim.SignOptions) { o.Expiration = time.Now().Add(-time.Hour) }), refused},
		{"the good signature behind five others", strings.Repeat("DKIM-Signature: v=1; a=ed25519-sha256; d=x.example; s=s9; h=From; bh=AA==; b=AA==\r\n", 5) + sign(plain, "x.example"), refused},
		{"the good signature on top of fifty others", onTop(sign(plain, "x.example"), strings.Repeat("DKIM-Signature: v=1; a=ed25519-sha256; d=x.example; s=s9; h=From; bh=AA==; b=AA==\r\n", 50)), "a"},
		{"a header without end", strings.TrimSuffix(sign(plain, "x.example"), "\r\n\r\nText.\r\n") + "\r\nX-Long: " + strings.Repeat("x", 60_000) + strings.Repeat("\r\nX-Long: "+strings.Repeat("y", 60_000), 4) + "\r\n\r\nText.\r\n", refused},
		{"From with two addresses", sign(sealed.Letter("a@x.example, b@evil.example"), "x.example"), refused},
	} {
		t.Run(tt.name, func(t *testing.T) {
			rcpt, end := d.at(other, "a@x.example", tt.text)
			if rcpt != "c" || !strings.HasPrefix(end, tt.want) {
				t.Errorf("RCPT %q, end %q, want %q", rcpt, end, tt.want)
			}
		})
	}
	if got := d.metric("blockd_milter_messages_total", "accepted"); got != 8 {
		t.Errorf("messages accepted: %v, want 8", got)
	}
	if got := d.metric("blockd_milter_messages_total", "refused"); got != 10 {
		t.Errorf("messages refused: %v, want 10", got)
	}
}

// onTop inserts fields after the first field of a message.
func onTop(text, more string) string {
	first := len(fields(text[:strings.Index(text, "\r\n\r\n")])[0]) + 2
	return text[:first] + more + text[first:]
}

func TestAllowIfAuth(t *testing.T) {
	d, p := proving(t, 0, setup{lists: map[string]string{"bad": "x.example\n", "friends": "welcomelist_auth *@x.example\n"}})
	if rcpt, end := d.at(ours, "a@x.example", sealed.Letter("a@x.example")); rcpt != "c" || end != "a" {
		t.Errorf("by SPF: %q, %q", rcpt, end)
	}
	if rcpt, end := d.at(ours, "a@x.example", sealed.Letter("a@evil.example")); rcpt != "c" || !strings.HasPrefix(end, "554 ") {
		t.Errorf("From of another domain: %q, %q", rcpt, end)
	}
	if rcpt, end := d.at(other, "a@x.example", p.Sign(t, sealed.Letter("a@x.example"), "x.example", sealed.Ed25519, nil)); rcpt != "c" || end != "a" {
		t.Errorf("by a signature: %q, %q", rcpt, end)
	}
}

// The first recipient decides which others may share its message.
func TestRecipientsOfATentativeMessage(t *testing.T) {
	const again = "452 4.5.3 "
	d, p := proving(t, verdict.DKIMProof, setup{policies: []rule.Recipients{
		{Recipients: []string{"trap@here.example"}, Lists: []string{"bad"}}, {Recipients: []string{"vip@here.example"}},
	}})
	m := d.greet(other)
	step := func(recipient, want string) {
		t.Helper()
		if got := m.rcpt(recipient); !strings.HasPrefix(got, want) {
			t.Errorf("%s: %q, want %q", recipient, got, want)
		}
	}
	m.mail("a@x.example", "a@x.example")
	step("trap@here.example", "550 ") // no exception counts for it
	step("bob@here.example", "c")
	step("postmaster@here.example", again)
	step("vip@here.example", again)
	step("ann@here.example", "c")
	if _, end := m.letter(p.Sign(t, sealed.Letter("a@x.example"), "x.example", sealed.Ed25519, nil)); end != "a" {
		t.Errorf("end: %q", end)
	}
	m.mail("a@x.example", "a@x.example")
	step("postmaster@here.example", "c")
	step("vip@here.example", "c")
	step("bob@here.example", again)
	if _, end := m.letter(sealed.Letter("a@x.example")); end != "a" {
		t.Errorf("exempt recipients: %q", end)
	}
	if n := p.Count(); n != 1 {
		t.Errorf("%d queries: %v, want one for the message that was looked at", n, p.Asked())
	}
	if log := d.log.String(); strings.Count(log, `msg="sender allowed"`) != 2 || !strings.Contains(log, "proof=dkim") {
		t.Errorf("want the two recipients in the log as allowed by their proof")
	}
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

// Proof can also excuse a blocked address in the header.
func TestProofForTheHeader(t *testing.T) {
	match, err := verdict.ParseSources([]string{"from"})
	if err != nil {
		t.Fatal(err)
	}
	d, p := proving(t, verdict.DKIMProof, setup{rules: map[string]rule.List{"bad": {Match: match}, "allow": {Match: match}}})
	signed := p.Sign(t, sealed.Letter("a@x.example"), "x.example", sealed.Ed25519, nil)
	for text, want := range map[string]string{
		signed: "a", sealed.Letter("a@x.example"): "554 5.7.1 <a@x.example>: From address rejected: listed in bad (ref ",
		sealed.Letter("a@there.example"): "a",
	} {
		if rcpt, end := d.at(other, "a@there.example", text); rcpt != "c" || !strings.HasPrefix(end, want) {
			t.Errorf("RCPT %q, end %q, want %q of\n%s", rcpt, end, want, text)
		}
	}
}

// Ordinary mail costs no query, and its body is not asked for.
func TestOrdinaryMailAsksNothing(t *testing.T) {
	d, p := proving(t, verdict.SPFProof|verdict.DKIMProof, setup{lists: map[string]string{
		"bad": "x.example\nbad.example\n", "allow": "x.example\nfriend.example\n"}})
	m := d.greet(other)
	for range 10 {
		if got := m.mail("a@there.example", "a@there.example"); got != "a" {
			t.Errorf("clear sender: %q", got)
		}
		m.mail("a@bad.example", "a@bad.example")
		if got := m.rcpt("bob@here.example"); !refused.MatchString(got) {
			t.Errorf("listed sender without exceptions: %q", got)
		}
		m.mail("a@friend.example", "a@friend.example")
		if got := m.rcpt("bob@here.example"); got != "c" {
			t.Errorf("exception without a block: %q", got)
		}
		if _, got := m.letter(sealed.Letter("a@friend.example")); got != "a" {
			t.Errorf("its message: %q", got)
		}
		m.mail("a@x.example", "a@x.example")
		if got := m.rcpt("postmaster@here.example"); got != "c" {
			t.Errorf("exempt recipient: %q", got)
		}
	}
	if p.Count() != 0 {
		t.Errorf("queries: %v, want none", p.Asked())
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
	if got := early.rcpt("bob@here.example"); !refused.MatchString(got) {
		t.Errorf("a connection of before: %q", got)
	}
	if rcpt, end := d.at(other, "a@x.example", p.Sign(t, sealed.Letter("a@x.example"), "x.example", sealed.RSA, nil)); rcpt != "c" || end != "a" {
		t.Errorf("a connection of now: %q, %q", rcpt, end)
	}
}

func TestDNSThatFails(t *testing.T) {
	for tempfail, want := range map[bool]string{false: "550 5.7.1 ", true: "451 4.4.3 "} {
		d, _ := proving(t, verdict.SPFProof, setup{policy: policy.Settings{Auth: rule.Auth{Tempfail: tempfail}}})
		if got, _ := d.at(ours, "a@silent.x.example", ""); !strings.HasPrefix(got, want) {
			t.Errorf("tempfail %v: %q, want %q", tempfail, got, want)
		}
	}
}

func TestTooManyRecipientsAwait(t *testing.T) {
	d, _ := proving(t, verdict.DKIMProof, setup{})
	m := d.greet(other)
	m.mail("a@x.example", "a@x.example")
	for i := range 1000 {
		if got := m.rcpt(fmt.Sprintf("u%d@here.example", i)); got != "c" {
			t.Fatalf("recipient %d: %q", i, got)
		}
	}
	if got := m.rcpt("one@here.example"); !strings.HasPrefix(got, "452 ") {
		t.Errorf("one too many: %q", got)
	}
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
	if got := d.metric("blockd_milter_panics_total"); got != 0 {
		t.Errorf("panics: %v", got)
	}
}

// The goal is 5 ms of CPU for a message of 100 KB, without DNS. This measurement includes the
// mail server's part.
func BenchmarkProofInTheMessage(b *testing.B) {
	d, p := proving(b, verdict.DKIMProof, setup{})
	text := p.Sign(b, sealed.Letter("a@x.example")+strings.Repeat("A line of some length, as there are many.\r\n", 2400), "x.example", sealed.RSA, nil)
	m := d.greet(other)
	b.ReportAllocs()
	for b.Loop() {
		m.mail("a@x.example", "a@x.example")
		m.rcpt("bob@here.example")
		if _, end := m.letter(text); end != "a" {
			b.Fatalf("end: %q", end)
		}
	}
}

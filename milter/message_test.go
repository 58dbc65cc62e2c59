package milter_test

import (
	"fmt"
	"net/netip"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"blockd/internal/testkit"
	"blockd/internal/testkit/domains"
	"blockd/internal/testkit/race"
	"blockd/internal/testkit/sealed"
	"blockd/mail/addr"
	"blockd/mail/spool"
	"blockd/milter"
	"blockd/policy"
	"blockd/policy/rule"
	"blockd/policy/verdict"
	"blockd/records/correspondents"
)

const apart = "452 4.5.3 Send this recipient in a transaction of its own"

// A list's action on a message is carried out at its end, for all its recipients. Recipients
// that need another action are told to come in a transaction of their own.
func TestWholeMessages(t *testing.T) {
	setup := setup{
		lists: map[string]string{"bad": "bad.example\n", "junk": "junk.example\nboth.example\n", "watch": "watch.example\n", "look": "look.example\n",
			"gone": "gone.example DISCARD\n", "later": "later.example\n"},
		rules: map[string]rule.List{
			"junk": {OnMatch: rule.Quarantine}, "watch": {OnMatch: rule.Tag}, "look": {OnMatch: rule.Tag},
			"gone": {Discard: true}, "later": {OnMatch: rule.Tempfail},
		},
		policies: []rule.Recipients{{Recipients: []string{"vip@here.example"}, Lists: []string{"bad"}}},
	}
	const bob, alice, vip, postmaster = "bob@here.example", "alice@here.example", "vip@here.example", "postmaster@here.example"
	tests := []struct {
		name, sender string
		recipients   []string
		want         []string // of RCPT
		change, end  string
	}{
		{"quarantine", "a@junk.example", []string{bob, alice}, []string{"c", "c"}, `^qblockd: list=junk ref=\w{10}\x00$`, "a"},
		{"tag", "a@watch.example", []string{bob, alice}, []string{"c", "c"}, `^i\x00{4}X-Blockd\x00list=watch ref=\w{10}\x00$`, "a"},
		{"discard", "a@gone.example", []string{bob, alice}, []string{"c", "c"}, "^$", "d"},
		{"tempfail", "a@later.example", []string{bob}, []string{"451 4.7.1 "}, "^$", "a"},
		{"refused by one list and not by others", "a@bad.example", []string{vip, postmaster}, []string{"550 5.7.1 ", "c"}, "^$", "a"},
		{"ordinary first, exempt last", "a@gone.example", []string{bob, postmaster, alice}, []string{"c", apart, "c"}, "^$", "d"},
		{"exempt first, ordinary last", "a@gone.example", []string{postmaster, bob}, []string{"c", apart}, "^$", "a"},
		{"whom the list does not count for first", "a@junk.example", []string{vip, bob}, []string{"c", apart}, "^$", "a"},
		{"whom the list does not count for last", "a@watch.example", []string{bob, vip}, []string{"c", apart}, `^i.*list=watch`, "a"},
	}
	d := open(t, setup)
	m := d.greet("192.0.2.1")
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			m.t = t
			testkit.MustEqual(t, "MAIL", m.mail(tt.sender, tt.sender), "c")
			for i, r := range tt.recipients {
				testkit.Begins(t, fmt.Sprintf("RCPT <%s>", r), m.rcpt(r), tt.want[i])
			}
			changes, got := m.end()
			if !regexp.MustCompile("(?s)"+tt.change).MatchString(strings.Join(changes, "|")) || got != tt.end {
				t.Errorf("end: %q, %q, want %s, %s", changes, got, tt.change, tt.end)
			}
		})
	}
	for outcome, want := range map[string]float64{"quarantined": 1, "tagged": 2, "discarded": 2} {
		testkit.Equal(t, fmt.Sprintf("messages %s", outcome), d.metric("blockd_milter_messages_total", outcome), want)
	}
	testkit.Equal(t, "limited", d.metric("blockd_milter_recipients_total", "limited"), 4)
}

// A mail server that cannot quarantine a message is told to send it later. One that cannot tag
// it passes it on.
func TestWhatTheServerDoesNotOffer(t *testing.T) {
	d := open(t, setup{
		lists: map[string]string{"junk": "junk.example\n", "watch": "watch.example\n"},
		rules: map[string]rule.List{"junk": {OnMatch: rule.Quarantine}, "watch": {OnMatch: rule.Tag}},
	})
	m := d.dial()
	m.negotiate(6, 0x100, offeredProtocol)
	testkit.MustEqual(t, "actions", m.actions, 0x100)
	m.connect("192.0.2.1")
	m.mail("a@junk.example", "a@junk.example")
	testkit.Begins(t, "quarantine", m.rcpt("bob@here.example"), "451 4.3.5 ")
	m.send('A', "")
	m.mail("a@watch.example", "a@watch.example")
	testkit.Equal(t, "tag", m.rcpt("bob@here.example"), "c")
	if changes, got := m.end(); got != "a" || changes != nil {
		t.Errorf("end: %q %q", changes, got)
	}
}

// The filter asks for the header only if lists check header addresses, and its fields then
// cost no round trip.
func TestHeaderIsAskedForByLists(t *testing.T) {
	for name, tt := range map[string]struct {
		match []string
		want  uint32
	}{
		"envelope":            {[]string{"envelope"}, 1<<5 | 1<<6},
		"nothing said":        {nil, 1<<5 | 1<<6},
		"from":                {[]string{"from"}, 1 << 7},
		"envelope and header": {[]string{"envelope", "reply-to"}, 1 << 7},
	} {
		t.Run(name, func(t *testing.T) {
			match := testkit.Value(verdict.ParseSources(tt.match))(t)
			d := open(t, setup{lists: map[string]string{"bad": "bad.example\n"}, rules: map[string]rule.List{"bad": {Match: match}}})
			m := d.dial()
			m.negotiate(6, offeredActions, offeredProtocol)
			testkit.Equal(t, "protocol bits", m.protocol&(1<<5|1<<6|1<<7), tt.want)
		})
	}
}

// Lists that check the header: which fields count, for which recipients, and with which
// answer.
func TestHeaders(t *testing.T) {
	asked := func(words ...string) rule.List {
		match := testkit.Value(verdict.ParseSources(words))(t)
		return rule.List{Match: match}
	}
	tagging := asked("from")
	tagging.OnMatch = rule.Tag
	deferring := asked("from")
	deferring.OnMatch = rule.Tempfail
	d := open(t, setup{
		lists: map[string]string{
			"from": "phish.example\n", "reply": "reply.example\n", "path": "path.example\n", "both": "both.example\n", "mark": "mark.example\n",
			"allowfrom": "good@phish.example\n", "allowed": "friend.example\n", "shadow": "shadow.example\n", "later": "later.example\n",
		},
		rules: map[string]rule.List{
			"from": asked("from"), "reply": asked("reply-to"), "path": asked("return-path"), "both": asked("envelope", "from", "reply-to"),
			"mark": tagging, "allowfrom": asked("from"), "shadow": asked("from"), "later": deferring,
		},
		policies: []rule.Recipients{
			{Recipients: []string{"vip@here.example"}, Lists: []string{"both"}},
			{Recipients: []string{"none@here.example"}, Lists: []string{"allowed"}},
			{Recipients: []string{"same@here.example"}, Lists: []string{"both", "allowed"}},
			{Recipients: []string{"all@here.example"}, Lists: []string{"from", "reply", "path", "both", "mark", "allowfrom", "shadow", "later"}},
		},
	})
	const bob, vip, postmaster = "bob@here.example", "vip@here.example", "postmaster@here.example"
	tests := []struct {
		name, sender string
		recipients   []string
		header       []string
		want         string // of the end
	}{
		{"nothing listed", "a@there.example", []string{bob}, []string{"From: a@there.example"}, "a"},
		{"no field at all", "a@there.example", []string{bob}, nil, "a"},
		{"From", "a@there.example", []string{bob}, []string{"From: A <a@phish.example>"}, "550 5.7.1 <a@phish.example>: From address rejected: listed in from (ref "},
		{"field's name in capitals", "a@there.example", []string{bob}, []string{"FROM: a@phish.example"}, "550"},
		{"blanks behind the field's name, as Postfix hands them over", "a@there.example", []string{bob}, []string{"From \t: a@phish.example"}, "550"},
		{"second From", "a@there.example", []string{bob}, []string{"From: a@there.example", "From: a@phish.example"}, "550"},
		{"second address", "a@there.example", []string{bob}, []string{"From: a@there.example, b@phish.example"}, "550"},
		{"soft hyphen in Latin-1", "a@there.example", []string{bob}, []string{"From: a@phi\xADsh.example"}, "550"},
		{"label that cannot be read", "a@there.example", []string{bob}, []string{"From: a@xn--zz.phish.example"}, "550"},
		{"emoji with joiners in a name that shows a listed address", "a@there.example", []string{bob}, []string{"From: \U0001F468\u200D\U0001F469 a@phi\u00ADsh.example <a@there.example>"}, "a"},
		{"an address that defers before one that refuses", "a@there.example", []string{bob}, []string{"From: a@later.example, b@phish.example"}, "550"},
		{"an address that defers", "a@there.example", []string{bob}, []string{"From: a@later.example"}, "451"},
		{"folded field as Postfix hands it over", "a@there.example", []string{bob}, []string{"From: a@there.example,\n\tB\n <b@phish.example>"}, "550"},
		{"Reply-To", "a@there.example", []string{bob}, []string{"Reply-To: a@reply.example"}, "550 5.7.1 <a@reply.example>: Reply-To address rejected"},
		{"Return-Path", "a@there.example", []string{bob}, []string{"Return-Path: <a@path.example>"}, "550 5.7.1 <a@path.example>: Return-Path address rejected"},
		{"a field that the list is not asked about", "a@there.example", []string{bob}, []string{"Reply-To: a@phish.example", "From: a@reply.example"}, "a"},
		{"another field", "a@there.example", []string{bob}, []string{"Sender: a@phish.example", "To: a@phish.example"}, "a"},
		{"envelope of a list for headers", "a@phish.example", []string{bob}, []string{"From: a@there.example"}, "a"},
		{"null sender", "", []string{bob}, []string{"From: a@phish.example"}, "550"},
		{"allowed in the same field's lists", "a@there.example", []string{bob}, []string{"From: good@phish.example"}, "a"},
		{"allowed envelope", "a@friend.example", []string{bob}, []string{"From: a@phish.example"}, "a"},
		{"shadow list", "a@there.example", []string{bob}, []string{"From: a@shadow.example"}, "a"},
		{"marked", "a@there.example", []string{bob}, []string{"From: a@mark.example"}, "i"},
		{"exempt recipient", "a@there.example", []string{postmaster}, []string{"From: a@phish.example"}, "a"},
		{"recipient for whom the list does not count", "a@there.example", []string{vip}, []string{"From: a@phish.example"}, "a"},
		{"recipient for whom the list counts", "a@there.example", []string{vip}, []string{"From: a@both.example"}, "550"},
		{"several recipients", "a@there.example", []string{bob, "alice@here.example"}, []string{"From: a@phish.example"}, "550"},
		{"exempt first, ordinary last", "a@there.example", []string{postmaster, "!" + bob}, []string{"From: a@phish.example"}, "a"},
		{"ordinary first, exempt last", "a@there.example", []string{bob, "!" + postmaster}, []string{"From: a@phish.example"}, "550"},
		{"policies that treat headers otherwise", "a@there.example", []string{vip, "!" + bob}, []string{"From: a@phish.example"}, "a"},
		{"exempt and one for whom no list for headers counts", "a@there.example", []string{postmaster, "none@here.example"}, []string{"From: a@phish.example"}, "a"},
		{"policies that treat headers alike", "a@there.example", []string{vip, "same@here.example"}, []string{"From: a@phish.example"}, "a"},
		{"a policy of all lists for headers", "a@there.example", []string{bob, "all@here.example"}, []string{"From: a@phish.example"}, "550"},
		{"envelope allowed for the first recipient alone", "a@friend.example", []string{bob, "!all@here.example"}, []string{"From: a@phish.example"}, "a"},
		{"envelope allowed for the second recipient alone", "a@friend.example", []string{"all@here.example", "!" + bob}, []string{"From: a@phish.example"}, "550"},
		{"a thousand fields and one", "a@there.example", []string{bob}, many("From: a@there.example", 1001), "550 5.6.0 "},
		{"a thousand addresses and one", "a@there.example", []string{bob}, []string{"From: " + addresses(1001)}, "550 5.6.0 "},
		{"a quarter of a mebibyte", "a@there.example", []string{bob}, many("From: "+strings.Repeat("x", 60<<10), 5), "550 5.6.0 "},
		{"too much for postmaster", "a@there.example", []string{postmaster}, many("From: a@there.example", 1001), "a"},
		{"a thousand other fields", "a@there.example", []string{bob}, append(many("Received: x", 3000), "From: a@phish.example"), "550"},
	}
	m := d.greet("192.0.2.1")
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			m.t = t
			testkit.MustEqual(t, "MAIL", m.mail(tt.sender, tt.sender), "c")
			for _, r := range tt.recipients {
				recipient, separate := strings.CutPrefix(r, "!")
				want := "c"
				if separate {
					want = apart
				}
				testkit.Equal(t, fmt.Sprintf("RCPT <%s>", recipient), m.rcpt(recipient), want)
			}
			changes, got := m.end(tt.header...)
			if got = strings.Join(append(changes, got), ""); !strings.HasPrefix(got, tt.want) {
				t.Errorf("end: %q, want %s", got, tt.want)
			}
			m.send('A', "")
		})
	}
	t.Run("who has authenticated is not asked about", func(t *testing.T) {
		d := open(t, setup{lists: map[string]string{"from": "phish.example\n"}, rules: map[string]rule.List{"from": asked("from")},
			settings: milter.Settings{SkipAuthenticated: true}})
		testkit.Equal(t, "MAIL", d.greet("192.0.2.1").mail("a@there.example", "a@there.example", "{auth_authen}", "bob"), "a")
	})
}

func many(field string, n int) []string {
	all := make([]string, n)
	for i := range all {
		all[i] = field
	}
	return all
}

func addresses(n int) string {
	var b strings.Builder
	for i := range n {
		fmt.Fprintf(&b, "a%d@there.example, ", i)
	}
	return strings.TrimSuffix(b.String(), ", ")
}

// A message that is broken off leaves nothing behind.
func TestAbortedMessagesLeaveNothing(t *testing.T) {
	copies := spool.New(spool.Settings{Dir: t.TempDir(), Memory: 256 << 10, PerCopy: 64 << 10})
	d, p := proving(t, verdict.DKIMProof, setup{settings: milter.Settings{Copies: copies}})
	text := p.Sign(t, sealed.Letter("a@x.example"), "x.example", sealed.Ed25519, nil)
	d.at(other, "a@x.example", text)
	goroutines, files := runtime.NumGoroutine(), testkit.OpenFiles(t)
	m := d.greet(other)
	messages := 10_000
	if race.Enabled {
		messages = 1000
	}
	for i := range messages {
		m.mail("a@x.example", "a@x.example")
		m.rcpt("bob@here.example")
		m.event('L', "From\x00 a@x.example\x00")
		if i%3 > 0 {
			m.event('N', "")
			for range i % 5 {
				m.event('B', strings.Repeat("x", 40<<10))
			}
		}
		switch i % 4 {
		case 0:
			m.send('A', "")
		case 1: // and another MAIL
		case 2:
			m.send('K', "")
			m.connect(other)
		case 3:
			if i%40 == 3 {
				m.conn.Close()
				m = d.greet(other)
			}
		}
	}
	m.conn.Close()
	testkit.Eventually(t, "the copies to be given back", func() bool { return copies.Used() == 0 })
	testkit.Eventually(t, "the goroutines to end", func() bool { return runtime.NumGoroutine() <= goroutines })
	testkit.Eventually(t, "the files to be closed", func() bool { return testkit.OpenFiles(t) <= files })
	t.Logf("%d messages broken off: %d goroutines and %d files, before %d and %d", messages, runtime.NumGoroutine(), testkit.OpenFiles(t), goroutines, files)
}

// A full disk refuses nobody's mail for good: the copy's failure is our own fault.
func TestCopyThatCannotBeKept(t *testing.T) {
	copies := spool.New(spool.Settings{Dir: t.TempDir() + "/gone", PerCopy: 1})
	d, p := proving(t, verdict.DKIMProof, setup{settings: milter.Settings{Copies: copies}})
	text := p.Sign(t, sealed.Letter("a@x.example"), "x.example", sealed.Ed25519, nil)
	if rcpt, end := d.at(other, "a@x.example", text); rcpt != "c" || !strings.HasPrefix(end, "451 4.3.0 ") {
		t.Errorf("RCPT %q, end %q, want 451", rcpt, end)
	}
	testkit.Has(t, d.log.String(), "message not examined")
}

// learning returns a door that reports complete messages. It wants the first of each sender.
type learning struct {
	*door
	mu   sync.Mutex
	told []string
}

func learn(t *testing.T, s setup) *learning {
	l := &learning{}
	s.policy.Completed = func(a addr.Addr, client netip.Addr) {
		l.mu.Lock()
		defer l.mu.Unlock()
		l.told = append(l.told, a.String()+" from "+client.String())
	}
	s.policy.Wants = func(a addr.Addr, client netip.Addr) bool {
		l.mu.Lock()
		defer l.mu.Unlock()
		return !slices.Contains(l.told, a.String()+" from "+client.String())
	}
	l.door = open(t, s)
	return l
}

func (l *learning) want(t *testing.T, when, want string) {
	t.Helper()
	l.mu.Lock()
	defer l.mu.Unlock()
	testkit.Equal(t, fmt.Sprintf("%s: told of", when), strings.Join(l.told, " "), want)
}

// TestOnlyAPrivatePeerCounts: who may have come from any user of this machine speaks for no sender and for no
// correspondent, and its mail is judged as any other.
func TestOnlyAPrivatePeerCounts(t *testing.T) {
	for _, tt := range []struct {
		name    string
		unix    bool
		counted bool
	}{{"a socket for the group", true, true}, {"TCP of this machine", false, false}} {
		t.Run(tt.name, func(t *testing.T) {
			known, _, err := correspondents.Open(correspondents.Settings{Path: filepath.Join(t.TempDir(), "c"), Keep: 24 * time.Hour, Own: []string{"here.example"}})
			testkit.Must(t, err)
			l := learn(t, setup{unix: tt.unix, lists: map[string]string{"bad": "bad.example\n"}, settings: milter.Settings{SkipAuthenticated: true}, policy: policy.Settings{Correspondents: policy.Correspondents{Known: known, Learn: true}}})
			m := l.greet("192.0.2.1")
			m.mail("friend@there.example", "friend@there.example")
			m.rcpt("bob@here.example")
			m.end()
			m.mail("bob@here.example", "bob@here.example", "{auth_authen}", "bob")
			m.rcpt("boss@my-spam.example")
			m.end()
			want := ""
			if tt.counted {
				want = "friend@there.example from 192.0.2.1"
			}
			l.want(t, tt.name, want)
			boss, _ := addr.Parse("boss@my-spam.example")
			testkit.Equal(t, "a correspondent", known.Has(boss), tt.counted)
		})
	}
}

// TestOnlyWholeMessagesCount: a message counts for its sender when it is complete and
// accepted, and not before. After that, the sender's mail is accepted at MAIL again.
func TestOnlyWholeMessagesCount(t *testing.T) {
	l := learn(t, setup{unix: true, lists: map[string]string{"bad": "bad.example\n"}})
	m := l.greet("192.0.2.1")
	for range 20 {
		m.mail("friend@there.example", "friend@there.example")
		m.rcpt("bob@here.example")
		m.abort()
	}
	m.mail("friend@there.example", "friend@there.example")
	m.rcpt("bob@here.example")
	m.conn.Close()
	m = l.greet("192.0.2.1")
	l.want(t, "after 20 aborts and a lost connection", "")
	testkit.Equal(t, "MAIL answered", m.mail("friend@there.example", "friend@there.example"), "c")
	testkit.Equal(t, "RCPT answered", m.rcpt("bob@here.example"), "c")
	if changes, got := m.end(); got != "a" || changes != nil {
		t.Errorf("end of message answered %q %q, want accept", changes, got)
	}
	l.want(t, "after a message", "friend@there.example from 192.0.2.1")
	testkit.Equal(t, "MAIL answered", m.mail("friend@there.example", "friend@there.example"), "a")
	m.mail("x@bad.example", "x@bad.example")
	m.rcpt("postmaster@here.example")
	m.end()
	m.mail("", "")
	m.rcpt("bob@here.example")
	l.want(t, "after a listed sender and a bounce", "friend@there.example from 192.0.2.1")
}

// TestWholeMessagesWhoseHeaderIsReadCount: if a list also checks the header, a message counts
// if nothing in it is refused or marked.
func TestWholeMessagesWhoseHeaderIsReadCount(t *testing.T) {
	from := testkit.Value(verdict.ParseSources([]string{"envelope", "from"}))(t)
	l := learn(t, setup{unix: true, lists: map[string]string{"bad": "bad.example\n", "marked": "marked.example\n"},
		rules: map[string]rule.List{"bad": {Match: from}, "marked": {Match: from, OnMatch: rule.Tag}}, settings: milter.Settings{}})
	m := l.greet("192.0.2.1")
	for sender, header := range map[string]string{"a@one.example": "x@bad.example", "b@two.example": "x@marked.example", "c@three.example": "x@fine.example"} {
		m.mail(sender, sender)
		m.rcpt("bob@here.example")
		m.end("From: " + header)
		m.abort()
	}
	l.want(t, "after three messages", "c@three.example from 192.0.2.1")
}

// TestFirstSeenIsTagged: the field stands on top, until a message is complete, and beside a list's tag.
// Mail of known domains is accepted at MAIL.
func TestFirstSeenIsTagged(t *testing.T) {
	match := testkit.Value(verdict.ParseSources([]string{"from"}))(t)
	d := open(t, setup{lists: map[string]string{"odd": "odd.example\n"}, rules: map[string]rule.List{"odd": {OnMatch: rule.Tag, Match: match}},
		policy: policy.Settings{FirstSeen: policy.FirstSeen{Domains: domains.Known(t)}}})
	m := d.greet("192.0.2.1")
	field := "i\x00\x00\x00\x00X-Blockd-First-Seen\x00yes\x00"
	mail := func(from string, abort bool) (changes []string, answer string) {
		t.Helper()
		if got := m.mail("a@new.example", "a@new.example"); got != "c" {
			return nil, got
		}
		testkit.MustEqual(t, "RCPT", m.rcpt("bob@here.example"), "c")
		if abort {
			m.abort()
			return nil, ""
		}
		return m.end("From: " + from)
	}
	mail("", true)
	changes, answer := mail("Ann <a@odd.example>", false)
	if answer != "a" || len(changes) != 2 || !strings.HasPrefix(changes[0], "i\x00\x00\x00\x00X-Blockd\x00list=odd") || changes[1] != field {
		t.Errorf("with a header that a list tags: %q, %q", changes, answer)
	}
	if changes, answer := mail("Ann <a@new.example>", false); answer != "a" || !slices.Equal(changes, []string{field}) {
		t.Errorf("the first message: %q, %q", changes, answer)
	}
	if changes, answer := mail("Ann <a@new.example>", false); len(changes) > 0 || answer != "a" {
		t.Errorf("the second message: %q, %q", changes, answer)
	}
}

func TestFirstSeenIsPutOffOnce(t *testing.T) {
	d := open(t, setup{policy: policy.Settings{FirstSeen: policy.FirstSeen{Domains: domains.Known(t), Defers: true}}})
	m := d.greet("192.0.2.1")
	m.mail("a@new.example", "a@new.example")
	testkit.Begins(t, "the first attempt", m.rcpt("bob@here.example"), "451 4.7.1 <a@new.example>: Sender address deferred: ")
	m.abort()
	testkit.Equal(t, "the second attempt", m.mail("a@new.example", "a@new.example"), "a")
	testkit.Equal(t, "deferred", d.metric("blockd_milter_recipients_total", "deferred"), 1)
}

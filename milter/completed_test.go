package milter_test

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"testing"

	"blockd/internal/testkit"
	"blockd/internal/testkit/domains"
	"blockd/mail/addr"
	"blockd/milter"
	"blockd/policy"
	"blockd/policy/rule"
	"blockd/policy/verdict"
)

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

// TestOnlyWholeMessagesCount: a message counts for its sender when it is complete and
// accepted, and not before. After that, the sender's mail is accepted at MAIL again.
func TestOnlyWholeMessagesCount(t *testing.T) {
	l := learn(t, setup{lists: map[string]string{"bad": "bad.example\n"}})
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
	l := learn(t, setup{lists: map[string]string{"bad": "bad.example\n", "marked": "marked.example\n"},
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
	if got := m.rcpt("bob@here.example"); !strings.HasPrefix(got, "451 4.7.1 <a@new.example>: Sender address deferred: ") {
		t.Errorf("the first attempt: %q", got)
	}
	m.abort()
	testkit.Equal(t, "the second attempt", m.mail("a@new.example", "a@new.example"), "a")
	testkit.Equal(t, "deferred", d.metric("blockd_milter_recipients_total", "deferred"), 1)
}

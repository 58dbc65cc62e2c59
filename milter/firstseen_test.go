package milter_test

import (
	"slices"
	"strings"
	"testing"

	"blockd/internal/testkit"
	"blockd/internal/testkit/domains"
	"blockd/policy"
	"blockd/policy/rule"
	"blockd/policy/verdict"
)

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
		if got := m.rcpt("bob@here.example"); got != "c" {
			t.Fatalf("RCPT: %q", got)
		}
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
	if got := m.mail("a@new.example", "a@new.example"); got != "a" {
		t.Errorf("the second attempt: %q", got)
	}
	if n := d.metric("blockd_milter_recipients_total", "deferred"); n != 1 {
		t.Errorf("deferred: %v", n)
	}
}

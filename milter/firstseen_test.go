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
	match, err := verdict.ParseSources([]string{"from"})
	if err != nil {
		t.Fatal(err)
	}
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

// TestFirstSeenIsTaggedWithoutHeaders: where no list reads headers, a known domain is accepted at MAIL, and a
// new one at the end of its message.
func TestFirstSeenIsTaggedWithoutHeaders(t *testing.T) {
	d := open(t, setup{policy: policy.Settings{FirstSeen: policy.FirstSeen{Domains: domains.Known(t, "known.example")}}})
	m := d.greet("192.0.2.1")
	if got := m.mail("a@known.example", "a@known.example"); got != "a" {
		t.Errorf("of a known domain: %q", got)
	}
	for range 2 {
		if got := m.mail("a@new.example", "a@new.example"); got == "a" {
			return
		}
		m.rcpt("postmaster@here.example")
		m.rcpt("bob@here.example")
		if changes, answer := m.end("Subject: x"); len(changes) != 1 || answer != "a" {
			t.Errorf("%q, %q", changes, answer)
		}
	}
	t.Error("new.example is still new after a message")
}

func TestFirstSeenIsPutOffOnce(t *testing.T) {
	d := open(t, setup{policy: policy.Settings{FirstSeen: policy.FirstSeen{Domains: domains.Known(t), Defers: true}}})
	m := d.greet("192.0.2.1")
	for i, want := range []string{"451 4.7.1 <a@new.example>: Sender address deferred: domain new here, try again later (ref ", "a"} {
		got := m.mail("a@new.example", "a@new.example")
		if got == "c" {
			if got := m.rcpt("postmaster@here.example"); got != "c" {
				t.Errorf("postmaster: %q", got)
			}
			got = m.rcpt("bob@here.example")
			m.abort()
			if !strings.HasPrefix(got, want) {
				t.Errorf("attempt %d: %q, want %q", i, got, want)
			}
		} else if got != want {
			t.Errorf("attempt %d: %q, want %q", i, got, want)
		}
	}
	if n := testkit.Samples(t, d.reg, "blockd_milter_recipients_total", "deferred"); len(n) != 1 || n[0] != 1 {
		t.Errorf("deferred: %v", n)
	}
}

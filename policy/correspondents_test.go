package policy_test

import (
	"net/netip"
	"strings"
	"testing"
	"time"

	"blockd/index/live"
	"blockd/internal/testkit"
	"blockd/mail/addr"
	"blockd/policy"
	"blockd/policy/rule"
	"blockd/policy/verdict"
	"blockd/records/correspondents"
	"blockd/records/history"
)

func partners(t *testing.T) *correspondents.Set {
	t.Helper()
	set, _, err := correspondents.Open(correspondents.Settings{Path: t.TempDir() + "/set", Keep: 365 * 24 * time.Hour})
	testkit.Must(t, err)
	t.Cleanup(set.Close)
	return set
}

func sender(t *testing.T, text string) addr.Addr {
	t.Helper()
	a := testkit.Value(addr.Parse(text))(t)
	return a
}

// TestRecipientsOfUsersAreLearned: at each door, once the next server has accepted the message where the door hears of it.
func TestRecipientsOfUsersAreLearned(t *testing.T) {
	ix := build(t, block("bad", "bad.example"))
	there := policy.Client{Addr: netip.MustParseAddr("192.0.2.7")}
	login, own := there, there
	login.Authenticated, own.Trusted = true, true
	for name, door := range doorsOfMail() {
		set := partners(t)
		c, _ := checker(t, ix, policy.Settings{Correspondents: policy.Correspondents{Known: set, Learn: true}})
		send := func(client policy.Client, recipient string, complete bool) {
			var x policy.Transaction
			x.Begin(c, door, client)
			if d := x.Mail(policy.Mail{Sender: "anna@here.example", Written: "anna@here.example"}); d.Passed {
				x.Sent(recipient)
			} else if d := x.Recipient(recipient); !d.Refuses() {
				x.Join(&d)
			}
			if complete {
				x.Completed()
			}
			x.Reset()
		}
		send(login, "login@there.example", true)
		send(own, "own@there.example", true)
		send(there, "stranger@there.example", true)
		send(login, "incomplete@there.example", false)
		for recipient, want := range map[string]bool{"login@there.example": true, "own@there.example": true, "stranger@there.example": false,
			"incomplete@there.example": !door.HearsEnd} {
			if got := set.Has(sender(t, recipient)); got != want {
				t.Errorf("%s: %s is learned: %v, want %v", name, recipient, got, want)
			}
		}
	}
}

// TestCorrespondentWithProof: with excuse a block list does not refuse it, and a forged one is refused as ever.
func TestCorrespondentWithProof(t *testing.T) {
	p := newPost(t)
	ix := build(t, block("bad", "x.example\nother.example"))
	for _, tt := range []struct {
		name, client, sender, signed string
		excuse                       bool
		door                         *policy.Door
		want                         policy.Outcome
	}{
		{"spf", "192.0.2.7", "bob@x.example", "", true, relay, policy.Accept},
		{"spf, at a door without messages", "192.0.2.7", "bob@x.example", "", true, service, policy.Accept},
		{"dkim", "198.51.100.7", "bob@x.example", "x.example", true, relay, policy.Accept},
		{"dkim, at a door without messages", "198.51.100.7", "bob@x.example", "x.example", true, service, policy.Refuse},
		{"forged", "198.51.100.7", "bob@x.example", "", true, relay, policy.Refuse},
		{"signed by another", "198.51.100.7", "bob@x.example", "evil.example", true, relay, policy.Refuse},
		{"a neighbour", "192.0.2.7", "eve@x.example", "x.example", true, relay, policy.Refuse},
		{"off", "192.0.2.7", "bob@x.example", "x.example", false, relay, policy.Refuse},
	} {
		t.Run(tt.name, func(t *testing.T) {
			set := partners(t)
			set.Learn(sender(t, "anna@here.example"), sender(t, "bob@x.example"), time.Now())
			var last history.Record
			c, _ := checker(t, ix, policy.Settings{Auth: rule.Auth{Resolver: p.resolver}, Decided: func(r history.Record) { last = r },
				Correspondents: policy.Correspondents{Known: set, Excuse: tt.excuse}})
			var x policy.Transaction
			x.Begin(c, tt.door, policy.Client{Addr: netip.MustParseAddr(tt.client), Helo: "x.example"})
			x.Mail(policy.Mail{Sender: tt.sender, Written: tt.sender})
			d := x.Recipient("anna@here.example")
			if !d.Refuses() && x.Join(&d) && d.AwaitsMessage {
				testkit.Must(t, x.Examine(t.Context(), strings.NewReader(p.letter(t, tt.sender, tt.signed))))
				d = x.Message()
			}
			if d.Outcome != tt.want {
				t.Fatalf("%v, want %v", d.Outcome, tt.want)
			}
			if known := tt.sender == "bob@x.example"; last.Correspondent != known || last.Pardoned != (tt.want == policy.Accept) || last.List != "bad" {
				t.Errorf("the history has %+v", last)
			}
		})
	}
	if verdict.LiveList != live.ListName {
		t.Errorf("the list of live entries is %s", live.ListName)
	}
}

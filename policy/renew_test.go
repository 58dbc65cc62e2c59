package policy_test

import (
	"log/slog"
	"testing"

	"blockd/policy"
	"blockd/policy/rule"
)

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

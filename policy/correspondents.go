package policy

import (
	"slices"
	"time"

	"blockd/mail/addr"
	"blockd/policy/verdict"
	"blockd/records/correspondents"
)

// Correspondents are the people that users of this server write to: the recipients of mail from clients that have
// authenticated or are trusted. Decisions about mail from one of them say so.
type Correspondents struct {
	Known  *correspondents.Set // nil = none are known, and none is learned
	Learn  bool                // recipients are noted
	Excuse bool                // one with SPF or DKIM proof is not refused by a block list
}

// maxSent bounds the recipients of one message that are noted. Mail servers take a thousand by their defaults.
const maxSent = 1000

// Outgoing reports whether the client is a user of this server, and the recipients of what it sends are noted. A door that
// passes a message at MAIL says Sent of each of its recipients then, and Completed at its end.
func (t *Transaction) Outgoing() bool {
	c := &t.checker.partners
	return c.Learn && c.Known != nil && !t.Hearsay && (t.Client.Authenticated || t.Client.Trusted)
}

// From begins a message of a client of which no list is asked, for a door that does not call Mail then.
func (t *Transaction) From(m Mail) {
	t.Reset()
	t.checker = t.from.now.Load()
	t.mail = m
}

// Sent notes a recipient of an outgoing message, as Recipient takes it. A door that does not hear of the end of a
// message knows most of it now.
func (t *Transaction) Sent(recipient string) {
	if !t.Outgoing() || len(t.sent) == maxSent {
		return
	}
	t.sent = append(t.sent, recipient)
	if !t.door.HearsEnd {
		t.learnSent()
	}
}

// unsend takes back Sent.
func (t *Transaction) unsend(recipient string) {
	if i := slices.Index(t.sent, recipient); i >= 0 {
		t.sent = slices.Delete(t.sent, i, i+1)
	}
}

// learnSent notes to whom the message goes.
func (t *Transaction) learnSent() {
	if len(t.sent) == 0 {
		return
	}
	sender, err := addr.Parse(t.mail.Sender)
	if err == nil {
		now := time.Now()
		for _, text := range t.sent {
			if recipient, err := addr.Parse(text); err == nil {
				t.checker.partners.Known.Learn(sender, recipient, now)
			}
		}
	}
	t.sent = t.sent[:0]
}

// excuses reports whether proof has v, which may be blocked, not be refused.
func (c *checks) excuses(v *verdict.Verdict) bool {
	return c.partners.Excuse && c.partners.Known.Has(v.Sender)
}

// Correspondent is the day, at 00:00 UTC, on which users of this server last wrote to an address; zero: they do not, as far
// as is known.
func (c *Checker) Correspondent(a addr.Addr) time.Time { return c.now.Load().partners.Known.Last(a) }

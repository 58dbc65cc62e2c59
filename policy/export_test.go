package policy

import (
	"context"
	"io"
	"testing"

	"blockd/internal/testkit"
	"blockd/mail/addr"
	"blockd/mail/msgauth"
	"blockd/policy/verdict"
)

// What a transaction is made of, for tests that look at one piece of it.

type (
	Group     = group
	Origin    = origin
	Unsettled = unsettled
)

const Unread = unread

// Begin returns a transaction of a client at a door.
func (c *Checker) Begin(d *Door, client Client) *Transaction {
	t := &Transaction{}
	t.Begin(c, d, client)
	return t
}

func (c *Checker) Header(s verdict.Source, address string) verdict.Verdict {
	return c.now.Load().ask(question{Question: Question{About: aboutField, Text: address}, source: s})
}

func (c *Checker) For(v verdict.Verdict, recipient string) verdict.Verdict {
	return c.now.Load().forRecipient(v, recipient)
}

func (c *Checker) Recipient(v verdict.Verdict, recipient string) Decision {
	return c.now.Load().recipientAt(&Door{}, v, recipient)
}

func (c *Checker) RecipientAt(door *Door, v verdict.Verdict, recipient string) Decision {
	return c.now.Load().recipientAt(door, v, recipient)
}

func (c *Checker) EndOfMessage(v verdict.Verdict, recipient string) Decision {
	return c.now.Load().endOfMessageAt(&Door{}, v, recipient)
}

func (c *Checker) Unsettled(v verdict.Verdict, recipient string) Unsettled {
	return c.now.Load().unsettled(&Door{}, v, recipient)
}

func (c *Checker) Group(recipient string, envelope ...verdict.Verdict) Group {
	return c.now.Load().group(recipient, envelope...)
}

func (c *Checker) Asks(v verdict.Verdict, recipient string) bool {
	return c.now.Load().asks(v, recipient)
}
func (c *Checker) Awaits(v verdict.Verdict, recipient string) bool {
	return c.now.Load().awaits(v, recipient)
}
func (c *Checker) Completed(all ...verdict.Verdict) { c.now.Load().completed(all...) }
func (c *Checker) WantsCompleted(all ...verdict.Verdict) bool {
	return c.now.Load().wantsCompleted(all...)
}

func (c *Checker) ProveOrigin(ctx context.Context, v verdict.Verdict, recipient string, o Origin) verdict.Verdict {
	return c.now.Load().proveOrigin(ctx, v, recipient, o)
}

// ProveMessage looks for what a message proves, as a transaction does of a verdict that
// awaits it.
func (c *Checker) ProveMessage(ctx context.Context, v verdict.Verdict, recipient string, o Origin, message io.Reader) (verdict.Verdict, error) {
	var facts *msgauth.Message
	if c.now.Load().awaits(v, recipient) {
		var err error
		if facts, err = c.now.Load().examine(ctx, o.Client, message); err != nil {
			return v, err
		}
	}
	return c.now.Load().proveBy(ctx, v, recipient, o, facts), nil
}

func (d Decision) Event(v verdict.Verdict) string { return d.event(&v) }

// Whoever may not see an owner's entry does not learn which list it is in.
func TestVeilHidesTheListOfWhatIsHidden(t *testing.T) {
	e := Explanation{Decider: -1, Shadow: -1, Lists: []ListOrigin{{List: "theirs", Homepage: "https://list.example/"}}}
	e.Veil(verdict.Verdict{Decider: -1, Shadow: -1}, func(addr.Key) bool { return true })
	testkit.EqualSlices(t, "shown", e.Lists, nil)
}

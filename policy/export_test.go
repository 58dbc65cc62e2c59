package policy

import (
	"context"
	"io"
	"log/slog"

	"blockd/msgauth"
)

// What a transaction is made of, for tests that look at one piece of it.

type (
	Group     = group
	Origin    = origin
	Seen      = known
	Unsettled = unsettled
)

const (
	Alignment        = alignment
	FromSource       = fromSource
	ReplyToSource    = replyToSource
	ReturnPathSource = returnPathSource
	Unread           = unread
)

func (c *Checker) Header(s source, address string) Verdict {
	return c.ask(question{Question: Question{About: aboutField, Text: address}, source: s})
}

func (c *Checker) For(v Verdict, recipient string) Verdict { return c.forRecipient(v, recipient) }

func (c *Checker) Recipient(v Verdict, recipient string) Decision {
	return c.recipientAt(&Door{}, v, recipient)
}

func (c *Checker) RecipientAt(door *Door, v Verdict, recipient string) Decision {
	return c.recipientAt(door, v, recipient)
}

func (c *Checker) EndOfMessage(v Verdict, recipient string) Decision {
	return c.endOfMessageAt(&Door{}, v, recipient)
}

func (c *Checker) Unsettled(v Verdict, recipient string) Unsettled {
	return c.unsettled(&Door{}, v, recipient)
}

func (c *Checker) Group(recipient string, envelope ...Verdict) Group {
	return c.group(recipient, envelope...)
}

func (c *Checker) Asks(v Verdict, recipient string) bool   { return c.asks(v, recipient) }
func (c *Checker) Awaits(v Verdict, recipient string) bool { return c.awaits(v, recipient) }
func (c *Checker) Completed(all ...Verdict)                { c.completed(all...) }
func (c *Checker) WantsCompleted(all ...Verdict) bool      { return c.wantsCompleted(all...) }

func (c *Checker) ProveOrigin(ctx context.Context, v Verdict, recipient string, o Origin) Verdict {
	return c.proveOrigin(ctx, v, recipient, o)
}

// ProveMessage looks for what a message proves, as a transaction does of a verdict that
// awaits it.
func (c *Checker) ProveMessage(ctx context.Context, v Verdict, recipient string, o Origin, message io.Reader) (Verdict, error) {
	var facts *msgauth.Message
	if c.awaits(v, recipient) {
		var err error
		if facts, err = c.examine(ctx, o.Client, message); err != nil {
			return v, err
		}
	}
	return c.proveBy(ctx, v, recipient, o, facts), nil
}

func (d Decision) Event(v Verdict) string { return d.event(&v) }
func (v Verdict) ListName(i int) string   { return v.listName(i) }
func (v Verdict) LogValue() slog.Value    { return slog.GroupValue(v.appendLog(nil)...) }
func (v Verdict) Tentative() bool         { return v.Wants&lateProofs != 0 }

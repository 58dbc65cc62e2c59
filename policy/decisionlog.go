package policy

import (
	"context"
	"log/slog"

	"blockd/policy/verdict"
)

// The lines that decisions have in the log, the same at every door. docs/operation.md
// lists them.

// event says what a decision did with its sender, or its recipient. v is the verdict that
// it was made of.
func (d Decision) event(v *verdict.Verdict) string {
	switch {
	case d.Outcome == Refuse:
		return "sender blocked"
	case d.Outcome == Defer:
		return "sender deferred"
	case d.Outcome == Quarantine:
		return "sender quarantined"
	case d.Outcome == Mark:
		return "sender tagged"
	case d.Outcome == Discard:
		return "sender discarded"
	case d.Exempt:
		return "recipient exempt"
	case d.Shadow:
		return "sender would be blocked"
	case v.Internal():
		return "sender unchecked"
	case v.Kind == verdict.Clear:
		return "sender excused"
	}
	return "sender allowed"
}

// log writes the one line of a decision that lists had a part in, unless another line
// stands for it.
func (t *Transaction) log(d *Decision) {
	if d.Ref != "" && d.Verdict != nil && !d.Folded && !t.door.forgets {
		t.write(d.event(d.Verdict), d)
	}
}

// tellUnjoined writes the line about a recipient whose decision has a reference, and to which
// the door has said something else.
func (t *Transaction) tellUnjoined() {
	d := &t.unjoined
	switch {
	case d.Ref == "":
		return
	case d.Unreadable: // the door tells of that itself
		t.log(d)
	case !d.Folded:
		t.write("recipient put off", d)
	}
	t.unjoined = Decision{}
}

// write writes a line about a recipient.
func (t *Transaction) write(event string, d *Decision) {
	if !t.door.Log.Enabled(context.Background(), slog.LevelInfo) {
		return
	}
	line := append(t.line(), slog.String("ref", d.Ref), t.sender(), slog.String("recipient", d.recipient))
	if v := d.Verdict; v != nil {
		if v.Source != verdict.EnvelopeSource {
			line = append(line, slog.String("field", v.Source.String()), slog.String("address", v.Sender.String()))
		}
		line = v.AppendLog(line)
	}
	if d.FirstSeen {
		line = append(line, slog.Bool("first_seen", true))
	}
	line = append(line, slog.String("reply", d.Reply.String()))
	t.door.Log.LogAttrs(context.Background(), slog.LevelInfo, event, line...)
}

// Say writes a line of the door's own about the message in hand.
func (t *Transaction) Say(level slog.Level, event string, more ...slog.Attr) {
	t.door.Log.LogAttrs(context.Background(), level, event, append(append(t.line(), t.sender()), more...)...)
}

func (t *Transaction) sender() slog.Attr { return slog.String("sender", t.mail.Written) }

// line has what every line about a client begins with, and room for what most add.
func (t *Transaction) line() []slog.Attr {
	line := append(make([]slog.Attr, 0, 24), slog.String("door", t.door.Name), slog.String("client", t.Client.String()), slog.String("helo", t.Client.Helo))
	if t.Client.Line != nil {
		line = append(line, t.Client.Line()...)
	}
	return line
}

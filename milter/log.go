package milter

import (
	"context"
	"log/slog"

	"github.com/d--j/go-milter"

	"blockd/policy"
)

// who is what every line about an SMTP session says.
func (s *session) who(m milter.Modifier, more ...slog.Attr) []slog.Attr {
	client := "unknown"
	if s.client.IsValid() {
		client = s.client.String()
	}
	attrs := []slog.Attr{
		slog.String("door", "milter"), slog.String("mta", m.Get(milter.MacroMTAFQDN)),
		slog.String("client", client), slog.String("helo", s.helo),
	}
	if id := m.Get(milter.MacroQueueId); id != "" { // Postfix has none before the first recipient
		attrs = append(attrs, slog.String("queue_id", id))
	}
	return append(attrs, more...)
}

// logDecision writes the one line of a decision that lists had a part in. The ref
// is the one that the client was told.
func (s *session) logDecision(v policy.Verdict, d policy.Decision, recipient string, m milter.Modifier) {
	if d.Folded {
		return
	}
	attrs := s.who(m, slog.String("ref", d.Ref), slog.String("sender", s.tx.sender), slog.String("recipient", recipient))
	if v.Source != policy.EnvelopeSource {
		attrs = append(attrs, slog.String("field", v.Source.String()), slog.String("address", v.Sender.String()))
	}
	attrs = append(attrs, slog.Any("", v), slog.String("reply", d.Reply.String()))
	s.log.LogAttrs(context.Background(), slog.LevelInfo, d.Event(v), attrs...)
}

// logUnread writes that a sender is no address, which no list is asked about.
func (s *session) logUnread(recipient string, m milter.Modifier) {
	if !s.checker.LogsMore(s.client) {
		return
	}
	s.log.LogAttrs(context.Background(), slog.LevelInfo, "sender not understood",
		s.who(m, slog.String("sender", s.tx.sender), slog.String("recipient", recipient), slog.String("reply", replyNoSender.String()))...)
}

// logFate writes what was done with a whole message.
func (s *session) logFate(message string, f fate, m milter.Modifier, err error) {
	attrs := s.who(m, slog.String("ref", f.ref), slog.String("sender", f.sender))
	level := slog.LevelInfo
	if err != nil {
		level, attrs = slog.LevelWarn, append(attrs, slog.Any("error", err))
	}
	s.log.LogAttrs(context.Background(), level, message, attrs...)
}

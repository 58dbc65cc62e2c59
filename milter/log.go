package milter

import (
	"log/slog"

	"github.com/d--j/go-milter"

	"blockd/policy"
)

// line has the fields of a log line that are the mail server's own.
func (s *session) line() []slog.Attr {
	attrs := []slog.Attr{slog.String("mta", s.macros.Get(milter.MacroMTAFQDN))}
	if id := s.macros.Get(milter.MacroQueueId); id != "" { // Postfix has none before the first recipient
		attrs = append(attrs, slog.String("queue_id", id))
	}
	return attrs
}

// unread writes that a sender is no address, which no list is asked about. It returns the
// client's answer.
func (s *session) unread(recipient string) policy.Reply {
	if s.checker.LogsMore(s.tx.Client.Addr) {
		s.tx.Say(slog.LevelInfo, "sender not understood",
			slog.String("recipient", recipient), slog.String("reply", replyNoSender.String()))
	}
	return replyNoSender
}

// logMessage writes what was done with a whole message.
func (s *session) logMessage(event string, d policy.Decision, err error) {
	attrs := []slog.Attr{slog.String("ref", d.Ref)}
	level := slog.LevelInfo
	if err != nil {
		level, attrs = slog.LevelWarn, append(attrs, slog.Any("error", err))
	}
	s.tx.Say(level, event, attrs...)
}

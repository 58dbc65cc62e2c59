package milter

import (
	"log/slog"

	"github.com/d--j/go-milter"

	"blockd/policy"
	"blockd/policy/reply"
)

// line returns the mail server's own fields of a log line.
func (s *session) line() []slog.Attr {
	attrs := []slog.Attr{slog.String("mta", s.macros.Get(milter.MacroMTAFQDN))}
	if id := s.macros.Get(milter.MacroQueueId); id != "" { // Postfix assigns a queue id at the first recipient
		attrs = append(attrs, slog.String("queue_id", id))
	}
	return attrs
}

// refuseUnreadable logs that the sender is not an address and so was not looked up. It returns
// the reply.
func (s *session) refuseUnreadable(recipient string) reply.Reply {
	if s.checker.LogsMore(s.tx.Client.Addr) {
		s.tx.Say(slog.LevelInfo, "sender not understood",
			slog.String("recipient", recipient), slog.String("reply", replyNoSender.String()))
	}
	return replyNoSender
}

// logMessage logs what happened to a whole message.
func (s *session) logMessage(event string, d policy.Decision, err error) {
	attrs := []slog.Attr{slog.String("ref", d.Ref)}
	level := slog.LevelInfo
	if err != nil {
		level, attrs = slog.LevelWarn, append(attrs, slog.Any("error", err))
	}
	s.tx.Say(level, event, attrs...)
}

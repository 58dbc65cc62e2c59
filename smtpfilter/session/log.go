package session

import (
	"context"
	"log/slog"
	"time"

	"blockd/smtpfilter/wire"
)

// logFields returns the fields of every log line of a session, and more.
func (s *session) logFields(more ...slog.Attr) []slog.Attr {
	attrs := make([]slog.Attr, 0, 16) // room for the fields of a message
	attrs = append(attrs, slog.String("door", s.door.Name), slog.String("client", s.rules.Client.String()), slog.String("helo", s.rules.Client.Helo))
	return append(append(attrs, s.sessionFields()...), more...)
}

// sessionFields returns the session's own fields of the log line of a decision.
func (s *session) sessionFields() []slog.Attr {
	return []slog.Attr{slog.String("session", s.id), slog.Int("port", int(s.client.Port()))}
}

// logMailRefused logs that upstream has refused the sender.
func (s *session) logMailRefused(r wire.Reply) {
	s.logRefusal("sender refused upstream", slog.String("upstream_reply", firstLine(r.Raw)))
}

// logRecipientRefused logs that upstream has refused a recipient.
func (s *session) logRecipientRefused(recipient string, r wire.Reply) {
	s.logRefusal("recipient refused upstream",
		slog.String("recipient", recipient), slog.String("upstream_reply", firstLine(r.Raw)))
}

// logRefusal logs an event that a client may repeat as fast as it likes.
func (s *session) logRefusal(message string, more ...slog.Attr) {
	if s.checker.LogsMore(s.client.Addr()) {
		s.logTransaction(message, more...)
	}
}

// logMessage counts a message and writes its one log line. r is upstream's reply to the dot,
// or zero.
func (s *session) logMessage(m *message, r wire.Reply) {
	s.metrics.messages.WithLabelValues(m.outcome).Inc()
	if m.outcome != "accepted" && m.outcome != "quarantined" && !s.checker.LogsMore(s.client.Addr()) {
		return
	}
	message := "mail not accepted"
	switch m.outcome {
	case "accepted":
		message = "mail accepted"
	case "quarantined":
		message = "mail quarantined"
	}
	kind, generation := s.rules.Verdict()
	attrs := []slog.Attr{
		slog.String("outcome", m.outcome), slog.Int("recipients", s.tx.accepted),
		slog.Int64("octets", m.octets), slog.Duration("took", time.Since(m.started)),
		slog.String("verdict", string(kind)), slog.String("generation", generation),
	}
	if m.kept != "" {
		attrs = append(attrs, slog.String("quarantine", m.kept), slog.Int("set_aside", len(s.tx.quarantined)))
	}
	if r.Code != 0 {
		attrs = append(attrs, slog.String("upstream_reply", firstLine(r.Raw)))
	} else {
		attrs = append(attrs, slog.String("reply", firstLine(m.reply)))
	}
	s.logTransaction(message, attrs...)
}

// logTransaction logs a line about the current transaction.
func (s *session) logTransaction(message string, more ...slog.Attr) {
	attrs := s.logFields(slog.String("id", s.tx.id), slog.String("sender", s.tx.sender))
	s.log.LogAttrs(context.Background(), slog.LevelInfo, message, append(attrs, more...)...)
}

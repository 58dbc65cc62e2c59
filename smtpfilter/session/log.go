package session

import (
	"context"
	"log/slog"
	"time"

	"blockd/policy"
	"blockd/smtpfilter/wire"
)

// who is what every line of a session says.
func (s *session) who(more ...slog.Attr) []slog.Attr {
	attrs := make([]slog.Attr, 0, 16) // room for what the line of a message adds
	attrs = append(attrs, slog.String("session", s.id), slog.String("client", clientText(s)), slog.String("helo", s.helo))
	return append(attrs, more...)
}

func clientText(s *session) string {
	if !s.client.IsValid() {
		return "unknown"
	}
	return s.client.String()
}

// logDecision writes the one line of a decision that lists had a part in. The
// ref is the one that the client was told.
func (s *session) logDecision(v policy.Verdict, d policy.Decision, recipient string) {
	if d.Folded {
		return
	}
	attrs := s.who(slog.String("ref", d.Ref), slog.String("sender", s.tx.sender), slog.String("recipient", recipient),
		slog.String("verdict", string(v.Kind)))
	entry := v.Decider
	if d.Shadow {
		entry = v.Shadow
	}
	if entry >= 0 {
		m := v.Matches[entry]
		source := v.Lists[m.Row].Source
		// A match has been through both halves of the index: the filter said
		// perhaps, and the exact store holds the key.
		attrs = append(attrs, slog.String("filter", "perhaps"), slog.String("exact", "listed"),
			slog.String("list", source.List), slog.String("file", source.Path), slog.Int("line", m.Line),
			slog.String("entry", m.Name()))
	}
	switch {
	case v.Unverified:
		attrs = append(attrs, slog.String("proof", "none: believed on the sender's word"))
	case v.Kind == policy.Allowed && v.Evidence.Found != 0:
		attrs = append(attrs, slog.String("proof", v.Evidence.Found.String()))
	case v.Unsure != 0:
		attrs = append(attrs, slog.String("not_told", v.Unsure.String()))
	}
	if v.Source != policy.EnvelopeSource {
		attrs = append(attrs, slog.String("source", v.Source.String()), slog.String("address", v.Sender.String()))
	}
	if v.Err != nil {
		attrs = append(attrs, slog.Any("error", v.Err))
	}
	attrs = append(attrs, slog.String("reply", d.Reply.String()), slog.String("generation", v.Generation))
	s.log.LogAttrs(context.Background(), slog.LevelInfo, d.Event(v), attrs...)
}

// logMailRefused writes that upstream would not have the sender.
func (s *session) logMailRefused(r wire.Reply) {
	s.logRefusal("sender refused upstream", slog.String("upstream_reply", firstLine(r.Raw)))
}

// logRecipientRefused writes that upstream would not have a recipient.
func (s *session) logRecipientRefused(recipient string, r wire.Reply) {
	s.logRefusal("recipient refused upstream",
		slog.String("recipient", recipient), slog.String("upstream_reply", firstLine(r.Raw)))
}

// logRecipient writes what a recipient was answered for another reason than lists have.
func (s *session) logRecipient(recipient, reply string) {
	s.logRefusal("recipient not taken", slog.String("recipient", recipient), slog.String("reply", firstLine(reply)))
}

// logTurnedDown writes that a rule on the client refuses a recipient. The ref is the
// decision's.
func (s *session) logTurnedDown(recipient string, d policy.Decision) {
	if d.Folded {
		return
	}
	s.log.LogAttrs(context.Background(), slog.LevelInfo, "recipient not taken", s.who(slog.String("ref", d.Ref), slog.String("sender", s.tx.sender),
		slog.String("recipient", recipient), slog.String("reply", d.Reply.String()))...)
}

// logRefusal writes a line about what a client may repeat as fast as it likes.
func (s *session) logRefusal(message string, more ...slog.Attr) {
	if s.checker.LogsMore(s.client.Addr()) {
		s.logTransaction(message, more...)
	}
}

// logMessage counts a message and writes its one line. r is upstream's reply to
// the dot, if it came to that.
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
	attrs := []slog.Attr{
		slog.String("outcome", m.outcome), slog.Int("recipients", s.tx.accepted),
		slog.Int64("octets", m.octets), slog.Duration("took", time.Since(m.started)),
		slog.String("verdict", string(s.tx.verdict.Kind)), slog.String("generation", s.tx.verdict.Generation),
	}
	if m.kept != "" {
		attrs = append(attrs, slog.String("quarantine", m.kept), slog.Int("set_aside", len(s.tx.aside)))
	}
	if r.Code != 0 {
		attrs = append(attrs, slog.String("upstream_reply", firstLine(r.Raw)))
	} else {
		attrs = append(attrs, slog.String("reply", firstLine(m.reply)))
	}
	s.logTransaction(message, attrs...)
}

// logTransaction writes a line about the current transaction.
func (s *session) logTransaction(message string, more ...slog.Attr) {
	attrs := s.who(slog.String("ref", s.tx.ref), slog.String("sender", s.tx.sender))
	s.log.LogAttrs(context.Background(), slog.LevelInfo, message, append(attrs, more...)...)
}

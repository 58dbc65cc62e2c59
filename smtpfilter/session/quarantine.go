package session

import (
	"context"
	"log/slog"
	"slices"
	"strings"

	"blockd/policy"
	"blockd/policy/reply"
	"blockd/smtpfilter/wire"
)

// Quarantined mail goes into a Maildir instead of upstream. Only then is the 250 to a message
// our own, so it waits until the message is on disk. If a message has recipients of both
// kinds, upstream gets its end only when the copy is safe. The copy is deleted if upstream
// refuses, because the client's retry brings both again.

// quarantineRecipient accepts a recipient whose copy goes into quarantine.
func (s *session) quarantineRecipient(recipient string, d policy.Decision) {
	s.rules.Join(&d)
	s.tx.addQuarantined(recipient, d)
	s.metrics.recipients.WithLabelValues("quarantined").Inc()
	s.reply(replyRcptOK)
}

// addQuarantined records a recipient whose copy goes into quarantine, and the list's tag.
func (t *transaction) addQuarantined(recipient string, d policy.Decision) {
	t.quarantined = append(t.quarantined, recipient)
	if !slices.ContainsFunc(t.tags, func(tag reply.Tag) bool { return tag.List == d.Tag.List }) {
		t.tags = append(t.tags, d.Tag)
	}
}

// openCopy begins the copy in quarantine. The fields of a delivery come first, as in the
// embedded mailbox, followed by the fields that say which list quarantined the message and
// where it came from.
func (s *session) openCopy(m *message) error {
	c, err := s.settings.Quarantine.Begin()
	if err != nil {
		return err
	}
	m.copy = c
	var b strings.Builder
	b.WriteString("Return-Path: <" + s.tx.sender + ">\r\n")
	for _, recipient := range s.tx.quarantined {
		b.WriteString("Delivered-To: " + recipient + "\r\n")
	}
	for _, tag := range s.tx.tags {
		b.WriteString(tagField(tag))
	}
	b.Write(s.traceHeader(m.started))
	_, err = c.Write([]byte(b.String()))
	return err
}

// copyData adds a piece of DATA to the copies. done says that the piece ends with the dot
// line.
func (s *session) copyData(m *message, piece []byte, done bool) {
	if m.copy == nil && m.proof == nil || m.outcome != "" {
		return
	}
	if done {
		piece = piece[:len(piece)-len("\r\n")] // without the CRLF of the dot line; Unstuff removes its dot
	}
	for len(piece) > 0 {
		var text []byte
		text, piece = m.dots.Next(piece)
		s.copyPiece(m, text)
	}
}

// copyPiece adds octets to the message's copies: the one that may prove the sender, and the
// one in quarantine.
func (s *session) copyPiece(m *message, text []byte) {
	if m.proof != nil && m.outcome == "" {
		s.copyProof(m, text)
	}
	if m.copy == nil || m.outcome != "" {
		return
	}
	if _, err := m.copy.Write(text); err != nil {
		s.quarantineFailed(m, err)
	}
}

// commitCopy syncs the whole copy in quarantine to disk.
func (s *session) commitCopy(m *message) {
	if m.copy == nil || m.outcome != "" || m.safe {
		return
	}
	if err := m.copy.Commit(); err != nil {
		s.quarantineFailed(m, err)
		return
	}
	m.safe = true
}

// keepCopy leaves the copy in quarantine for good.
func (m *message) keepCopy() {
	if m.copy != nil {
		m.kept, m.copy = m.copy.ID(), nil
	}
}

// quarantined answers a message that goes into quarantine alone.
func (s *session) quarantined(m *message) {
	m.outcome, m.reply = "quarantined", replyOK
	m.keepCopy()
	s.logMessage(m, wire.Reply{})
	s.reset()
	s.forsakeUpstream() // upstream may have MAIL, sent before its recipients were known
	s.write([]byte(replyOK))
	s.flush()
}

// quarantineFailed ends the message after a disk error in the quarantine. The client is told
// to try again, so no mail is lost.
func (s *session) quarantineFailed(m *message, err error) {
	s.logQuarantine(err)
	s.stop(m, "quarantine-failed", replyInternal)
	s.withdraw(m)
}

// logQuarantine counts and logs an error of the quarantine.
func (s *session) logQuarantine(err error) {
	s.metrics.quarantine.Inc()
	s.log.LogAttrs(context.Background(), slog.LevelError, "quarantine failed", s.logFields(slog.Any("error", err))...)
}

// withdraw deletes all copies of a message.
func (s *session) withdraw(m *message) {
	m.dropProof()
	s.withdrawCopy(m)
}

// withdrawCopy deletes the copy in quarantine.
func (s *session) withdrawCopy(m *message) {
	if m.copy == nil {
		return
	}
	if err := m.copy.Withdraw(); err != nil {
		s.logQuarantine(err)
	}
	m.copy = nil
}

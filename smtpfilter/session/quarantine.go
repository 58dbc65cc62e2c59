package session

import (
	"context"
	"log/slog"
	"slices"
	"strings"

	"blockd/policy"
	"blockd/smtpfilter/wire"
)

// Mail that a list wants set aside goes into a Maildir instead of upstream. That
// is the one case in which a 250 to a message is our own, so the rule is upstream's
// own: not before the message is on the disk. Where a message has recipients of
// both kinds, upstream gets its end only when the copy is safe, and the copy is
// deleted if upstream refuses: the client's retry brings both.

// setAside notes a recipient whose copy goes into quarantine.
func (s *session) setAside(recipient string, d policy.Decision) {
	s.rules.Join(&d)
	s.tx.addAside(recipient, d)
	s.metrics.recipients.WithLabelValues("quarantined").Inc()
	s.reply(replyRcptOK)
}

// addAside notes a recipient, and why its copy goes into quarantine.
func (t *transaction) addAside(recipient string, d policy.Decision) {
	t.aside = append(t.aside, recipient)
	if !slices.ContainsFunc(t.labels, func(tag policy.Tag) bool { return tag.List == d.Tag.List }) {
		t.labels = append(t.labels, d.Tag)
	}
}

// openCopy begins the copy of a message with what delivery puts on top, as the
// embedded mailbox has it, and the fields that say why it is here and whence.
func (s *session) openCopy(m *message) error {
	c, err := s.settings.Quarantine.Begin()
	if err != nil {
		return err
	}
	m.copy = c
	var b strings.Builder
	b.WriteString("Return-Path: <" + s.tx.sender + ">\r\n")
	for _, recipient := range s.tx.aside {
		b.WriteString("Delivered-To: " + recipient + "\r\n")
	}
	for _, tag := range s.tx.labels {
		b.WriteString(tagField(tag))
	}
	b.Write(s.traceHeader(m.started))
	_, err = c.Write([]byte(b.String()))
	return err
}

// keepData adds a piece of DATA to the copies; done says that it ends with the dot
// line.
func (s *session) keepData(m *message, piece []byte, done bool) {
	if m.copy == nil && m.proof == nil || m.outcome != "" {
		return
	}
	if done {
		piece = piece[:len(piece)-len("\r\n")] // of the dot line, whose dot goes as every first one
	}
	for len(piece) > 0 {
		var text []byte
		text, piece = m.dots.Next(piece)
		s.keep(m, text)
	}
}

// keep adds octets of the message to its copies: that which is to prove something,
// and that for the quarantine.
func (s *session) keep(m *message, text []byte) {
	if m.proof != nil && m.outcome == "" {
		s.keepProof(m, text)
	}
	if m.copy == nil || m.outcome != "" {
		return
	}
	if _, err := m.copy.Write(text); err != nil {
		s.quarantineFailed(m, err)
	}
}

// secure brings the whole copy for the quarantine to the disk.
func (s *session) secure(m *message) {
	if m.copy == nil || m.outcome != "" || m.safe {
		return
	}
	if err := m.copy.Commit(); err != nil {
		s.quarantineFailed(m, err)
		return
	}
	m.safe = true
}

// keep lets the copy stay where it is.
func (m *message) keep() {
	if m.copy != nil {
		m.kept, m.copy = m.copy.ID(), nil
	}
}

// quarantined answers a message that has gone into quarantine alone.
func (s *session) quarantined(m *message) {
	m.outcome, m.reply = "quarantined", replyOK
	m.keep()
	s.logMessage(m, wire.Reply{})
	s.reset()
	s.forsakeUpstream() // MAIL may have gone there before its recipients turned out
	s.write([]byte(replyOK))
	s.flush()
}

// quarantineFailed is the disk's fault, and no reason to lose mail: the client
// comes again.
func (s *session) quarantineFailed(m *message, err error) {
	s.logQuarantine(err)
	s.stop(m, "quarantine-failed", replyInternal)
	s.withdraw(m)
}

// logQuarantine counts and logs an error of the quarantine.
func (s *session) logQuarantine(err error) {
	s.metrics.quarantine.Inc()
	s.log.LogAttrs(context.Background(), slog.LevelError, "quarantine failed", s.who(slog.Any("error", err))...)
}

// withdraw gives up all that is kept of a message.
func (s *session) withdraw(m *message) {
	m.dropProof()
	s.withdrawCopy(m)
}

// withdrawCopy takes the copy in quarantine back.
func (s *session) withdrawCopy(m *message) {
	if m.copy == nil {
		return
	}
	if err := m.copy.Withdraw(); err != nil {
		s.logQuarantine(err)
	}
	m.copy = nil
}

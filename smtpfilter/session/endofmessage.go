package session

import (
	"context"
	"errors"
	"io"
	"log/slog"

	"blockd/mail/spool"
	"blockd/policy"
)

// A blocked sender may have an entry that lets a message pass if the message proves its sender
// (docs/auth.md). Such a message goes upstream without its end, and a copy is kept here. When
// the client has sent everything, the copy is examined. With proof, upstream gets the end.
// Without proof, the connection to upstream is closed, and upstream discards the unfinished
// message (RFC 5321, section 4.1.1.4).

// finish forwards piece, the end of the message, of which consumed octets are still in the
// client's buffer. If the message must prove its sender first, finish holds the last withheld
// octets back until it has: upstream discards a message without its end. An error is the
// client's.
func (s *session) finish(m *message, piece []byte, withheld, consumed int) error {
	if m.proof == nil || m.outcome != "" {
		s.commitCopy(m)
		s.put(m, piece, true, true)
		s.in.Discard(consumed)
		return nil
	}
	cut := len(piece) - min(withheld, len(piece))
	s.put(m, piece[:cut], false, false)
	end := append([]byte(nil), piece[cut:]...)
	s.in.Discard(consumed) // watching the client reads into the buffer
	s.flush()
	if err := s.decide(m, true); err != nil {
		return err
	}
	s.commitCopy(m)
	s.put(m, end, true, true)
	return nil
}

// decide decides about a message by its copy. If the copy is not whole, the message proves
// nothing. An error means that the client has gone away meanwhile.
func (s *session) decide(m *message, whole bool) error {
	if m.outcome != "" {
		return nil
	}
	if m.fields != nil && !m.fields.ended { // the copy holds no more of the header
		m.fields.read(nil, true)
		s.judgeHeader(m)
	}
	proof := m.proof
	m.proof = nil
	defer proof.Close()
	if !whole {
		s.rules.Examine(s.hard, nil)
		s.carryOut(m, s.rules.Message(), proof)
		return nil
	}
	var err error
	gone := s.attend(func(ctx context.Context) { err = s.rules.Examine(ctx, proof.Reader()) })
	switch {
	case gone:
		return io.ErrUnexpectedEOF
	case err != nil:
		s.spoolFailed(m, err)
	case s.hard.Err() != nil: // the session's time has ended before DNS answered
		s.stop(m, "timeout", replyInternal)
	default:
		s.carryOut(m, s.rules.Message(), proof)
	}
	return nil
}

// carryOut refuses or quarantines a message that is on its way, as the decision says. proof
// holds the message so far; nil means that nothing has been forwarded yet.
func (s *session) carryOut(m *message, d policy.Decision, proof *spool.Copy) {
	switch {
	case d.Refuses():
		m.tarpit = d.Tarpit
		s.stop(m, refusedOutcome(d.Outcome), textOf(d.Reply))
		if m.over == "" && d.Reply.Ends() {
			m.over = "list"
		}
	case d.Outcome == policy.Quarantine && m.forwarded:
		s.divert(m, d, proof)
	}
}

// divert moves a message into quarantine that was going upstream, whole or in part.
func (s *session) divert(m *message, d policy.Decision, proof *spool.Copy) {
	s.abandonUpstream()
	m.forwarded = false
	for _, recipient := range s.tx.recipients {
		s.tx.addQuarantined(recipient, d)
	}
	s.withdrawCopy(m) // the copy for other recipients, if there was one
	err := s.openCopy(m)
	if err == nil && proof != nil {
		_, err = io.Copy(m.copy, proof.Reader())
	}
	if err != nil {
		s.quarantineFailed(m, err)
	}
}

// copyProof adds octets to the copy that may prove the sender.
func (s *session) copyProof(m *message, text []byte) {
	switch _, err := m.proof.Write(text); {
	case errors.Is(err, spool.ErrTooBig):
		s.decide(m, false)
	case err != nil:
		s.spoolFailed(m, err)
	}
}

// spoolFailed ends the message after a disk error on its copy. It is then unknown whether the
// listed sender is excused. The message must be neither refused for good nor accepted, so the
// client is told to try again, whatever on_error says.
func (s *session) spoolFailed(m *message, err error) {
	s.metrics.spool.Inc()
	s.log.LogAttrs(context.Background(), slog.LevelError, "copy failed", s.logFields(slog.Any("error", err))...)
	s.stop(m, "copy-failed", replyInternal)
}

// dropProof deletes the copies of the message, except the one in quarantine.
func (m *message) dropProof() {
	for _, c := range []**spool.Copy{&m.proof, &m.held} {
		if *c != nil {
			(*c).Close()
			*c = nil
		}
	}
}

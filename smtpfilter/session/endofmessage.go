package session

import (
	"context"
	"errors"
	"io"
	"log/slog"

	"blockd/policy"
	"blockd/spool"
)

// A sender that a list blocks may have an entry that lets it pass if its message
// proves something (docs/auth.md). Then the message goes upstream but for its end,
// and a copy of it is kept here. When the client has sent all, the copy is looked
// at. With proof upstream gets the end; without, its connection is closed, and what
// it has is half a message that must not be delivered (RFC 5321, section 4.1.1.4).

// finish moves the end of a message on, that is piece, of which consumed octets are
// still in the client's buffer. If the message is to prove something first, the last octets,
// so many as withheld says, wait for that: upstream discards a message without its end. An
// error is the client's.
func (s *session) finish(m *message, piece []byte, withheld, consumed int) error {
	if m.proof == nil || m.outcome != "" {
		s.secure(m)
		s.put(m, piece, true, true)
		s.in.Discard(consumed)
		return nil
	}
	cut := len(piece) - min(withheld, len(piece))
	s.put(m, piece[:cut], false, false)
	end := append([]byte(nil), piece[cut:]...)
	s.in.Discard(consumed) // to watch the client is to read on
	s.flush()
	if err := s.decide(m, true); err != nil {
		return err
	}
	s.secure(m)
	s.put(m, end, true, true)
	return nil
}

// decide settles what becomes of a message by its copy; a copy that is not the whole
// message proves nothing. An error says that the client has gone away meanwhile.
func (s *session) decide(m *message, whole bool) error {
	if m.outcome != "" {
		return nil
	}
	if m.fields != nil && !m.fields.ended { // no more of the header is kept
		m.fields.read(nil, true)
		s.judgeHeader(m)
	}
	proof := m.proof
	m.proof = nil
	defer proof.Close()
	if !whole {
		s.rules.Examine(s.hard, nil)
		s.fulfil(m, s.rules.Message(), proof)
		return nil
	}
	var err error
	gone := s.attend(func(ctx context.Context) { err = s.rules.Examine(ctx, proof.Reader()) })
	switch {
	case gone:
		return io.ErrUnexpectedEOF
	case err != nil:
		s.spoolFailed(m, err)
	case s.hard.Err() != nil: // DNS was not given its time
		s.stop(m, "timeout", replyInternal)
	default:
		s.fulfil(m, s.rules.Message(), proof)
	}
	return nil
}

// fulfil does what lists want done with a message that is under way. proof has what
// came of it so far; nil = nothing has been moved yet.
func (s *session) fulfil(m *message, d policy.Decision, proof *spool.Copy) {
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

// divert sends a message into quarantine that was on its way upstream, whole or in part.
func (s *session) divert(m *message, d policy.Decision, proof *spool.Copy) {
	s.abandonUpstream()
	m.forwarded = false
	for _, recipient := range s.tx.taken {
		s.tx.addAside(recipient, d)
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

// keepProof adds octets of the message to the copy that is to prove something.
func (s *session) keepProof(m *message, text []byte) {
	switch _, err := m.proof.Write(text); {
	case errors.Is(err, spool.ErrTooBig):
		s.decide(m, false)
	case err != nil:
		s.spoolFailed(m, err)
	}
}

// spoolFailed is the disk's fault. Whether a listed sender is excused cannot be told
// now: neither a refusal for good nor the mail of a listed sender may come of that,
// so the client comes again, whatever on_error says.
func (s *session) spoolFailed(m *message, err error) {
	s.metrics.spool.Inc()
	s.log.LogAttrs(context.Background(), slog.LevelError, "copy failed", s.who(slog.Any("error", err))...)
	s.stop(m, "copy-failed", replyInternal)
}

// dropProof gives up what is kept of the message but for the quarantine.
func (m *message) dropProof() {
	for _, c := range []**spool.Copy{&m.proof, &m.held} {
		if *c != nil {
			(*c).Close()
			*c = nil
		}
	}
}

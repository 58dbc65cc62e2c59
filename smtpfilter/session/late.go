package session

import (
	"context"
	"errors"
	"io"
	"log/slog"

	"blockd/msgauth"
	"blockd/policy"
	"blockd/spool"
)

// A sender whom a list blocks may have an entry that lets it pass if its message
// proves something (docs/auth.md). Then the message goes upstream but for its end,
// and a copy of it is kept here. When the client has sent all, the copy is looked
// at. With proof upstream gets the end; without, its connection is closed, and what
// it has is half a message that nobody is to have (RFC 5321, section 4.1.1.4).

// finish moves the end of a message on, that is piece, of which consumed octets are
// still in the client's buffer. If the message is to prove something first, the last
// withheld octets wait for that: without them it is none. An error is the client's.
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
	proof := m.proof
	m.proof = nil
	defer proof.Close()
	var facts *msgauth.Message
	if whole {
		var err error
		gone := s.attend(func(ctx context.Context) { facts, err = s.examine(ctx, m, proof.Reader()) })
		switch {
		case gone:
			return io.ErrUnexpectedEOF
		case err != nil:
			s.spoolFailed(m, err)
			return nil
		case s.hard.Err() != nil: // DNS was not given its time
			s.stop(m, "timeout", replyInternal)
			return nil
		}
	}
	var d policy.Decision
	if s.tx.fate.late() {
		if d = s.endOfMessage(); d.Outcome == policy.Quarantine && m.fields != nil {
			s.readSenders(m)
			for i, v := range m.awaiting {
				m.awaiting[i] = s.proveBy(v, facts)
			}
		}
	}
	s.fulfil(m, s.judgeSenders(m.awaiting, d), proof)
	return nil
}

// examine looks for what the message proves of all senders about whom it decides.
func (s *session) examine(ctx context.Context, m *message, message io.Reader) (*msgauth.Message, error) {
	facts, err := s.checker.Examine(ctx, s.client.Addr(), message)
	if err != nil {
		return nil, err
	}
	if s.tx.fate.late() {
		s.tx.verdict = s.checker.ProveBy(ctx, s.tx.verdict, s.tx.recipient(), s.origin(), facts)
	}
	for i, v := range m.awaiting {
		m.awaiting[i] = s.proveBy(v, facts)
	}
	return facts, nil
}

// proveBy is for an address of the header, about which nobody but the message is asked.
func (s *session) proveBy(v policy.Verdict, facts *msgauth.Message) policy.Verdict {
	return s.checker.ProveBy(s.hard, v, s.tx.recipient(), s.origin(), facts)
}

// endOfMessage decides for every recipient. The answer is that of the first: all have
// the same fate.
func (s *session) endOfMessage() (first policy.Decision) {
	for i, recipient := range s.tx.taken {
		d := s.checker.EndOfMessage(s.tx.verdict, recipient)
		if i == 0 {
			first = d
		}
		d.Reply = first.Reply // which is what the client hears
		s.logDecision(s.checker.For(s.tx.verdict, recipient), d, recipient)
	}
	return first
}

// fulfil does what lists want done with a message that is under way. proof has what
// came of it so far; nil = nothing has been moved yet.
func (s *session) fulfil(m *message, d policy.Decision, proof *spool.Copy) {
	switch d.Outcome {
	case policy.Refuse, policy.Defer:
		m.tarpit = d.Tarpit
		s.stop(m, refusedOutcome(d.Outcome), d.Reply.String()+"\r\n")
		if m.over == "" && d.Reply.Ends() {
			m.over = "list"
		}
	case policy.Quarantine:
		s.divert(m, d, proof)
	case policy.Mark:
		if proof == nil && m.forwarded && s.tx.tag == (policy.Tag{}) {
			s.tx.tag = d.Tag
			m.loop = newHops(s.settings.Hostname)
		}
	}
}

// divert sends a message into quarantine, that was on its way upstream or in part.
func (s *session) divert(m *message, d policy.Decision, proof *spool.Copy) {
	if m.forwarded {
		s.abandonUpstream()
		m.forwarded = false
	}
	if s.settings.Quarantine == nil { // the configuration's check does not let it come to this
		s.stop(m, "quarantine-failed", replyInternal)
		return
	}
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

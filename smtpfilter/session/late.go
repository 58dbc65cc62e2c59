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

// fate is what the recipients of one message must have in common: there is one
// answer to its end. The zero fate is that of mail about which nothing is open.
type fate struct {
	stake policy.Stake
	group policy.Group // of who is asked about the header; 0 where nobody is
}

// fateOf is what a recipient's answer hangs on. A tag stands on top of the message, so
// it is settled before the message can prove anything.
func (s *session) fateOf(recipient string) (f fate) {
	if len(s.tx.verdict.Matches) > 0 {
		f.stake = s.stake(s.tx.verdict, recipient)
	}
	if s.tx.headers != nil {
		f.group = s.checker.Group(recipient, s.tx.verdict)
	}
	return f
}

// stake is what a recipient's answer hangs on, by one verdict.
func (s *session) stake(v policy.Verdict, recipient string) policy.Stake {
	stake := s.checker.Stake(v, recipient)
	if stake.Otherwise == policy.Tag {
		return policy.Stake{}
	}
	return stake
}

// late reports whether the message decides about its sender.
func (f fate) late() bool { return f.stake != policy.Stake{} }

// open reports whether the message may decide something.
func (f fate) open() bool { return f != fate{} }

// joins reports whether a recipient can be one of this message's. The first one that
// is taken settles it, and one that is to have another fate is sent again by the
// client; it is answered then.
func (s *session) joins(f fate, recipient string) bool {
	if f == s.tx.fate {
		return true
	}
	if !s.settle() || !s.standing() { // those before it may have been refused
		return false
	}
	if s.tx.accepted == 0 && len(s.tx.aside) == 0 {
		s.tx.fate = f
		return true
	}
	s.putOff(recipient)
	return false
}

// putOff asks for a recipient in a transaction of its own: what lists decided about it
// has not been done.
func (s *session) putOff(recipient string) {
	s.metrics.recipients.WithLabelValues("limited").Inc()
	s.logRecipient(recipient, replyApart)
	s.reply(replyApart)
}

// recipient stands for all recipients of the message.
func (t *transaction) recipient() string {
	if len(t.taken) > 0 {
		return t.taken[0]
	}
	return t.aside[0]
}

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
		s.stop(m, refusedOutcome(d.Outcome), d.Reply+"\r\n")
	case policy.Quarantine:
		s.divert(m, d, proof)
	case policy.Tag:
		if proof == nil && m.forwarded && s.tx.tag == "" {
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

package milter

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"runtime/debug"

	"github.com/d--j/go-milter"

	"blockd/policy"
	"blockd/spool"
)

// maxAwaiting bounds the recipients of one message whose answer comes at its end.
// Mail servers take a thousand at the most, by their defaults or before.
const maxAwaiting = 1000

// stakes are those of a recipient, by verdict. Without any its answer is known at RCPT.
type stakes [2]policy.Stake

// proveOrigin looks for what is known before the message and can have a blocked
// sender allowed for a recipient: that the client has logged in, and SPF.
//
// No progress is told meanwhile. Sendmail 8.17 takes that at the end of a message only:
// at RCPT it is a "bogus response", and the milter out of the session. It has to wait
// for ProofTimeout.
func (s *session) proveOrigin(recipient string) {
	ctx, cancel := s.budget()
	defer cancel()
	for i, v := range s.tx.verdicts {
		s.tx.verdicts[i] = s.tx.checker.ProveOrigin(ctx, v, recipient, s.tx.origin)
	}
}

func (s *session) budget() (context.Context, context.CancelFunc) {
	return context.WithTimeout(context.Background(), s.settings.ProofTimeout)
}

// stakesOf are those of a recipient; none where this mail server shows no messages.
func (s *session) stakesOf(recipient string) (all stakes) {
	if s.seesMessage {
		for i, v := range s.tx.verdicts {
			all[i] = s.tx.checker.Stake(v, recipient)
		}
	}
	return all
}

// await puts the answer about a recipient off to the end of the message.
func (s *session) await(recipient string, all stakes) *milter.Response {
	t := &s.tx
	if len(t.awaiting) == maxAwaiting || !t.joins(s.checker, recipient, policy.Decision{}, all) {
		s.metrics.recipients.WithLabelValues(outLimited).Inc()
		return reply(replyApart)
	}
	t.awaiting = append(t.awaiting, recipient)
	s.metrics.recipients.WithLabelValues(outAwaiting).Inc()
	return milter.RespContinue
}

// copies reports whether the message may have to prove something: for a recipient, or
// for an address in its header.
func (s *session) copies() bool {
	return s.seesMessage && (len(s.tx.awaiting) > 0 || s.tx.reads && s.tx.group != policy.Unread)
}

// copyField adds a header field to the copy as it came over the wire: signatures are
// about those octets. A mail server hands over folded lines with LF, and the blanks
// in front of the text only if it was asked to.
func (s *session) copyField(name, value string) {
	line := make([]byte, 0, len(name)+len(value)+len(value)/16+8)
	line = append(append(line, name...), ':')
	if !s.exact {
		line = append(line, ' ')
	}
	for i := range len(value) {
		if value[i] == '\n' && (i == 0 || value[i-1] != '\r') {
			line = append(line, '\r')
		}
		line = append(line, value[i])
	}
	s.copy(append(line, "\r\n"...))
}

// copy adds octets to the copy of the message.
func (s *session) copy(text []byte) {
	t := &s.tx
	if t.torn != nil {
		return
	}
	if t.copied == nil {
		t.copied = s.settings.Copies.Copy(s.settings.MaxCopy)
	}
	if _, err := t.copied.Write(text); err != nil {
		t.copied.Close()
		t.torn = err
	}
}

// settle gives the answers that were put off to the end of the message. nil = the
// message goes on, to the fate that the transaction then has.
func (s *session) settle(m milter.Modifier) *milter.Response {
	t := &s.tx
	if len(t.awaiting) == 0 && !t.fieldsAwait {
		return nil
	}
	m.Progress() // a mail server that speaks too old a version has to wait in silence
	if err := s.proveMessage(); err != nil {
		s.log.LogAttrs(context.Background(), slog.LevelError, "message not examined", s.who(m, slog.String("sender", t.sender), slog.Any("error", err))...)
		s.metrics.messages.WithLabelValues(outDeferred).Inc()
		return reply(replyInternal) // whatever on_error says: that the sender is listed is certain
	}
	if r := s.answerAll(m); r != nil {
		return r
	}
	if !t.fieldsAwait {
		if r := s.readFields(); r != nil {
			return r
		}
	}
	for i, v := range t.judged {
		t.judged[i] = t.checker.ProveBy(context.Background(), v, t.recipient, t.origin, t.facts) // asks nothing: SPF is of envelopes
	}
	return s.judgeFields(m)
}

// proveMessage looks for what the message proves of its sender. One that is too
// large proves nothing. A message that makes us panic must not get what on_error gives
// to those of whom nothing is known.
func (s *session) proveMessage() (err error) {
	defer func() {
		if cause := recover(); cause != nil {
			s.metrics.panics.Inc()
			err = fmt.Errorf("panic: %v\n%s", cause, debug.Stack())
		}
	}()
	t := &s.tx
	t.ended = true
	ctx, cancel := s.budget()
	defer cancel()
	switch {
	case t.copied == nil: // a mail server that leaves out the header and its end
	case t.torn == nil:
		if t.facts, err = t.checker.Examine(ctx, s.client, t.copied.Reader()); err != nil {
			return err
		}
	case !errors.Is(t.torn, spool.ErrTooBig):
		return t.torn
	}
	if len(t.awaiting) > 0 { // all have the same at stake
		for i, v := range t.verdicts {
			t.verdicts[i] = t.checker.ProveBy(ctx, v, t.awaiting[0], t.origin, t.facts)
		}
	}
	return nil
}

// answerAll decides about all recipients, who have the same at stake, and so share
// the answer. The reference in it is that of the first.
func (s *session) answerAll(m milter.Modifier) *milter.Response {
	t := &s.tx
	for i, recipient := range t.awaiting {
		v, d := t.weigh(recipient, t.checker.EndOfMessage)
		d = s.feasible(d)
		if i == 0 {
			t.fate = fate{outcome: d.Outcome, tag: d.Tag, ref: d.Ref, sender: t.sender}
			t.answer = d.Reply
		}
		d.Reply = t.answer
		s.logDecision(t.checker.For(v, recipient), d, recipient, m)
	}
	switch {
	case len(t.awaiting) == 0:
		return nil
	case t.answer.Code != 0:
		s.metrics.messages.WithLabelValues(recipientOutcome(policy.Decision{Outcome: t.fate.outcome})).Inc()
		return reply(t.answer)
	case t.fate.outcome == policy.Accept:
		s.metrics.messages.WithLabelValues(outAccepted).Inc()
	}
	return nil
}

// feasible is what can be done of a decision with what the mail server lets us do.
func (s *session) feasible(d policy.Decision) policy.Decision {
	switch {
	case d.Outcome == policy.Quarantine && !s.canQuarantine:
		d.Outcome, d.Reply = policy.Defer, replyNoQuarantine
	case d.Outcome == policy.Mark && !s.canTag:
		d.Outcome, d.Tag = policy.Accept, policy.Tag{}
	}
	return d
}

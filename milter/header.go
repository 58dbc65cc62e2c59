package milter

import (
	"context"
	"slices"

	"github.com/d--j/go-milter"

	"blockd/policy"
)

// judgeHeader decides by the addresses of the message's header. nil = the message
// goes on, to the fate that the transaction then has.
func (s *session) judgeHeader(m milter.Modifier) *milter.Response {
	t := &s.tx
	if r := s.readFields(); r != nil {
		return r
	}
	t.fieldsAwait = s.seesMessage && slices.ContainsFunc(t.judged, func(v policy.Verdict) bool { return t.checker.Awaits(v, t.recipient) })
	if t.fieldsAwait {
		return nil
	}
	return s.judgeFields(m)
}

// readFields looks up the addresses of the header. Mail whose envelope an exception frees
// from all lists is not asked further. nil = there is nothing wrong with the header itself.
func (s *session) readFields() *milter.Response {
	t := &s.tx
	if !t.reads || !t.settled || t.group == policy.Unread {
		return nil
	}
	for _, v := range t.verdicts {
		if v := t.checker.For(v, t.recipient); v.Frees() {
			return nil
		}
	}
	fields, ok := t.fields.Addresses()
	if !ok {
		s.metrics.messages.WithLabelValues(outRefused).Inc()
		return reply(replyManySenders)
	}
	for _, f := range fields {
		source, _ := policy.FieldSource(f.Name)
		v := t.checker.Header(source, f.Text)
		v.Seen.UTF8 = t.verdicts[0].Seen.UTF8
		t.judged = append(t.judged, t.checker.ProveOrigin(context.Background(), v, t.recipient, t.origin)) // asks nothing: SPF is of envelopes
	}
	return nil
}

// judgeFields decides by all of the addresses.
func (s *session) judgeFields(m milter.Modifier) *milter.Response {
	for _, v := range s.tx.judged {
		if r := s.judgeField(v, m); r != nil {
			return r
		}
	}
	return nil
}

// judgeField decides by one address. What a list wants done with the message goes
// into its fate, where that is not worse already.
func (s *session) judgeField(v policy.Verdict, m milter.Modifier) *milter.Response {
	t := &s.tx
	ask := t.checker.Recipient
	if t.ended {
		ask = t.checker.EndOfMessage
	}
	d := ask(v, t.recipient)
	if d.Ref == "" || v.Kind == policy.Allowed {
		return nil
	}
	d = s.feasible(d)
	s.logDecision(t.checker.For(v, t.recipient), d, t.recipient, m)
	switch {
	case d.Outcome == policy.Refuse, d.Outcome == policy.Defer:
		s.metrics.messages.WithLabelValues(recipientOutcome(d)).Inc()
		return reply(d.Reply)
	case weight(d.Outcome) > weight(t.fate.outcome):
		t.fate = fate{outcome: d.Outcome, tag: d.Tag, ref: d.Ref, sender: t.sender}
	}
	return nil
}

package milter

import (
	"github.com/d--j/go-milter"

	"blockd/policy"
)

// judgeHeader decides by the addresses of the message's header. An envelope that a
// list allows is not asked further. nil = the message goes on, to the fate that the
// transaction then has.
func (s *session) judgeHeader(m milter.Modifier) *milter.Response {
	t := &s.tx
	if !t.reads || !t.settled || t.group == policy.Unread {
		return nil
	}
	for _, v := range t.verdicts {
		if t.checker.For(v, t.recipient).Kind == policy.Allowed {
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
		if r := s.judgeField(source, f.Text, m); r != nil {
			return r
		}
	}
	return nil
}

// judgeField decides by one address. What a list wants done with the message goes
// into its fate, where that is not worse already.
func (s *session) judgeField(source policy.Source, address string, m milter.Modifier) *milter.Response {
	t := &s.tx
	v := t.checker.Header(source, address)
	d := t.checker.Recipient(v, t.recipient)
	switch {
	case d.Ref == "", v.Kind == policy.Allowed:
		return nil
	case d.Outcome == policy.Quarantine && !s.canQuarantine:
		d.Outcome, d.Reply = policy.Defer, replyNoQuarantine
	case d.Outcome == policy.Tag && !s.canTag:
		d.Outcome, d.Tag = policy.Accept, ""
	}
	s.logDecision(t.checker.For(v, t.recipient), d, t.recipient, m)
	switch {
	case d.Outcome == policy.Refuse, d.Outcome == policy.Defer:
		s.metrics.messages.WithLabelValues(recipientOutcome(d)).Inc()
		return reply(d.Reply)
	case weight(d.Outcome) > weight(t.fate.outcome):
		t.fate = fate{d.Outcome, d.Tag, d.Ref, t.sender}
	}
	return nil
}

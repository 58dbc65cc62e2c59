package session

import "blockd/policy"

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
	if stake.Otherwise == policy.Mark {
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

package session

import (
	"blockd/policy"
	"blockd/smtpfilter/parse"
	"blockd/smtpfilter/wire"
)

// queueLimit bounds the commands in flight (docs/smtp.md, "Pipelining").
const queueLimit = 64

// pending is one command that waits for its answer.
type pending struct {
	local     string     // our own reply; "" = upstream answers
	verb      parse.Verb // MAIL or RCPT, if the command was forwarded
	params    parse.Params
	held      bool   // MAIL that the client has its answer for: upstream's is passed on only in answers to RCPT
	reused    bool   // the connection was idle since an earlier transaction, and upstream may have closed it
	recipient string // of RCPT
	exempt    bool   // an exempt recipient of RCPT
	noted     bool   // whether the transaction records the address of RCPT
}

// push adds a command to the end of the queue.
func (s *session) push(p pending) {
	s.queue = append(s.queue, p)
	if len(s.queue) >= queueLimit {
		s.answerQueue()
	}
}

// forward queues a command line for upstream. answerQueue sends it; without PIPELINING that is
// at once.
func (s *session) forward(line []byte, p pending) {
	if len(s.up.out)+len(line)+2 > batch && !s.answerQueue() {
		return
	}
	if p.verb == parse.RCPT && !s.mailTaken() { // answerQueue has learnt so
		s.rules.Leave(p.recipient)
		return
	}
	s.up.out = append(append(s.up.out, line...), '\r', '\n')
	s.push(p)
	if s.up != nil && !s.up.Caps.Has("PIPELINING") {
		s.answerQueue()
	}
}

// answerQueue sends the queued commands to upstream, reads every answer and forwards it, in
// the order of the commands. It reports whether the session goes on.
func (s *session) answerQueue() bool {
	if len(s.queue) == 0 {
		return !s.finished
	}
	queue := s.queue
	s.queue = nil // from here on, reply writes at once
	defer func() { s.queue = queue[:0] }()

	var fault error
	var sent []byte
	if s.up != nil && len(s.up.out) > 0 {
		sent = s.up.out
		if fault = s.unasked(); fault == nil {
			fault = s.send(sent)
		}
		s.up.out = s.up.out[:0]
	}
	for i, p := range queue {
		if p.local != "" {
			s.write([]byte(p.local))
			continue
		}
		var r wire.Reply
		err := fault
		if err == nil {
			r, err = s.receive(s.settings.Limits.UpstreamReply, 250)
		}
		if p.reused && s.wentAway(r, err) {
			return s.repeat(queue[i:], sent)
		}
		fault = s.answer(p, r, err)
		if err == nil && r.Code == 421 {
			return false // commands after it get no answer
		}
	}
	return !s.finished
}

// answer forwards upstream's reply to p, or writes one of ours if there is none, and updates
// the transaction. It returns err.
func (s *session) answer(p pending, r wire.Reply, err error) error {
	if err != nil {
		if s.up != nil {
			s.lose("command", err)
		}
		if p.verb == parse.RCPT {
			s.metrics.recipients.WithLabelValues("failed").Inc()
		}
		if !p.held {
			s.write([]byte(faultReply(err)))
		}
		return err
	}
	if r.Code == 421 {
		s.relay421(r)
		return nil
	}
	ok := r.Code < 300
	switch {
	case p.verb == parse.MAIL && !ok:
		s.logMailRefused(r)
		s.up.tx = false
		if p.held {
			s.tx.held, s.tx.refusal = true, string(r.Raw)
			return nil
		}
		s.reset()
	case p.held:
		return nil
	case p.verb == parse.RCPT && s.tx.refusal != "": // upstream has refused MAIL, and says now that it needs one
		s.rules.Leave(p.recipient)
		s.metrics.recipients.WithLabelValues("upstream-refused").Inc()
		s.write([]byte(s.tx.refusal))
		return nil
	case p.verb == parse.RCPT && ok && s.tx.open:
		s.tx.accepted++
		if p.noted {
			s.tx.recipients = append(s.tx.recipients, p.recipient)
		}
		s.metrics.recipients.WithLabelValues(acceptedOutcome(p.exempt)).Inc()
	case p.verb == parse.RCPT:
		if !ok && s.tx.open {
			s.rules.Leave(p.recipient)
		}
		s.logRecipientRefused(p.recipient, r)
		s.metrics.recipients.WithLabelValues("upstream-refused").Inc()
	}
	s.write(r.Raw)
	return nil
}

// The labels of the recipients metric.

func acceptedOutcome(exempt bool) string {
	if exempt {
		return "exempt"
	}
	return "accepted"
}

func refusedOutcome(o policy.Outcome) string {
	if o == policy.Defer {
		return "deferred"
	}
	return "refused"
}

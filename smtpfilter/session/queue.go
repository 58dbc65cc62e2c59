package session

import (
	"blockd/policy"
	"blockd/smtpfilter/parse"
	"blockd/smtpfilter/wire"
)

// queueLimit bounds the commands in flight (docs/smtp.md, "Pipelining").
const queueLimit = 64

// pending is one command that is not answered yet.
type pending struct {
	local     string     // a reply that is ready; "" = upstream will answer
	verb      parse.Verb // of a forwarded command: MAIL or RCPT
	recipient string     // of RCPT
	exempt    bool       // of RCPT: a listed sender's, let through
	noted     bool       // of RCPT: its address is kept in the transaction
}

// push adds a command after those that wait.
func (s *session) push(p pending) {
	s.queue = append(s.queue, p)
	if len(s.queue) >= queueLimit {
		s.settle()
	}
}

// forward sends a command line upstream with the next settle. Where upstream
// does not offer PIPELINING, that is at once.
func (s *session) forward(line []byte, p pending) {
	if len(s.up.out)+len(line)+2 > batch && !s.settle() {
		return
	}
	if s.up == nil { // settle has lost it, and answered what came before
		s.reply(replyLost)
		return
	}
	s.up.out = append(append(s.up.out, line...), '\r', '\n')
	s.push(p)
	if s.up != nil && !s.up.Caps.Has("PIPELINING") {
		s.settle()
	}
}

// settle sends what waits for upstream, reads every answer and passes it on, in
// the order of the commands. It reports whether the session goes on.
func (s *session) settle() bool {
	if len(s.queue) == 0 {
		return !s.finished
	}
	queue := s.queue
	s.queue = nil // answers are written at once from here
	defer func() { s.queue = queue[:0] }()

	var fault error
	if s.up != nil && len(s.up.out) > 0 {
		if fault = s.unasked(); fault == nil {
			fault = s.send(s.up.out)
		}
		if s.up.out = s.up.out[:0]; fault != nil {
			s.lose("command", fault)
		}
	}
	for _, p := range queue {
		if p.local != "" {
			s.write([]byte(p.local))
			continue
		}
		var r wire.Reply
		err := fault
		if err == nil {
			r, err = s.receive(s.settings.Limits.UpstreamReply, 250)
		}
		fault = s.answer(p, r, err)
		if err == nil && r.Code == 421 {
			return false // what comes after it gets no answer
		}
	}
	return !s.finished
}

// answer passes upstream's reply to p on, or stands in for it when there is
// none, and keeps the transaction's books. It returns err.
func (s *session) answer(p pending, r wire.Reply, err error) error {
	if err != nil {
		if s.up != nil {
			s.lose("command", err)
		}
		if p.verb == parse.RCPT {
			s.metrics.recipients.WithLabelValues("failed").Inc()
		}
		s.write([]byte(faultReply(err)))
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
		s.reset()
		s.up.tx = false
	case p.verb == parse.RCPT && ok && s.tx.open:
		s.tx.accepted++
		if p.noted {
			s.tx.taken = append(s.tx.taken, p.recipient)
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

// The words of the recipients metric.

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

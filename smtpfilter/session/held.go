package session

import (
	"bytes"

	"blockd/smtpfilter/parse"
	"blockd/smtpfilter/wire"
)

// A MAIL that is held is answered here and goes upstream together with the first RCPT that is
// not refused here, in one write where upstream offers PIPELINING. That saves one of the six
// times that a message waits for upstream, and a sender all of whose recipients are refused
// never reaches it. RFC 5321, section 3.3, lets a server refuse at RCPT what it minds at MAIL,
// and Postfix does so by default (smtpd_delay_reject).

// holdMail answers MAIL and keeps its line. The rules of this filter have been applied to it.
func (s *session) holdMail(line []byte) {
	s.tx.held = true
	s.mailLine = append(s.mailLine[:0], line...)
	s.reply(replyMailOK)
}

// sendMail sends the held MAIL, ahead of the RCPT that the caller is going to forward. It
// reports whether that RCPT may follow. If not, it has answered RCPT.
func (s *session) sendMail() bool {
	if s.tx.refusal == "" {
		used := s.up.connection()
		if s.tx.refusal = s.carry(); s.tx.refusal == "" {
			s.up.tx, s.tx.held = true, false
			s.forward(s.up.understood(s.mailLine, s.tx.params), pending{verb: parse.MAIL, params: s.tx.params, held: true, reused: s.up.Conn == used})
		}
	}
	return s.mailTaken()
}

// mailTaken reports whether upstream may have the transaction, as far as is known. If it has
// not, mailTaken answers RCPT.
func (s *session) mailTaken() bool {
	switch {
	case s.finished: // with the 421 that answered MAIL
		return false
	case s.tx.refusal != "":
		s.metrics.recipients.WithLabelValues("upstream-refused").Inc()
		return s.answered(s.tx.refusal)
	}
	return s.transactionOpen()
}

// noRecipients returns the answer to DATA or BDAT without any recipient. If upstream may take
// the sender at another time, a 5xx would bounce the mail.
func (s *session) noRecipients() string {
	if s.tx.refusal != "" && s.tx.refusal[0] == '4' {
		return s.tx.refusal
	}
	return replyNoRcpt
}

// repeat carries out commands again, one at a time, on a new connection: upstream had closed
// the one that was idle since an earlier transaction, so it has taken none of them. lines are
// the commands with CRLF, as that upstream understood them; each forwarded entry of queue has one.
// It reports whether the session goes on.
func (s *session) repeat(queue []pending, lines []byte) bool {
	lines = bytes.Clone(lines) // they are in the buffer of the connection
	s.abandonUpstream()
	if s.tx.refusal = s.carry(); s.tx.refusal != "" {
		s.tx.held = true
	} else {
		s.up.tx = true
	}
	for _, p := range queue {
		if p.local != "" {
			s.write([]byte(p.local))
			continue
		}
		line, rest, _ := bytes.Cut(lines, []byte("\r\n"))
		lines = rest
		switch {
		case s.finished:
			return false
		case s.tx.refusal != "":
			if p.verb == parse.RCPT {
				s.rules.Leave(p.recipient)
				s.metrics.recipients.WithLabelValues("upstream-refused").Inc()
				s.answered(s.tx.refusal)
			}
			continue
		case s.up == nil: // lost again
			s.answer(p, wire.Reply{}, errNoUpstream)
			continue
		case p.params.Unannounced(s.up.Caps.Has) != nil:
			s.end("upstream", replyChanged) // as in readyToForward
			return false
		}
		if p.verb == parse.MAIL {
			line = s.up.understood(s.mailLine, s.tx.params) // of the held MAIL, as the client said it
		}
		r, err := s.exchange(line, 250)
		s.answer(p, r, err)
		if err == nil && r.Code == 421 {
			return false
		}
	}
	return !s.finished
}

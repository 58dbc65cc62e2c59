package session

import (
	"bytes"
	"strings"

	"blockd/mail/addr"
	"blockd/policy"
	"blockd/policy/reply"
	"blockd/smtpfilter/parse"
	"blockd/smtpfilter/upstream"
)

// mail runs MAIL. It looks the sender up, once for the whole transaction.
func (s *session) mail(line []byte, cmd parse.Command) {
	if !s.answerQueue() {
		return
	}
	fault := cmd.Params.Unannounced(s.offered.Has)
	switch {
	case !s.greeted:
		s.refuse(replyNeedHello)
		return
	case s.tx.open:
		s.refuse(replyNested)
		return
	case fault != nil:
		s.refuse(fault.Reply() + "\r\n")
		return
	case cmd.Path.UTF8 && !cmd.Params.Has(parse.ParamSMTPUTF8):
		s.refuse(replyNeedUTF8)
		return
	case cmd.Size > s.sizeLimit():
		s.refuse(replyTooBig)
		return
	}
	s.begin(cmd)
	if s.settings.RejectAt == "mail" {
		if line = s.prove(line, ""); line == nil {
			return
		}
		if d := s.rules.Recipient(""); d.Refuses() {
			s.reset()
			if s.tarpit(d.Tarpit) {
				s.answerDecision(d.Reply)
			}
			return
		}
	}
	if s.settings.Mail != "strict" || s.rules.Holds() {
		s.holdMail(line)
		return
	}
	s.forwardMail(line)
}

// forwardMail sends MAIL to upstream. Upstream may have closed a connection that was idle
// since an earlier transaction; forwardMail then opens a new one, and nothing is lost. To
// notice that, it must await the answer to MAIL. On a fresh connection RCPT may follow at
// once.
func (s *session) forwardMail(line []byte) {
	p := pending{verb: parse.MAIL}
	used := s.up.connection()
	open := s.answered(s.carry())
	if open && s.up.Conn == used {
		s.up.tx = true
		r, err := s.exchange(s.up.understood(line, s.tx.params), 250)
		if !s.wentAway(r, err) {
			s.answer(p, r, err)
			return
		}
		s.abandonUpstream()
		open = s.answered(s.carry())
	}
	if !open {
		s.reset()
		s.tx.lost = true
		return
	}
	s.up.tx = true
	s.forward(s.up.understood(line, s.tx.params), p)
}

// understood is the line of MAIL as upstream understands it.
func (u *upstreamConn) understood(line []byte, params parse.Params) []byte {
	if params.Has(parse.ParamBody) && !u.Caps.Has("8BITMIME") {
		return parse.WithoutBody(bytes.Clone(line))
	}
	return line
}

// rcpt runs RCPT. Each recipient of a listed sender gets its own answer.
func (s *session) rcpt(line []byte, cmd parse.Command) {
	if !s.takesRcpt(cmd) {
		return
	}
	recipient := address(cmd.Path)
	if line = s.prove(line, recipient); line == nil {
		return
	}
	d := s.rules.Recipient(recipient)
	if d.Tarpit > 0 && !(s.tarpit(d.Tarpit) && s.transactionOpen()) {
		return
	}
	switch {
	case d.Refuses():
		s.metrics.recipients.WithLabelValues(refusedOutcome(d.Outcome)).Inc()
		s.answerDecision(d.Reply)
		return
	case d.Outcome == policy.Quarantine:
		if s.shares(d) {
			s.quarantineRecipient(recipient, d)
		}
		return
	}
	if line = s.applyOwnRules(line, recipient); line == nil {
		return
	}
	if s.rules.PutOff(&d) {
		s.metrics.recipients.WithLabelValues(refusedOutcome(d.Outcome)).Inc()
		s.answerDecision(d.Reply)
		return
	}
	if !s.shares(d) || !s.readyToForward(cmd) {
		return
	}
	s.rules.Join(&d)
	s.forward(line, pending{verb: parse.RCPT, params: cmd.Params, recipient: recipient, exempt: d.Exempt, noted: d.AwaitsMessage || s.rules.ReadsHeader()})
}

// takesRcpt reports whether RCPT may be given now, in this form. If not, it answers RCPT.
func (s *session) takesRcpt(cmd parse.Command) bool {
	fault := cmd.Params.Unannounced(s.offered.Has)
	switch {
	case !s.greeted:
		s.refuse(replyNeedHello)
		return false
	case s.tx.lost:
		s.reply(replyLost)
		return false
	case !s.tx.open:
		s.refuse(replyNeedMail)
		return false
	case s.tx.begun():
		s.refuse(replyBegun)
		return false
	case fault != nil:
		s.refuse(fault.Reply() + "\r\n")
		return false
	case cmd.Path.UTF8 && !s.tx.params.Has(parse.ParamSMTPUTF8):
		s.refuse(replyNeedUTF8)
		return false
	}
	if s.tx.attempted++; s.tx.attempted > s.settings.Limits.Recipients {
		s.metrics.recipients.WithLabelValues("limited").Inc()
		s.reply(replyTooManyRcpt)
		return false
	}
	return true
}

// applyOwnRules applies the rules on the client's names to a recipient that lists let pass. If
// one refuses it, applyOwnRules answers RCPT and returns nil; else it returns line as consult
// does.
func (s *session) applyOwnRules(line []byte, recipient string) []byte {
	refusal := s.heloFault(recipient)
	if refusal.Code == 0 {
		if line = s.checkReverse(line, recipient); line == nil {
			return nil
		}
		refusal = s.reverseFault(recipient)
	}
	if refusal.Code == 0 {
		return line
	}
	s.metrics.recipients.WithLabelValues("refused").Inc()
	s.turnDown(textOf(s.rules.TurnDown(recipient, refusal).Reply))
	return nil
}

// readyToForward makes upstream ready for RCPT. If that fails, it answers RCPT.
func (s *session) readyToForward(cmd parse.Command) bool {
	if s.settings.Protocol == upstream.LMTP {
		// In LMTP each recipient has its own reply after the dot (RFC 2033, section 4.2). SMTP
		// has only one reply, so the message has only one recipient.
		if !s.answerQueue() || !s.transactionOpen() {
			return false
		}
		if s.tx.accepted > 0 {
			s.metrics.recipients.WithLabelValues("limited").Inc()
			s.reply(replyOneRcpt)
			return false
		}
	}
	if s.tx.held && !s.sendMail() {
		return false
	}
	if s.up != nil && cmd.Params.Unannounced(s.up.Caps.Has) != nil {
		// An earlier upstream connection offered the parameter and this one does not. Upstream
		// would answer 555, and the mail would bounce. The client is told to connect again,
		// and is then offered less.
		s.end("upstream", replyChanged)
		return false
	}
	return true
}

// shares reports whether the recipient of d can share this message. If not, shares answers
// RCPT, and the client sends the message again for that recipient in a transaction of its own.
func (s *session) shares(d policy.Decision) bool {
	if s.rules.Shares(&d) {
		return true
	}
	if !s.answerQueue() || !s.transactionOpen() { // earlier recipients may have been refused by now
		return false
	}
	if s.rules.Shares(&d) {
		return true
	}
	s.rules.Join(&d)
	s.metrics.recipients.WithLabelValues("limited").Inc()
	s.reply(textOf(d.Reply))
	return false
}

// answerDecision sends the reply of a refusal. A reply with 421 or 521 ends the session.
func (s *session) answerDecision(r reply.Reply) {
	if !r.Ends() {
		s.turnDown(textOf(r))
		return
	}
	if s.answerQueue() {
		s.end("list", textOf(r))
	}
}

// transactionOpen reports whether the transaction is still open after answerQueue, because a
// queued command may have ended it. If it is not, transactionOpen answers RCPT.
func (s *session) transactionOpen() bool {
	switch {
	case s.tx.lost:
		s.reply(replyLost)
	case !s.tx.open: // MAIL was in flight, and upstream has refused it
		s.refuse(replyNeedMail)
	}
	return s.tx.open
}

// address returns the address in a path, without brackets and source route.
func address(p addr.Path) string {
	if len(p.Domain) == 0 {
		return string(p.Local)
	}
	var b strings.Builder
	b.Grow(len(p.Local) + 1 + len(p.Domain))
	b.Write(p.Local)
	b.WriteByte('@')
	b.Write(p.Domain)
	return b.String()
}

package session

import (
	"bytes"
	"strings"

	"blockd/addr"
	"blockd/policy"
	"blockd/smtpfilter/parse"
	"blockd/smtpfilter/upstream"
)

// mail runs MAIL. The sender is looked up here, once, for the whole transaction.
func (s *session) mail(line []byte, cmd parse.Command) {
	if !s.settle() {
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
	if kind, _ := s.rules.Verdict(); kind == policy.Blocked {
		// Kept back until a recipient comes that has the mail all the same.
		s.tx.held = true
		s.tx.line = bytes.Clone(line)
		s.reply(replyMailOK)
		return
	}
	s.forwardMail(line)
}

// forwardMail sends the line of MAIL. A connection that has served before may have been
// closed by upstream meanwhile, and then is opened anew: between transactions
// nothing is lost by that. To notice, the answer must be awaited; on a fresh
// connection the recipients may follow at once.
func (s *session) forwardMail(line []byte) {
	p := pending{verb: parse.MAIL}
	if s.up != nil {
		if !s.carries() {
			return
		}
		s.up.tx = true
		r, err := s.exchange(line, 250)
		if !wentAway(r, err) {
			s.answer(p, r, err)
			return
		}
		s.abandonUpstream()
	}
	if !s.openUpstream() {
		s.reset()
		s.tx.lost = true
		return
	}
	s.up.tx = true
	s.forward(line, p)
}

// rcpt runs RCPT: each recipient of a listed sender is answered on its own.
func (s *session) rcpt(line []byte, cmd parse.Command) {
	fault := cmd.Params.Unannounced(s.offered.Has)
	switch {
	case !s.greeted:
		s.refuse(replyNeedHello)
		return
	case s.tx.lost:
		s.reply(replyLost)
		return
	case !s.tx.open:
		s.refuse(replyNeedMail)
		return
	case s.tx.begun():
		s.refuse(replyBegun)
		return
	case fault != nil:
		s.refuse(fault.Reply() + "\r\n")
		return
	case cmd.Path.UTF8 && !s.tx.params.Has(parse.ParamSMTPUTF8):
		s.refuse(replyNeedUTF8)
		return
	}
	if s.tx.attempted++; s.tx.attempted > s.settings.Limits.Recipients {
		s.metrics.recipients.WithLabelValues("limited").Inc()
		s.reply(replyTooManyRcpt)
		return
	}
	recipient := address(cmd.Path)
	if line = s.prove(line, recipient); line == nil {
		return
	}
	d := s.rules.Recipient(recipient)
	if d.Tarpit > 0 && !(s.tarpit(d.Tarpit) && s.standing()) {
		return
	}
	if d.Refuses() {
		s.metrics.recipients.WithLabelValues(refusedOutcome(d.Outcome)).Inc()
		s.answerDecision(d.Reply)
		return
	}
	if d.Outcome != policy.Quarantine {
		refusal := s.heloFault(recipient)
		if refusal.Code == 0 {
			if line = s.lookBack(line, recipient); line == nil {
				return
			}
			refusal = s.reverseFault(recipient)
		}
		if refusal.Code != 0 {
			s.metrics.recipients.WithLabelValues("refused").Inc()
			s.turnDown(textOf(s.rules.TurnDown(recipient, refusal).Reply))
			return
		}
	}
	if !s.shares(d) {
		return
	}
	if d.Outcome == policy.Quarantine {
		s.setAside(recipient, d)
		return
	}
	if s.settings.Protocol == upstream.LMTP {
		// One reply a recipient follows the dot in LMTP (RFC 2033, section 4.2),
		// and SMTP has room for one. So there is one recipient.
		if !s.settle() || !s.standing() {
			return
		}
		if s.tx.accepted > 0 {
			s.metrics.recipients.WithLabelValues("limited").Inc()
			s.reply(replyOneRcpt)
			return
		}
	}
	if s.tx.held && !s.release() {
		return
	}
	if s.up != nil && cmd.Params.Unannounced(s.up.Caps.Has) != nil {
		// Offered by an earlier session and not by this one. Upstream would say
		// 555 and the client bounce; it is to come again and be offered less.
		s.end("upstream", replyChanged)
		return
	}
	s.rules.Join(&d)
	s.forward(line, pending{verb: parse.RCPT, recipient: recipient, exempt: d.Exempt, noted: d.AwaitsMessage || s.rules.ReadsHeader()})
}

// shares reports whether the recipient of d can be one of this message's. One that cannot
// is answered: the client sends it again, in a transaction of its own.
func (s *session) shares(d policy.Decision) bool {
	if s.rules.Shares(d) {
		return true
	}
	if !s.settle() || !s.standing() { // those before it may have been refused
		return false
	}
	if s.rules.Shares(d) {
		return true
	}
	s.rules.Join(&d)
	s.metrics.recipients.WithLabelValues("limited").Inc()
	s.reply(textOf(d.Reply))
	return false
}

// answerDecision gives a list's answer. One with the code 421 or 521 is the last of the
// session.
func (s *session) answerDecision(r policy.Reply) {
	if !r.Ends() {
		s.turnDown(textOf(r))
		return
	}
	if s.settle() {
		s.end("list", textOf(r))
	}
}

// standing reports whether the transaction has outlived a settle: what was in
// flight may have cost it. If not, RCPT is answered.
func (s *session) standing() bool {
	switch {
	case s.tx.lost:
		s.reply(replyLost)
	case !s.tx.open: // MAIL was in flight and has been refused
		s.refuse(replyNeedMail)
	}
	return s.tx.open
}

// release sends the MAIL line that was kept back. The client has had its 250 for
// it, so what upstream has against it is the answer to RCPT.
func (s *session) release() bool {
	if !s.settle() {
		return false
	}
	reused := s.up != nil
	if !s.openUpstream() {
		return false
	}
	r, err := s.exchange(s.tx.line, 250)
	if reused && wentAway(r, err) {
		s.abandonUpstream()
		if !s.openUpstream() {
			return false
		}
		r, err = s.exchange(s.tx.line, 250)
	}
	switch {
	case err != nil:
		s.lose("command", err)
		s.reply(faultReply(err))
		return false
	case r.Code == 421:
		s.relay421(r)
		return false
	case r.Code >= 300:
		s.logMailRefused(r)
		s.write(r.Raw)
		return false
	}
	s.up.tx = true
	s.tx.held = false
	s.tx.line = nil
	return true
}

// address is that of a path, without brackets and source route.
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

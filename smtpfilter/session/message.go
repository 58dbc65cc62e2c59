package session

import (
	"errors"
	"os"
	"time"

	"blockd/mail/mailbox"
	"blockd/mail/spool"
	"blockd/smtpfilter/wire"
)

// message is one message that comes by DATA or BDAT and goes upstream, into quarantine, or
// both.
type message struct {
	started   time.Time
	waited    time.Duration // time spent waiting for the client
	octets    int64         // octets from the client; with DATA they include stuffed dots and the dot line
	forwarded bool          // upstream has accepted recipients of the message
	outcome   string        // a label of the metric; before the end, why the rest is only read; "" = it is forwarded
	reply     string        // our own answer to the end of the message
	over      string        // why the session ends after the message, a label of the metric; "" = it goes on
	announced bool          // upstream has got the command of the first chunk
	kept      string        // the name of the copy in quarantine, once the message is accepted
	loop      *hops         // counts hops; nil if no field is added, because loops cannot be recognized then
	head      []byte        // our own header fields, until they go with the first piece of DATA

	fields *fields       // reads the header fields that are looked up; nil = none are
	held   *spool.Copy   // octets that wait for the end of the header; nil = none
	proof  *spool.Copy   // the copy that may prove the sender, until it is examined
	tarpit time.Duration // how long to delay our answer

	copy *mailbox.Copy // the copy in quarantine; nil if there is none, or it is to stay
	dots wire.Unstuff  // removes the stuffed dots of DATA for copies
	safe bool          // copy is safe on disk
}

// newMessage begins the transaction's message; stuffed says that it comes by DATA. It fails if
// the quarantine fails.
func (s *session) newMessage(stuffed bool) (*message, error) {
	m := &message{started: time.Now(), forwarded: s.tx.accepted > 0}
	if m.forwarded && (s.traces() || s.tags()) {
		m.loop = newHops(s.settings.Hostname)
	}
	if len(s.tx.quarantined) > 0 {
		if err := s.openCopy(m); err != nil {
			s.logQuarantine(err)
			s.withdraw(m)
			return nil, err
		}
	}
	if s.rules.AwaitsMessage() {
		m.proof = s.settings.Copies.Copy(s.settings.MaxCopy)
	}
	s.watchHeader(m, stuffed)
	s.tx.message = m
	return m, nil
}

// stop stops forwarding the message and sets its outcome. Upstream's connection is closed
// without the end of the message. The first reason stays, except that a bare octet replaces
// any other reason.
func (s *session) stop(m *message, why, answer string) {
	if m.outcome != "" && why != "bare" {
		return
	}
	m.outcome, m.reply, m.over = why, answer, ""
	if why == "bare" {
		m.over = "protocol"
	}
	m.dropProof()
	if m.forwarded {
		s.abandonUpstream()
	}
}

// put sends a piece to upstream. end says that upstream answers after the piece; last says
// that the piece ends the message.
func (s *session) put(m *message, piece []byte, end, last bool) {
	if m.outcome != "" || !m.forwarded || len(piece) == 0 {
		return
	}
	if end && s.replyWaiting() {
		if s.earlyReply(m); m.outcome != "" {
			return
		}
	}
	// Upstream may deliver the message as soon as it has the end. From here until its answer
	// is known, nothing else may end the session.
	s.deadlines.finalReply(last)
	if head := m.head; len(head) > 0 {
		m.head = nil
		if len(head)+len(piece) <= batch { // most messages need one write, and one packet to upstream
			piece = append(append(s.up.out[:0], head...), piece...)
			s.up.out = piece[:0]
		} else if s.sendData(m, head); m.outcome != "" {
			return
		}
	}
	s.sendData(m, piece)
}

// earlyReply ends a message that upstream has answered before its end. A refusal is the answer
// to the message. A 250 cannot be: upstream may still refuse the message, which would then be
// lost, and all later replies would be out of step.
func (s *session) earlyReply(m *message) {
	s.deadlines.armUpstream(time.Second)
	r, err := wire.ReadReply(s.up.R)
	if err == nil && r.Code >= 400 {
		s.stop(m, "upstream-refused", string(r.Raw))
		if r.Code == 421 {
			m.over = "upstream"
		}
		return
	}
	s.upstreamFailed("data", errUnasked)
	s.stop(m, "upstream-lost", replyInternal)
}

// dataTimeout returns how long the client has for its next octets. Time that upstream takes to
// read does not count against the client.
func (s *session) dataTimeout(m *message) time.Duration {
	l := s.settings.Limits
	earned := l.DataStart + time.Duration(m.octets/int64(l.MinDataRate))*time.Second
	return min(l.DataBlock, earned-m.waited)
}

// fill reads more of the message. An error is the client's.
func (s *session) fill(m *message) error {
	s.deadlines.armClient(s.dataTimeout(m))
	asked := time.Now()
	err := s.in.Fill()
	m.waited += time.Since(asked)
	return err
}

// sendData writes to upstream. If that fails, upstream may have said why before it closed (RFC
// 5321, section 3.8); that reply is then the answer.
func (s *session) sendData(m *message, p []byte) {
	s.deadlines.armUpstream(s.settings.Limits.DataBlock)
	_, err := s.up.Write(p)
	if err == nil {
		return
	}
	s.deadlines.finalReply(false)
	s.upstreamFailed("data", err)
	answer := replyLost
	s.deadlines.armUpstream(time.Second)
	if r, err := wire.ReadReply(s.up.R); err == nil && r.Code >= 400 {
		answer = string(r.Raw)
	}
	s.stop(m, "upstream-lost", answer)
	if answer[:3] == "421" {
		m.over = "upstream"
	}
}

// conclude answers the end of a message that the client has sent whole.
func (s *session) conclude(m *message) {
	switch {
	case m.outcome == "" && m.forwarded:
		s.finalReply(m)
	case m.outcome == "":
		s.quarantined(m)
	default:
		s.logMessage(m, wire.Reply{})
		s.reset()
		s.forsakeUpstream() // upstream may have MAIL of a message for the quarantine alone
		s.tarpit(m.tarpit)
		if m.over != "" {
			s.end(m.over, m.reply)
		} else {
			s.reply(m.reply)
		}
	}
}

// broken ends a session whose client has not sent the end of its message.
func (s *session) broken(m *message, err error) {
	switch {
	case errors.Is(err, os.ErrDeadlineExceeded):
		s.stop(m, "timeout", "")
		s.logMessage(m, wire.Reply{})
		s.timeout()
	case errors.Is(err, errFlood):
		s.logMessage(m, wire.Reply{})
		s.end("protocol", m.reply)
	default:
		s.stop(m, "client-lost", "")
		s.logMessage(m, wire.Reply{})
		s.finished = true
	}
}

// finalReply waits for upstream's answer to the message and forwards it. Without a clear
// answer the client is told to send the message again: a message that arrives twice is better
// than a lost one.
func (s *session) finalReply(m *message) {
	defer s.deadlines.finalReply(false)
	r, err := s.receive(s.settings.Limits.FinalReply, 250)
	switch {
	case err != nil:
		m.outcome, m.reply = "upstream-lost", faultReply(err)
		s.logMessage(m, wire.Reply{})
		s.lose("final", err)
		s.reset()
		s.write([]byte(m.reply))
	case r.Code >= 300:
		m.outcome = "upstream-refused"
		s.logMessage(m, r)
		if r.Code == 421 {
			s.relay421(r)
			return
		}
		s.reset()
		s.up.tx = false
		s.write(r.Raw)
	default:
		m.outcome = "accepted"
		m.keepCopy()
		s.rules.Completed()
		s.errors, s.junk = 0, 0
		s.up.tx = false
		s.write(r.Raw)
		s.flush() // before we wait for our own disk: a client that gives up sends the message twice (RFC 1047)
		s.logMessage(m, r)
		s.reset()
	}
	s.flush() // at once, so that a stop of the filter cannot come in between
}

// widen gives the client's reader a large buffer.
func (s *session) widen() {
	if !s.in.Wide() {
		s.in.Widen(s.buffers.Get().(*[dataBuffer]byte)[:])
	}
}

// reset ends the transaction in any state. It deletes the message's copy in quarantine, unless
// the message was accepted.
func (s *session) reset() {
	if m := s.tx.message; m != nil {
		if m.outcome == "" { // between two chunks
			m.outcome = "client-lost"
			s.logMessage(m, wire.Reply{})
		}
		s.withdraw(m)
	}
	s.tx = transaction{}
	s.rules.Reset()
}

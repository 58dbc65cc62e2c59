package session

import (
	"errors"
	"os"
	"time"

	"blockd/mailbox"
	"blockd/policy"
	"blockd/smtpfilter/wire"
	"blockd/spool"
)

// message is one message on its way, by DATA or by BDAT: to upstream, into
// quarantine, or both.
type message struct {
	started   time.Time
	waited    time.Duration // for the client
	octets    int64         // of the client's; with DATA dots stuffed, and the dot line
	forwarded bool          // upstream has recipients of it
	outcome   string        // a word of the metric; before the end: why nothing more is moved, "" = all goes on
	reply     string        // our own answer to its end
	over      string        // why the session ends with it, a word of the metric; "" = it goes on
	announced bool          // of BDAT: upstream has had the first chunk's command
	kept      string        // the copy's name in quarantine, once the message was accepted
	loop      *hops         // nil: nothing is added, so circles are not looked for
	head      []byte        // of DATA: our own header fields, until they go with the first piece

	fields *fields       // of its header that lists are asked about; nil = none
	held   *spool.Copy   // what waits for the header's end; nil = nothing does
	proof  *spool.Copy   // of a message that decides about a sender, until it has
	tarpit time.Duration // hold our answer back

	copy *mailbox.Copy // into quarantine; nil: none, or it is to stay there
	dots wire.Unstuff  // of DATA, for copy
	safe bool          // copy is on the disk
}

// newMessage begins the transaction's message; stuffed says that it comes by DATA. It
// fails where the quarantine does.
func (s *session) newMessage(stuffed bool) (*message, error) {
	m := &message{started: time.Now(), forwarded: s.tx.accepted > 0}
	if m.forwarded && (s.traces() || s.rules.Tag() != (policy.Tag{})) {
		m.loop = newHops(s.settings.Hostname)
	}
	if len(s.tx.aside) > 0 {
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

// stop ends what is moved and settles the outcome. Upstream has had no end of the
// message, and is closed without one. The first reason stands, but for a bare
// octet, which is the worst.
func (s *session) stop(m *message, why, reply string) {
	if m.outcome != "" && why != "bare" {
		return
	}
	m.outcome, m.reply, m.over = why, reply, ""
	if why == "bare" {
		m.over = "protocol"
	}
	m.dropProof()
	if m.forwarded {
		s.abandonUpstream()
	}
}

// put moves a piece on to upstream; end says that it holds the end of what
// upstream will answer, last that it holds the end of the message.
func (s *session) put(m *message, piece []byte, end, last bool) {
	if m.outcome != "" || !m.forwarded || len(piece) == 0 {
		return
	}
	if end && s.waiting() {
		if s.early(m); m.outcome != "" {
			return
		}
	}
	// From the end on the message may be delivered: nothing but upstream's answer
	// may end the session before it is known.
	s.deadlines.finalReply(last)
	if head := m.head; len(head) > 0 {
		m.head = nil
		if len(head)+len(piece) <= batch { // most messages: one write, and one packet for upstream
			piece = append(append(s.up.out[:0], head...), piece...)
			s.up.out = piece[:0]
		} else if s.sendData(m, head); m.outcome != "" {
			return
		}
	}
	s.sendData(m, piece)
}

// early settles a message that upstream has answered before its end. A refusal
// is the answer. A 250 cannot be: taken for the end's it would lose a message
// that upstream goes on to refuse, and all later replies would be out of step.
func (s *session) early(m *message) {
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

// patience is how long the client has for its next octets. What upstream takes
// to read them is not held against it.
func (s *session) patience(m *message) time.Duration {
	l := s.settings.Limits
	earned := l.DataStart + time.Duration(m.octets/int64(l.MinDataRate))*time.Second
	return min(l.DataBlock, earned-m.waited)
}

// fill waits for more of the message. An error is the client's.
func (s *session) fill(m *message) error {
	s.deadlines.armClient(s.patience(m))
	asked := time.Now()
	err := s.in.Fill()
	m.waited += time.Since(asked)
	return err
}

// sendData writes to upstream. A failure is upstream's: it may have said why
// before it closed (RFC 5321, section 3.8), and then that is the answer.
func (s *session) sendData(m *message, p []byte) {
	s.deadlines.armUpstream(s.settings.Limits.DataBlock)
	_, err := s.up.Write(p)
	if err == nil {
		return
	}
	s.deadlines.finalReply(false)
	s.upstreamFailed("data", err)
	reply := replyLost
	s.deadlines.armUpstream(time.Second)
	if r, err := wire.ReadReply(s.up.R); err == nil && r.Code >= 400 {
		reply = string(r.Raw)
	}
	s.stop(m, "upstream-lost", reply)
	if reply[:3] == "421" {
		m.over = "upstream"
	}
}

// conclude answers the end of a message, all of which the client has sent.
func (s *session) conclude(m *message) {
	switch {
	case m.outcome == "" && m.forwarded:
		s.finalReply(m)
	case m.outcome == "":
		s.quarantined(m)
	default:
		s.logMessage(m, wire.Reply{})
		s.reset()
		s.forsakeUpstream() // a message for the quarantine alone may have left MAIL there
		s.tarpit(m.tarpit)
		if m.over != "" {
			s.end(m.over, m.reply)
		} else {
			s.reply(m.reply)
		}
	}
}

// broken ends a session whose client has not sent its message to the end.
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

// finalReply waits for upstream's answer to the message and passes it on. Whatever
// else comes, the client hears that the message is still its own: a message
// twice is better than none.
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
		m.keep()
		s.rules.Completed()
		s.errors, s.junk = 0, 0
		s.up.tx = false
		s.write(r.Raw)
		s.flush() // before our own disk is waited for: a client that gives up sends it twice (RFC 1047)
		s.logMessage(m, r)
		s.reset()
	}
	s.flush() // at once: a stop of the filter must not come in between
}

// widen gives the client's data a large buffer.
func (s *session) widen() {
	if !s.in.Wide() {
		s.in.Widen(s.buffers.Get().(*[dataBuffer]byte)[:])
	}
}

// reset ends the transaction, whatever its state. What of its message lies in
// quarantine goes, unless the message was accepted.
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

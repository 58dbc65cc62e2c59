package session

import (
	"errors"
	"os"
	"time"

	"blockd/smtpfilter/wire"
)

// data runs DATA: 354 only as a copy of upstream's, 250 likewise.
func (s *session) data(line []byte) {
	if !s.settle() {
		return
	}
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
	case s.tx.accepted == 0:
		s.reply(replyNoRcpt)
		return
	}
	r, err := s.exchange(line, 354)
	if err == nil && r.Code == 354 {
		err = s.unasked()
	}
	switch {
	case err != nil:
		s.lose("data", err)
		s.reply(faultReply(err))
	case r.Code == 421:
		s.relay421(r)
	case r.Code != 354:
		s.write(r.Raw) // the transaction stands: RFC 5321, section 3.3
	default:
		s.write(r.Raw)
		s.flush()
		s.message()
	}
}

// message is the outcome of one DATA, for the books and the client.
type message struct {
	started time.Time
	waited  time.Duration // for the client
	octets  int64         // of data, as sent, dots stuffed, with the dot line
	outcome string        // a word of the metric; before the dot: why nothing more is forwarded, "" = all goes on
	reply   string        // our own answer to the dot
	over    bool          // the session ends with it
}

// stop closes upstream, which has had no dot and so no message, and settles the
// outcome. The first reason stands, but for a bare octet, which is the worst.
func (s *session) stop(m *message, why, reply string) {
	if m.outcome != "" && why != "bare" {
		return
	}
	m.outcome, m.reply, m.over = why, reply, why == "bare"
	s.abandonUpstream()
}

// message moves the message's data and answers the dot.
func (s *session) message() {
	buf := s.buffers.Get().(*[dataBuffer]byte)
	s.in.Widen(buf[:])
	m := message{started: time.Now()}
	err := s.transfer(&m)
	switch {
	case err == nil && m.outcome == "":
		s.finalReply(&m)
	case err == nil:
		s.logMessage(&m, wire.Reply{})
		s.tx = transaction{}
		if m.over {
			s.end("protocol", m.reply)
		} else {
			s.reply(m.reply)
		}
	case errors.Is(err, os.ErrDeadlineExceeded):
		s.stop(&m, "timeout", "")
		s.logMessage(&m, wire.Reply{})
		s.timeout()
	case errors.Is(err, errFlood):
		s.logMessage(&m, wire.Reply{})
		s.end("protocol", m.reply)
	default:
		s.stop(&m, "client-lost", "")
		s.logMessage(&m, wire.Reply{})
		s.finished = true
	}
}

// errFlood ends a client that goes on and on after its message was refused.
var errFlood = errors.New("no end of data")

// transfer copies data from the client to upstream up to the dot, and without
// upstream goes on to the dot all the same. An error means that the dot was
// not reached; it is the client's.
func (s *session) transfer(m *message) error {
	limit := s.sizeLimit()
	var scan wire.Data
	var loop *hops
	if s.traces() {
		loop = newHops(s.settings.Hostname)
		s.sendData(m, s.traceHeader(m.started))
	}
	for {
		n, done, err := scan.Scan(s.in.Buffered())
		piece := s.in.Buffered()[:n]
		m.octets += int64(n)
		switch {
		case err != nil:
			s.stop(m, "bare", replyBareData)
		case m.octets > limit+int64(len(".\r\n")):
			s.stop(m, "too-big", replyTooBig)
		case loop != nil && loop.tooMany(piece):
			s.stop(m, "loop", replyLoop)
		}
		if done && m.outcome == "" && s.waiting() {
			s.early(m)
		}
		if m.outcome == "" && n > 0 {
			// From the dot on the message may be delivered: nothing but
			// upstream's answer may end the session before it is known.
			s.deadlines.finalReply(done)
			s.sendData(m, piece)
		}
		s.in.Discard(n)
		switch {
		case done:
			return nil
		case err != nil:
			continue // behind the bare octet more is buffered
		case m.octets > 2*limit+dataBuffer:
			return errFlood
		}
		s.deadlines.arm(s.conn, s.patience(m))
		asked := time.Now()
		if err := s.in.Fill(); err != nil {
			return err
		}
		m.waited += time.Since(asked)
	}
}

// early settles a message that upstream has answered before its dot. A refusal
// is the answer. A 250 cannot be: taken for the dot's it would lose a message
// that upstream goes on to refuse, and all later replies would be out of step.
func (s *session) early(m *message) {
	s.deadlines.arm(s.up.Conn, time.Second)
	r, err := wire.ReadReply(s.up.R)
	if err == nil && r.Code >= 400 {
		s.stop(m, "upstream-refused", string(r.Raw))
		m.over = r.Code == 421
		return
	}
	s.upstreamFailed("data", errUnasked)
	s.stop(m, "upstream-lost", replyInternal)
}

// patience is how long the client has for its next octets. What upstream takes
// to read them is not held against it.
func (s *session) patience(m *message) time.Duration {
	l := s.settings.Limits
	earned := l.DataStart + time.Duration(m.octets)*time.Second/time.Duration(l.MinDataRate)
	return min(l.DataBlock, earned-m.waited)
}

// sendData writes to upstream. A failure is upstream's: it may have said why
// before it closed (RFC 5321, section 3.8), and then that is the answer.
func (s *session) sendData(m *message, p []byte) {
	s.deadlines.arm(s.up.Conn, s.settings.Limits.DataBlock)
	_, err := s.up.Write(p)
	if err == nil {
		return
	}
	s.deadlines.finalReply(false)
	s.upstreamFailed("data", err)
	reply := replyLost
	s.deadlines.arm(s.up.Conn, time.Second)
	if r, err := wire.ReadReply(s.up.R); err == nil && r.Code >= 400 {
		reply = string(r.Raw)
	}
	s.stop(m, "upstream-lost", reply)
	m.over = reply[:3] == "421"
}

// finalReply waits for upstream's answer to the dot and passes it on. Whatever
// else comes, the client hears that the message is still its own: a message
// twice is better than none.
func (s *session) finalReply(m *message) {
	defer s.deadlines.finalReply(false)
	r, err := s.receive(s.settings.Limits.FinalReply, 250)
	if err == nil && r.Code == 421 {
		m.outcome = "upstream-refused"
		s.logMessage(m, r)
		s.relay421(r)
		return
	}
	switch {
	case err != nil:
		m.outcome = "upstream-lost"
		s.lose("final", err)
		r.Raw = []byte(faultReply(err))
	case r.Code >= 300:
		m.outcome = "upstream-refused"
	default:
		m.outcome = "accepted"
		s.errors, s.junk = 0, 0
	}
	s.logMessage(m, r)
	s.tx = transaction{}
	if s.up != nil {
		s.up.tx = false
	}
	s.write(r.Raw)
	s.flush() // at once: a stop of the filter must not come in between
}

package session

import (
	"errors"

	"blockd/smtpfilter/parse"
	"blockd/smtpfilter/wire"
)

// data runs DATA. The client gets 354 and 250 only as copies of upstream's, unless the message
// goes into quarantine alone.
func (s *session) data(line []byte) {
	if !s.answerQueue() {
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
	case s.tx.begun() || s.tx.params.Has(parse.ParamBinary):
		s.refuse(replyNeedChunk) // RFC 3030, sections 2 and 3
		return
	case s.tx.attempted == 0:
		s.refuse(replyNoRcpt)
		return
	case s.tx.accepted == 0 && len(s.tx.quarantined) == 0: // a pipelining client sends DATA before it knows
		s.reply(s.noRecipients())
		return
	}
	m, err := s.newMessage(true)
	if err != nil {
		s.reply(replyInternal)
		return
	}
	if m.forwarded && !s.dataUpstream(m, line) {
		return
	}
	if !m.forwarded {
		s.write([]byte(replyGoAhead))
	}
	s.flush()
	s.widen()
	if err := s.transfer(m); err != nil {
		s.broken(m, err)
	} else {
		s.conclude(m)
	}
}

// dataUpstream sends DATA and forwards upstream's answer. It reports whether that is 354;
// otherwise the message has not begun.
func (s *session) dataUpstream(m *message, line []byte) bool {
	r, err := s.exchange(line, 354)
	if err == nil && r.Code == 354 {
		err = s.unasked()
	}
	if err == nil && r.Code == 354 {
		s.write(r.Raw)
		return true
	}
	s.withdraw(m)
	s.tx.message = nil
	switch {
	case err != nil:
		s.lose("data", err)
		s.reply(faultReply(err))
	case r.Code == 421:
		s.relay421(r)
	default:
		s.write(r.Raw) // the transaction stays open: RFC 5321, section 3.3
	}
	return false
}

// errFlood reports a client that keeps sending after its message was refused.
var errFlood = errors.New("no end of data")

// transfer moves data from the client to upstream, up to the dot. If the message has failed,
// it still reads up to the dot. An error is the client's, and means that the dot was not
// reached.
func (s *session) transfer(m *message) error {
	limit := s.sizeLimit()
	var scan wire.Data
	if m.loop != nil && m.held == nil {
		m.head = s.header(m)
	}
	for {
		n, done, err := scan.Scan(s.in.Buffered())
		piece := s.in.Buffered()[:n]
		m.octets += int64(n)
		switch {
		case err != nil:
			s.stop(m, "bare", replyBareData)
		case scan.Size() > limit:
			s.stop(m, "too-big", replyTooBig)
		}
		if !s.readHeader(m, piece, done) {
			s.releaseData(m)
			s.checkLoop(m, piece)
			s.copyData(m, piece, done)
			if done {
				return s.finish(m, piece, len(".\r\n"), n)
			}
			s.put(m, piece, false, false)
		}
		s.in.Discard(n)
		switch {
		case err != nil:
			continue // more is buffered after the bare octet
		case m.octets > 2*limit+dataBuffer:
			return errFlood
		}
		if err := s.fill(m); err != nil {
			return err
		}
	}
}

// releaseData forwards what was held until the end of the header.
func (s *session) releaseData(m *message) {
	if m.held == nil {
		return
	}
	if m.loop != nil {
		m.head = s.header(m)
	}
	s.forwardHeld(m, func(piece []byte) {
		s.checkLoop(m, piece)
		s.copyData(m, piece, false)
		s.put(m, piece, false, false)
	})
}

// checkLoop stops a message that travels in a loop.
func (s *session) checkLoop(m *message, piece []byte) {
	if m.loop != nil && m.loop.tooMany(piece) {
		s.stop(m, "loop", replyLoop)
	}
}

package session

import (
	"strconv"
	"time"

	"blockd/smtpfilter/parse"
	"blockd/smtpfilter/wire"
)

// chunk runs BDAT (RFC 3030). It forwards chunks as BDAT, never as DATA: a chunk does not
// consist of lines, so its line ends are not checked. The octets are read even if the command
// is wrong, because they must not be taken for commands.
func (s *session) chunk(cmd parse.Command) {
	if !s.answerQueue() || cmd.Size == 0 && !cmd.Last && !s.countJunk() {
		return
	}
	if cmd.Size > 2*s.sizeLimit() { // as for DATA, too much to read for nothing
		s.end("protocol", replyTooBig)
		return
	}
	refusal, fault := s.refuseChunk(cmd)
	m := s.tx.message
	if refusal == "" && m == nil {
		var err error
		if m, err = s.newMessage(false); err != nil {
			refusal = replyInternal
			s.tx.failed = refusal
		}
	}
	switch {
	case refusal != "":
		s.skipChunk(cmd, refusal, fault)
		return
	case m.forwarded && !s.up.Caps.Has("CHUNKING"):
		s.end("upstream", replyChanged) // as in rcpt
		return
	}
	s.tx.size += cmd.Size
	err := s.announceChunk(m, cmd)
	if err == nil {
		err = s.moveChunk(m, cmd)
	}
	if err != nil {
		s.broken(m, err)
		return
	}
	switch {
	case cmd.Last:
		s.conclude(m)
	case m.outcome != "":
		s.failMessage(m, wire.Reply{})
	case m.forwarded && m.held == nil:
		s.chunkReply(m)
	default:
		s.reply(replyOK)
	}
}

// refuseChunk returns the reply to a wrong chunk before it is read, or "". fault reports
// whether the mistake is the client's. A chunk after a failed one gets the same answer: "out
// of order" would turn a temporary failure into a bounce.
func (s *session) refuseChunk(cmd parse.Command) (reply string, fault bool) {
	switch {
	case s.tx.lost:
		return replyLost, false
	case s.tx.failed != "":
		return s.tx.failed, false
	case !s.tx.open:
		return replyNeedMail, true
	case s.tx.attempted == 0:
		return replyNoRcpt, true
	case s.tx.accepted == 0 && len(s.tx.quarantined) == 0:
		return s.noRecipients(), false
	case cmd.Size > s.sizeLimit()-s.tx.size:
		if m := s.tx.message; m != nil {
			s.stop(m, "too-big", replyTooBig)
			s.logMessage(m, wire.Reply{})
			s.withdraw(m)
			s.tx.message = nil
		}
		s.tx.failed = replyTooBig
		return replyTooBig, true
	}
	return "", false
}

// skipChunk reads a chunk without forwarding it, and answers it.
func (s *session) skipChunk(cmd parse.Command, reply string, fault bool) {
	m := &message{started: time.Now(), outcome: "refused"}
	if err := s.moveChunk(m, cmd); err != nil {
		s.reset()
		s.forsakeUpstream()
		s.lineFault(err)
		return
	}
	if cmd.Last && s.tx.failed != "" {
		s.reset()
		s.forsakeUpstream()
	}
	if fault {
		s.refuse(reply)
	} else {
		s.reply(reply)
	}
}

// announceChunk sends the BDAT command. If the chunk waits for the end of the header, the
// command waits too. An error is the client's.
func (s *session) announceChunk(m *message, cmd parse.Command) error {
	end := cmd.Size == 0 && cmd.Last // the command ends the message
	switch {
	case m.held == nil:
		return s.announce(m, cmd.Size, cmd.Last)
	case !end:
		return nil
	}
	var all []byte // a header without a body, of at most maxHeader octets
	s.readHeader(m, nil, true)
	s.forwardHeld(m, func(piece []byte) { all = append(all, piece...) })
	if err := s.announce(m, int64(len(all)), true); err != nil || len(all) == 0 {
		return err
	}
	s.checkLoop(m, all)
	s.copyPiece(m, all)
	return s.finish(m, all, 1, 0)
}

// announce sends the BDAT command for size octets. The first command also counts our own
// header fields, and they follow it.
func (s *session) announce(m *message, size int64, last bool) error {
	var line []byte
	if m.outcome == "" && m.forwarded {
		var head []byte
		if m.loop != nil && !m.announced {
			head = s.header(m)
		}
		m.announced = true
		line = strconv.AppendInt([]byte("BDAT "), size+int64(len(head)), 10)
		if last {
			line = append(line, " LAST"...)
		}
		line = append(append(line, '\r', '\n'), head...)
	}
	if size == 0 && last {
		return s.finish(m, line, len(line), 0)
	}
	s.put(m, line, true, false)
	return nil
}

// moveChunk reads exactly the octets of a chunk and forwards them while the message is
// forwarded. An error is the client's.
func (s *session) moveChunk(m *message, cmd parse.Command) error {
	count := wire.NewChunk(cmd.Size)
	if cmd.Size > int64(len(s.in.Buffered())) {
		s.widen()
		s.flush()
	}
	for {
		piece := count.Take(s.in.Buffered())
		done := count.Left() == 0
		m.octets += int64(len(piece))
		if !s.readHeader(m, piece, done && cmd.Last) {
			s.releaseChunk(m, int64(len(piece))+count.Left(), cmd.Last)
			s.checkLoop(m, piece)
			s.copyPiece(m, piece)
			if done && cmd.Last && cmd.Size > 0 {
				return s.finish(m, piece, 1, len(piece))
			}
			s.put(m, piece, done, false)
		}
		s.in.Discard(len(piece))
		if done {
			return nil
		}
		if err := s.fill(m); err != nil {
			return err
		}
	}
}

// releaseChunk forwards what was held until the end of the header, as the beginning of a chunk
// of which left octets are still to come.
func (s *session) releaseChunk(m *message, left int64, last bool) {
	if m.held == nil {
		return
	}
	s.announce(m, m.held.Size()+left, last) // the size is above 0, so the message does not end here
	s.forwardHeld(m, func(piece []byte) {
		s.checkLoop(m, piece)
		s.copyPiece(m, piece)
		s.put(m, piece, false, false)
	})
}

// chunkReply forwards upstream's answer to a chunk that is not the last.
func (s *session) chunkReply(m *message) {
	r, err := s.receive(s.settings.Limits.UpstreamReply, 250)
	switch {
	case err != nil:
		m.outcome, m.reply = "upstream-lost", faultReply(err)
		s.logMessage(m, wire.Reply{})
		s.lose("data", err)
		s.reply(m.reply)
	case r.Code == 421:
		m.outcome = "upstream-refused"
		s.logMessage(m, r)
		s.relay421(r)
	case r.Code >= 300:
		s.stop(m, "upstream-refused", string(r.Raw))
		s.failMessage(m, r)
	default:
		s.write(r.Raw)
	}
}

// failMessage answers the chunk that made the message fail.
func (s *session) failMessage(m *message, r wire.Reply) {
	s.logMessage(m, r)
	s.withdraw(m)
	s.tx.message, s.tx.failed = nil, m.reply
	if m.over != "" {
		s.end(m.over, m.reply)
	} else {
		s.reply(m.reply)
	}
}

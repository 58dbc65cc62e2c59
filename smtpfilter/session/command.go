package session

import (
	"errors"

	"blockd/smtpfilter/parse"
)

// command runs one command line. line is valid until the next read from the client.
func (s *session) command(line []byte) {
	cmd, err := parse.Line(line)
	switch cmd.Verb {
	case parse.HTTP: // a browser was led here; no later line is a command
		s.end("protocol", replyHTTP)
		return
	case parse.BDAT: // the octets of its chunk follow and must not be read as commands
		if !s.offered.Has("CHUNKING") {
			s.end("protocol", replyNotServed)
			return
		}
	case parse.AUTH: // the line may contain a password, whatever its fate
		defer s.in.Wipe()
	}
	if fault := (*parse.Error)(nil); errors.As(err, &fault) {
		if cmd.Verb == parse.BDAT { // the length of the chunk is unknown
			s.end("protocol", fault.Reply()+"\r\n")
			return
		}
		s.refuse(fault.Reply() + "\r\n")
		return
	}
	if s.onlyQuit && cmd.Verb != parse.QUIT {
		s.refuse(replyNoService)
		return
	}
	switch cmd.Verb {
	case parse.EHLO, parse.HELO:
		s.hello(cmd)
	case parse.MAIL:
		s.mail(line, cmd)
	case parse.RCPT:
		s.rcpt(line, cmd)
	case parse.DATA:
		s.data(line)
	case parse.BDAT:
		s.chunk(cmd)
	case parse.RSET:
		s.pass(line, cmd.Verb, replyOK)
	case parse.NOOP:
		s.pass(line, cmd.Verb, replyOK)
	case parse.VRFY:
		s.pass(line, cmd.Verb, replyVRFY)
	case parse.HELP:
		s.pass(line, cmd.Verb, replyHelp)
	case parse.AUTH:
		s.auth(line, cmd)
	case parse.STARTTLS:
		s.startTLS()
	case parse.QUIT:
		if s.answerQueue() {
			s.reply(replyBye)
			s.finished = true
		}
	default:
		s.refuse(replyNotServed)
	}
}

// pass runs a command that changes nothing, or only ends the transaction. Upstream answers it
// if it is connected; otherwise the reply is local.
func (s *session) pass(line []byte, verb parse.Verb, local string) {
	if !s.answerQueue() || !s.countJunk() {
		return
	}
	if s.up == nil {
		if verb == parse.RSET {
			s.reset()
		}
		s.reply(local)
		return
	}
	inTransaction := s.tx.open && !s.tx.held
	r, err := s.exchange(line, 250)
	switch {
	case err != nil:
		s.lose("command", err)
		if inTransaction && verb != parse.RSET {
			s.reply(faultReply(err))
			return
		}
		if verb == parse.RSET {
			s.reset()
		}
		s.reply(local) // the client has lost nothing
	case r.Code == 421 && !s.up.tx: // upstream has closed an idle connection
		s.abandonUpstream()
		if verb == parse.RSET {
			s.reset()
		}
		s.reply(local)
	case r.Code == 421:
		s.relay421(r)
	default:
		if verb == parse.RSET {
			s.reset()
			s.up.tx = false
			if r.Code >= 300 {
				s.abandonUpstream() // upstream may still hold a transaction
			}
		}
		s.write(r.Raw)
	}
}

// countJunk counts a command that moves no mail. It reports whether the session goes on.
func (s *session) countJunk() bool {
	if s.junk++; s.junk > s.settings.Limits.JunkCommands {
		s.end("junk", replyTooMuchJunk)
		return false
	}
	return true
}

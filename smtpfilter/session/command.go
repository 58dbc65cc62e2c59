package session

import (
	"errors"

	"blockd/smtpfilter/parse"
)

// command runs one command line. line holds until the next read of the client.
func (s *session) command(line []byte) {
	cmd, err := parse.Line(line)
	switch cmd.Verb {
	case parse.HTTP: // a browser was sent here: nothing that follows is a command
		s.end("protocol", replyHTTP)
		return
	case parse.BDAT: // the octets of its chunk follow, and must not be read as commands
		if !s.offered.Has("CHUNKING") {
			s.end("protocol", replyNotServed)
			return
		}
	case parse.AUTH: // whatever becomes of it, there may be a password in it
		defer s.in.Wipe()
	}
	if fault := (*parse.Error)(nil); errors.As(err, &fault) {
		if cmd.Verb == parse.BDAT { // a chunk of unknown length
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
		if s.settle() {
			s.reply(replyBye)
			s.finished = true
		}
	default:
		s.refuse(replyNotServed)
	}
}

// pass lets upstream answer a command that changes nothing, or ends the
// transaction, if there is an upstream session; else the reply is local.
func (s *session) pass(line []byte, verb parse.Verb, local string) {
	if !s.settle() || !s.countJunk() {
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
		s.reply(local) // nothing of the client's was lost
	case r.Code == 421 && !s.up.tx: // upstream's patience with an idle connection is over
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
				s.abandonUpstream() // who knows what it still holds
			}
		}
		s.write(r.Raw)
	}
}

// countJunk counts a command that moves no mail. It reports whether the session
// goes on.
func (s *session) countJunk() bool {
	if s.junk++; s.junk > s.settings.Limits.JunkCommands {
		s.end("junk", replyTooMuchJunk)
		return false
	}
	return true
}

package session

import (
	"context"
	"log/slog"
	"net"

	"blockd/smtpfilter/upstream"
)

// startTLS runs STARTTLS (RFC 3207). Nothing that came in the clear may count
// behind it, neither octets that wait to be read, which anybody in between could
// have put there (CVE-2011-0411), nor what was learnt before.
func (s *session) startTLS() {
	if !s.settle() {
		return
	}
	switch {
	case s.settings.StartTLS == nil:
		s.refuse(replyNotServed)
		return
	case s.overTLS:
		s.refuse(replyTLSActive)
		return
	case !s.esmtp:
		s.refuse(replyNeedHello)
		return
	case len(s.in.Buffered()) > 0:
		s.end("protocol", replyBehindTLS)
		return
	}
	s.reply(replyStartTLS)
	s.flush()
	if s.finished {
		return
	}
	conn, err := s.settings.StartTLS(s.hard, s.conn)
	if err != nil {
		// Closed at once: in the clear there is nothing more to say, and under
		// TLS nobody to say it to.
		s.finished = true
		s.log.LogAttrs(context.Background(), slog.LevelDebug, "client lost", s.who(slog.Any("error", err))...)
		return
	}
	s.secured(conn)
}

// secured begins the session anew on conn, as after connect but for the
// greeting. Errors and idle commands go on being counted.
func (s *session) secured(conn net.Conn) {
	s.closeUpstream() // it was told what the client said in the clear
	s.conn, s.overTLS = conn, true
	s.deadlines.setClient(conn)
	s.in.Reset(conn)
	s.out.Reset(conn)
	s.greeted, s.esmtp, s.offered = false, false, upstream.Caps{}
	s.rules.Client.Helo, s.rules.Client.Authenticated = "", false
	s.reset()
}

// offersTLS reports whether EHLO announces STARTTLS.
func (s *session) offersTLS() bool { return s.settings.StartTLS != nil && !s.overTLS }

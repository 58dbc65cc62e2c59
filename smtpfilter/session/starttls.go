package session

import (
	"context"
	"log/slog"
	"net"

	"blockd/smtpfilter/upstream"
)

// startTLS runs STARTTLS (RFC 3207). Nothing that came in the clear counts afterwards: neither
// unread octets, which an attacker on the way could have inserted (CVE-2011-0411), nor what
// the session has learnt.
func (s *session) startTLS() {
	if !s.answerQueue() {
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
		// Close at once. Nothing more may be said in the clear, and TLS does not work.
		s.finished = true
		s.log.LogAttrs(context.Background(), slog.LevelDebug, "client lost", s.logFields(slog.Any("error", err))...)
		return
	}
	s.restartOverTLS(conn)
}

// restartOverTLS begins the session anew on conn, as after connecting, but without a greeting.
// It keeps the counts of errors and idle commands.
func (s *session) restartOverTLS(conn net.Conn) {
	s.closeUpstream() // upstream was told what the client said in the clear
	s.conn, s.overTLS = conn, true
	s.deadlines.setClient(conn)
	s.in.Reset(conn)
	s.out.Reset(conn)
	s.greeted, s.esmtp, s.offered = false, false, upstream.Caps{}
	s.rules.Client.Helo, s.rules.Client.Authenticated = "", false
	s.reset()
}

// offersTLS reports whether the reply to EHLO offers STARTTLS.
func (s *session) offersTLS() bool { return s.settings.StartTLS != nil && !s.overTLS }

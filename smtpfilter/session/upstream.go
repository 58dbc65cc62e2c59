package session

import (
	"context"
	"crypto/tls"
	"errors"
	"io"
	"log/slog"
	"os"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"blockd/smtpfilter/upstream"
	"blockd/smtpfilter/wire"
)

// upstreamConn is the session's connection to upstream. It serves this client only:
// what upstream was told about one client must not reach another.
type upstreamConn struct {
	*upstream.Conn
	out  []byte // commands to be written with the next settle; at most batch octets
	tx   bool   // upstream may have a transaction
	quit bool   // QUIT was said
}

// batch bounds the octets of commands in flight. The answers to them wait in the
// system's buffers while we still write, so they must be few.
const batch = wire.MaxLine

// openUpstream makes sure that there is a connection that can carry the transaction. If
// there cannot be one it has answered the client and reports false.
func (s *session) openUpstream() bool { return s.reachUpstream(replyUnreachable) && s.carries() }

// reachUpstream is openUpstream for what needs no transaction; unreachable is the answer
// where upstream is.
func (s *session) reachUpstream(unreachable string) bool {
	if s.up != nil {
		return true
	}
	if s.rules.Client.Authenticated { // on a connection that is gone
		s.end("upstream", replyChanged)
		return false
	}
	conn, err := s.upstream.Open(s.hard, upstream.Client{Addr: s.client, Helo: s.rules.Client.Helo, ESMTP: s.esmtp})
	switch {
	case errors.Is(err, upstream.ErrNoXCLIENT), errors.Is(err, upstream.ErrNoAddress):
		// Without its client's address upstream would take the mail for ours.
		s.upstreamFailed("client-info", err)
		s.end("upstream", replyNoClientInfo)
		return false
	case err != nil:
		s.upstreamFailed("open", err)
		s.reply(unreachable)
		return false
	}
	s.up = s.takeUpstream(conn)
	s.deadlines.setUpstream(conn)
	return true
}

// carries reports whether the connection takes the parameters of MAIL; if not, it has
// answered. Only what the client uses counts: servers offer some addresses more
// than others (Postfix: smtpd_discard_ehlo_keyword_address_maps), and what is
// offered to clients comes from an earlier session, perhaps another address's.
func (s *session) carries() bool {
	if s.tx.params.Unannounced(s.up.Caps.Has) != nil {
		s.upstreamFailed("capability", errors.New("a parameter of MAIL is no longer offered"))
		s.end("upstream", replyChanged)
		return false
	}
	return true
}

// upstreamFailed counts and logs a failure of the connection to upstream.
func (s *session) upstreamFailed(stage string, err error) {
	s.metrics.upstream.WithLabelValues(stage).Inc()
	s.log.LogAttrs(context.Background(), slog.LevelWarn, "upstream failed",
		s.who(slog.String("stage", stage), slog.Any("error", err))...)
}

// send writes commands upstream.
func (s *session) send(p []byte) error {
	s.deadlines.armUpstream(s.settings.Limits.UpstreamReply)
	_, err := s.up.Write(p)
	return err
}

// receive reads one reply. Refusals apart, it must be what the command asks for:
// yes is 354 for DATA, and 250, standing for every 2xx, for all others. Else a
// reply out of step could pass for upstream's consent.
func (s *session) receive(limit time.Duration, yes int) (wire.Reply, error) {
	s.deadlines.armUpstream(limit)
	r, err := wire.ReadReply(s.up.R)
	if err == nil && r.Code < 400 && (r.Code/100 != yes/100 || yes == 354 && r.Code != 354) {
		err = wire.ErrReply
	}
	return r, err
}

// exchange sends one command line (without CRLF) and reads its reply, nothing
// else being in flight; yes is that of receive.
func (s *session) exchange(line []byte, yes int) (wire.Reply, error) {
	if err := s.unasked(); err != nil {
		return wire.Reply{}, err
	}
	s.up.out = append(append(s.up.out[:0], line...), '\r', '\n')
	err := s.send(s.up.out)
	s.up.out = s.up.out[:0]
	if err != nil {
		return wire.Reply{}, err
	}
	return s.receive(s.settings.Limits.UpstreamReply, yes)
}

// errUnasked reports an upstream whose replies are out of step with our commands:
// its next 250 might be the answer to anything.
var errUnasked = errors.New("reply without a command")

// unasked looks for octets that upstream sent without being asked. A 421 is
// left in its place: it answers any command.
func (s *session) unasked() error {
	if n := s.up.R.Buffered(); n > 0 {
		if head, _ := s.up.R.Peek(min(n, 3)); string(head) != "421" {
			return errUnasked
		}
	}
	return nil
}

// waiting reports whether upstream has sent what has not been read yet, into our
// buffer or the system's. Connections without a socket of their own, the embedded
// mailbox's and a test's pipe, are asked for the buffer alone.
func (s *session) waiting() bool {
	if s.up.R.Buffered() > 0 {
		return true
	}
	conn := s.up.Conn.Conn
	secured, overTLS := conn.(*tls.Conn)
	if overTLS {
		conn = secured.NetConn()
	}
	socket, ok := conn.(syscall.Conn)
	if !ok {
		return false
	}
	raw, err := socket.SyscallConn()
	if err != nil {
		return false
	}
	found := false
	raw.Control(func(fd uintptr) { // not Read, which does nothing after a deadline that is over
		var b [1]byte
		n, _, err := unix.Recvfrom(int(fd), b[:], unix.MSG_PEEK|unix.MSG_DONTWAIT) // an error: there is nothing to read
		found = err == nil && n > 0
	})
	if found && overTLS {
		// It may be a record of TLS's own, a new ticket or key, and no reply.
		s.deadlines.armUpstream(ticketWait)
		_, err := s.up.R.Peek(1)
		return err == nil
	}
	return found
}

// ticketWait is how long octets that have arrived from upstream may take to turn out
// to be a reply or none.
const ticketWait = 50 * time.Millisecond

// faultReply is what the client hears of a failed exchange.
func faultReply(err error) string {
	if errors.Is(err, wire.ErrReply) || errors.Is(err, errUnasked) {
		return replyInternal
	}
	return replyLost
}

// hungUp reports whether err says that upstream is gone, rather than slow or mad.
func hungUp(err error) bool {
	return err != nil && faultReply(err) == replyLost && !errors.Is(err, os.ErrDeadlineExceeded)
}

// wentAway reports whether upstream has given up a connection that waited between
// transactions: it has closed it, or said 421 when its patience was over, which
// is read as the answer to the command that comes next.
func wentAway(r wire.Reply, err error) bool {
	return hungUp(err) || err == nil && r.Code == 421
}

// lose drops a connection that has failed, and with it the transaction, unless upstream
// has not seen that at all.
func (s *session) lose(stage string, err error) {
	s.upstreamFailed(stage, err)
	s.abandonUpstream()
	if s.tx.held {
		return
	}
	if m := s.tx.message; m != nil && m.outcome == "" { // between two chunks
		m.outcome = "upstream-lost"
		s.logMessage(m, wire.Reply{})
	}
	lost := s.tx.open || s.tx.lost
	s.reset()
	s.tx.lost = lost
}

// abandonUpstream closes the connection as it stands: no dot, no QUIT, no further octet.
func (s *session) abandonUpstream() {
	if s.up == nil {
		return
	}
	s.deadlines.setUpstream(nil)
	s.leaveUpstream(s.up)
	s.up = nil
}

// forsakeUpstream closes a connection on which there may be a transaction that ours has
// left behind.
func (s *session) forsakeUpstream() {
	if s.up != nil && s.up.tx {
		s.abandonUpstream()
	}
}

// closeUpstream ends the connection at the end of the session, politely if it can.
func (s *session) closeUpstream() {
	s.quitUpstream()
	if s.up != nil && s.up.quit {
		s.up.SetDeadline(time.Now().Add(time.Second)) // that of QUIT may have gone with a client that lingers
		wire.ReadReply(s.up.R)                        // lets upstream close first; its answer changes nothing
	}
	s.abandonUpstream()
}

// quitUpstream says QUIT, where upstream waits for a command. The answer may come
// while the client's connection is closed.
func (s *session) quitUpstream() {
	if s.up == nil || s.up.quit || s.up.tx || s.up.R.Buffered() > 0 {
		return
	}
	s.deadlines.setUpstream(nil)
	s.up.SetDeadline(time.Now().Add(time.Second))
	_, err := io.WriteString(s.up, "QUIT\r\n")
	s.up.quit = err == nil
}

// relay421 passes upstream's own end of service on and ends the session.
func (s *session) relay421(r wire.Reply) {
	if s.checker.LogsMore(s.client.Addr()) {
		s.log.LogAttrs(context.Background(), slog.LevelInfo, "session ended",
			s.who(slog.String("reason", "upstream"), slog.String("upstream_reply", firstLine(r.Raw)))...)
	}
	s.metrics.ended.WithLabelValues("upstream").Inc()
	s.write(r.Raw)
	s.abandonUpstream()
	s.reset()
	s.finished = true
	s.linger = true
}

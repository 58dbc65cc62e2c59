package session

import (
	"context"
	"crypto/tls"
	"errors"
	"io"
	"log/slog"
	"os"
	"slices"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"blockd/smtpfilter/upstream"
	"blockd/smtpfilter/wire"
)

// upstreamConn is the session's connection to upstream. It serves this client only, because
// what upstream was told about one client must not apply to another.
type upstreamConn struct {
	*upstream.Conn
	out  []byte // commands that answerQueue will send; at most batch octets
	tx   bool   // upstream may have an open transaction
	quit bool   // QUIT has been sent

	raw   syscall.RawConn // of the socket; nil = there is none
	look  func(fd uintptr)
	waits bool // look has found octets
}

// batch bounds the octets of commands in flight. Their answers wait in the system's buffers
// while we still write, so there must be few.
const batch = wire.MaxLine

// connection is the connection to upstream; nil = there is none.
func (u *upstreamConn) connection() *upstream.Conn {
	if u == nil {
		return nil
	}
	return u.Conn
}

// answered reports whether fault is empty. Otherwise it answers the client with fault; a 421
// ends the session.
func (s *session) answered(fault string) bool {
	switch {
	case fault == "":
		return true
	case fault[:3] == "421":
		s.end("upstream", fault)
	default:
		s.reply(fault)
	}
	return false
}

// dial makes sure that there is a connection, and returns "". If there can be none, it returns
// the reply for the client: unreachable, upstream's refusal of the client's name, or one with 421.
func (s *session) dial(unreachable string) (fault string) {
	if s.up != nil { // its caller notices that upstream has left an idle one: wentAway
		return ""
	}
	if s.rules.Client.Authenticated { // the client has authenticated on a connection that is gone
		return replyChanged
	}
	conn, err := s.upstream.Open(s.hard, upstream.Client{Addr: s.client, Helo: s.rules.Client.Helo, ESMTP: s.esmtp})
	switch {
	case errors.Is(err, upstream.ErrNoXCLIENT), errors.Is(err, upstream.ErrNoAddress):
		// Without the client's address, upstream would take the mail for ours.
		s.upstreamFailed("client-info", err)
		return replyNoClientInfo
	case err != nil:
		s.upstreamFailed("open", err)
		if refused, ok := errors.AsType[*upstream.RefusedError](err); ok && refused.Name {
			return string(refused.Reply.Raw)
		}
		return unreachable
	}
	s.up = s.takeUpstream(conn)
	s.deadlines.setUpstream(conn)
	return ""
}

// carry is dial for the transaction: the connection also supports the parameters of MAIL. Only
// those that the client uses count. Servers offer some clients more than others (Postfix:
// smtpd_discard_ehlo_keyword_address_maps), and our offer to clients comes from an earlier
// connection, perhaps for another address.
func (s *session) carry() (fault string) {
	if fault := s.dial(replyUnreachable); fault != "" {
		return fault
	}
	if s.tx.params.Unannounced(s.up.Caps.Has) != nil {
		s.upstreamFailed("capability", errors.New("a parameter of MAIL is no longer offered"))
		return replyChanged
	}
	return ""
}

// upstreamFailed counts and logs a failure of the connection to upstream.
func (s *session) upstreamFailed(stage string, err error) {
	s.metrics.upstream.WithLabelValues(stage).Inc()
	s.log.LogAttrs(context.Background(), slog.LevelWarn, "upstream failed",
		s.logFields(slog.String("stage", stage), slog.Any("error", err))...)
}

// send writes commands to upstream.
func (s *session) send(p []byte) error {
	s.deadlines.armUpstream(s.settings.Limits.UpstreamReply)
	_, err := s.up.Write(p)
	return err
}

// receive reads one reply. A reply below 400 must fit the command: yes is 354 for DATA, 235 for
// AUTH, which 334 fits too, and 250 for all others, where any 2xx fits but 221. Otherwise a reply
// out of step could pass for upstream's consent.
func (s *session) receive(limit time.Duration, yes int) (wire.Reply, error) {
	s.deadlines.armUpstream(limit)
	r, err := wire.ReadReply(s.up.R)
	switch {
	case err != nil:
	case r.Code == 221: // the answer to QUIT, which nobody has sent
		err = errCloses
	case r.Code < 400 && !fits(r.Code, yes):
		err = wire.ErrReply
	}
	return r, err
}

// fits reports whether a code below 400 may answer the command that yes stands for in receive.
func fits(code, yes int) bool {
	switch yes {
	case 354:
		return code == 354
	case 235:
		return code == 235 || code == 334
	}
	return code/100 == yes/100
}

// errCloses reports an upstream that says good-bye in place of an answer.
var errCloses = errors.New("upstream closes the connection")

// exchange sends one command line, without CRLF, and reads its reply. No other command is in
// flight. yes is that of receive.
func (s *session) exchange(line []byte, yes int) (wire.Reply, error) {
	if err := s.unasked(); err != nil {
		return wire.Reply{}, err
	}
	s.up.out = slices.Grow(s.up.out[:0], len(line)+len("\r\n")) // growing later would leave a copy of a password in memory
	s.up.out = append(append(s.up.out, line...), '\r', '\n')
	err := s.send(s.up.out)
	clear(s.up.out)
	s.up.out = s.up.out[:0]
	if err != nil {
		return wire.Reply{}, err
	}
	return s.receive(s.settings.Limits.UpstreamReply, yes)
}

// errNoUpstream is the fault of a command for which there is no connection any more.
var errNoUpstream = errors.New("no connection")

// errUnasked reports that upstream's replies are out of step with our commands: its next 250
// might answer any command.
var errUnasked = errors.New("reply without a command")

// unasked returns an error if upstream has sent octets without being asked. It leaves a 421 to
// be read, because 421 may answer any command.
func (s *session) unasked() error {
	if !s.replyWaiting() {
		return nil
	}
	s.deadlines.armUpstream(time.Second)
	if head, _ := s.up.R.Peek(len("421")); string(head) != "421" {
		return errUnasked
	}
	return nil
}

// replyWaiting reports whether octets from upstream wait to be read, in our buffer or the
// system's. For connections without a socket, such as the embedded mailbox's or a test's pipe,
// it looks at our buffer alone.
func (s *session) replyWaiting() bool {
	if s.up.R.Buffered() > 0 {
		return true
	}
	if !s.up.peek() {
		return false
	}
	if _, overTLS := s.up.Conn.Conn.(*tls.Conn); overTLS {
		// It may be a record of TLS itself, such as a new ticket or key, and not a reply.
		s.deadlines.armUpstream(recordWait)
		_, err := s.up.R.Peek(1)
		return err == nil
	}
	return true
}

// peek reports whether the system has received octets from upstream that we have not read. It is false where there is
// no socket to look at.
func (u *upstreamConn) peek() bool {
	if u.look == nil {
		return false
	}
	u.raw.Control(u.look) // raw.Read fails after a deadline has passed
	return u.waits
}

// watch makes peek look at the socket of the connection.
func (u *upstreamConn) watch() {
	if u.Conn == nil { // of a test
		return
	}
	conn := u.Conn.Conn
	if secured, ok := conn.(*tls.Conn); ok {
		conn = secured.NetConn()
	}
	socket, ok := conn.(syscall.Conn)
	if !ok {
		return
	}
	raw, err := socket.SyscallConn()
	if err != nil {
		return
	}
	u.raw, u.look = raw, func(fd uintptr) {
		var b [1]byte
		n, _, err := unix.Recvfrom(int(fd), b[:], unix.MSG_PEEK|unix.MSG_DONTWAIT)
		u.waits = err == nil && n > 0
	}
}

const (
	// recordWait is how long we wait for the rest of a record of TLS, to find out whether it is a reply.
	recordWait = 50 * time.Millisecond

	// closeWait is how long we wait for the end of the connection behind a reply. Who closes says so in the same moment.
	closeWait = 50 * time.Millisecond
)

// faultReply returns the client's answer after a failed exchange.
func faultReply(err error) string {
	if errors.Is(err, wire.ErrReply) || errors.Is(err, errUnasked) {
		return replyInternal
	}
	return replyLost
}

// hungUp reports whether err says that upstream has closed the connection. It is false for a
// timeout or a malformed reply.
func hungUp(err error) bool {
	return err != nil && faultReply(err) == replyLost && !errors.Is(err, os.ErrDeadlineExceeded)
}

// wentAway reports whether upstream had closed a connection that was idle between transactions, and so has not heard
// the first command on it, whose result r and err are. What a server says before it closes (Postfix says 421, others
// 451, 554 or 221) may come before the command is sent, or cross with it and look like its answer: a refusal is one
// unless the end of the connection follows.
func (s *session) wentAway(r wire.Reply, err error) bool {
	switch {
	case errors.Is(err, errUnasked): // then nothing was sent
		return true
	case err != nil:
		return hungUp(err)
	case r.Code < 400:
		return false
	case r.Code == 421:
		return true
	}
	s.deadlines.armUpstream(closeWait)
	_, err = s.up.R.Peek(1)
	return hungUp(err)
}

// lose drops a failed connection and the transaction with it. The transaction stays if
// upstream has not seen it.
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

// abandonUpstream closes the connection as it is, without a dot or QUIT.
func (s *session) abandonUpstream() {
	if s.up == nil {
		return
	}
	s.deadlines.setUpstream(nil)
	s.returnUpstream(s.up)
	s.up = nil
}

// forsakeUpstream closes the connection if upstream may still hold an ended transaction.
func (s *session) forsakeUpstream() {
	if s.up != nil && s.up.tx {
		s.abandonUpstream()
	}
}

// closeUpstream ends the connection at the end of the session, with QUIT if possible.
func (s *session) closeUpstream() {
	s.quitUpstream()
	if s.up != nil && s.up.quit {
		s.up.SetDeadline(time.Now().Add(time.Second)) // the deadline of QUIT may have passed while the client lingered
		wire.ReadReply(s.up.R)                        // lets upstream close first; its answer does not matter
	}
	s.abandonUpstream()
}

// quitUpstream sends QUIT if upstream waits for a command. The answer may come while the
// client's connection is closed.
func (s *session) quitUpstream() {
	if s.up == nil || s.up.quit || s.up.tx || s.up.R.Buffered() > 0 {
		return
	}
	s.deadlines.setUpstream(nil)
	s.up.SetDeadline(time.Now().Add(time.Second))
	_, err := io.WriteString(s.up, "QUIT\r\n")
	s.up.quit = err == nil
}

// relay421 forwards upstream's 421 and ends the session.
func (s *session) relay421(r wire.Reply) {
	if s.checker.LogsMore(s.client.Addr()) {
		s.log.LogAttrs(context.Background(), slog.LevelInfo, "session ended",
			s.logFields(slog.String("reason", "upstream"), slog.String("upstream_reply", firstLine(r.Raw)))...)
	}
	s.metrics.ended.WithLabelValues("upstream").Inc()
	s.write(r.Raw)
	s.abandonUpstream()
	s.reset()
	s.finished = true
	s.linger = true
}

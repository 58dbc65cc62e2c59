package session

import (
	"context"
	"crypto/rand"
	"crypto/tls"
	"errors"
	"io"
	"log/slog"
	"net"
	"net/netip"
	"os"
	"runtime/debug"
	"strconv"
	"strings"
	"time"

	"blockd/msgauth"
	"blockd/policy"
	"blockd/smtpfilter/parse"
	"blockd/smtpfilter/upstream"
	"blockd/smtpfilter/wire"
)

// session is the state of one Run. It belongs to Run's goroutine; only
// deadlines is shared.
type session struct {
	*Relay
	id        string
	client    netip.AddrPort
	hard      context.Context // ends when no time is left
	stopping  <-chan struct{} // closed when the filter stops
	deadlines deadlines

	conn    net.Conn
	overTLS bool
	*ends

	rules    policy.Transaction // what is decided about the client, and about a message of it; knows its name and whether it has authenticated
	onlyQuit bool               // refused at connect: only QUIT is accepted

	greeted bool // EHLO or HELO was answered
	esmtp   bool // it was EHLO

	reverse    msgauth.State // of the client's address, once that was asked for
	lookedBack bool
	offered    upstream.Caps

	up   *upstreamConn // nil: none open
	tx   transaction
	sent int // transactions begun, for their ids

	queue    []pending // commands that are not answered yet, in order
	errors   int       // of the client, since its last accepted message
	junk     int
	rate     rate // of commands
	finished bool // nothing more is read
	linger   bool // the client did not ask for the end and may still be sending
}

// transaction is one MAIL to its end. The zero transaction is none.
type transaction struct {
	open      bool         // MAIL was answered 2xx, or its answer is in the queue
	lost      bool         // it was open when upstream was lost: what follows is 451, for a 5xx would bounce the mail
	line      []byte       // of MAIL, with CRLF, while it is held
	held      bool         // a listed sender: upstream has not seen MAIL
	id        string       // in its Received field, and in the log
	sender    string       // the path without brackets, as the client wrote it
	params    parse.Params // of MAIL
	attempted int          // RCPT commands
	accepted  int          // by upstream
	taken     []string     // those that upstream has accepted, as the client wrote them, where the message may decide about them
	aside     []string     // recipients whose copy goes into quarantine, as the client wrote them
	labels    []policy.Tag // why: one of each list
	size      int64        // of the chunks so far
	failed    string       // the answer to the chunk that was the message's undoing, and to all after it
	message   *message     // on its way; nil before DATA or the first chunk
}

// begun reports whether there is a message, or has been before it failed.
func (t *transaction) begun() bool { return t.message != nil || t.failed != "" }

func newSession(r *Relay, conn net.Conn, client netip.AddrPort) *session {
	_, overTLS := conn.(*tls.Conn)
	s := &session{
		overTLS: overTLS,
		Relay:   r, id: strings.ToLower(rand.Text()[:10]), client: client,
		deadlines: deadlines{client: armed{conn: conn}},
		conn:      conn, ends: r.takeEnds(conn),
	}
	s.rules = r.checker.Begin(&r.door, policy.Client{Addr: client.Addr(), Trusted: r.settings.trusts(client.Addr()), Line: s.own})
	return s
}

// serve runs the session from greeting to end.
func (s *session) serve() {
	if !s.greet() {
		return
	}
	for !s.finished {
		if !s.in.Ready() {
			s.settle()
			s.flush()
			if s.finished {
				break
			}
		}
		if lent := s.in.Narrow(); lent != nil {
			s.buffers.Put((*[dataBuffer]byte)(lent))
		}
		if !s.deadlines.await(s.settings.patience(), !s.tx.open) {
			s.end("drain", replyStopping)
			break
		}
		line, err := s.readLine()
		s.deadlines.arrived()
		if err != nil {
			s.lineFault(err)
			continue
		}
		if s.rate.over(s.settings.Limits.CommandRate, time.Now()) {
			s.end("rate", replyTooFast)
			break
		}
		s.command(line)
	}
	s.settle()
	s.flush()
}

// greet says 220, after the time in which a well-behaved client waits for it.
func (s *session) greet() bool {
	if wait := s.settings.Limits.GreetWait; wait > 0 {
		s.deadlines.armClient(wait)
		switch err := s.in.Fill(); {
		case err == nil:
			s.end("protocol", replyTooEarly)
			s.flush()
			return false
		case !errors.Is(err, os.ErrDeadlineExceeded):
			return false
		}
	}
	if !s.connected() {
		return !s.finished
	}
	s.reply("220 " + s.settings.Hostname + " ESMTP blockd\r\n")
	return true
}

// lineFault answers what was no command line. After most of them it is not known
// where the next command begins, so the session ends with them.
func (s *session) lineFault(err error) {
	switch {
	case errors.Is(err, wire.ErrLongLine):
		s.refuse(replyLongLine)
	case errors.Is(err, wire.ErrEndlessLine):
		s.end("protocol", replyLongLine)
	case errors.Is(err, wire.ErrBare):
		s.end("protocol", replyBareLine)
	case errors.Is(err, os.ErrDeadlineExceeded):
		s.timeout()
	default:
		s.finished = true // the client is gone, or its connection broken
		if err != io.EOF {
			s.log.LogAttrs(context.Background(), slog.LevelDebug, "client lost", s.who(slog.Any("error", err))...)
		}
	}
}

// timeout ends a session whose time is up.
func (s *session) timeout() {
	if s.deadlines.stopping() {
		s.end("drain", replyStopping)
	} else {
		s.end("timeout", replyTimeout)
	}
}

// reply answers one command. It keeps the order: after commands that wait for
// upstream it waits too.
func (s *session) reply(text string) {
	if len(s.queue) > 0 {
		s.push(pending{local: text})
		return
	}
	s.write([]byte(text))
}

// refuse answers a command that was the client's own fault, slower and slower.
func (s *session) refuse(text string) {
	l := s.settings.Limits
	s.errors++
	if s.errors >= l.HardErrors {
		if s.settle() {
			s.end("errors", replyTooManyErrors)
		}
		return
	}
	if s.slowed() {
		s.reply(text)
	}
}

// turnDown answers a command with a refusal by a list or by a rule on the client. It
// counts as an error, as Postfix counts it (smtpd_hard_error_limit): a session that only
// collects refusals becomes slow and ends. A message that has recipients goes on, however
// many of the others are refused.
func (s *session) turnDown(text string) {
	s.errors++
	if !s.slowed() {
		return
	}
	s.reply(text)
	if s.errors >= s.settings.Limits.HardErrors && s.settle() && s.tx.accepted == 0 && len(s.tx.aside) == 0 {
		s.end("errors", replyTooManyErrors)
	}
}

// slowed holds the answer to an error back once there are many. It reports whether the
// session goes on.
func (s *session) slowed() bool {
	l := s.settings.Limits
	if s.errors <= l.SoftErrors {
		return true
	}
	if !s.settle() {
		return false
	}
	s.flush()
	pause := time.NewTimer(l.ErrorDelay)
	defer pause.Stop()
	select {
	case <-pause.C:
	case <-s.hard.Done():
	}
	return true
}

// end answers with text and reads nothing more.
func (s *session) end(reason, text string) {
	s.metrics.ended.WithLabelValues(reason).Inc()
	if s.checker.LogsMore(s.client.Addr()) {
		s.log.LogAttrs(context.Background(), slog.LevelInfo, "session ended",
			s.who(slog.String("reason", reason), slog.String("reply", firstLine(text)))...)
	}
	s.finished = true
	s.linger = true
	s.reply(text)
}

// write puts octets into the client's buffer, and out when it is full.
func (s *session) write(p []byte) {
	if len(p) > s.out.Available() {
		s.deadlines.armReply(s.settings.Limits.CommandIdle)
	}
	if _, err := s.out.Write(p); err != nil {
		s.finished = true
	}
}

// flush writes out what the client is to read before it speaks again.
func (s *session) flush() {
	if s.out.Buffered() == 0 {
		return
	}
	s.deadlines.armReply(s.settings.Limits.CommandIdle)
	if err := s.out.Flush(); err != nil {
		s.finished = true
	}
}

// recover ends a session that has met a defect; close then cuts data in flight
// without a dot, as for any other end.
func (s *session) recover() {
	cause := recover()
	if cause == nil {
		return
	}
	s.metrics.panics.Inc()
	s.log.LogAttrs(context.Background(), slog.LevelError, "session panicked",
		s.who(slog.Any("panic", cause), slog.String("stack", string(debug.Stack())))...)
	s.finished = true
	s.write([]byte(replyInternalEnd))
	s.flush()
}

// close ends both connections, the client's first: it need not wait for upstream's
// answer to QUIT.
func (s *session) close() {
	s.quitUpstream()
	if s.linger {
		linger(s.conn)
	}
	s.conn.Close()
	s.closeUpstream()
	s.reset()
	s.leaveEnds(s.ends)
	s.ends = nil
}

// linger lets a client that is still sending read our last reply: to close with
// unread input makes the system send a reset, which may overtake the reply.
func linger(conn net.Conn) {
	half, ok := conn.(interface{ CloseWrite() error })
	if !ok || half.CloseWrite() != nil {
		return
	}
	conn.SetReadDeadline(time.Now().Add(time.Second))
	io.CopyN(io.Discard, conn, 64<<10)
}

// begin makes a new transaction the current one, and looks its sender up.
func (s *session) begin(cmd parse.Command) {
	s.sent++
	sender := string(cmd.Path.Raw[1 : len(cmd.Path.Raw)-1])
	s.tx = transaction{open: true, id: s.id + "-" + strconv.Itoa(s.sent), sender: sender, params: cmd.Params}
	s.rules.Mail(policy.Mail{Sender: sender, Written: sender, UTF8: cmd.Params.Has(parse.ParamSMTPUTF8)})
}

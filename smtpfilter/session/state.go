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

	"blockd/mail/msgauth"
	"blockd/policy"
	"blockd/policy/reply"
	"blockd/smtpfilter/parse"
	"blockd/smtpfilter/upstream"
	"blockd/smtpfilter/wire"
)

// session is the state of one Run. Only Run's goroutine uses it, except for deadlines.
type session struct {
	*Relay
	id        string
	client    netip.AddrPort
	hard      context.Context // ends when the session's time is over
	stopping  <-chan struct{} // closed when the filter stops
	deadlines deadlines

	conn    net.Conn
	overTLS bool
	*clientBuffers

	rules    policy.Transaction // decides about the client and its current message; holds the client's HELO name and whether it has authenticated
	onlyQuit bool               // refused at connect: only QUIT is accepted

	greeted bool // EHLO or HELO has been answered
	esmtp   bool // it was EHLO

	reverse      msgauth.State // whether the client's address has a name in DNS, if reverseKnown
	reverseKnown bool
	offered      upstream.Caps

	up   *upstreamConn // nil: none open
	tx   transaction
	sent int // transactions begun so far, for their ids

	queue    []pending // commands that wait for their answer, in order
	errors   int       // the client's errors since its last accepted message
	junk     int
	rate     rate // of commands
	finished bool // nothing more is read
	linger   bool // the client may still be sending when we close
}

// transaction is the state from MAIL to the end of the message. The zero value means that
// there is no transaction.
type transaction struct {
	open        bool         // MAIL was answered 2xx, or its answer is in the queue
	lost        bool         // upstream was lost during the transaction; later commands get 451, because a 5xx would bounce the mail
	held        bool         // MAIL was answered here, and upstream has no transaction
	refusal     string       // why upstream has none, with CRLF: its refusal of MAIL, or ours if it cannot be reached. It answers each RCPT; "" = it was not asked
	id          string       // the id in the Received field and in the log
	sender      string       // the path without brackets, as the client wrote it
	params      parse.Params // of MAIL
	attempted   int          // RCPT commands so far
	accepted    int          // recipients that upstream has accepted
	recipients  []string     // the addresses of accepted recipients, as the client wrote them, if the message may decide about them
	quarantined []string     // recipients whose copy goes into quarantine, as the client wrote them
	tags        []reply.Tag  // why: one tag for each list
	size        int64        // octets of the chunks so far
	failed      string       // the answer to the chunk that made the message fail, and to all chunks after it
	message     *message     // the message itself; nil before DATA or the first chunk
}

// begun reports whether the message has begun, even if it has failed since.
func (t *transaction) begun() bool { return t.message != nil || t.failed != "" }

func newSession(r *Relay, conn net.Conn, client netip.AddrPort) *session {
	_, overTLS := conn.(*tls.Conn)
	s := &session{
		overTLS: overTLS,
		Relay:   r, id: strings.ToLower(rand.Text()[:10]), client: client,
		deadlines: deadlines{client: armed{conn: conn}},
		conn:      conn, clientBuffers: r.takeBuffers(conn),
	}
	s.rules.Begin(r.checker, &r.door, policy.Client{Addr: client.Addr(), Trusted: r.settings.trusts(client), Line: s.sessionFields})
	return s
}

// serve runs the session from greeting to end.
func (s *session) serve() {
	if !s.greet() {
		return
	}
	for !s.finished {
		if !s.in.Ready() {
			s.answerQueue()
			s.flush()
			if s.finished {
				break
			}
		}
		if lent := s.in.Narrow(); lent != nil {
			s.buffers.Put((*[dataBuffer]byte)(lent))
		}
		if !s.deadlines.await(s.settings.commandTimeout(), !s.tx.open) {
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
	s.answerQueue()
	s.flush()
}

// greet sends 220 after GreetWait. It reports whether commands may follow.
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

// lineFault answers input that is not a command line. Most such input hides where the next
// command begins, so the session then ends.
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
		s.finished = true // the client has closed the connection, or the connection has failed
		if err != io.EOF {
			s.log.LogAttrs(context.Background(), slog.LevelDebug, "client lost", s.logFields(slog.Any("error", err))...)
		}
	}
}

// timeout ends a session that has run out of time.
func (s *session) timeout() {
	if s.deadlines.stopping() {
		s.end("drain", replyStopping)
	} else {
		s.end("timeout", replyTimeout)
	}
}

// reply answers one command in order: if earlier commands still wait for upstream, the answer
// waits with them.
func (s *session) reply(text string) {
	if len(s.queue) > 0 {
		s.push(pending{local: text})
		return
	}
	s.write([]byte(text))
}

// refuse answers a command that is the client's own mistake. It counts an error, and many
// errors make the answers slow and then end the session.
func (s *session) refuse(text string) {
	l := s.settings.Limits
	s.errors++
	if s.errors >= l.HardErrors {
		if s.answerQueue() {
			s.end("errors", replyTooManyErrors)
		}
		return
	}
	if s.slowed() {
		s.reply(text)
	}
}

// turnDown answers a command with a refusal by a list, or by a rule on the client. A refusal
// counts as an error, as in Postfix (smtpd_hard_error_limit), so a session that only collects
// refusals becomes slow and ends. A message with at least one recipient goes on, however many
// others are refused.
func (s *session) turnDown(text string) {
	s.errors++
	if !s.slowed() {
		return
	}
	s.reply(text)
	if s.errors >= s.settings.Limits.HardErrors && s.answerQueue() && s.tx.accepted == 0 && len(s.tx.quarantined) == 0 {
		s.end("errors", replyTooManyErrors)
	}
}

// slowed delays the answer to an error if there have been many. It reports whether the session
// goes on.
func (s *session) slowed() bool {
	l := s.settings.Limits
	if s.errors <= l.SoftErrors {
		return true
	}
	if !s.answerQueue() {
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

// end answers with text and ends the session: nothing more is read.
func (s *session) end(reason, text string) {
	s.metrics.ended.WithLabelValues(reason).Inc()
	if s.checker.LogsMore(s.client.Addr()) {
		s.log.LogAttrs(context.Background(), slog.LevelInfo, "session ended",
			s.logFields(slog.String("reason", reason), slog.String("reply", firstLine(text)))...)
	}
	s.finished = true
	s.linger = true
	s.reply(text)
}

// write adds octets to the client's buffer, and sends the buffer when it is full.
func (s *session) write(p []byte) {
	if len(p) > s.out.Available() {
		s.deadlines.armReply(s.settings.Limits.CommandIdle)
	}
	if _, err := s.out.Write(p); err != nil {
		s.finished = true
	}
}

// flush sends the client everything that is buffered.
func (s *session) flush() {
	if s.out.Buffered() == 0 {
		return
	}
	s.deadlines.armReply(s.settings.Limits.CommandIdle)
	if err := s.out.Flush(); err != nil {
		s.finished = true
	}
}

// recover ends a session after a panic. close then cuts a message in flight without its dot,
// as at any other end.
func (s *session) recover() {
	cause := recover()
	if cause == nil {
		return
	}
	s.metrics.panics.Inc()
	s.log.LogAttrs(context.Background(), slog.LevelError, "session panicked",
		s.logFields(slog.Any("panic", cause), slog.String("stack", string(debug.Stack())))...)
	s.finished = true
	s.write([]byte(replyInternalEnd))
	s.flush()
}

// close ends both connections. It closes the client's first, so that the client need not wait
// for upstream's answer to QUIT.
func (s *session) close() {
	s.quitUpstream()
	if s.linger {
		linger(s.conn)
	}
	s.conn.Close()
	s.closeUpstream()
	s.reset()
	s.returnBuffers(s.clientBuffers)
	s.clientBuffers = nil
}

// linger lets a client that is still sending read our last reply. If a connection is closed
// with unread input, the system sends a reset, which may overtake the reply.
func linger(conn net.Conn) {
	half, ok := conn.(interface{ CloseWrite() error })
	if !ok || half.CloseWrite() != nil {
		return
	}
	conn.SetReadDeadline(time.Now().Add(time.Second))
	io.CopyN(io.Discard, conn, 64<<10)
}

// begin begins a new transaction and looks its sender up.
func (s *session) begin(cmd parse.Command) {
	s.sent++
	sender := string(cmd.Path.Raw[1 : len(cmd.Path.Raw)-1])
	s.tx = transaction{open: true, id: s.id + "-" + strconv.Itoa(s.sent), sender: sender, params: cmd.Params}
	s.rules.Mail(policy.Mail{Sender: sender, Written: sender, UTF8: cmd.Params.Has(parse.ParamSMTPUTF8)})
}

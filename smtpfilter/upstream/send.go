package upstream

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"strconv"
	"strings"
	"time"

	"blockd/smtpfilter/wire"
)

// Mail is a message that blockd sends by itself, without a client: one that it has set aside.
type Mail struct {
	Sender     string   // the reverse-path without brackets; "" is the null sender
	Recipients []string // one at least, without brackets
	UTF8       bool     // it needs SMTPUTF8 (RFC 6531)
	EightBit   bool     // it has octets above 127
	Binary     bool     // it has a CR or LF by itself, or no CRLF at its end, and needs BDAT (RFC 3030)
	Size       int64    // octets of Message
	Message    io.Reader

	// End is called before the octets go out by which upstream takes the message. After an error they do not go. nil: nothing
	// is to be done.
	End func() error
}

// Outcome is what upstream said about one recipient of a Mail: at RCPT, or else at the message's end.
type Outcome struct {
	Recipient string
	Reply     wire.Reply // upstream has taken the message for this one if its code is 2xx
}

// Errors of Send besides those of Open. None but ErrUnsure leaves a doubt: upstream does not have the message.
var (
	// ErrUnsure is wrapped by the error of a message whose end was sent and not answered: upstream may have it (RFC 1047).
	ErrUnsure = errors.New("upstream was lost before it said whether it has the message")

	// ErrCannotCarry reports a message that upstream has no extension for.
	ErrCannotCarry = errors.New("upstream does not offer what this message needs")
)

// How long Send waits (RFC 5321, section 4.5.3.2).
const (
	sendTimeout = 3 * time.Minute  // for a piece of the message to go out
	endTimeout  = 10 * time.Minute // for the reply to its end
)

// Send opens a session that stands for no client, as Probe does, and sends one message. It returns an Outcome for each recipient in their order.
// The end of ctx ends it, before or after End.
func (d *Dialer) Send(ctx context.Context, m Mail) ([]Outcome, error) {
	if d.loop.Load() {
		return nil, ErrOwnListener
	}
	conn, err := d.open(ctx, Client{ESMTP: true})
	if err != nil {
		return nil, err
	}
	defer conn.Release()
	stop := context.AfterFunc(ctx, func() { conn.Conn.Close() })
	defer stop()
	s := sending{d, conn, m, nil}
	all, err := s.run()
	if err != nil && ctx.Err() != nil && errors.Is(err, net.ErrClosed) {
		err = fmt.Errorf("%w: %w", ctx.Err(), err)
	}
	return all, err
}

// sending is one Send.
type sending struct {
	*Dialer
	conn     *Conn
	mail     Mail
	accepted []int // indexes of recipients that upstream accepted at RCPT
}

func (s *sending) run() ([]Outcome, error) {
	params, err := s.params()
	if err != nil {
		return nil, err
	}
	reply, err := s.command("MAIL", "MAIL FROM:<"+s.mail.Sender+">"+params)
	if err != nil {
		return nil, err
	}
	if reply.Code/100 != 2 {
		return nil, &RefusedError{Stage: "MAIL", Reply: reply}
	}
	all := make([]Outcome, len(s.mail.Recipients))
	for i, r := range s.mail.Recipients {
		if reply, err = s.command("RCPT", "RCPT TO:<"+r+">"); err != nil {
			return nil, err
		}
		all[i] = Outcome{r, reply}
		if reply.Code/100 == 2 {
			s.accepted = append(s.accepted, i)
		}
	}
	if len(s.accepted) == 0 {
		s.quit()
		return all, nil
	}
	if s.mail.Binary {
		err = s.chunk()
	} else {
		err = s.data(all)
	}
	if err != nil {
		return nil, err
	}
	if all[s.accepted[0]].Reply.Code/100 != 2 { // upstream refused DATA
		s.quit()
		return all, nil
	}
	if err := s.end(all); err != nil {
		return nil, fmt.Errorf("%w: %w", ErrUnsure, err)
	}
	s.quit()
	return all, nil
}

// params are those of MAIL by what upstream has announced.
func (s *sending) params() (params string, err error) {
	caps := s.conn.Caps
	switch {
	case s.mail.UTF8 && !caps.Has("SMTPUTF8"):
		return "", fmt.Errorf("%w: SMTPUTF8", ErrCannotCarry)
	case s.mail.Binary && (!caps.Has("CHUNKING") || !caps.Has("BINARYMIME")):
		return "", fmt.Errorf("%w: CHUNKING and BINARYMIME, because it has line ends other than CRLF", ErrCannotCarry)
	}
	if caps.Has("SIZE") {
		params += " SIZE=" + strconv.FormatInt(s.mail.Size, 10)
	}
	switch {
	case s.mail.Binary:
		params += " BODY=BINARYMIME"
	case s.mail.EightBit && caps.Has("8BITMIME"):
		params += " BODY=8BITMIME"
	}
	if s.mail.UTF8 {
		params += " SMTPUTF8"
	}
	return params, nil
}

// command is one command and its reply.
func (s *sending) command(stage, line string) (wire.Reply, error) {
	reply, err := s.conn.command(line, s.set.ReplyTimeout)
	if err != nil {
		return reply, fmt.Errorf("upstream: %s: %w", stage, err)
	}
	if reply.Code == 421 {
		return reply, &RefusedError{Stage: stage, Reply: reply}
	}
	return reply, nil
}

// data sends the message by DATA, but for what ends it. If upstream refuses DATA, that is what it says about all that it had accepted.
func (s *sending) data(all []Outcome) error {
	reply, err := s.command("DATA", "DATA")
	if err != nil {
		return err
	}
	if reply.Code != 354 {
		if reply.Code < 400 {
			return fmt.Errorf("upstream: DATA: %w: code %d, want 354", wire.ErrReply, reply.Code)
		}
		for _, i := range s.accepted {
			all[i].Reply = reply
		}
		return nil
	}
	out := bufio.NewWriterSize(timed{s.conn}, 32<<10)
	stuffed := stuffer{out: out, atStart: true}
	if _, err := io.Copy(&stuffed, s.mail.Message); err != nil {
		return fmt.Errorf("upstream: the message: %w", err)
	}
	if err := out.Flush(); err != nil {
		return fmt.Errorf("upstream: the message: %w", err)
	}
	return s.finish(".\r\n")
}

// chunk sends the message by BDAT: all but the last, empty chunk that ends it.
func (s *sending) chunk() error {
	if _, err := s.conn.Write([]byte("BDAT " + strconv.FormatInt(s.mail.Size, 10) + "\r\n")); err != nil {
		return fmt.Errorf("upstream: BDAT: %w", err)
	}
	n, err := io.Copy(timed{s.conn}, s.mail.Message)
	if err == nil && n != s.mail.Size {
		err = io.ErrUnexpectedEOF
	}
	if err != nil {
		return fmt.Errorf("upstream: the message: %w", err)
	}
	reply, err := s.conn.command("", s.set.ReplyTimeout)
	if err != nil {
		return fmt.Errorf("upstream: BDAT: %w", err)
	}
	if reply.Code/100 != 2 {
		return &RefusedError{Stage: "BDAT", Reply: reply}
	}
	return s.finish("BDAT 0 LAST\r\n")
}

// finish calls End, and sends what makes the message upstream's.
func (s *sending) finish(last string) error {
	if s.mail.End != nil {
		if err := s.mail.End(); err != nil {
			return err
		}
	}
	if _, err := (timed{s.conn}).Write([]byte(last)); err != nil {
		return fmt.Errorf("%w: %w", ErrUnsure, err)
	}
	return nil
}

// end reads the reply to the message's end: by LMTP one for each recipient that was accepted (RFC 2033, section 4.2).
func (s *sending) end(all []Outcome) error {
	if err := s.conn.SetDeadline(time.Now().Add(endTimeout)); err != nil {
		return err
	}
	for n, i := range s.accepted {
		if n > 0 && s.set.Protocol != LMTP {
			all[i].Reply = all[s.accepted[0]].Reply
			continue
		}
		reply, err := wire.ReadReply(s.conn.R)
		if err != nil {
			return err
		}
		all[i].Reply = reply
	}
	return nil
}

// quit ends the session politely. The connection is closed by Send.
func (s *sending) quit() { s.conn.command("QUIT", time.Second) }

// timed gives each write its time.
type timed struct{ conn *Conn }

func (t timed) Write(p []byte) (int, error) {
	if err := t.conn.SetDeadline(time.Now().Add(sendTimeout)); err != nil {
		return 0, err
	}
	return t.conn.Write(p)
}

// stuffer doubles the dot at the start of a line (RFC 5321, section 4.5.2). Lines end with CRLF alone.
type stuffer struct {
	out     *bufio.Writer
	atStart bool
}

func (s *stuffer) Write(p []byte) (int, error) {
	for rest := p; len(rest) > 0; {
		line := rest
		if i := bytes.IndexByte(rest, '\n'); i >= 0 {
			line = rest[:i+1]
		}
		rest = rest[len(line):]
		if s.atStart && line[0] == '.' {
			s.out.WriteByte('.')
		}
		s.out.Write(line)
		s.atStart = line[len(line)-1] == '\n'
	}
	return len(p), nil // the Flush that follows has the error of any write
}

// FirstLine is the text of a reply for people: its first line, without line end.
func FirstLine(r wire.Reply) string {
	line, _, _ := strings.Cut(string(r.Raw), "\r\n")
	return line
}

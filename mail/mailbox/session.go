package mailbox

import (
	"errors"
	"fmt"
	"io"
	"log/slog"
	"strings"
	"sync/atomic"
	"time"

	"github.com/emersion/go-smtp"
)

// The time that one delivery may take. A file operation on a hanging disk cannot
// be called off, so the session is closed over its head.
const (
	receiveTimeout = time.Hour       // from 354 to the dot
	commitTimeout  = 5 * time.Minute // from the dot to our reply; a client waits 10 (RFC 5321, section 4.5.3.2.6)
)

// session is one client's state for go-smtp: the envelope of the transaction.
type session struct {
	server     *Server
	conn       *conn
	open       bool     // MAIL was accepted
	from       string   // raw, with brackets
	recipients []string // raw, without brackets
}

// newSession is called at each EHLO or HELO that is the first of its connection.
func (m *Server) newSession(c *smtp.Conn) (smtp.Session, error) {
	end, ok := c.Conn().(*conn)
	if !ok {
		return nil, tempFail("Internal error") // not from Dial
	}
	return &session{server: m, conn: end}, nil
}

// Mail opens a transaction. go-smtp would take a second MAIL inside one, and
// keep the recipients of the first.
func (s *session) Mail(string, *smtp.MailOptions) error {
	switch {
	case s.open:
		return &smtp.SMTPError{Code: 503, EnhancedCode: smtp.EnhancedCode{5, 5, 1}, Message: "Sender already given"}
	case s.conn.path == "":
		return &smtp.SMTPError{Code: 501, EnhancedCode: smtp.EnhancedCode{5, 1, 7}, Message: "Bad sender address syntax"}
	}
	s.open, s.from = true, s.conn.path
	return nil
}

// Rcpt takes any recipient: this mailbox is everybody's.
func (s *session) Rcpt(string, *smtp.RcptOptions) error {
	if s.conn.path == "" {
		return &smtp.SMTPError{Code: 501, EnhancedCode: smtp.EnhancedCode{5, 1, 3}, Message: "Bad recipient address syntax"}
	}
	s.recipients = append(s.recipients, s.conn.path[1:len(s.conn.path)-1])
	return nil
}

// Reset ends the transaction.
func (s *session) Reset() { s.open, s.from, s.recipients = false, "", nil }

// Logout has nothing to free.
func (s *session) Logout() error { return nil }

// Data delivers the message. The reply that carries its name is an error to
// go-smtp, which has no other way to give a 250 a text.
func (s *session) Data(r io.Reader) error {
	id, err := s.deliver(r)
	if err == nil {
		return &smtp.SMTPError{Code: 250, EnhancedCode: smtp.EnhancedCode{2, 0, 0}, Message: "Ok: queued as " + id}
	}
	log := s.server.log
	switch {
	case errors.Is(err, errBareLine):
		log.Info("message refused", slog.Any("error", err))
		return &smtp.SMTPError{Code: 550, EnhancedCode: smtp.EnhancedCode{5, 5, 2}, Message: "Error: bare <CR> or <LF> received"}
	case errors.Is(err, smtp.ErrDataTooLarge):
		log.Info("message refused", slog.Any("error", err))
		return smtp.ErrDataTooLarge
	case errors.As(err, new(*receiveError)):
		log.Info("message cut off", slog.Any("error", err))
	default:
		log.Error("delivery failed", slog.Any("error", err))
	}
	return tempFail("Local error, try again later")
}

// tempFail is the reply to whatever is our fault.
func tempFail(text string) error {
	return &smtp.SMTPError{Code: 451, EnhancedCode: smtp.EnhancedCode{4, 3, 0}, Message: text}
}

// receiveError is an error of the connection, not of the disk.
type receiveError struct{ err error }

func (e *receiveError) Error() string { return "receive: " + e.err.Error() }
func (e *receiveError) Unwrap() error { return e.err }

// deliver writes the message that r yields into the Maildir.
func (s *session) deliver(r io.Reader) (id string, err error) {
	var expired atomic.Bool
	timer := time.AfterFunc(s.server.receiveTimeout, func() {
		expired.Store(true)
		s.conn.Conn.Close()
	})
	defer timer.Stop()

	d, err := s.server.maildir.begin()
	if err != nil {
		return "", err
	}
	defer d.abort()
	if _, err := d.file.WriteString(s.header()); err != nil {
		return "", err
	}
	size, err := s.receive(d, r)
	if err != nil {
		return "", err
	}
	timer.Reset(commitTimeout)
	if err := d.sync(); err != nil {
		return "", err
	}
	// The client has long gone with a temporary error, and comes again.
	if expired.Load() {
		return "", fmt.Errorf("%s: the disk took longer than %s", d.id, commitTimeout)
	}
	if err := d.commit(); err != nil {
		return "", err
	}
	s.server.log.Info("message delivered", slog.String("id", d.id), slog.String("sender", s.from),
		slog.Int("recipients", len(s.recipients)), slog.Int64("bytes", size))
	return d.id, nil
}

// receive copies the message into d up to its end, which only the dot makes: a
// lost connection is an error of r.
func (s *session) receive(d *delivery, r io.Reader) (size int64, err error) {
	buf := make([]byte, 32<<10)
	for {
		n, readErr := r.Read(buf)
		if size += int64(n); size > s.server.maxBytes {
			return size, smtp.ErrDataTooLarge
		}
		if _, err := d.file.Write(buf[:n]); err != nil {
			return size, err
		}
		switch {
		case errors.Is(readErr, io.EOF):
			return size, nil
		case readErr != nil:
			return size, &receiveError{readErr}
		}
	}
}

// header returns what delivery puts on top of a message (RFC 5321, section 4.4,
// for Return-Path). Paths hold no control character, see rawPath.
func (s *session) header() string {
	var b strings.Builder
	fmt.Fprintf(&b, "Return-Path: %s\r\n", s.from)
	for _, to := range s.recipients {
		fmt.Fprintf(&b, "Delivered-To: %s\r\n", to)
	}
	return b.String()
}

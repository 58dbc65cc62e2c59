// Package script is an upstream for tests: an SMTP or LMTP server that accepts
// everything, records every octet, and misbehaves exactly where it is told to.
//
// It is written apart from the packages under test, on purpose in the plainest
// way: what it takes for a line, a reply or the end of data is its own opinion.
package script

import (
	"context"
	"errors"
	"net"
	"slices"
	"strings"
	"sync"
)

// The points at which an answer can be scripted, besides the command verbs.
const (
	Connect  = "CONNECT"  // the dial itself
	Greeting = "GREETING" // the 220
	Body     = "BODY"     // behind the first octets of data, or behind BDAT before its chunk
	Dot      = "DOT"      // the reply to the message, also to its last chunk
	SASL     = "SASL"     // the reply to a line of the client's behind 334
)

// What an answer may be instead of a reply's text. Close may also follow a text.
const (
	Close  = "!close"  // close the connection
	Hang   = "!hang"   // say nothing more, and throw away what comes
	Stall  = "!stall"  // say and read nothing for two hours; for tests with a clock of their own
	Accept = "!accept" // at Dot: take the message, then close without a reply
	Silent = "!silent" // at Body: go on as if nothing had been said
)

// Server is a scripted upstream. Its zero value accepts everything. Set the
// fields before the first Dial; methods are safe for concurrent use.
type Server struct {
	Caps []string // EHLO lines; nil = PIPELINING, SIZE, 8BITMIME, SMTPUTF8, DSN, ENHANCEDSTATUSCODES
	LMTP bool

	mu         sync.Mutex
	answers    map[string][]string
	open       map[net.Conn]bool
	logs       [][]string // of each connection
	recipients []Recipient
	messages   []Message
	faults     []string
	wg         sync.WaitGroup
}

// Message is a message that the server has taken responsibility for.
type Message struct {
	Mail string   // the line of MAIL
	Rcpt []string // the lines of RCPT that were accepted
	Data []byte   // with the dot line, if it came by DATA
	BDAT bool     // it came by BDAT
}

// Recipient is a line of RCPT, accepted or not, with what was read before it on its
// own connection.
type Recipient struct {
	Mail          string // the line of MAIL, accepted or not; "" = there was none
	Rcpt          string
	Authenticated bool // AUTH has been answered 235
}

// On scripts the next answer at point: a reply without its last CRLF, several
// replies, or one of Close, Hang, Stall, Accept and Silent. Several answers at a point
// are given in turn; when they are used up, the server accepts again.
func (s *Server) On(point string, answer string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.answers == nil {
		s.answers = make(map[string][]string)
	}
	point = strings.ToUpper(point)
	s.answers[point] = append(s.answers[point], answer)
}

// next takes the next scripted answer at point, or gives usual.
func (s *Server) next(point, usual string) string {
	s.mu.Lock()
	defer s.mu.Unlock()
	if left := s.answers[point]; len(left) > 0 {
		s.answers[point] = left[1:]
		return left[0]
	}
	return usual
}

// Dial connects to the server over a net.Pipe. It fits upstream.Settings.
func (s *Server) Dial(ctx context.Context) (net.Conn, error) {
	switch s.next(Connect, "") {
	case Close:
		return nil, errors.New("connection refused")
	case Hang:
		<-ctx.Done()
		return nil, ctx.Err()
	}
	near, far := net.Pipe()
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.open == nil {
		s.open = make(map[net.Conn]bool)
	}
	s.open[far] = true
	c := s.begin(far)
	s.wg.Go(func() {
		c.serve()
		s.mu.Lock()
		delete(s.open, far)
		s.mu.Unlock()
	})
	return near, nil
}

// HangUp closes every open connection, as a server does that restarts.
func (s *Server) HangUp() {
	s.mu.Lock()
	defer s.mu.Unlock()
	for conn := range s.open {
		conn.Close()
	}
}

// Wait returns when every session has ended.
func (s *Server) Wait() { s.wg.Wait() }

// Sessions is how many connections there have been.
func (s *Server) Sessions() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.logs)
}

// Log is every command and every line of data that was read, without CRLF, save
// EHLO, LHLO and QUIT: one connection behind the other, each in order. A connection
// that its client has closed reads what had reached its buffer all the same, so
// across connections the times of two lines say nothing.
func (s *Server) Log() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Concat(s.logs...)
}

// Recipients are the recipients that were read, on any connection.
func (s *Server) Recipients() []Recipient {
	s.mu.Lock()
	defer s.mu.Unlock()
	return append([]Recipient(nil), s.recipients...)
}

// Messages are the messages that were accepted.
func (s *Server) Messages() []Message {
	s.mu.Lock()
	defer s.mu.Unlock()
	return append([]Message(nil), s.messages...)
}

// Faults are the rules of SMTP that the server's client has broken.
func (s *Server) Faults() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return append([]string(nil), s.faults...)
}

func (c *session) record(line string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.logs[c.n] = append(c.logs[c.n], line)
}

func (s *Server) recipient(r Recipient) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.recipients = append(s.recipients, r)
}

func (s *Server) fault(text string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.faults = append(s.faults, text)
}

func (s *Server) accept(m Message) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.messages = append(s.messages, m)
}

// Package script is an upstream for tests: an SMTP or LMTP server that accepts
// everything, records every octet, and misbehaves exactly where it is told to.
//
// It is written apart from the packages under test, on purpose in the plainest
// way: what it takes for a line, a reply or the end of data is its own opinion.
package script

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"io"
	"net"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"
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

// session is one connection.
type session struct {
	*Server
	n    int // of its log
	conn net.Conn
	r    *bufio.Reader

	m      Message
	mail   string // the line of MAIL that was read last, also if it was refused; "" behind its transaction
	authed bool   // AUTH was answered 235
	alone  bool   // PIPELINING was not offered
	chunks bool   // BDAT has begun the message
	failed bool   // and upstream has refused one of its chunks
}

// errEnd ends a session that is scripted to end.
var errEnd = errors.New("end of script")

// Serve runs one session on conn and closes it.
func (s *Server) Serve(conn net.Conn) {
	s.mu.Lock()
	c := s.begin(conn)
	s.mu.Unlock()
	c.serve()
}

// begin opens the log of a session on conn. The caller holds the lock.
func (s *Server) begin(conn net.Conn) *session {
	s.logs = append(s.logs, nil)
	return &session{Server: s, n: len(s.logs) - 1, conn: conn, r: bufio.NewReaderSize(conn, 64<<10)}
}

func (c *session) serve() {
	defer c.conn.Close()
	if c.say(c.next(Greeting, "220 upstream.example ready")) != nil {
		return
	}
	for {
		line, _, err := c.line()
		if err != nil || c.command(line) != nil {
			return
		}
	}
}

// line reads one line, as text without CRLF and as it came.
func (c *session) line() (text, raw string, err error) {
	raw, err = c.r.ReadString('\n')
	if err != nil {
		if raw != "" {
			c.fault("unfinished line: " + raw)
		}
		return "", "", err
	}
	text, ok := strings.CutSuffix(raw, "\r\n")
	if !ok || strings.ContainsAny(text, "\r\x00") {
		c.fault("line not ended by CRLF, or with CR or NUL inside")
	}
	return text, raw, nil
}

// say gives an answer.
func (c *session) say(answer string) error {
	switch answer {
	case Hang:
		io.Copy(io.Discard, c.conn)
		return errEnd
	case Stall:
		<-time.After(2 * time.Hour)
		return errEnd
	}
	answer, end := strings.CutSuffix(answer, Close)
	if answer != "" {
		if _, err := io.WriteString(c.conn, answer+"\r\n"); err != nil {
			return err
		}
	}
	if end {
		return errEnd
	}
	return nil
}

// command answers one command.
func (c *session) command(line string) error {
	verb, _, _ := strings.Cut(strings.ToUpper(line), " ")
	if verb != "EHLO" && verb != "LHLO" && verb != "QUIT" {
		c.record(line)
	}
	if c.alone && verb != "BDAT" && c.r.Buffered() > 0 {
		c.fault("pipelining, which was not offered")
	}
	usual := "250 2.0.0 Ok"
	switch verb {
	case "EHLO", "LHLO":
		if (verb == "LHLO") != c.LMTP {
			usual = "500 5.5.1 wrong protocol"
			break
		}
		usual = c.hello()
	case "MAIL":
		if c.m.Mail != "" {
			c.fault("nested MAIL")
		}
		c.mail = line
		usual = "250 2.1.0 Sender ok"
	case "RCPT":
		if c.mail == "" {
			c.fault("RCPT without MAIL")
		}
		c.recipient(Recipient{Mail: c.mail, Rcpt: line, Authenticated: c.authed})
		usual = "250 2.1.5 Recipient ok"
		if c.m.Mail == "" {
			usual = "503 5.5.1 MAIL first"
		}
	case "DATA":
		return c.data()
	case "BDAT":
		return c.chunk(line)
	case "AUTH":
		return c.auth()
	case "QUIT":
		if c.m.Mail != "" {
			c.fault("QUIT in a transaction")
		}
		c.say(c.next(verb, "221 2.0.0 bye"))
		return errEnd
	case "VRFY":
		usual = "252 2.0.0 perhaps"
	case "HELP":
		usual = "214 2.0.0 help yourself"
	}
	answer := c.next(verb, usual)
	if strings.HasPrefix(answer, "2") {
		switch verb {
		case "MAIL":
			c.m = Message{Mail: line}
		case "RCPT":
			c.m.Rcpt = append(c.m.Rcpt, line)
		case "EHLO", "LHLO":
			c.alone = !strings.Contains(answer, "PIPELINING")
			c.forget()
		case "RSET":
			c.forget()
		}
	}
	if err := c.say(answer); err != nil {
		return err
	}
	if strings.HasPrefix(answer, "421") {
		return errEnd
	}
	return nil
}

func (c *session) hello() string {
	caps := c.Caps
	if caps == nil {
		caps = []string{"PIPELINING", "SIZE 10240000", "8BITMIME", "SMTPUTF8", "DSN", "ENHANCEDSTATUSCODES"}
	}
	text, last := "", "upstream.example"
	for _, cap := range caps {
		text += "250-" + last + "\r\n"
		last = cap
	}
	return text + "250 " + last
}

// data answers DATA and reads the message.
func (c *session) data() error {
	usual := "354 go ahead"
	if len(c.m.Rcpt) == 0 {
		usual = "554 5.5.1 no recipients"
		c.fault("DATA without recipients")
	}
	if c.chunks {
		c.fault("DATA behind BDAT")
	}
	answer := c.next("DATA", usual)
	if err := c.say(answer); err != nil || !strings.HasPrefix(answer, "354") {
		return err
	}
	var data strings.Builder
	answered := false // with a 250 that came when the client had sent the end: no client can tell it from the answer to that
	for {
		if data.Len() > 0 {
			switch answer := c.next(Body, Silent); answer {
			case Silent:
			default:
				rest, _ := c.r.Peek(c.r.Buffered())
				answered = answered || strings.HasPrefix(answer, "2") && bytes.HasSuffix(rest, []byte("\r\n.\r\n"))
				if err := c.say(answer); err != nil {
					return err
				}
			}
		}
		line, raw, err := c.line()
		if err != nil {
			return err // half a message is none
		}
		c.record(line)
		data.WriteString(raw)
		if line == "." {
			break
		}
	}
	c.m.Data = []byte(data.String())
	if answered {
		c.accept(c.m)
		c.forget()
		return nil
	}
	return c.end()
}

// forget ends the transaction.
func (c *session) forget() { c.m, c.mail, c.chunks, c.failed = Message{}, "", false, false }

// end answers a whole message.
func (c *session) end() error {
	answer := c.next(Dot, "250 2.0.0 Ok: queued as SCRIPT")
	if strings.HasPrefix(answer, "2") || answer == Accept {
		c.accept(c.m)
	}
	c.forget()
	if answer == Accept {
		return errEnd
	}
	if err := c.say(answer); err != nil {
		return err
	}
	if strings.HasPrefix(answer, "421") {
		return errEnd
	}
	return nil
}

// chunk answers BDAT and reads its octets, which are logged as a quoted string.
func (c *session) chunk(line string) error {
	words := strings.Fields(line)
	if len(words) < 2 || len(words) > 3 || len(words) == 3 && strings.ToUpper(words[2]) != "LAST" {
		c.fault("malformed " + line)
		return errEnd
	}
	size, err := strconv.ParseInt(words[1], 10, 64)
	if err != nil {
		c.fault("malformed " + line)
		return errEnd
	}
	if len(c.m.Rcpt) == 0 {
		c.fault("BDAT without recipients")
	}
	if c.failed {
		c.fault("BDAT behind a chunk that was refused")
	}
	c.chunks = true
	if answer := c.next(Body, Silent); answer != Silent {
		if err := c.say(answer); err != nil {
			return err
		}
	}
	var chunk strings.Builder
	if _, err := io.CopyN(&chunk, c.r, size); err != nil {
		return err // half a chunk is none
	}
	c.record(strconv.Quote(chunk.String()))
	c.m.Data, c.m.BDAT = append(c.m.Data, chunk.String()...), true
	if len(words) == 3 {
		return c.end()
	}
	answer := c.next("BDAT", "250 2.0.0 Ok: chunk taken")
	c.failed = !strings.HasPrefix(answer, "2")
	if err := c.say(answer); err != nil {
		return err
	}
	if strings.HasPrefix(answer, "421") {
		return errEnd
	}
	return nil
}

// auth answers AUTH, and the lines behind its 334s.
func (c *session) auth() error {
	answer := c.next("AUTH", "235 2.7.0 welcome")
	for {
		c.authed = c.authed || strings.HasPrefix(answer, "235")
		if err := c.say(answer); err != nil {
			return err
		}
		if strings.HasPrefix(answer, "421") {
			return errEnd
		}
		if !strings.HasPrefix(answer, "334") {
			return nil
		}
		line, _, err := c.line()
		if err != nil {
			return err
		}
		c.record(line)
		usual := "235 2.7.0 welcome"
		if line == "*" {
			usual = "501 5.7.0 cancelled"
		}
		answer = c.next(SASL, usual)
	}
}

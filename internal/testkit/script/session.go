package script

import (
	"bufio"
	"bytes"
	"errors"
	"io"
	"net"
	"strconv"
	"strings"
	"time"
)

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

// auth answers AUTH, and the lines that the client sends after a 334 (RFC 4954).
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

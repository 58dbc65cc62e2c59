package mailbox

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"net"
	"strings"
	"time"
)

// maxCommand bounds a command line, CRLF included: 512 octets of RFC 5321,
// section 4.5.3.1.4, and what its extensions add.
const maxCommand = 4096

// errBareLine reports a CR or LF in message text that is not part of CRLF.
// go-smtp would miss the end of the text behind a bare CR, and read what
// follows, the next transaction, as part of this one.
var errBareLine = errors.New("bare CR or LF in the message")

// conn is the server's end of a session. It stands between the socket and
// go-smtp and corrects what go-smtp v0.25.1 gets wrong or cannot be told:
// commands are bounded apart from text, <postmaster> without a domain is taken
// (RFC 5321, section 4.5.1), BDAT is neither offered nor taken, SIZE is the true
// limit, line ends are strict, and the raw path of MAIL and RCPT is kept, which
// go-smtp takes apart.
//
// Each Read yields at most one line. So go-smtp has answered each line before
// the next is read, and conn knows whether that one is a command or text.
//
// All is used by the session's goroutine alone, but for Conn.
type conn struct {
	net.Conn
	server *Server
	r      *bufio.Reader
	rest   []byte // of a line, not yet read by go-smtp
	err    error  // all further Reads

	text    bool // the next line is message text, not a command
	last    byte // octet of text
	midLine bool // the last Write did not end its line

	path string // of the last MAIL or RCPT, with its brackets; "" if malformed
}

func newConn(m *Server, end net.Conn) *conn {
	return &conn{Conn: end, server: m, r: bufio.NewReaderSize(patient{end}, maxCommand)}
}

// patient renews the deadline for each read. go-smtp sets it once a command,
// so that it would hold for a message as a whole.
type patient struct{ net.Conn }

func (p patient) Read(b []byte) (int, error) {
	if err := p.SetReadDeadline(time.Now().Add(idleTimeout)); err != nil {
		return 0, err
	}
	return p.Conn.Read(b)
}

// Read yields one line or a part of it.
func (c *conn) Read(b []byte) (int, error) {
	if len(c.rest) == 0 && c.err == nil {
		if c.text {
			c.rest, c.err = c.textLine()
		} else {
			c.rest, c.err = c.commandLine()
		}
	}
	if len(c.rest) == 0 {
		return 0, c.err
	}
	n := copy(b, c.rest)
	c.rest = c.rest[n:]
	return n, nil
}

// textLine returns the next line of text, or a piece of a long one.
func (c *conn) textLine() ([]byte, error) {
	piece, err := c.r.ReadSlice('\n')
	if err != nil && !errors.Is(err, bufio.ErrBufferFull) {
		return nil, err
	}
	last := c.last
	for _, b := range piece {
		if (last == '\r') != (b == '\n') {
			return nil, errBareLine
		}
		last = b
	}
	c.last = last
	return piece, nil
}

// commandLine returns the next command, or ends the session.
func (c *conn) commandLine() ([]byte, error) {
	c.path = ""
	line, err := c.r.ReadSlice('\n')
	switch {
	case errors.Is(err, bufio.ErrBufferFull):
		return nil, c.refuse("500 5.5.2 Line too long")
	case err != nil:
		return nil, err
	case len(line) < 5:
		return line, nil
	}
	switch strings.ToUpper(string(line[:4])) {
	case "DATA", "RSET", "NOOP", "QUIT": // a blank behind them is an argument to go-smtp
		return append(bytes.TrimRight(line, " \r\n"), '\r', '\n'), nil
	case "BDAT":
		// go-smtp takes it at any time. Its chunk is not made of lines.
		return nil, c.refuse("502 5.5.1 BDAT is not supported")
	case "MAIL":
		var params string
		c.path, params = rawPath(line[5:], "FROM:")
		if emptyLocal(c.path) {
			line = []byte("MAIL FROM:<empty@localhost>" + params)
		}
	case "RCPT":
		var params string
		c.path, params = rawPath(line[5:], "TO:")
		if strings.EqualFold(c.path, "<postmaster>") {
			c.path = strings.TrimSuffix(c.path, ">") + "@" + c.server.hostname + ">"
			line = []byte("RCPT TO:" + c.path + params)
		} else if emptyLocal(c.path) {
			line = []byte("RCPT TO:<empty@localhost>" + params)
		}
	}
	return line, nil
}

// emptyLocal reports whether path has the local-part "", which is legal (RFC 5321,
// section 4.1.2) and which go-smtp refuses. It is shown another address instead:
// what is delivered goes by the raw path.
func emptyLocal(path string) bool {
	return strings.HasPrefix(path, `<""@`) || strings.HasPrefix(path, "<@") && strings.Contains(path, `:""@`)
}

// refuse answers in go-smtp's place and ends the session.
func (c *conn) refuse(reply string) error {
	c.Conn.SetWriteDeadline(time.Now().Add(time.Second))
	c.Conn.Write([]byte(reply + "\r\n"))
	return io.EOF
}

// rawPath returns the path of a MAIL or RCPT command as it was sent, from "<" to
// ">", and what follows; "" if there is none or it holds a control character,
// for it is to stand in a header.
func rawPath(args []byte, prefix string) (path, params string) {
	s := strings.TrimLeft(string(args), " ")
	if len(s) < len(prefix) || !strings.EqualFold(s[:len(prefix)], prefix) {
		return "", ""
	}
	s = strings.TrimLeft(s[len(prefix):], " ")
	if !strings.HasPrefix(s, "<") {
		return "", ""
	}
	quoted, escaped := false, false
	for i, b := range []byte(s) {
		switch {
		case b < ' ' || b == 0x7f:
			return "", ""
		case escaped:
			escaped = false
		case quoted && b == '\\':
			escaped = true
		case b == '"':
			quoted = !quoted
		case b == '>' && !quoted:
			return s[:i+1], s[i+1:]
		}
	}
	return "", ""
}

// Write passes go-smtp's reply on, a line a call, or pieces of a very long one.
// It follows the state of the session by it, and corrects the reply to EHLO.
func (c *conn) Write(b []byte) (int, error) {
	out := b
	if !c.midLine { // a client may have its own words further on in a line
		c.text = bytes.HasPrefix(b, []byte("354 "))
		c.last = 0
		switch {
		case string(b) == "250-CHUNKING\r\n":
			return len(b), nil
		case bytes.HasPrefix(b, []byte("250-SIZE ")):
			out = fmt.Appendf(nil, "250-SIZE %d\r\n", c.server.maxBytes)
		}
	}
	c.midLine = !bytes.HasSuffix(b, []byte("\n"))
	if _, err := c.Conn.Write(out); err != nil {
		return 0, err
	}
	return len(b), nil
}

// Close ends the session.
func (c *conn) Close() error {
	c.server.forget(c)
	return c.Conn.Close()
}

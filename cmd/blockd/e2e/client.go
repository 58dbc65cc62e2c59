package e2e

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"net"
	"net/smtp"
	"net/textproto"
	"os"
	"strings"
	"testing"
	"time"

	"blockd/internal/testkit"
)

// Client speaks SMTP in bytes, so that what is sent is exactly what a test says.
type Client struct {
	T    *testing.T
	Conn net.Conn
	R    *bufio.Reader
}

// DialSMTP connects, reads the greeting and says EHLO.
func DialSMTP(t *testing.T, address string) *Client {
	t.Helper()
	return DialFrom(t, "127.0.0.1", address)
}

// DialTalk connects and reads the greeting.
func DialTalk(t *testing.T, address string) *Client {
	t.Helper()
	return greeted(t, "127.0.0.1", address)
}

// greeted connects from a loopback address and reads the greeting.
func greeted(t *testing.T, from, address string) *Client {
	t.Helper()
	d := net.Dialer{Timeout: time.Minute, LocalAddr: &net.TCPAddr{IP: net.ParseIP(from)}}
	conn := testkit.Value(d.Dial("tcp", address))(t)
	t.Cleanup(func() { conn.Close() })
	c := &Client{T: t, Conn: conn, R: bufio.NewReader(conn)}
	MustBegin(t, "greeting", c.Reply(), "220 ")
	return c
}

// DialFrom is dialSMTP from another loopback address.
func DialFrom(t *testing.T, from, address string) *Client {
	t.Helper()
	c := greeted(t, from, address)
	MustBegin(t, "EHLO", c.Command("EHLO client.there.example"), "250")
	return c
}

// Reply reads one reply and returns its lines without the last CRLF.
func (c *Client) Reply() string {
	c.T.Helper()
	c.Conn.SetReadDeadline(time.Now().Add(60 * time.Second))
	var lines strings.Builder
	for {
		line, err := c.R.ReadString('\n')
		if err != nil {
			c.T.Fatalf("reading a reply: %v after %q", err, lines.String())
		}
		lines.WriteString(line)
		if len(line) > 3 && line[3] == ' ' {
			return strings.TrimSuffix(lines.String(), "\r\n")
		}
	}
}

func (c *Client) Write(b []byte) {
	c.T.Helper()
	c.Conn.SetWriteDeadline(time.Now().Add(60 * time.Second))
	if _, err := c.Conn.Write(b); err != nil {
		c.T.Fatalf("writing: %v", err)
	}
}

func (c *Client) Command(format string, args ...any) string {
	c.T.Helper()
	c.Write(fmt.Appendf(nil, format+"\r\n", args...))
	return c.Reply()
}

// Send plays one transaction and returns the reply that ended it: of RCPT where
// that was refused, else of the message.
func (c *Client) Send(from, to string, message []byte) string {
	c.T.Helper()
	if got := c.Command("MAIL FROM:<%s>", from); !strings.HasPrefix(got, "250") {
		c.T.Fatalf("MAIL FROM:<%s> = %q", from, got)
	}
	if got := c.Command("RCPT TO:<%s>", to); !strings.HasPrefix(got, "250") {
		if reset := c.Command("RSET"); !strings.HasPrefix(reset, "250") {
			c.T.Fatalf("RSET = %q", reset)
		}
		return got
	}
	if got := c.Command("DATA"); !strings.HasPrefix(got, "354") {
		c.T.Fatalf("DATA = %q", got)
	}
	c.Write(Stuffed(message))
	c.Write([]byte(".\r\n"))
	return c.Reply()
}

// Crlf turns the LF line ends of a file into those of SMTP.
func Crlf(text []byte) []byte {
	text = bytes.ReplaceAll(text, []byte("\n"), []byte("\r\n"))
	if !bytes.HasSuffix(text, []byte("\r\n")) {
		text = append(text, '\r', '\n')
	}
	return text
}

// Stuffed doubles the dot of lines that begin with one (RFC 5321, section 4.5.2).
func Stuffed(message []byte) []byte {
	message = bytes.ReplaceAll(message, []byte("\r\n."), []byte("\r\n.."))
	if bytes.HasPrefix(message, []byte(".")) {
		message = append([]byte("."), message...)
	}
	return message
}

// Exchange is one connection of the matrix: it says anything at all to a server,
// hears what there is to hear, and fails no test by itself.
type Exchange struct {
	Id      string // in each Subject and local-part it sends, to know what arrives again
	Conn    net.Conn
	R       *bufio.Reader
	Replies []string // all that was heard, greeting and EHLO included
	Dots    int      // 250s to a message
	Meant   []string // messages as the client means them, for those that must arrive untouched
}

// Open connects and says EHLO.
func (x *Exchange) Open(address string) error {
	conn, err := net.Dial("tcp", address)
	if err != nil {
		return err
	}
	x.Conn, x.R = conn, bufio.NewReader(conn)
	x.Hear()
	x.Say("EHLO client.there.example")
	return nil
}

// Write sends octets as they are. A server may have gone: its replies tell.
func (x *Exchange) Write(text string) {
	x.Conn.SetWriteDeadline(time.Now().Add(10 * time.Second))
	x.Conn.Write([]byte(text))
}

// Hear reads one reply, "" if none comes.
func (x *Exchange) Hear() string { return x.HearFor(10 * time.Second) }

func (x *Exchange) HearFor(limit time.Duration) string {
	x.Conn.SetReadDeadline(time.Now().Add(limit))
	var reply strings.Builder
	for {
		line, err := x.R.ReadString('\n')
		if err != nil {
			return ""
		}
		reply.WriteString(line)
		if len(line) < 4 || line[3] != '-' {
			text := strings.TrimRight(reply.String(), "\r\n")
			x.Replies = append(x.Replies, text)
			return text
		}
	}
}

// Say sends a command line and returns its reply.
func (x *Exchange) Say(line string) string {
	x.Write(line + "\r\n")
	return x.Hear()
}

// Envelope opens a transaction and reports whether the message may be sent.
func (x *Exchange) Envelope() bool {
	return strings.HasPrefix(x.Say("MAIL FROM:<"+x.Id+"@friend.example>"), "250") && x.recipient()
}

// recipient says RCPT and DATA, and reports whether the server took both.
func (x *Exchange) recipient() bool {
	return strings.HasPrefix(x.Say("RCPT TO:<you@here.example>"), "250") && strings.HasPrefix(x.Say("DATA"), "354")
}

// End reads until the server closes. One that waits for octets that were never
// sent, as a BDAT of 4 GiB is answered, is told that there are none.
func (x *Exchange) End() {
	for x.HearFor(time.Second) != "" {
	}
	x.Conn.(*net.TCPConn).CloseWrite()
	for x.Hear() != "" {
	}
	x.Conn.Close()
	for _, reply := range x.Replies {
		// Every server here says something of its own in the 250 to a message.
		for _, sign := range []string{"queued as", "OK id=", "Message accepted for delivery"} {
			if strings.HasPrefix(reply, "250") && strings.Contains(reply, sign) {
				x.Dots++
			}
		}
	}
}

// Refusal is the first reply that says no, "" if there was none.
func (x *Exchange) Refusal() string {
	for _, reply := range x.Replies {
		if reply[0] == '4' || reply[0] == '5' {
			return reply[:min(3, len(reply))]
		}
	}
	return ""
}

// Header is the top of a message: all fields that a server might miss.
func (x *Exchange) Header() string {
	return "From: <a@friend.example>\r\nTo: <you@here.example>\r\nDate: Sat, 1 Aug 2026 10:00:00 +0000\r\n" +
		"Message-ID: <" + x.Id + "@friend.example>\r\nSubject: " + x.Id + "\r\n\r\n"
}

// Smuggled returns a second transaction with a listed sender, QUIT included. It stands behind octets that one server
// takes for the end of the first message and another one does not.
func (x *Exchange) Smuggled() string {
	return "MAIL FROM:<" + x.Id + "-smuggled@bulk.example>\r\nRCPT TO:<you@here.example>\r\nDATA\r\n" +
		x.Header() + "smuggled\r\n.\r\nQUIT\r\n"
}

// Aligned is a table as text.
func Aligned(rows [][]string) string {
	widths := make([]int, len(rows[0]))
	for _, row := range rows {
		for i, cell := range row {
			widths[i] = max(widths[i], len(cell))
		}
	}
	var b strings.Builder
	for _, row := range rows {
		for i, cell := range row {
			fmt.Fprintf(&b, "%-*s ", widths[i]+1, cell)
		}
		b.WriteByte('\n')
	}
	return b.String()
}

// DialRaw connects to a door.
func DialRaw(t *testing.T, address string) (net.Conn, *bufio.Reader) {
	t.Helper()
	conn := testkit.Value(net.DialTimeout("tcp", address, time.Minute))(t)
	t.Cleanup(func() { conn.Close() })
	conn.SetDeadline(time.Now().Add(60 * time.Second))
	return conn, bufio.NewReader(conn)
}

// BreakStore overwrites the last place where a key stands in an index file: that
// is in its store, and the filter still says perhaps.
func BreakStore(t *testing.T, path, key string) {
	t.Helper()
	text := testkit.Read(t, path)
	at := bytes.LastIndex(text, []byte(key))
	f, err := os.OpenFile(path, os.O_WRONLY, 0)
	if err != nil || at < 0 {
		t.Fatal(err, at)
	}
	defer f.Close()
	if _, err := f.WriteAt([]byte("XXX"), int64(at)); err != nil {
		t.Fatal(err)
	}
}

// Rcpt is the answer to a recipient of a sender's mail.
func (c *Client) Rcpt(from, to string) string {
	c.T.Helper()
	got := c.Command("MAIL FROM:<%s>", from)
	if strings.HasPrefix(got, "250") {
		got = c.Command("RCPT TO:<%s>", to)
		c.Command("RSET")
	}
	return got
}

// Ask sends MAIL and RCPT in a session of its own and returns RCPT's reply.
func Ask(t *testing.T, smtp, sender string) string {
	t.Helper()
	c := DialSMTP(t, smtp)
	defer c.Conn.Close()
	if got := c.Command("MAIL FROM:<%s>", sender); !strings.HasPrefix(got, "250") {
		return got
	}
	got := c.Command("RCPT TO:<user@here.example>")
	c.Command("QUIT")
	return got
}

// OneReply sends a message on a connection of its own and returns what was not 250
// on its way, or "250 ".
func OneReply(address, from string) string {
	err := func() error {
		c, err := smtp.Dial(address)
		if err != nil {
			return err
		}
		defer c.Close()
		if err := c.Mail(from); err != nil {
			return err
		}
		if err := c.Rcpt("you@here.example"); err != nil {
			return err
		}
		w, err := c.Data()
		if err != nil {
			return err
		}
		fmt.Fprint(w, "Subject: x\r\n\r\nx\r\n")
		if err := w.Close(); err != nil {
			return err
		}
		c.Quit() // the message is taken, whatever comes of this
		return nil
	}()
	var refused *textproto.Error
	if errors.As(err, &refused) {
		return fmt.Sprintf("%d %s", refused.Code, refused.Msg)
	} else if err != nil {
		return err.Error()
	}
	return "250 "
}

// MustBegin ends a test whose text begins with something else than it should.
func MustBegin(t *testing.T, what any, text, want string) {
	t.Helper()
	if testkit.Begins(t, what, text, want); !strings.HasPrefix(text, want) {
		t.FailNow()
	}
}

func Tail(text string, n int) string { return text[max(0, len(text)-n):] }

// List is a table [[list]] whose file is called like it, with more lines.
func List(name string, lines ...string) string {
	return fmt.Sprintf("[[list]]\nname = %q\npath = \"%s.txt\"\n%s\n", name, name, strings.Join(lines, "\n"))
}

const BadList = "[[list]]\nname = \"bad\"\npath = \"bad.txt\"\n"

var BadFiles = map[string]string{"bad.txt": "bulk.example\n"}

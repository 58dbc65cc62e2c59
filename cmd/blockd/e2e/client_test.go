package e2e

import (
	"bufio"
	"bytes"
	"fmt"
	"net"
	"strings"
	"testing"
	"time"
)

// client speaks SMTP in bytes, so that what is sent is exactly what a test says.
type client struct {
	t    *testing.T
	conn net.Conn
	r    *bufio.Reader
}

// dialSMTP connects, reads the greeting and says EHLO.
func dialSMTP(t *testing.T, address string) *client {
	t.Helper()
	return dialFrom(t, "127.0.0.1", address)
}

// dialTalk connects and reads the greeting.
func dialTalk(t *testing.T, address string) *client {
	t.Helper()
	return greeted(t, "127.0.0.1", address)
}

// greeted connects from a loopback address and reads the greeting.
func greeted(t *testing.T, from, address string) *client {
	t.Helper()
	d := net.Dialer{Timeout: time.Minute, LocalAddr: &net.TCPAddr{IP: net.ParseIP(from)}}
	conn, err := d.Dial("tcp", address)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	c := &client{t: t, conn: conn, r: bufio.NewReader(conn)}
	if got := c.reply(); !strings.HasPrefix(got, "220 ") {
		t.Fatalf("greeting = %q", got)
	}
	return c
}

// dialFrom is dialSMTP from another loopback address.
func dialFrom(t *testing.T, from, address string) *client {
	t.Helper()
	c := greeted(t, from, address)
	if got := c.command("EHLO client.there.example"); !strings.HasPrefix(got, "250") {
		t.Fatalf("EHLO = %q", got)
	}
	return c
}

// reply reads one reply and returns its lines without the last CRLF.
func (c *client) reply() string {
	c.t.Helper()
	c.conn.SetReadDeadline(time.Now().Add(60 * time.Second))
	var lines strings.Builder
	for {
		line, err := c.r.ReadString('\n')
		if err != nil {
			c.t.Fatalf("reading a reply: %v after %q", err, lines.String())
		}
		lines.WriteString(line)
		if len(line) > 3 && line[3] == ' ' {
			return strings.TrimSuffix(lines.String(), "\r\n")
		}
	}
}

func (c *client) write(b []byte) {
	c.t.Helper()
	c.conn.SetWriteDeadline(time.Now().Add(60 * time.Second))
	if _, err := c.conn.Write(b); err != nil {
		c.t.Fatalf("writing: %v", err)
	}
}

func (c *client) command(format string, args ...any) string {
	c.t.Helper()
	c.write(fmt.Appendf(nil, format+"\r\n", args...))
	return c.reply()
}

// send plays one transaction and returns the reply that ended it: of RCPT where
// that was refused, else of the message.
func (c *client) send(from, to string, message []byte) string {
	c.t.Helper()
	if got := c.command("MAIL FROM:<%s>", from); !strings.HasPrefix(got, "250") {
		c.t.Fatalf("MAIL FROM:<%s> = %q", from, got)
	}
	if got := c.command("RCPT TO:<%s>", to); !strings.HasPrefix(got, "250") {
		if reset := c.command("RSET"); !strings.HasPrefix(reset, "250") {
			c.t.Fatalf("RSET = %q", reset)
		}
		return got
	}
	if got := c.command("DATA"); !strings.HasPrefix(got, "354") {
		c.t.Fatalf("DATA = %q", got)
	}
	c.write(stuffed(message))
	c.write([]byte(".\r\n"))
	return c.reply()
}

// crlf turns the LF line ends of a file into those of SMTP.
func crlf(text []byte) []byte {
	text = bytes.ReplaceAll(text, []byte("\n"), []byte("\r\n"))
	if !bytes.HasSuffix(text, []byte("\r\n")) {
		text = append(text, '\r', '\n')
	}
	return text
}

// stuffed doubles the dot of lines that begin with one (RFC 5321, section 4.5.2).
func stuffed(message []byte) []byte {
	message = bytes.ReplaceAll(message, []byte("\r\n."), []byte("\r\n.."))
	if bytes.HasPrefix(message, []byte(".")) {
		message = append([]byte("."), message...)
	}
	return message
}

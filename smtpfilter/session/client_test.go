package session

import (
	"bufio"
	"context"
	"io"
	"log/slog"
	"net"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"blockd/internal/testkit/dialogue"
	"blockd/internal/testkit/script"
	"blockd/policy"
)

// client is the client's end of a session. Replies are read as they come, so
// that neither side of a net.Pipe waits for the other.
type client struct {
	t     *testing.T
	conn  net.Conn
	lines chan string
	ended <-chan struct{}
}

// connect begins a session of r.
func connect(t *testing.T, r *rig, ctx context.Context) *client {
	t.Helper()
	conn, ended := r.start(ctx)
	c := &client{t: t, conn: conn, lines: make(chan string, 4096), ended: ended}
	go func() {
		defer close(c.lines)
		in := bufio.NewReader(conn)
		for {
			line, err := in.ReadString('\n')
			if err != nil {
				return
			}
			c.lines <- line
		}
	}()
	return c
}

// begin is a session of a new rig, past EHLO.
func begin(t *testing.T, server *script.Server, checker *policy.Checker, s Settings) (*rig, *client) {
	t.Helper()
	r := newRig(server, checker, s)
	c := connect(t, r, t.Context())
	c.hello()
	return r, c
}

// talk plays a session by a clock of its own, and then closes it and waits for upstream.
// Its checker blocks bad.example.
func talk(t *testing.T, server *script.Server, s Settings, play func(t *testing.T, r *rig, c *client)) {
	t.Helper()
	checker := listChecker(t)
	synctest.Test(t, func(t *testing.T) {
		r, c := begin(t, server, checker, s)
		play(t, r, c)
		c.close()
		r.server.Wait()
	})
}

// send writes octets. A server that has closed does not read them.
func (c *client) send(text string) { io.WriteString(c.conn, text) }

// reply reads one whole reply; "" when the connection has been closed.
func (c *client) reply() string {
	c.t.Helper()
	var text strings.Builder
	timeout := time.NewTimer(2 * time.Hour)
	defer timeout.Stop()
	for {
		select {
		case line, open := <-c.lines:
			if !open {
				return ""
			}
			text.WriteString(line)
			if len(line) < 4 || line[3] != '-' {
				return text.String()
			}
		case <-timeout.C:
			c.t.Fatal("no reply")
		}
	}
}

// want sends a line, if any, and checks the beginning of the reply.
func (c *client) want(line, reply string) {
	c.t.Helper()
	if line != "" {
		c.send(line + "\r\n")
	}
	if got := c.reply(); !strings.HasPrefix(got, reply) || reply == "" && got != "" {
		c.t.Fatalf("%s: got %q, want %q", line, got, reply)
	}
}

// hello reads the greeting and says EHLO.
func (c *client) hello() {
	c.t.Helper()
	c.want("", "220 ")
	c.want("EHLO client.example", "250")
}

// mail says MAIL and RCPT, which are taken.
func (c *client) mail(sender string) {
	c.t.Helper()
	c.want("MAIL FROM:<"+sender+">", "250")
	c.want("RCPT TO:<bob@here.example>", "250")
}

// envelope goes as far as 354.
func (c *client) envelope() {
	c.t.Helper()
	c.mail("a@good.example")
	c.want("DATA", "354")
}

// data sends a message after 354 and returns the reply.
func (c *client) data(text string) string {
	c.want("DATA", "354")
	c.send(text + ".\r\n")
	return c.reply()
}

// transaction sends a message with its dot, and returns the reply that decides about it.
func (c *client) transaction(message string) string {
	return c.transactionOf("a@good.example", message)
}

func (c *client) transactionOf(sender, message string) (reply string) {
	for _, line := range []string{"MAIL FROM:<" + sender + ">", "RCPT TO:<bob@here.example>", "DATA", message} {
		c.send(line + "\r\n")
		if reply = c.reply(); reply == "" || reply[0] >= '4' {
			break
		}
	}
	return reply
}

// quit ends the session as a polite client does.
func (c *client) quit() {
	c.t.Helper()
	c.want("QUIT", "221")
	<-c.ended
}

// close ends the session and waits for it.
func (c *client) close() {
	c.conn.Close()
	<-c.ended
}

// listChecker blocks bad.example.
func listChecker(t testing.TB) *policy.Checker {
	d := dialogue.Dialogue{Name: t.Name(), Lists: []dialogue.List{{Name: "bad", Entries: []string{"bad.example"}}}}
	return d.Checker(t)
}

func discardLog() *slog.Logger { return slog.New(slog.DiscardHandler) }

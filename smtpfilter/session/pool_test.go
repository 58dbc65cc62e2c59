package session

import (
	"bufio"
	"bytes"
	"io"
	"net"
	"strings"
	"testing"

	"blockd/internal/testkit/script"
	"blockd/smtpfilter/upstream"
)

// TestBuffersOfASessionAreEmptyForTheNext: neither what a session has left unread and
// unwritten, nor what was done with it, is found by the one that gets its buffers.
func TestBuffersOfASessionAreEmptyForTheNext(t *testing.T) {
	r := newRig(&script.Server{}, listChecker(t), Settings{}).relay
	for _, secret := range []string{"secret\r\n", strings.Repeat("secret", 500)} { // with the own buffer and with a larger one
		near, far := net.Pipe()
		go func() {
			io.WriteString(far, secret)
			far.Close()
		}()
		e := r.takeBuffers(near)
		for e.in.Fill() == nil {
		}
		e.out.WriteString("secret")
		r.returnBuffers(e)
		for i := range 2 {
			next := e
			if i > 0 {
				next = r.takeBuffers(near) // the pool may give another
			}
			if n := len(next.in.Buffered()); n > 0 || next.out.Buffered() > 0 {
				t.Errorf("%d octets to be read and %d to be written of the session before", n, next.out.Buffered())
			}
			if bytes.Contains(next.out.AvailableBuffer()[:replyBuffer], []byte("secret")) {
				t.Error("the writer still holds what was not written")
			}
		}
	}

	near, far := net.Pipe()
	defer far.Close()
	l := r.takeUpstream(&upstream.Conn{Conn: near, R: bufio.NewReader(near)})
	l.out, l.tx, l.quit = append(l.out, "MAIL FROM:<secret@good.example>\r\n"...), true, true
	r.returnUpstream(l)
	for _, next := range []*upstreamConn{l, r.takeUpstream(nil)} {
		if len(next.out) > 0 || next.tx || next.quit || next.Conn != nil {
			t.Errorf("connection of the session before: %+v", next)
		}
		if bytes.Contains(next.out[:cap(next.out)], []byte("secret")) {
			t.Error("the connection still holds a command")
		}
	}
	if _, err := near.Write(nil); err == nil {
		t.Error("a connection that was left is open")
	}
}

// TestOctetsBehindTheEndReachNoOtherSession: what a client sends after QUIT, and
// upstream after its last reply, is gone with the session.
func TestOctetsBehindTheEndReachNoOtherSession(t *testing.T) {
	server := &script.Server{}
	server.On("QUIT", "221 bye\r\n250 not asked for\r\n250 nor that")
	r := newRig(server, listChecker(t), Settings{})
	for range 20 {
		c := connect(t, r, t.Context())
		c.hello()
		c.envelope()
		c.want("hello\r\n.", "250")
		c.send("QUIT\r\nMAIL FROM:<stray@good.example>\r\n")
		c.want("", "221")
		c.close()
	}
	if n := len(server.Messages()); n != 20 {
		t.Errorf("%d messages, want 20", n)
	}
	if strings.Contains(strings.Join(server.Log(), "\n"), "stray") {
		t.Error("a command behind QUIT was run")
	}
}

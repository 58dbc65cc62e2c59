package upstream

import (
	"context"
	"io"
	"net"
	"testing"

	"blockd/internal/testkit"
)

// TestReleaseGivesTheReaderAwayOnce: two connections with one reader would hear each
// other's replies, and one that finds octets of another's would be out of step.
func TestReleaseGivesTheReaderAwayOnce(t *testing.T) {
	d := New(Settings{Hostname: "us.example", Dial: func(context.Context) (net.Conn, error) {
		near, far := net.Pipe()
		go script{"S: 220 up", "C: EHLO us.example", "S: 250-up", "S: 250 PIPELINING", "S: 250 not asked for"}.run(far)
		return near, nil
	}})
	open := func() *Conn {
		t.Helper()
		c := testkit.Value(d.Open(t.Context(), Client{}))(t)
		return c
	}
	first := open()
	reader := first.R
	if _, err := reader.Peek(1); err != nil { // of what was not asked for
		t.Fatal(err)
	}
	first.Release()
	if reader.Buffered() > 0 || first.R != nil {
		t.Errorf("%d octets are left in the reader, and it is %p in the connection that was released", reader.Buffered(), first.R)
	}
	first.Release()
	second, third := open(), open()
	if second.R == third.R {
		t.Error("two connections share a reader")
	}
	for _, c := range []*Conn{second, third} {
		if line, err := c.R.ReadString('\n'); line != "250 not asked for\r\n" || err != nil {
			t.Errorf("its own reply is %q, %v", line, err)
		}
		c.Release()
		if _, err := c.Read(make([]byte, 1)); err != io.ErrClosedPipe {
			t.Errorf("a released connection reads with %v", err)
		}
	}
}

package session

import (
	"context"
	"net"
	"strings"
	"testing"
	"time"

	"blockd/internal/testkit"
	"blockd/internal/testkit/script"
	"blockd/smtpfilter/upstream"
)

// resetConn ends with a reset instead of the end of the stream, as a server does
// that was killed, or a firewall that has lost its state.
type resetConn struct{ *net.TCPConn }

func (c resetConn) Close() error {
	c.SetLinger(0)
	return c.TCPConn.Close()
}

// TestResetUpstream has upstream end the connection at each protocol point by the
// end of the stream and by a reset, over real sockets and through XCLIENT. The
// first message is not answered 250 unless it has arrived, and the second, sent
// after it, arrives.
func TestResetUpstream(t *testing.T) {
	const again = "220 upstream.example ready again"
	const hello = "250-upstream.example\r\n250-PIPELINING\r\n250 XCLIENT NAME ADDR PORT PROTO HELO"
	tests := []struct {
		name, point string
		again       bool // at the second time
		end         string
		arrives     int // of the first message: 1 if upstream has taken it
	}{
		{"connect", script.Greeting, false, script.Close, 0},
		{"in the greeting", script.Greeting, false, "220-upstream" + script.Close, 0},
		{"EHLO", "EHLO", false, script.Close, 0},
		{"XCLIENT", "XCLIENT", false, script.Close, 0},
		{"second EHLO", "EHLO", true, script.Close, 0},
		{"MAIL", "MAIL", false, script.Close, 0},
		{"RCPT", "RCPT", false, script.Close, 0},
		{"DATA", "DATA", false, script.Close, 0},
		{"354", "DATA", false, "354 go" + script.Close, 0},
		{"in the message", script.Body, false, script.Close, 0},
		{"behind the dot", script.Dot, false, script.Close, 0},
		{"behind the dot, the message taken", script.Dot, false, script.Accept, 1},
		{"QUIT", "QUIT", false, script.Close, 1},
	}
	checker := listChecker(t)
	for _, tt := range tests {
		for _, reset := range []bool{false, true} {
			name := tt.name + " closed"
			if reset {
				name = tt.name + " reset"
			}
			t.Run(name, func(t *testing.T) {
				l := testkit.Listen(t)
				defer l.Close()
				server := &script.Server{Caps: []string{"PIPELINING", "XCLIENT NAME ADDR PORT PROTO HELO"}}
				go func() {
					for {
						conn, err := l.Accept()
						if err != nil {
							return
						}
						if reset {
							conn = resetConn{conn.(*net.TCPConn)}
						}
						go server.Serve(conn)
					}
				}()
				dialer := upstream.New(upstream.Settings{Network: "tcp", Address: l.Addr().String(), ClientInfo: "xclient",
					Hostname: hostname, ReplyTimeout: 30 * time.Second})
				r := newRig(server, checker, Settings{})
				r.relay.upstream = dialer
				send := func() (reply string) {
					c := connect(t, r, context.Background())
					c.hello()
					reply = c.transaction("x\r\n" + strings.Repeat("hello\r\n", 20_000) + ".")
					c.send("QUIT\r\n")
					<-c.ended
					return reply
				}
				server.On("XCLIENT", again)
				c := connect(t, r, context.Background())
				c.hello() // the probe is past
				c.close()

				if tt.again {
					server.On(tt.point, hello)
				}
				server.On(tt.point, tt.end)
				if tt.point != "XCLIENT" {
					server.On("XCLIENT", again)
				}
				first := send()
				if taken := strings.HasPrefix(first, "250"); taken != (tt.point == "QUIT") || !taken && !strings.HasPrefix(first, "451 4.4.") {
					t.Errorf("first message: %q", first)
				}
				testkit.Equal(t, "of the first message: have arrived", len(server.Messages()), tt.arrives)
				server.On("XCLIENT", again)
				server.On("XCLIENT", again)
				if second := send(); !strings.HasPrefix(second, "250") {
					t.Errorf("second message: %q\n%s", second, r.log)
				}
				testkit.Equal(t, "messages have arrived", len(server.Messages()), tt.arrives+1)
			})
		}
	}
}

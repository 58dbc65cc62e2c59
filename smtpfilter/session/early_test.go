package session

import (
	"bufio"
	"crypto/tls"
	"fmt"
	"net"
	"strings"
	"testing"
	"time"

	"blockd/internal/testkit"
	"blockd/internal/testkit/script"
	"blockd/internal/testkit/selfsigned"
	"blockd/smtpfilter/upstream"
)

// TestP3EarlyReplyIsNotTheMessages: upstream answers while the message is still
// on its way, over a real socket, in a packet of its own. Its 250 is not the
// answer to the dot; its refusal is.
func TestP3EarlyReplyIsNotTheMessages(t *testing.T) {
	cert := selfsigned.New(t, "upstream.example")
	for early, want := range map[string]string{"250 2.0.0 early": "451 4.3.0", "552 5.3.4 too big": "552 5.3.4"} {
		for _, security := range []string{upstream.TLSNone, upstream.TLSImplicit} {
			t.Run(early[:3]+" "+security, func(t *testing.T) {
				l := testkit.Listen(t)
				defer l.Close()
				set := upstream.Settings{Network: "tcp", Address: l.Addr().String(), Hostname: hostname, TLS: security}
				if security == upstream.TLSImplicit {
					l = tls.NewListener(l, cert.Config(t))
					set.Trust.Pins = []upstream.Pin{upstream.PinOf(cert.Leaf)}
				}
				said := make(chan struct{})
				go serveEarly(l, early, said)

				r := newRig(&script.Server{}, listChecker(t), Settings{ClientInfo: upstream.ClientInfoPROXY})
				r.relay.upstream = upstream.New(set)
				c := connect(t, r, t.Context())
				c.hello()
				c.envelope()
				c.send("hello\r\n")
				<-said
				c.want(".", want)
				c.close()
			})
		}
	}
}

// What upstream has sent is seen also when the time of the last command is over:
// between two chunks a client may take longer than that.
func TestP3EarlyReplyIsSeenBehindAnOldDeadline(t *testing.T) {
	l := testkit.Listen(t)
	defer l.Close()
	near := testkit.Value(net.Dial("tcp", l.Addr().String()))(t)
	defer near.Close()
	far := testkit.Value(l.Accept())(t)
	defer far.Close()
	s := &session{up: &upstreamConn{Conn: &upstream.Conn{Conn: near, R: bufio.NewReader(near)}}}
	if s.replyWaiting() {
		t.Error("waiting() with nothing sent")
	}
	fmt.Fprint(far, "250 early\r\n")
	for at := time.Now(); !s.replyWaiting(); { // loopback takes a moment
		if time.Since(at) > time.Minute {
			t.Fatal("what was sent does not arrive")
		}
	}
	near.SetDeadline(past())
	if !s.replyWaiting() {
		t.Error("not seen behind a deadline that is over")
	}
}

// serveEarly answers every session with what is usual, but says early after the
// first line of a message.
func serveEarly(l net.Listener, early string, said chan<- struct{}) {
	for {
		conn, err := l.Accept()
		if err != nil {
			return
		}
		in := bufio.NewScanner(conn)
		fmt.Fprint(conn, "220 ready\r\n")
		for in.Scan() {
			switch {
			case strings.HasPrefix(in.Text(), "EHLO"):
				fmt.Fprint(conn, "250 upstream.example\r\n")
			case in.Text() == "DATA":
				fmt.Fprint(conn, "354 go\r\n")
			case in.Text() == "hello":
				fmt.Fprint(conn, early+"\r\n")
				close(said)
			default:
				fmt.Fprint(conn, "250 ok\r\n")
			}
		}
		conn.Close()
	}
}

package session

import (
	"bufio"
	"fmt"
	"net"
	"strings"
	"testing"

	"blockd/internal/script"
	"blockd/smtpfilter/upstream"
)

// TestP3EarlyReplyIsNotTheMessages: upstream answers while the message is still
// on its way, over a real socket, in a packet of its own. Its 250 is not the
// answer to the dot; its refusal is.
func TestP3EarlyReplyIsNotTheMessages(t *testing.T) {
	for early, want := range map[string]string{"250 2.0.0 early": "451 4.3.0", "552 5.3.4 too big": "552 5.3.4"} {
		t.Run(early[:3], func(t *testing.T) {
			l, err := net.Listen("tcp", "127.0.0.1:0")
			if err != nil {
				t.Fatal(err)
			}
			defer l.Close()
			said := make(chan struct{})
			go serveEarly(l, early, said)

			r := newRig(&script.Server{}, listChecker(t), Settings{ClientInfo: upstream.ClientInfoPROXY})
			r.relay.upstream = upstream.New(upstream.Settings{Network: "tcp", Address: l.Addr().String(), Hostname: hostname})
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

package session

import (
	"bufio"
	"context"
	"crypto/tls"
	"fmt"
	"io"
	"net"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"blockd/internal/testkit"
	"blockd/internal/testkit/script"
	"blockd/internal/testkit/selfsigned"
	"blockd/smtpfilter/upstream"
)

// TestUpstreamLearnsOfANewName: a client that greets anew under another name is
// presented anew, and one that repeats its name keeps its connection to upstream.
func TestUpstreamLearnsOfANewName(t *testing.T) {
	checker := listChecker(t)
	synctest.Test(t, func(t *testing.T) {
		server := &script.Server{Caps: []string{"PIPELINING", "XCLIENT ADDR HELO PROTO"}}
		for range 10 {
			server.On("XCLIENT", "220 again")
		}
		r := newRig(server, checker, Settings{})
		r.relay.upstream = upstream.New(upstream.Settings{Dial: server.Dial, Hostname: hostname, ClientInfo: upstream.ClientInfoXCLIENT})
		c := connect(t, r, t.Context())
		c.hello()
		mail := func() {
			c.mail("a@good.example")
		}
		mail()
		c.want("EHLO client.example", "250")
		mail()
		c.want("EHLO other.example", "250")
		mail()
		c.want("HELO other.example", "250")
		mail()
		c.want("QUIT", "221")
		c.close()
		server.Wait()
		var got []string
		for _, line := range server.Log() {
			if _, attributes, ok := strings.Cut(line, "XCLIENT "); ok {
				got = append(got, attributes)
			}
		}
		want := []string{"PROTO=ESMTP HELO=[UNAVAILABLE] ADDR=[UNAVAILABLE]", // the probe
			"PROTO=ESMTP HELO=client.example ADDR=192.0.2.7", "PROTO=ESMTP HELO=other.example ADDR=192.0.2.7",
			"PROTO=SMTP HELO=other.example ADDR=192.0.2.7"}
		testkit.EqualSlices(t, "upstream was told", got, want)
		if faults := server.Faults(); len(faults) > 0 {
			t.Errorf("upstream's view: %q", faults)
		}
	})
}

// TestUpstreamsGoodbyeIsRead: to close with its answer to QUIT unread would reset the
// connection under it. A client that does not hang up costs upstream nothing of that.
func TestUpstreamsGoodbyeIsRead(t *testing.T) {
	clients, servers := testkit.Listen(t), testkit.Listen(t)
	r := newRig(&script.Server{}, listChecker(t), Settings{ClientInfo: "none"})
	r.relay.upstream = upstream.New(upstream.Settings{Network: "tcp", Address: servers.Addr().String(), Hostname: hostname})
	ended := make(chan error, 1)
	go func() { // upstream
		conn, err := servers.Accept()
		if err != nil {
			ended <- err
			return
		}
		defer conn.Close()
		io.WriteString(conn, "220 up\r\n")
		for in := bufio.NewReader(conn); ; {
			line, err := in.ReadString('\n')
			switch {
			case err != nil:
				ended <- err
				return
			case strings.HasPrefix(line, "QUIT"):
				io.WriteString(conn, "221 bye\r\n")
			default:
				io.WriteString(conn, "250 ok\r\n")
			}
		}
	}()
	client := testkit.Value(net.Dial("tcp", clients.Addr().String()))(t)
	defer client.Close()
	near := testkit.Value(clients.Accept())(t)
	go io.WriteString(client, "HELO client.example\r\nMAIL FROM:<a@good.example>\r\nRCPT TO:<bob@here.example>\r\nRSET\r\nGET / HTTP/1.1\r\n")
	r.relay.Run(context.Background(), near, testClient)
	select {
	case err := <-ended:
		testkit.IsError(t, "upstream's connection ends with", err, io.EOF)
	case <-time.After(time.Minute):
		t.Error("upstream's connection is open")
	}
}

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

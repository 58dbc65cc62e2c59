package session

import (
	"bufio"
	"bytes"
	"context"
	"crypto/tls"
	"fmt"
	"io"
	"net"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"blockd/internal/testkit"
	"blockd/internal/testkit/script"
	"blockd/internal/testkit/selfsigned"
	"blockd/policy"
	"blockd/smtpfilter/upstream"
	"blockd/smtpfilter/wire"
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
		testkit.EqualSlices(t, "upstream's view", server.Faults(), nil)
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
	s.up.watch()
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

// TestUnaskedLooksIntoTheSocket: what upstream has said late is found before the next command, also where nobody has
// read it yet; a 421 is left to be read.
func TestUnaskedLooksIntoTheSocket(t *testing.T) {
	for said, want := range map[string]error{"250 2.0.0 Ok, once more\r\n": errUnasked, "451 4.4.2 timeout\r\n": errUnasked, "421 4.4.2 timeout\r\n": nil} {
		l := testkit.Listen(t)
		near := testkit.Value(net.Dial("tcp", l.Addr().String()))(t)
		far := testkit.Value(l.Accept())(t)
		s := &session{up: &upstreamConn{Conn: &upstream.Conn{Conn: near, R: bufio.NewReader(near)}}}
		s.up.watch()
		s.deadlines.setUpstream(s.up.Conn)
		testkit.Equal(t, "with nothing said", s.unasked(), nil)
		fmt.Fprint(far, said)
		testkit.Eventually(t, "it to arrive", func() bool { return s.up.peek() })
		testkit.Equal(t, said, s.unasked(), want)
		far.Close()
		near.Close()
	}
}

// TestRefusalOfTheClientsName: a next server that refuses the name by which the client has introduced itself refuses
// that client, and for the reason that it gives. What it minds of blockd's own name, or of blockd, is nobody's fault
// but ours.
func TestRefusalOfTheClientsName(t *testing.T) {
	const offer, refusal = "250-upstream.example\r\n250 XCLIENT ADDR HELO PROTO", "550 5.7.1 <client.example>: Helo command rejected"
	checker := listChecker(t)
	for _, tt := range []struct {
		what, mail string
		ehlo, helo []string
		want       string
	}{
		{"the client's name, lazy", "lazy", []string{offer, refusal}, []string{refusal}, refusal},
		{"the client's name, strict", "strict", []string{offer, refusal}, []string{refusal}, refusal},
		{"for now", "lazy", []string{offer, "450 4.7.1 <client.example>: Helo command rejected: Host not found"}, nil, "450 4.7.1 <client.example>"},
		{"our name", "lazy", []string{"550 5.7.1 go away"}, []string{"550 5.7.1 go away"}, "451 4.4.1"},
		{"nobody's name: it goes away", "lazy", []string{offer, "421 4.3.2 shutting down"}, nil, "451 4.4.1"},
	} {
		synctest.Test(t, func(t *testing.T) {
			server := &script.Server{Caps: []string{"XCLIENT ADDR HELO PROTO"}}
			server.On("EHLO", offer) // of the probe
			server.On("EHLO", offer)
			for range 2 {
				server.On("XCLIENT", "220 again")
			}
			for _, answer := range tt.ehlo {
				server.On("EHLO", answer)
			}
			for _, answer := range tt.helo {
				server.On("HELO", answer)
			}
			r := newRig(server, checker, Settings{Mail: tt.mail})
			r.relay.upstream = upstream.New(upstream.Settings{Dial: server.Dial, Hostname: hostname, ClientInfo: upstream.ClientInfoXCLIENT})
			c := connect(t, r, t.Context())
			c.hello()
			if tt.mail == "strict" {
				c.want("MAIL FROM:<a@good.example>", tt.want)
			} else {
				c.want("MAIL FROM:<a@good.example>", "250")
				c.want("RCPT TO:<bob@here.example>", tt.want)
			}
			c.want("QUIT", "221")
			c.close()
			server.Wait()
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

// beginAuth is a session behind a STARTTLS that adds nothing, in which AUTH may be said.
func beginAuth(t *testing.T, server *script.Server, checker *policy.Checker) (*rig, *client) {
	t.Helper()
	r, c := begin(t, server, checker, Settings{Auth: "forward",
		StartTLS: func(_ context.Context, conn net.Conn) (net.Conn, error) { return conn, nil }})
	c.want("STARTTLS", "220")
	c.want("EHLO client.example", "250")
	return r, c
}

// TestAuthLinesMayBeLong, and no others: 12,288 octets with CRLF (RFC 4954, section 4).
func TestAuthLinesMayBeLong(t *testing.T) {
	checker := listChecker(t)
	synctest.Test(t, func(t *testing.T) {
		server := &script.Server{Caps: []string{"PIPELINING", "AUTH PLAIN XOAUTH2"}}
		_, c := beginAuth(t, server, checker)
		c.want("NOOP "+strings.Repeat("x", wire.MaxLine), "500 5.5.2")
		c.want("AUTH XOAUTH2 "+strings.Repeat("A", wire.MaxAuthLine), "500 5.5.2")

		server.On("AUTH", "334 ")
		c.want("AUTH XOAUTH2", "334")
		c.want(strings.Repeat("A", wire.MaxAuthLine), "500 5.5.6")

		server.On("AUTH", "334 ")
		server.On(script.SASL, "535 5.7.8 no")
		long := strings.Repeat("A", wire.MaxAuthLine-2)
		c.want("AUTH XOAUTH2", "334")
		c.want(long, "535 5.7.8")
		first := "AUTH XOAUTH2 " + strings.Repeat("A", wire.MaxAuthLine-2-len("AUTH XOAUTH2 "))
		c.want(first, "235")
		c.want("NOOP "+strings.Repeat("x", wire.MaxLine), "500 5.5.2")
		c.quit()
		server.Wait()
		if want := []string{"AUTH XOAUTH2", "AUTH XOAUTH2", long, first}; !slices.Equal(server.Log(), want) {
			t.Errorf("upstream read %d lines, want the %d of the exchanges", len(server.Log()), len(want))
		}
		testkit.EqualSlices(t, "upstream's view", server.Faults(), nil)
	})
}

// TestAuthNeedsSecretConnections: where others could listen, on either connection, AUTH is not
// offered, whatever upstream announces.
func TestAuthNeedsSecretConnections(t *testing.T) {
	tests := []struct {
		name             string
		auth             string
		client, tls, own bool
		want             string
	}{
		{"TLS on both connections", "forward", true, true, false, "PLAIN"},
		{"upstream on this machine", "forward", true, false, true, "PLAIN"},
		{"upstream in the clear", "forward", true, false, false, ""},
		{"client in the clear", "forward", false, true, true, ""},
		{"switched off", "off", true, true, true, ""},
		{"not configured", "", true, true, true, ""},
	}
	for _, tt := range tests {
		s := &session{Relay: &Relay{settings: Settings{Auth: tt.auth}}, overTLS: tt.client}
		if got := s.mechanisms("AUTH PLAIN EXTERNAL", upstream.Caps{TLS: tt.tls, Local: tt.own}); got != tt.want {
			t.Errorf("%s: offers %q, want %q", tt.name, got, tt.want)
		}
	}
}

// TestAuthEndlessChallenges: an upstream that never comes to a verdict.
func TestAuthEndlessChallenges(t *testing.T) {
	checker := listChecker(t)
	synctest.Test(t, func(t *testing.T) {
		server := &script.Server{Caps: []string{"AUTH PLAIN"}}
		server.On("AUTH", "334 ")
		for range 100 {
			server.On(script.SASL, "334 ")
		}
		_, c := beginAuth(t, server, checker)
		c.want("AUTH PLAIN", "334")
		for range maxRounds - 1 {
			c.want("YQ==", "334")
		}
		c.want("YQ==", "421 4.7.0")
		<-c.ended
		server.Wait()
	})
}

// What a client says to log in is overwritten, whatever becomes of the command.
func TestAuthLeavesNoPasswordInMemory(t *testing.T) {
	long := strings.Repeat("QUJD", 1500) // longer than other commands, so that a buffer is lent
	for _, tc := range []struct{ name, before, auth, reply string }{
		{"passed on", "RSET", "AUTH PLAIN " + long, "235"},
		{"within a transaction", "MAIL FROM:<a@good.example>", "AUTH PLAIN " + long, "503"},
		{"malformed", "RSET", "AUTH PLAIN " + long + " \x01", "501"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			r, c := beginAuth(t, &script.Server{Caps: []string{"AUTH PLAIN"}}, listChecker(t))
			var lent []*[dataBuffer]byte
			r.relay.buffers.New = func() any {
				lent = append(lent, new([dataBuffer]byte))
				return lent[len(lent)-1]
			}
			c.want(tc.before, "250")
			c.want(tc.auth, tc.reply)
			c.want("QUIT", "221")
			c.close()
			if len(lent) == 0 {
				t.Fatal("no buffer was lent")
			}
			for _, b := range lent {
				if bytes.Contains(b[:], []byte(long[:100])) {
					t.Error("the buffer still has it")
				}
			}
		})
	}
}

package server

import (
	"bufio"
	"context"
	"crypto/tls"
	"errors"
	"io"
	"log/slog"
	"net"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"blockd/index"
	"blockd/internal/testkit"
	"blockd/internal/testkit/selfsigned"
	"blockd/policy"
	"blockd/smtpfilter/session"
)

// talk is a client by hand: it sends lines and reads replies.
type talk struct {
	t    *testing.T
	conn net.Conn
	r    *bufio.Reader
}

func dialTalk(t *testing.T, address string) *talk {
	t.Helper()
	conn := testkit.Value(net.Dial("tcp", address))(t)
	t.Cleanup(func() { conn.Close() })
	conn.SetDeadline(time.Now().Add(time.Minute))
	return &talk{t, conn, bufio.NewReader(conn)}
}

// want sends text, if any, and checks how the last line of the reply begins; it
// returns the whole reply. A want of "" is a closed connection.
func (c *talk) want(text, want string) string {
	c.t.Helper()
	if text != "" { // a pipe passes on an empty write too
		if _, err := io.WriteString(c.conn, text); err != nil {
			c.t.Fatalf("%q: %v", text, err)
		}
	}
	var reply strings.Builder
	for {
		line, err := c.r.ReadString('\n')
		reply.WriteString(line)
		if err != nil {
			if want != "" || reply.Len() > 0 {
				c.t.Fatalf("%q: %v behind %q, want %q", text, err, &reply, want)
			}
			return ""
		}
		if len(line) < 4 || line[3] != '-' {
			if want == "" || !strings.HasPrefix(line, want) {
				c.t.Fatalf("%q: %q, want %q", text, line, want)
			}
			return reply.String()
		}
	}
}

// secure goes over to TLS, without a word about it.
func (c *talk) secure(config *tls.Config) {
	c.t.Helper()
	secured := tls.Client(c.conn, config)
	if err := secured.Handshake(); err != nil {
		c.t.Fatalf("TLS: %v", err)
	}
	c.conn, c.r = secured, bufio.NewReader(secured)
}

// withTLS is a filter that shows a certificate, and what its clients need to trust it.
func withTLS(t *testing.T, set Settings, limits session.Limits) (*running, string, *tls.Config) {
	t.Helper()
	cert := selfsigned.New(t, "us.example")
	set.TLS = cert.Config(t)
	r, maildir := filterWith(t, set, limits)
	return r, maildir, &tls.Config{ServerName: "us.example", RootCAs: cert.Pool()}
}

// hello begins a session in the clear.
func hello(t *testing.T, r *running) *talk {
	t.Helper()
	c := dialTalk(t, r.address)
	c.want("", "220 ")
	c.want("EHLO c\r\n", "250 ")
	return c
}

func TestStartTLS(t *testing.T) {
	r, maildir, trust := withTLS(t, Settings{}, session.Limits{})
	c := dialTalk(t, r.address)
	c.want("", "220 ")
	testkit.Has(t, c.want("EHLO c\r\n", "250 "), "STARTTLS\r\n")
	c.want("STARTTLS\r\n", "220 2.0.0 ")
	c.secure(trust)
	c.want("MAIL FROM:<a@b.example>\r\n", "503 5.5.1 Send EHLO")
	if got := c.want("EHLO c\r\n", "250 "); strings.Contains(got, "STARTTLS") {
		t.Errorf("EHLO under TLS: %q, want no STARTTLS", got)
	}
	c.want("STARTTLS\r\n", "503 5.5.1 TLS")
	c.want("MAIL FROM:<x@sub.bad.example>\r\n", "250 ")
	c.want("RCPT TO:<bob@here.example>\r\n", "550 5.7.1 ")
	c.want("RSET\r\n", "250 ")
	c.want("MAIL FROM:<a@b.example>\r\n", "250 ")
	c.want("RCPT TO:<bob@here.example>\r\n", "250 ")
	c.want("DATA\r\n", "354 ")
	c.want("Subject: hi\r\n\r\n"+strings.Repeat("0123456789\r\n", 10_000)+".\r\n", "250 ")
	c.want("QUIT\r\n", "221 ")
	if got := mails(t, maildir); len(got) != 1 || len(got[0]) != 15+12*10_000 {
		t.Errorf("%d messages in the Maildir", len(got))
	}
	testkit.Equal(t, "handshakes done", r.metric(t, "blockd_smtp_tls_handshakes_total", "result=done"), 1)
}

// Whatever goes wrong around STARTTLS, not one command that came in the clear
// behind it is run, and nobody goes on in the clear.
func TestStartTLSAbused(t *testing.T) {
	r, maildir, trust := withTLS(t, Settings{}, session.Limits{})
	envelope := "MAIL FROM:<a@b.example>\r\nRCPT TO:<bob@here.example>\r\nDATA\r\ninjected\r\n.\r\n"
	t.Run("commands behind it in one segment", func(t *testing.T) { // CVE-2011-0411
		c := hello(t, r)
		c.want("STARTTLS\r\n"+envelope, "501 5.5.4 ")
		c.want("", "")
	})
	t.Run("half a command behind it", func(t *testing.T) {
		c := hello(t, r)
		c.want("STARTTLS\r\nMA", "501 5.5.4 ")
		c.want("", "")
	})
	t.Run("commands behind the 220", func(t *testing.T) {
		c := hello(t, r)
		c.want("STARTTLS\r\n", "220 ")
		io.WriteString(c.conn, envelope)
		// An alert of TLS may come, and no reply.
		if got, _ := io.ReadAll(c.r); len(got) > 0 && got[0] != 0x15 {
			t.Errorf("answered with %q", got)
		}
	})
	t.Run("a handshake that nobody finishes", func(t *testing.T) {
		r, _, _ := withTLS(t, Settings{TLSTimeout: 100 * time.Millisecond}, session.Limits{})
		c := hello(t, r)
		c.want("STARTTLS\r\n", "220 ")
		io.WriteString(c.conn, "\x16\x03\x01")
		if got, err := io.ReadAll(c.r); len(got) > 0 && got[0] != 0x15 {
			t.Errorf("answered with %q, %v, want a close within the handshake's time", got, err)
		}
	})
	t.Run("what was learnt before is void", func(t *testing.T) {
		c := hello(t, r)
		c.want("MAIL FROM:<a@b.example>\r\n", "250 ")
		c.want("RCPT TO:<bob@here.example>\r\n", "250 ")
		c.want("STARTTLS\r\n", "220 ")
		c.secure(trust)
		c.want("EHLO c\r\n", "250 ")
		c.want("DATA\r\n", "503 5.5.1 ")
	})
	t.Run("before EHLO", func(t *testing.T) {
		c := dialTalk(t, r.address)
		c.want("", "220 ")
		c.want("STARTTLS\r\n", "503 5.5.1 ")
		c.want("HELO c\r\n", "250 ")
		c.want("STARTTLS\r\n", "503 5.5.1 ")
	})
	t.Run("another word", func(t *testing.T) {
		c := hello(t, r)
		c.want("STARTTLSFOO\r\n", "500 5.5.2 ")
		c.want("STARTTLS now\r\n", "501 5.5.4 ")
		c.want("NOOP\r\n", "250 ")
	})
	t.Run("TLS 1.1", func(t *testing.T) {
		c := hello(t, r)
		c.want("STARTTLS\r\n", "220 ")
		old := trust.Clone()
		old.MinVersion, old.MaxVersion = tls.VersionTLS10, tls.VersionTLS11
		if err := tls.Client(c.conn, old).Handshake(); err == nil {
			t.Error("the handshake succeeds")
		}
		if _, err := c.conn.Read(make([]byte, 1)); err == nil {
			t.Error("the connection is open")
		}
	})
	t.Run("in the clear where TLS comes first", func(t *testing.T) {
		c := dialTalk(t, r.tlsAddress)
		io.WriteString(c.conn, "EHLO c\r\n"+envelope)
		if got, _ := io.ReadAll(c.r); strings.Contains(string(got), "220") || strings.Contains(string(got), "us.example") {
			t.Errorf("answered with %q", got)
		}
	})
	testkit.Eventually(t, "all sessions have ended", func() bool { return r.clients.open() == 0 })
	testkit.EqualSlices(t, "the Maildir holds", mails(t, maildir), nil)
	if got := r.metric(t, "blockd_smtp_tls_handshakes_total", "result=failed"); got < 3 {
		t.Errorf("handshakes failed = %v, want at least 3", got)
	}
}

// A client over a limit is not told so in the clear where it expects TLS.
func TestRefusalWhereTLSComesFirst(t *testing.T) {
	r, _, _ := withTLS(t, Settings{MaxPerClient: 1}, session.Limits{})
	first := dialTalk(t, r.address)
	first.want("", "220 ")
	conn := testkit.Value(net.Dial("tcp", r.tlsAddress))(t)
	defer conn.Close()
	conn.SetDeadline(time.Now().Add(time.Minute))
	if got, err := io.ReadAll(conn); len(got) > 0 || err != nil && !errors.Is(err, net.ErrClosed) && !strings.Contains(err.Error(), "reset") {
		t.Errorf("reads %q, %v, want a closed connection", got, err)
	}
}

// A PROXY header goes ahead of TLS, and not one octet of the handshake is lost.
func TestProxyHeaderAheadOfTLS(t *testing.T) {
	r, _, trust := withTLS(t, Settings{Proxies: loopbackNet}, session.Limits{})
	for _, header := range []string{string(proxy2(t, "203.0.113.7:4711")), "PROXY TCP4 203.0.113.7 192.0.2.25 4711 25\r\n"} {
		c := dialTalk(t, r.tlsAddress)
		io.WriteString(c.conn, header)
		c.secure(trust)
		c.want("", "220 ")
	}
	c := dialTalk(t, r.address)
	c.want(string(proxy2(t, "203.0.113.7:4711")), "220 ")
	c.want("EHLO c\r\n", "250 ")
	c.want("STARTTLS\r\n", "220 ")
	c.secure(trust)
	c.want("EHLO c\r\n", "250 ")
}

// From 80 % of the places on, a client that says nothing is sent away sooner. Those that had
// begun to wait before keep the usual time.
func TestStressShortensPatience(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		up, log, p := (&peer{}).embedded(), slog.New(slog.DiscardHandler), testkit.NewPipes()
		r := prepare(Settings{MaxConnections: 5, MaxPerClient: 5}, up)
		reg := prometheus.NewRegistry()
		checker := policy.New(func() *index.Index { return nil }, policy.Settings{}, log, reg)
		sessions := session.New(session.Settings{Hostname: "us.example", Crowded: r.Crowded}, up, checker, session.NewMetrics(reg), log)
		ctx, stop := context.WithCancel(t.Context())
		go func() { r.done <- r.Serve(ctx, sessions.Run, p) }()
		come := func() *talk {
			conn := p.Dial("192.0.2.1")
			c := &talk{t, conn, bufio.NewReader(conn)}
			c.want("", "220 ")
			synctest.Wait() // the session waits for the first command
			return c
		}
		calm := []*talk{come(), come(), come()}
		if r.Crowded() {
			t.Error("3 of 5 are a crowd")
		}
		fourth := come()
		if !r.Crowded() {
			t.Error("4 of 5 are no crowd")
		}
		begun := time.Now()
		fourth.want("", "421 4.4.2 ")
		if took := time.Since(begun); took > time.Minute {
			t.Errorf("sent away after %v, want half a minute rather than five", took)
		}
		for _, c := range calm {
			c.want("NOOP\r\n", "250 ")
			c.conn.Close()
		}
		fourth.conn.Close()
		stop()
		testkit.IsError(t, "Serve", <-r.done, nil)
	})
}

// A stop reaches those behind TLS as it reaches everybody else.
func TestStopUnderTLS(t *testing.T) {
	r, maildir, trust := withTLS(t, Settings{}, session.Limits{})
	c := hello(t, r)
	c.want("STARTTLS\r\n", "220 ")
	c.secure(trust)
	c.want("EHLO c\r\n", "250 ")
	idle := dialTalk(t, r.tlsAddress)
	idle.secure(trust)
	idle.want("", "220 ")
	c.want("MAIL FROM:<a@b.example>\r\n", "250 ")
	c.want("RCPT TO:<bob@here.example>\r\n", "250 ")
	c.want("DATA\r\n", "354 ")
	r.stop()
	idle.want("", "421 4.3.2 ")
	c.want("hello\r\n.\r\n", "250 ")
	c.want("", "421 4.3.2 ")
	c.conn.Close()
	testkit.IsError(t, "Serve", r.end(t), nil)
	if got := mails(t, maildir); len(got) != 1 || got[0] != "hello\r\n" {
		t.Errorf("the Maildir holds %q, want the message", got)
	}
}

// Who talks before the greeting is sent away, in the clear and under TLS; who
// waits is greeted.
func TestGreetWait(t *testing.T) {
	r, _, trust := withTLS(t, Settings{}, session.Limits{GreetWait: 2 * time.Second}) // time to talk too early
	early := dialTalk(t, r.address)
	early.want("EHLO c\r\n", "521 5.5.1 ")
	secured := dialTalk(t, r.tlsAddress)
	secured.secure(trust)
	secured.want("EHLO c\r\n", "521 5.5.1 ")
	secured.want("", "")
	patient := dialTalk(t, r.tlsAddress)
	patient.secure(trust)
	patient.want("", "220 ")
	if got := patient.want("EHLO c\r\n", "250 "); strings.Contains(got, "STARTTLS") {
		t.Errorf("EHLO under TLS: %q, want no STARTTLS", got)
	}
}

func TestCommandRate(t *testing.T) {
	r, _ := filterWith(t, Settings{}, session.Limits{CommandRate: 5})
	c := hello(t, r)
	for range 4 {
		c.want("NOOP\r\n", "250 ")
	}
	c.want("NOOP\r\n", "421 4.7.0 ")
}

func TestConnectionRate(t *testing.T) {
	r := start(t, Settings{MaxRate: 2}, echo, (&peer{}).embedded())
	for range 2 {
		conn, line := r.dial(t)
		testkit.Equal(t, "first line", line, "220 127.0.0.1")
		conn.Close()
	}
	testkit.Equal(t, "third within the minute", r.line(t), "421 4.7.0 us.example Too many new connections from your address, try again later")
	testkit.Equal(t, "refused{rate}", r.metric(t, "blockd_smtp_connections_refused_total", "why=rate"), 1)
}

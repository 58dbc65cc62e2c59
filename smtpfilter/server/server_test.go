package server

import (
	"bufio"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/netip"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"blockd/internal/testkit"
	"blockd/smtpfilter/upstream"
)

// echo is a session that greets, answers each line with itself, and ends with
// the client or with ctx.
func echo(ctx context.Context, conn net.Conn, client netip.AddrPort) {
	defer conn.Close()
	stop := context.AfterFunc(ctx, func() { conn.Close() })
	defer stop()
	fmt.Fprintf(conn, "220 %s\r\n", client.Addr())
	io.Copy(conn, conn)
}

// peer is an upstream that answers everything as a healthy server does, with
// rcpt to RCPT, and counts its sessions.
type peer struct {
	mu       sync.Mutex
	rcpt     string
	sessions int
	down     bool
}

func (p *peer) set(rcpt string, down bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.rcpt, p.down = rcpt, down
}

func (p *peer) count() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.sessions
}

func (p *peer) serve(conn net.Conn) {
	defer conn.Close()
	p.mu.Lock()
	p.sessions++
	rcpt, down := p.rcpt, p.down
	p.mu.Unlock()
	if down {
		io.WriteString(conn, "421 down\r\n")
		return
	}
	io.WriteString(conn, "220 hi\r\n")
	for r := bufio.NewScanner(conn); r.Scan(); {
		reply := "250 ok"
		switch verb, _, _ := strings.Cut(r.Text(), " "); verb {
		case "RCPT":
			reply = rcpt
		case "QUIT":
			reply = "221 bye"
		}
		if _, err := io.WriteString(conn, reply+"\r\n"); err != nil {
			return
		}
	}
}

// listen makes p a TCP server until the test ends.
func (p *peer) listen(t *testing.T) string {
	l := testkit.Listen(t)
	go func() {
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			go p.serve(conn)
		}
	}()
	return l.Addr().String()
}

// embedded is a Dialer to p that cannot relay, like the one to the mailbox.
func (p *peer) embedded() *upstream.Dialer {
	return upstream.New(upstream.Settings{Hostname: "us.example", Dial: func(context.Context) (net.Conn, error) {
		near, far := net.Pipe()
		go p.serve(far)
		return near, nil
	}})
}

// running is a Server that serves.
type running struct {
	*Server
	address    string
	tlsAddress string
	reg        *prometheus.Registry
	stop       context.CancelFunc
	done       chan error
}

func start(t *testing.T, s Settings, run Run, up *upstream.Dialer) *running {
	t.Helper()
	r := prepare(s, up)
	r.serve(t, run)
	return r
}

// prepare is start without its listeners.
func prepare(s Settings, up *upstream.Dialer) *running {
	reg := prometheus.NewRegistry()
	if s.Hostname == "" {
		s.Hostname = "us.example"
	}
	return &running{Server: New(s, up, reg, slog.New(slog.DiscardHandler)), reg: reg, done: make(chan error, 1)}
}

// serve listens, in the clear and with TLS from the first octet, and runs until
// the test ends.
func (r *running) serve(t *testing.T, run Run) {
	t.Helper()
	plain, overTLS := testkit.Listen(t), testkit.Listen(t)
	r.address, r.tlsAddress = plain.Addr().String(), overTLS.Addr().String()
	ctx, cancel := context.WithCancel(context.Background())
	r.stop = cancel
	go func() { r.done <- r.Serve(ctx, run, plain, Implicit(overTLS)) }()
	t.Cleanup(func() {
		cancel()
		select {
		case <-r.done:
		case <-time.After(time.Minute):
			t.Error("Serve does not end")
		}
	})
}

// end stops r and returns what Serve returned.
func (r *running) end(t *testing.T) error {
	t.Helper()
	r.stop()
	select {
	case err := <-r.done:
		r.done <- nil // for the clean-up
		return err
	case <-time.After(time.Minute):
		t.Fatal("Serve does not end")
		return nil
	}
}

// metric returns the value of a counter or gauge; label is "" or as "why=total".
func (r *running) metric(t *testing.T, name, label string) float64 {
	t.Helper()
	var labels []string
	if _, value, ok := strings.Cut(label, "="); ok {
		labels = []string{value}
	}
	all := testkit.Samples(t, r.reg, name, labels...)
	if len(all) != 1 {
		t.Fatalf("metric %s{%s} has %d samples, want 1", name, label, len(all))
	}
	return all[0]
}

// dial connects to r and returns the connection and the first line.
func (r *running) dial(t *testing.T) (net.Conn, string) {
	t.Helper()
	conn := testkit.Value(net.Dial("tcp", r.address))(t)
	t.Cleanup(func() { conn.Close() })
	conn.SetDeadline(time.Now().Add(time.Minute))
	line, err := bufio.NewReader(conn).ReadString('\n')
	if err != nil {
		t.Fatalf("first line: %v", err)
	}
	return conn, strings.TrimSuffix(line, "\r\n")
}

// line is the first line that a new client reads.
func (r *running) line(t *testing.T) string {
	t.Helper()
	_, line := r.dial(t)
	return line
}

func TestConnectionLimits(t *testing.T) {
	tests := []struct {
		name     string
		settings Settings
		served   int
		why      string
		reply    string
	}{
		{"in all", Settings{MaxConnections: 3}, 3, "total", "421 4.7.0 us.example Too many connections, try again later"},
		{"of one client, on loopback too", Settings{MaxPerClient: 2}, 2, "client", "421 4.7.0 us.example Too many connections from your address"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			r := start(t, tt.settings, echo, (&peer{}).embedded())
			var open []net.Conn
			for range tt.served {
				conn, line := r.dial(t)
				testkit.MustEqual(t, fmt.Sprintf("connection %d", len(open)+1), line, "220 127.0.0.1")
				open = append(open, conn)
			}
			for range 5 {
				// A client that talks first still reads why.
				conn := testkit.Value(net.Dial("tcp", r.address))(t)
				io.WriteString(conn, "EHLO c\r\n")
				conn.SetDeadline(time.Now().Add(time.Minute))
				if got, err := io.ReadAll(conn); err != nil || string(got) != tt.reply+"\r\n" {
					t.Errorf("over the limit: %q, %v, want %q", got, err, tt.reply)
				}
				conn.Close()
			}
			testkit.Equal(t, fmt.Sprintf("refused{%s}", tt.why), r.metric(t, "blockd_smtp_connections_refused_total", "why="+tt.why), 5)
			if got := r.metric(t, "blockd_smtp_connections", ""); got != float64(tt.served) {
				t.Errorf("connections = %v, want %d", got, tt.served)
			}
			open[0].Close()
			testkit.Eventually(t, "the place of a client that left is free", func() bool { return r.clients.open() == tt.served-1 })
			testkit.Equal(t, "after one left", r.line(t), "220 127.0.0.1")
			for _, conn := range open {
				conn.Close()
			}
		})
	}
}

// A flood of clients that never read must not hold up the accept loop.
func TestRefusalsDoNotBlock(t *testing.T) {
	r := start(t, Settings{MaxPerClient: 1}, echo, (&peer{}).embedded())
	first, line := r.dial(t)
	testkit.MustEqual(t, "line", line, "220 127.0.0.1")
	for range 2 * maxRefusing {
		conn := testkit.Value(net.Dial("tcp", r.address))(t)
		defer conn.Close()
	}
	testkit.Eventually(t, "all are refused", func() bool {
		return r.metric(t, "blockd_smtp_connections_refused_total", "why=client") == 2*maxRefusing
	})
	io.WriteString(first, "still here\r\n")
	testkit.Equal(t, "the client that is served reads", testkit.Value(bufio.NewReader(first).ReadString('\n'))(t), "still here\r\n")
}

// Neither a session that forgets to close nor one with a defect keeps its place, or its client.
func TestPlaceIsFreeWhenRunReturns(t *testing.T) {
	for name, run := range map[string]Run{
		"forgets": func(_ context.Context, conn net.Conn, _ netip.AddrPort) { io.WriteString(conn, "220 x\r\n") },
		"panics": func(_ context.Context, conn net.Conn, _ netip.AddrPort) {
			io.WriteString(conn, "220 x\r\n")
			panic("defect")
		},
	} {
		r := start(t, Settings{MaxConnections: 1}, run, (&peer{}).embedded())
		for range 3 {
			conn, line := r.dial(t)
			testkit.Equal(t, fmt.Sprintf("%s: first line", name), line, "220 x")
			if _, err := conn.Read(make([]byte, 1)); err != io.EOF {
				t.Errorf("%s: Read = %v, want EOF", name, err)
			}
			testkit.Eventually(t, "the place is free", func() bool { return r.clients.open() == 0 })
		}
		if got, want := r.metric(t, "blockd_smtp_connections_refused_total", "why=panic"), map[string]float64{"panics": 3}[name]; got != want {
			t.Errorf("%s: refused{panic} = %v, want %v", name, got, want)
		}
	}
}

func TestStopWaitsForSessions(t *testing.T) {
	stopping, finish := make(chan struct{}), make(chan struct{})
	r := start(t, Settings{}, func(ctx context.Context, conn net.Conn, _ netip.AddrPort) {
		defer conn.Close()
		if ctx.Err() != nil {
			return // came in the instant before the listener closed
		}
		io.WriteString(conn, "220 x\r\n")
		<-ctx.Done()
		close(stopping)
		<-finish
		io.WriteString(conn, "250 done\r\n")
	}, (&peer{}).embedded())
	conn, _ := r.dial(t)
	r.stop()
	<-stopping
	testkit.Eventually(t, "no new client is accepted", func() bool {
		c, err := net.Dial("tcp", r.address)
		if err == nil {
			c.Close()
		}
		return err != nil
	})
	select {
	case err := <-r.done:
		t.Fatalf("Serve returned %v before the session ended", err)
	default:
	}
	close(finish)
	testkit.Equal(t, "client reads", testkit.Value(bufio.NewReader(conn).ReadString('\n'))(t), "250 done\r\n")
	testkit.IsError(t, "Serve", r.end(t), nil)
}

func TestStopTimeoutClosesSessions(t *testing.T) {
	r := start(t, Settings{StopTimeout: 20 * time.Millisecond}, func(_ context.Context, conn net.Conn, _ netip.AddrPort) {
		io.WriteString(conn, "220 x\r\n")
		io.Copy(io.Discard, conn) // deaf to ctx
	}, (&peer{}).embedded())
	conn, _ := r.dial(t)
	testkit.IsError(t, "Serve", r.end(t), nil)
	if _, err := conn.Read(make([]byte, 1)); err == nil {
		t.Error("the session is still open")
	}
}

// flaky is a listener without file descriptors for its first calls, and closed then.
type flaky struct {
	net.Listener
	fails int
}

func (f *flaky) Accept() (net.Conn, error) {
	if f.fails--; f.fails >= 0 {
		return nil, &net.OpError{Op: "accept", Err: syscall.EMFILE}
	}
	return nil, net.ErrClosed
}

// How long each pause is: internal/listener.
func TestAcceptErrorsAreWaitedOut(t *testing.T) {
	f := &flaky{testkit.Listen(t), 3}
	s := New(Settings{}, (&peer{}).embedded(), prometheus.NewRegistry(), slog.New(slog.DiscardHandler))
	if err := s.Serve(t.Context(), echo, f); !errors.Is(err, net.ErrClosed) || f.fails != -1 {
		t.Errorf("Serve: %v, %d calls left, want the listener's last error", err, f.fails+1)
	}
}

func TestOwnListenerIsNoUpstream(t *testing.T) {
	l := testkit.Listen(t)
	up := upstream.New(upstream.Settings{Network: "tcp", Address: l.Addr().String()})
	s := New(Settings{}, up, prometheus.NewRegistry(), slog.New(slog.DiscardHandler))
	testkit.IsError(t, "Serve", s.Serve(t.Context(), echo, l), upstream.ErrOwnListener)
	testkit.Fails(l.Accept())(t, "Accept", net.ErrClosed)
	if err := s.Serve(t.Context(), echo); err == nil || errors.Is(err, upstream.ErrOwnListener) {
		t.Errorf("second Serve: %v, want an error of its own", err)
	}
}

// Whatever comes and goes, the counts are those of a plain model, and end at zero.
func TestClientsAgreeWithAModel(t *testing.T) {
	ips := []netip.Addr{{}, netip.MustParseAddr("192.0.2.1"), netip.MustParseAddr("192.0.2.2"),
		netip.MustParseAddr("2001:db8::1"), netip.MustParseAddr("2001:db8::2"), netip.MustParseAddr("2001:db8:0:1::1")}
	same := map[netip.Addr]string{ips[0]: "", ips[1]: "a", ips[2]: "b", ips[3]: "c", ips[4]: "c", ips[5]: "d"}
	c := newClients(7, 3, 0)
	var inside []netip.Addr
	for i := range 100_000 {
		x := uint32(i) * 2654435761 >> 8
		if ip := ips[x%uint32(len(ips))]; x%3 > 0 || len(inside) == 0 {
			want, n := admitted, 0
			for _, in := range inside {
				if same[in] == same[ip] && same[ip] != "" {
					n++
				}
			}
			if n >= 3 {
				want = overClient
			}
			if len(inside) >= 7 {
				want = overTotal
			}
			testkit.MustEqual(t, fmt.Sprintf("step %d: enter(%s)", i, ip), c.enter(ip), want)
			if want == admitted {
				inside = append(inside, ip)
			}
		} else {
			j := int(x) % len(inside)
			c.leave(inside[j])
			inside = append(inside[:j], inside[j+1:]...)
		}
		testkit.MustEqual(t, fmt.Sprintf("step %d: open()", i), c.open(), len(inside))
	}
	for _, ip := range inside {
		c.leave(ip)
	}
	testkit.Equal(t, "all have left: open, clients", fmt.Sprint(c.open(), " ", len(c.each)), "0 0")
}

func TestRateOfNewConnections(t *testing.T) {
	a, b := netip.MustParsePrefix("192.0.2.1/32"), netip.MustParsePrefix("192.0.2.2/32")
	r := newRates(4)
	now := time.Unix(1e9, 0)
	steps := []struct {
		name   string
		after  time.Duration
		client netip.Prefix
		want   bool
	}{
		{"a minute's number at once", 0, a, true}, {"second", 0, a, true}, {"third", 0, a, true}, {"fourth", 0, a, true},
		{"fifth", 0, a, false},
		{"another client", 0, b, true},
		{"before the next is due", 14 * time.Second, a, false},
		{"when it is due", time.Second, a, true},
		{"and no more", 0, a, false},
		{"one refused has not counted", 15 * time.Second, a, true},
		{"after a long while all again", time.Hour, a, true}, {"second again", 0, a, true}, {"third again", 0, a, true},
		{"fourth again", 0, a, true}, {"fifth again", 0, a, false},
	}
	for _, s := range steps {
		now = now.Add(s.after)
		testkit.MustEqual(t, fmt.Sprintf("%s: allowed", s.name), r.allow(s.client, now), s.want)
	}
	if off := newRates(0); !off.allow(a, now) || off.due != nil {
		t.Error("no rate: refused, or remembered")
	}
}

// Whoever has a /32 of IPv6 comes from a new /64 each time. That must neither
// grow the table nor make blockd forget a client that is over its rate.
func TestRatesAreBounded(t *testing.T) {
	r := newRates(10)
	r.most = 1000
	now := time.Unix(1e9, 0)
	loud := netip.MustParsePrefix("192.0.2.1/32")
	for range 10 {
		r.allow(loud, now)
	}
	for i := range uint32(50_000) {
		var ip [16]byte
		copy(ip[:], []byte{0x20, 0x01, 0x0d, 0xb8})
		binary.BigEndian.PutUint32(ip[4:], i)
		if !r.allow(netip.PrefixFrom(netip.AddrFrom16(ip), 64), now) {
			t.Fatal("a client's first connection is refused")
		}
		if i%1000 == 0 && r.allow(loud, now) {
			t.Fatalf("after %d others a client is forgotten that is over its rate", i)
		}
	}
	if len(r.due) > r.most {
		t.Errorf("%d clients are remembered, want at most %d", len(r.due), r.most)
	}
}

// The rate agrees with a plain list of times: never more than the number in any
// minute begun by a burst, and never fewer than one each distance.
func TestRateNeverRefusesWhoKeepsTheDistance(t *testing.T) {
	client := netip.MustParsePrefix("192.0.2.1/32")
	for _, perMinute := range []int{1, 7, 60, 1000} {
		r := newRates(perMinute)
		now := time.Unix(1e9, 0)
		for i := range 10 * perMinute {
			if !r.allow(client, now) {
				t.Fatalf("%d a minute: connection %d refused", perMinute, i)
			}
			now = now.Add(time.Minute/time.Duration(perMinute) + 1)
		}
		allowed := 0
		for range 3 * perMinute {
			if r.allow(client, now) {
				allowed++
			}
		}
		if allowed > perMinute {
			t.Errorf("%d a minute: %d at once", perMinute, allowed)
		}
	}
}

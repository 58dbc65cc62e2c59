package dnsbl

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/miekg/dns"
	"golang.org/x/net/ipv4"

	"blockd/internal/testkit"
)

func exchange(t testing.TB, network, address, name string, qtype uint16) *dns.Msg {
	t.Helper()
	q := new(dns.Msg)
	q.SetQuestion(dns.Fqdn(name), qtype)
	c := dns.Client{Net: network, Timeout: time.Minute}
	m, _, err := c.Exchange(q, address)
	if err != nil {
		t.Fatalf("%s %s: %v", network, name, err)
	}
	return m
}

func TestServe(t *testing.T) {
	for _, host := range []string{"127.0.0.1", "::1"} {
		r := newRig(t, nil)
		address, stop := r.serve(host)
		for _, network := range []string{"udp", "tcp"} {
			testkit.Equal(t, fmt.Sprintf("%s %s", network, host), shown(exchange(t, network, address, "bulk.example.dbl.here.example", dns.TypeA)), "NOERROR 127.0.0.2")
		}
		stop()
		testkit.Fails(net.Dial("tcp", address))(t, "behind the end", syscall.ECONNREFUSED)
	}
}

// A client takes an answer only from the address that it has asked. A connected socket is
// such a client.
func TestAnswersComeFromTheAddressThatWasAsked(t *testing.T) {
	for _, row := range []struct{ listen, ask string }{{"0.0.0.0", "127.0.0.9"}, {"::", "127.0.0.9"}, {"::", "::1"}} {
		r := newRig(t, nil)
		address, _ := r.serve(row.listen)
		_, port, err := net.SplitHostPort(address)
		testkit.Must(t, err)
		testkit.Equal(t, fmt.Sprintf("%+v", row), shown(exchange(t, "udp", net.JoinHostPort(row.ask, port), "bulk.example.dbl.here.example", dns.TypeA)), "NOERROR 127.0.0.2")
	}
}

// dial opens a connection whose reads and writes end in a minute.
func dial(t testing.TB, address string) *dns.Conn {
	t.Helper()
	c := testkit.Value(net.Dial("tcp", address))(t)
	t.Cleanup(func() { c.Close() })
	c.SetDeadline(time.Now().Add(time.Minute))
	return &dns.Conn{Conn: c}
}

// framed is a question as TCP has it.
func framed(t testing.TB, name string, id uint16) []byte {
	t.Helper()
	q := new(dns.Msg)
	q.SetQuestion(name, dns.TypeA)
	q.Id = id
	packed := pack(t, q)
	return append([]byte{byte(len(packed) >> 8), byte(len(packed))}, packed...)
}

// brokenConn is a connection whose use meets a defect.
type brokenConn struct{ net.Conn }

func (brokenConn) Read([]byte) (int, error)        { panic("no connection") }
func (brokenConn) SetReadDeadline(time.Time) error { return nil }
func (brokenConn) Close() error                    { return nil }

// A defect in a session ends it alone, and is counted.
func TestDefectEndsASession(t *testing.T) {
	r := newRig(t, nil)
	c := &session{worker: *r.worker(), conn: brokenConn{}, in: bufio.NewReader(brokenConn{})}
	c.serve()
	got := r.count("blockd_dnsbl_connections_closed_total", "defect")
	testkit.Got(got, r.log.String())(t, "count", 1, "…dns panicked…")
}

// Queries that come at once, or octet by octet, are answered in their order.
func TestPipelining(t *testing.T) {
	r := newRig(t, nil)
	address, _ := r.serve("127.0.0.1")
	c, all := dial(t, address), []byte(nil)
	const n = 500
	for id := range uint16(n) {
		all = append(all, framed(t, "bulk.example.dbl.here.example.", id)...)
	}
	go func() {
		for _, b := range all[:100] {
			c.Conn.Write([]byte{b})
		}
		c.Conn.Write(all[100:])
	}()
	for id := range uint16(n) {
		m, err := c.ReadMsg()
		if err != nil || m.Id != id || shown(m) != "NOERROR 127.0.0.2" {
			t.Fatalf("answer %d: %v, %v", id, m, err)
		}
	}
}

// wantEnd reads until the other side has closed.
func wantEnd(t testing.TB, c *dns.Conn) {
	t.Helper()
	if _, err := io.Copy(io.Discard, c.Conn); err != nil && !errors.Is(err, syscall.ECONNRESET) {
		t.Fatalf("the connection stays open: %v", err)
	}
}

// A fault ends a connection, after the answers to what came before it.
func TestTCPFaults(t *testing.T) {
	r := newRig(t, nil)
	address, _ := r.serve("127.0.0.1")
	for name, fault := range map[string][]byte{
		"too long":  {0xff, 0xff},
		"an answer": append([]byte{0, 12}, 0, 1, 0x80, 0, 0, 0, 0, 0, 0, 0, 0, 0),
		"too short": {0, 3, 1, 2, 3},
		"empty":     {0, 0},
		"cut":       {0},
	} {
		c := dial(t, address)
		if name != "cut" {
			c.Conn.Write(fault)
			wantEnd(t, c)
			c = dial(t, address)
		}
		c.Conn.Write(append(framed(t, "bulk.example.dbl.here.example.", 7), fault...))
		testkit.Must(t, c.Conn.(*net.TCPConn).CloseWrite())
		if m, err := c.ReadMsg(); err != nil || m.Id != 7 || shown(m) != "NOERROR 127.0.0.2" {
			t.Errorf("%s: %v, %v", name, m, err)
		}
		wantEnd(t, c)
	}
	r.counts(2, "blockd_dnsbl_connections_closed_total", "too-long")
	testkit.Eventually(t, "the connections to be gone", func() bool { return r.server.Connections() == 0 })
}

// Connections beyond the limits are closed at once, and the others go on.
func TestTCPLimits(t *testing.T) {
	r := newRig(t, func(r *rig) { r.settings.MaxConnections = 4 })
	address, _ := r.serve("127.0.0.1")
	first, second := dial(t, address), dial(t, address)
	testkit.Eventually(t, "two connections", func() bool { return r.server.Connections() == 2 })
	wantEnd(t, dial(t, address))
	r.counts(1, "blockd_dnsbl_connections_closed_total", "client")
	for _, c := range []*dns.Conn{first, second} {
		c.Conn.Write(framed(t, "bulk.example.dbl.here.example.", 1))
		if m, err := c.ReadMsg(); err != nil || shown(m) != "NOERROR 127.0.0.2" {
			t.Errorf("%v, %v", m, err)
		}
	}

	closed := newRig(t, func(r *rig) { r.settings.AllowFrom = []netip.Prefix{netip.MustParsePrefix("192.0.2.0/24")} })
	address, _ = closed.serve("127.0.0.1")
	wantEnd(t, dial(t, address))
	testkit.Equal(t, "a client that may not ask reads", shown(exchange(t, "udp", address, "bulk.example.dbl.here.example", dns.TypeA)), "REFUSED")
}

// An idle client loses its place, and so does one that sends a query slowly.
func TestIdleAndSlowClients(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, nil)
		for _, row := range []struct {
			sent []byte
			ends time.Duration
		}{{nil, idleTime}, {framed(t, "bulk.example.dbl.here.example.", 1)[:20], queryTime}} {
			client, server := net.Pipe()
			c := &session{worker: worker{Server: r.server}, conn: server, in: bufio.NewReaderSize(server, 512)}
			began, ended := time.Now(), make(chan time.Duration)
			go func() {
				c.serve()
				ended <- time.Since(began)
			}()
			if row.sent != nil {
				client.Write(row.sent)
			}
			testkit.Equal(t, fmt.Sprintf("%d octets: ended after", len(row.sent)), <-ended, row.ends)
		}
	})
}

// At a stop what has come is answered: by UDP, and on a connection that has a query on its way.
func TestStopAnswersWhatHasCome(t *testing.T) {
	r := newRig(t, nil)
	l, p := listen(t, "127.0.0.1")
	c := dial(t, l.Addr().String())
	u := testkit.Value(net.Dial("udp", l.Addr().String()))(t)
	defer u.Close()
	u.SetDeadline(time.Now().Add(time.Minute))
	const n = 100 // fit into the smallest buffer of a socket
	for id := range uint16(n) {
		testkit.Value(u.Write(framed(t, "bulk.example.dbl.here.example.", id)[2:]))(t)
	}
	testkit.Value(c.Conn.Write(framed(t, "bulk.example.dbl.here.example.", 7)))(t)
	stop := testkit.Running(t, func(ctx context.Context) {
		testkit.Should(t, r.server.Serve(ctx, []net.PacketConn{p}, []net.Listener{l}))
	})
	testkit.Equal(t, "by TCP", testkit.Value(c.ReadMsg())(t).Id, 7)
	stop()
	wantEnd(t, c)
	for id := range uint16(n) {
		m := testkit.Value((&dns.Conn{Conn: u}).ReadMsg())(t)
		testkit.MustEqual(t, "answer", m.Id, id)
	}
}

// None of many questions is lost while lists are swapped.
func TestSwapLosesNothing(t *testing.T) {
	r := newRig(t, nil)
	address, _ := r.serve("127.0.0.1")
	before := r.live.Load()
	r.load(testLists)
	after := r.live.Load()
	stop, swapped := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(swapped)
		for {
			select {
			case <-stop:
				return
			default:
				r.live.Store(before)
				r.live.Store(after)
			}
		}
	}()
	for range 500 {
		testkit.MustEqual(t, "by DNS", shown(exchange(t, "udp", address, "bulk.example.dbl.here.example", dns.TypeA)), "NOERROR 127.0.0.2")
	}
	close(stop)
	<-swapped
}

// A broken answer costs that client alone.
func TestSocketGoesOnAfterAnAnswerThatCannotBeSent(t *testing.T) {
	r := newRig(t, nil)
	l, p := listen(t, "127.0.0.1")
	l.Close()
	defer p.Close()
	u := testkit.Value(net.ListenPacket("udp", "127.0.0.1:0"))(t)
	defer u.Close()
	s := testkit.Value(newSocket(p.(*net.UDPConn)))(t)
	reader := r.server.newReader(s)
	octets := [][]byte{[]byte("one")}
	there, nowhere := u.LocalAddr(), &net.UDPAddr{IP: net.IPv4(127, 0, 0, 1), Port: 0}
	reader.send([]ipv4.Message{{Buffers: octets, Addr: nowhere}, {Buffers: octets, Addr: there}, {Buffers: octets, Addr: nowhere}, {Buffers: octets, Addr: there}})
	u.SetReadDeadline(time.Now().Add(time.Minute))
	for range 2 {
		testkit.MustGot(u.ReadFrom(make([]byte, 10)))(t, "given", "…", "…", nil)
	}
	r.counts(2, "blockd_dnsbl_dropped_total", "unsent")
}

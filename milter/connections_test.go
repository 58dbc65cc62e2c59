package milter_test

import (
	"encoding/binary"
	"fmt"
	"io"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	"blockd/internal/testkit"
	"blockd/milter"
	"blockd/policy"
	"blockd/policy/rule"
	"blockd/policy/verdict"
)

// Each of these packets ended the process, or filled its memory, with the bare library. Here
// it costs its own connection, and the daemon goes on filtering.
func TestPacketsThatKill(t *testing.T) {
	negotiated := packet('O', "\x00\x00\x00\x06\x00\x00\x01\xff\x00\x1f\xff\xff")
	long := func(command byte, n int) []byte {
		return append(binary.BigEndian.AppendUint32(nil, uint32(n)), command)
	}
	tests := []struct {
		name   string
		first  bool // before the negotiation
		octets []byte
	}{
		{"four zero octets", true, make([]byte, 4)},
		{"four zero octets behind the negotiation", false, make([]byte, 4)},
		{"512 MiB announced", true, long('O', 512<<20)},
		{"512 MiB announced behind the negotiation", false, long('B', 512<<20)},
		{"4 GiB announced", false, long('B', 1<<32-1)},
		{"1 MiB and an octet", false, long('B', 1<<20+1)},
		{"more than 4 KiB in front of the negotiation", true, long('O', 4<<10+1)},
		{"a recipient of 64 KiB", false, long('R', 64<<10+1)},
		{"no negotiation at all", true, packet('M', "<a@b.example>\x00")},
		{"negotiation of two octets", true, packet('O', "\x00\x06")},
		{"connect without a NUL", false, packet('C', "localhost")},
		{"connect without a family", false, packet('C', "localhost\x00")},
		{"connect without anything", false, packet('C', "")},
		{"sender without a NUL", false, packet('M', "<a@b.example>")},
		{"sender of nothing", false, packet('M', "")},
		{"recipient without a NUL", false, packet('R', "<a@b.example>")},
		{"a command that there is none of", false, packet('z', "")},
		{"command zero", false, packet(0, "")},
		{"a thousand macros", false, packet('D', "M"+strings.Repeat("a\x00", 1000))},
		{"SMTP", true, []byte("EHLO client.there.example\r\n")},
		{"HTTP", true, []byte("GET / HTTP/1.1\r\nHost: a\r\n\r\n")},
		{"TLS", true, []byte("\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03")},
	}
	d := open(t, setup{lists: map[string]string{"bad": "bad.example\n"}})
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			m := d.dial()
			m.t = t
			if !tt.first {
				m.conn.Write(negotiated)
				if command, _, ok := m.receive(); !ok || command != 'O' {
					t.Fatalf("negotiation answered by %q", command)
				}
			}
			before := d.metric("blockd_milter_bad_packets_total", "form")
			m.conn.Write(tt.octets)
			if !m.closed() {
				t.Error("the connection is still open")
			}
			testkit.Equal(t, "bad packets", d.metric("blockd_milter_bad_packets_total", "form"), before+1)
			ordinary := d.greet("192.0.2.1")
			ordinary.t = t
			ordinary.mail("a@bad.example", "a@bad.example")
			ordinary.refuses("a filter run behind it")
		})
	}
}

// If the library closes a connection, that costs no more either: a second negotiation, a text
// that is no address, a field of one text.
func TestEventsThatClose(t *testing.T) {
	d := open(t, setup{lists: map[string]string{"bad": "bad.example\n"}})
	for name, octets := range map[string][]byte{
		"second negotiation":     packet('O', "\x00\x00\x00\x06\x00\x00\x01\xff\x00\x1f\xff\xff"),
		"unknown family":         packet('C', "a\x00Z"),
		"address without a port": packet('C', "a\x004"),
		"field of one text":      packet('L', "Subject\x00"),
		"empty greeting":         packet('H', ""),
		"macros of no stage":     packet('D', ""),
	} {
		m := d.dial()
		m.negotiate(6, offeredActions, offeredProtocol)
		m.conn.Write(octets)
		if !m.closed() {
			t.Errorf("%s: the connection is still open", name)
		}
	}
	testkit.Equal(t, "panics", d.metric("blockd_milter_panics_total"), 0)
}

// What mail servers offer, and what is agreed. Every offer gets an answer, and nothing is
// requested that was not offered.
func TestNegotiation(t *testing.T) {
	const noBody, noHeaders, noEOH, noUnknown, noData, noConnReply, noHeloReply = 1 << 4, 1 << 5, 1 << 6, 1 << 8, 1 << 9, 1 << 12, 1 << 13
	const all = noBody | noHeaders | noEOH | noUnknown | noData | noConnReply | noHeloReply
	tests := []struct {
		name                                   string
		version, actions, protocol             uint32
		wantVersion, wantActions, wantProtocol uint32
		macros                                 bool
	}{
		{"Postfix", 6, 0x1ff, 0x1fffff, 6, 1 << 8, all, true},
		{"version 7", 7, 0x1ff, 0x1fffff, 6, 1 << 8, all, true},
		{"a version of a later century", 1 << 31, 0x1ff, 0x1fffff, 6, 1 << 8, all, true},
		{"version 2", 2, 0x3f, 0x7f, 2, 0, noBody | noHeaders | noEOH, false},
		{"no lists of macros", 6, 0xff, 0x1fffff, 6, 0, all, false},
		{"nothing at all", 6, 0, 0, 6, 0, 0, false},
		{"internal bits", 6, 0x1ff, 0xffffffff, 6, 1 << 8, all, true},
	}
	d := open(t, setup{lists: map[string]string{"bad": "bad.example\n"}})
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			m := d.dial()
			m.t = t
			m.negotiate(tt.version, tt.actions, tt.protocol)
			if m.version != tt.wantVersion || m.actions != tt.wantActions || m.protocol != tt.wantProtocol {
				t.Errorf("agreed on version %d, actions %#x, protocol %#x, want %d, %#x, %#x",
					m.version, m.actions, m.protocol, tt.wantVersion, tt.wantActions, tt.wantProtocol)
			}
			testkit.Equal(t, fmt.Sprintf("macros asked for: %q", m.macros), strings.Contains(m.macros, "{mail_addr}"), tt.macros)
			m.connect("192.0.2.1")
			m.event('H', "client.there.example\x00")
			m.mail("a@bad.example", "a@bad.example")
			m.refuses("RCPT")
			if _, got := m.end("From: a@bad.example"); got != "a" {
				t.Errorf("end of message: %q", got)
			}
		})
	}
	t.Run("version 1", func(t *testing.T) {
		m := d.dial()
		m.send('O', "\x00\x00\x00\x01\x00\x00\x01\xff\x00\x1f\xff\xff")
		if !m.closed() {
			t.Error("the connection is still open")
		}
	})
}

// Peers of other networks are refused; peers on a Unix socket are admitted.
func TestWhoMayConnect(t *testing.T) {
	t.Run("another network", func(t *testing.T) {
		d := open(t, setup{settings: milter.Settings{AllowFrom: []netip.Prefix{netip.MustParsePrefix("192.0.2.0/24")}}})
		if m := d.dial(); !m.closed() {
			t.Error("the connection is open")
		}
		testkit.Eventually(t, "the count", func() bool { return d.metric("blockd_milter_connections_refused_total", "network") == 1 })
	})
	t.Run("Unix socket", func(t *testing.T) {
		d := open(t, setup{unix: true, lists: map[string]string{"bad": "bad.example\n"},
			settings: milter.Settings{AllowFrom: []netip.Prefix{}}})
		m := d.greet("192.0.2.1")
		m.mail("a@bad.example", "a@bad.example")
		m.refuses("RCPT")
	})
}

// Two thousand peers connect. As many as the settings allow are served, and the others are
// closed; afterwards new ones are admitted again. A silent connection keeps less than 16 KiB.
func TestTwoThousandConnections(t *testing.T) {
	d := open(t, setup{lists: map[string]string{"bad": "bad.example\n"}})
	before := memory()
	var all []*mta
	for range 1024 {
		m := d.dial()
		m.negotiate(6, offeredActions, offeredProtocol)
		m.connect("192.0.2.1")
		all = append(all, m)
	}
	each := (memory() - before) / 1024
	t.Logf("%d octets of memory a connection, both ends of it", each)
	if each > 32<<10 {
		t.Errorf("%d octets a connection, want at most 16 KiB at our end", each)
	}
	for range 976 {
		if m := d.dial(); !m.closed() {
			t.Fatal("one connection too many is served")
		}
	}
	testkit.Equal(t, "refused", d.metric("blockd_milter_connections_refused_total", "total"), 976)
	var wg sync.WaitGroup
	for _, m := range all {
		wg.Go(func() {
			m.mail("a@bad.example", "a@bad.example")
			m.refuses("RCPT")
			m.send('Q', "")
			m.conn.Close()
		})
	}
	wg.Wait()
	testkit.Eventually(t, "all connections to end", func() bool { return d.server.Connections() == 0 })
	testkit.Equal(t, "MAIL afterwards", d.greet("192.0.2.1").mail("a@there.example", "a@there.example"), "a")
}

// memory returns the size of the heap and the stacks.
func memory() int {
	runtime.GC()
	var s runtime.MemStats
	runtime.ReadMemStats(&s)
	return int(s.HeapInuse + s.StackInuse)
}

// A peer that does not finish its packet in time is closed, and so is a silent one.
func TestSlowPeers(t *testing.T) {
	t.Run("says nothing", func(t *testing.T) {
		d := open(t, setup{settings: milter.Settings{FirstTimeout: 200 * time.Millisecond}})
		if m := d.dial(); !m.closed() {
			t.Error("still open")
		}
	})
	t.Run("says nothing more", func(t *testing.T) {
		d := open(t, setup{settings: milter.Settings{IdleTimeout: 5 * time.Second}}) // time to say what it says
		m := d.greet("192.0.2.1")
		if !m.closed() {
			t.Error("still open")
		}
	})
	t.Run("one octet and again one", func(t *testing.T) {
		d := open(t, setup{settings: milter.Settings{PacketTimeout: 200 * time.Millisecond}})
		m := d.greet("192.0.2.1")
		done := make(chan struct{})
		go func() { // all of them would take ten seconds
			defer close(done)
			tick := time.NewTicker(50 * time.Millisecond)
			defer tick.Stop()
			for _, b := range packet('M', strings.Repeat("x", 200)+"\x00") {
				if _, err := m.conn.Write([]byte{b}); err != nil {
					return
				}
				<-tick.C
			}
			t.Error("the whole packet was read")
		}()
		if !m.closed() {
			t.Error("still open")
		}
		<-done
		testkit.Equal(t, "slow", d.metric("blockd_milter_bad_packets_total", "slow"), 1)
	})
	t.Run("ends within a packet", func(t *testing.T) {
		d := open(t, setup{})
		m := d.greet("192.0.2.1")
		m.conn.Write([]byte{0, 0})
		m.conn.Close()
		testkit.Eventually(t, "the count", func() bool { return d.metric("blockd_milter_bad_packets_total", "torn") == 1 })
	})
}

// The Unix socket is removed with the server.
func TestUnixSocketIsRemoved(t *testing.T) {
	d := open(t, setup{unix: true})
	d.stop()
	testkit.Must(t, <-d.ended)
	d.ended <- nil
	if _, err := os.Stat(filepath.Clean(d.address)); !os.IsNotExist(err) {
		t.Errorf("the socket is still there: %v", err)
	}
}

// An Accept that fails for a while is waited out.
func TestAcceptErrorsPass(t *testing.T) {
	inner := testkit.Listen(t)
	d := open(t, setup{lists: map[string]string{"bad": "bad.example\n"}, listener: &failing{Listener: inner, times: 5}})
	testkit.Equal(t, "MAIL", d.greet("192.0.2.1").mail("a@there.example", "a@there.example"), "a")
	testkit.Equal(t, "accept errors", d.metric("blockd_milter_accept_errors_total"), 5)
}

// failing is a listener that lacks file descriptors for a while.
type failing struct {
	net.Listener
	times int
}

func (l *failing) Accept() (net.Conn, error) {
	if l.times > 0 {
		l.times--
		return nil, io.ErrNoProgress
	}
	return l.Listener.Accept()
}

// Which macros are asked for, by what the configuration needs: each stage's number and names, as
// libmilter writes them.
func TestMacrosByNeed(t *testing.T) {
	const (
		connect  = "\x00\x00\x00\x00j {client_addr}\x00"
		rcpt     = "\x00\x00\x00\x03{rcpt_addr}\x00"
		plain    = connect + "\x00\x00\x00\x02i {mail_addr}\x00" + rcpt
		andLogin = connect + "\x00\x00\x00\x02i {auth_authen} {mail_addr}\x00" + rcpt
	)
	requires := func(p verdict.Proof) map[string]rule.List { return map[string]rule.List{"allow": {Require: p}} }
	for name, tt := range map[string]struct {
		skip  bool
		rules map[string]rule.List
		want  string
	}{
		"who has logged in is asked as everybody": {false, nil, plain},
		"who has logged in is spared":             {true, nil, andLogin},
		"an exception requires auth":              {false, requires(verdict.AuthProof), andLogin},
		"an exception requires auth or spf":       {false, requires(verdict.AuthProof | verdict.SPFProof), andLogin},
		"an exception requires a network":         {false, requires(verdict.ClientProof), plain},
	} {
		t.Run(name, func(t *testing.T) {
			d := open(t, setup{lists: map[string]string{"bad": "bad.example\n", "allow": "bad.example\n"}, rules: tt.rules,
				settings: milter.Settings{SkipAuthenticated: tt.skip}})
			testkit.Equal(t, "macros asked for", d.greet("192.0.2.1").macros, tt.want)
		})
	}
}

// A configuration that changes asks for its macros on the connections that begin from then on.
func TestMacrosAfterAReload(t *testing.T) {
	lists := map[string]string{"bad": "bad.example\n", "allow": "bad.example\n"}
	d := open(t, setup{lists: lists, rules: map[string]rule.List{"allow": {Require: verdict.ClientProof}}})
	before := d.greet("192.0.2.1")
	d.checker.Renew(policy.Settings{Lists: map[string]rule.List{"allow": {Require: verdict.AuthProof}}})
	testkit.Equal(t, "MAIL on the connection from before", before.mail("a@bad.example", "a@bad.example"), "c")
	before.refuses("RCPT on the connection from before")
	after := d.greet("192.0.2.1")
	if after.macros == before.macros {
		t.Errorf("both connections were asked for %q", after.macros)
	}
	after.mail("a@bad.example", "a@bad.example", "{auth_authen}", "ann")
	testkit.Equal(t, "RCPT of who has logged in", after.rcpt("bob@here.example"), "c")
}

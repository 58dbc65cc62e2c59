package upstream

import (
	"context"
	"errors"
	"io"
	"net"
	"net/netip"
	"strings"
	"testing"

	"blockd/internal/testkit"
)

func TestSelfTest(t *testing.T) {
	hello := script{"S: 220 hi", "C: EHLO us.example", "S: 250 them", "C: MAIL FROM:<>"}
	rcpt := "C: RCPT TO:<blockd-selftest@selftest.invalid>"
	end := script{"C: RSET", "S: 250 ok", "C: QUIT", "S: 221 bye", "close"}
	join := func(parts ...script) (all script) {
		for _, p := range parts {
			all = append(all, p...)
		}
		return all
	}
	inconclusive := errors.New("any other")
	undecided := errors.New("undecided")
	tests := []struct {
		name   string
		script script
		want   error
	}{
		{"relaying denied", join(hello, script{"S: 250 ok", rcpt, "S: 554 relay access denied"}, end), nil},
		{"relaying denied for now, as Postfix does it", join(hello, script{"S: 250 ok", rcpt, "S: 454 4.7.1 relay access denied"}, end), nil},
		{"recipient put off by greylisting", join(hello, script{"S: 250 ok", rcpt, "S: 451 4.7.1 come again"}, end), undecided},
		{"recipient's domain unknown just now", join(hello, script{"S: 250 ok", rcpt, "S: 450 4.1.2 domain not found"}, end), undecided},
		{"recipient's domain unknown", join(hello, script{"S: 250 ok", rcpt, "S: 550 5.1.2 domain not found"}, end), undecided},
		{"client refused", join(hello, script{"S: 250 ok", rcpt, "S: 554 5.7.1 Client host rejected: Access denied"}, end), undecided},
		{"recipient taken", join(hello, script{"S: 250 ok", rcpt, "S: 250 ok"}, end), ErrOpenRelay},
		{"recipient to be forwarded", join(hello, script{"S: 250 ok", rcpt, "S: 251 will forward"}, end), ErrOpenRelay},
		{"sender refused", join(hello, script{"S: 550 5.7.1 no", "close"}), undecided},
		{"sender deferred", join(hello, script{"S: 451 later", "close"}), undecided},
		{"upstream gives up at the sender", join(hello, script{"S: 421 bye", "close"}), inconclusive},
		{"client refused for good as it connects", script{"S: 554 no", "close"}, undecided},
		{"client refused for now as it connects", script{"S: 450 4.7.1 Client host rejected: cannot find your hostname", "close"}, undecided},
		{"upstream gives up at the recipient", join(hello, script{"S: 250 ok", rcpt, "S: 421 bye", "close"}), inconclusive},
		{"upstream lost at the recipient", join(hello, script{"S: 250 ok", rcpt, "close"}), inconclusive},
		{"taken, and upstream lost", join(hello, script{"S: 250 ok", rcpt, "S: 250 ok", "close"}), ErrOpenRelay},
		{"upstream is busy", script{"S: 451 4.3.2 busy", "close"}, inconclusive},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			d := New(Settings{Network: "tcp", Address: tt.script.listen(t), Hostname: "us.example"})
			if !d.CanRelay() {
				t.Error("CanRelay() = false for an SMTP server")
			}
			d.RequireSelfTest()
			testkit.Fails(d.Open(t.Context(), client))(t, "Open before the test", ErrUntested)
			err := d.SelfTest(t.Context())
			gate := *d.gate.Load()
			switch {
			case tt.want == inconclusive:
				if err == nil || errors.Is(err, ErrOpenRelay) || gate != ErrUntested {
					t.Errorf("SelfTest: %v, then Open gives %v, want no verdict", err, gate)
				}
			case tt.want == undecided:
				if !errors.Is(err, ErrUndecided) || gate != nil {
					t.Errorf("SelfTest: %v, then Open gives %v, want ErrUndecided and a session", err, gate)
				}
			case err != tt.want || gate != tt.want:
				t.Errorf("SelfTest: %v, then Open gives %v, want %v", err, gate, tt.want)
			}
		})
	}
}

func TestSelfTestPresentsADocumentationAddress(t *testing.T) {
	s := script{"S: 220 hi", "C: EHLO us.example", "S: 250-them", "S: 250 XCLIENT NAME ADDR PROTO HELO PORT",
		"C: XCLIENT NAME=[UNAVAILABLE] PORT=25 PROTO=ESMTP HELO=[203.0.113.9] ADDR=203.0.113.9",
		"S: 220 again", "C: EHLO [203.0.113.9]", "S: 250 them", "C: MAIL FROM:<>", "S: 250 ok",
		"C: RCPT TO:<blockd-selftest@selftest.invalid>", "S: 550 5.7.1 no", "C: RSET", "S: 250 ok", "C: QUIT", "S: 221 bye", "close"}
	d := New(Settings{Network: "tcp", Address: s.listen(t), Hostname: "us.example", ClientInfo: ClientInfoXCLIENT})
	testkit.Should(t, d.SelfTest(t.Context()))
}

// An open relay that starts to greylist is still one.
func TestUndecidedDoesNotUndoAnOpenRelay(t *testing.T) {
	hello := script{"S: 220 hi", "C: EHLO us.example", "S: 250 them", "C: MAIL FROM:<>", "S: 250 ok",
		"C: RCPT TO:<blockd-selftest@selftest.invalid>", "S: 451 come again", "C: RSET", "S: 250 ok", "C: QUIT", "S: 221 bye", "close"}
	d := New(Settings{Network: "tcp", Address: hello.listen(t), Hostname: "us.example"})
	d.setGate(ErrOpenRelay)
	testkit.IsError(t, "SelfTest", d.SelfTest(t.Context()), ErrUndecided)
	testkit.Fails(d.Open(t.Context(), client))(t, "Open", ErrOpenRelay)
}

// A name that comes to mean our own address closes the way, and another address
// opens it again.
func TestOwnListenerClosesTheWay(t *testing.T) {
	s := script{"S: 220 hi", "C: EHLO us.example", "S: 250 them"}
	d := New(Settings{Network: "tcp", Address: s.listen(t), Hostname: "us.example"})
	own := net.TCPAddrFromAddrPort(netip.MustParseAddrPort(d.set.Address))
	if err := d.CheckListeners(t.Context(), []net.Addr{own}); !errors.Is(err, ErrOwnListener) {
		t.Fatalf("CheckListeners: %v, want ErrOwnListener", err)
	}
	testkit.Fails(d.Open(t.Context(), client))(t, "Open", ErrOwnListener)
	testkit.Must(t, d.CheckListeners(t.Context(), nil))
	conn, err := d.Open(t.Context(), client)
	if err != nil {
		t.Fatalf("Open: %v, want a session again", err)
	}
	conn.Close()
}

// Without RequireSelfTest nothing is closed, and an answer changes nothing.
func TestSelfTestWithoutConsequence(t *testing.T) {
	s := script{"S: 220 hi", "C: EHLO us.example", "S: 250 them", "C: MAIL FROM:<>", "S: 250 ok",
		"C: RCPT TO:<blockd-selftest@selftest.invalid>", "S: 250 ok", "C: RSET", "S: 250 ok", "C: QUIT", "S: 221 bye", "close"}
	d := New(Settings{Network: "tcp", Address: s.listen(t), Hostname: "us.example"})
	testkit.IsError(t, "SelfTest", d.SelfTest(t.Context()), ErrOpenRelay)
	if d.gate.Load() != nil {
		t.Error("Open is closed by a test that nobody required")
	}
}

func TestCanRelay(t *testing.T) {
	dial := func(context.Context) (net.Conn, error) { return nil, nil }
	for _, tt := range []struct {
		s    Settings
		want bool
	}{
		{Settings{Network: "tcp"}, true},
		{Settings{Network: "unix"}, true},
		{Settings{Protocol: LMTP, Network: "tcp"}, false},
		{Settings{Dial: dial}, false},
	} {
		if got := New(tt.s).CanRelay(); got != tt.want {
			t.Errorf("CanRelay with %+v = %v, want %v", tt.s, got, tt.want)
		}
	}
}

func TestCheckListeners(t *testing.T) {
	tests := []struct {
		name, network, upstream string
		listen                  string // "HOST:PORT", or a path
		own                     bool
	}{
		{"the same address", "tcp", "127.0.0.1:2525", "127.0.0.1:2525", true},
		{"another port", "tcp", "127.0.0.1:25", "127.0.0.1:2525", false},
		{"another address", "tcp", "192.0.2.1:25", "127.0.0.1:25", false},
		{"another loopback address", "tcp", "127.0.0.2:25", "127.0.0.1:25", false},
		{"by name", "tcp", "localhost:25", "127.0.0.1:25", true},
		{"all addresses, upstream on loopback", "tcp", "127.0.0.2:25", "0.0.0.0:25", true},
		{"all addresses, upstream elsewhere", "tcp", "192.0.2.1:25", "[::]:25", false},
		{"upstream on no address is loopback", "tcp", "0.0.0.0:25", "127.0.0.1:25", true},
		{"all to all", "tcp", "0.0.0.0:25", "[::]:25", true},
		{"mapped", "tcp", "[::ffff:127.0.0.1]:25", "127.0.0.1:25", true},
		{"unix socket", "unix", "/run/x", "/run/x", true},
		{"another unix socket", "unix", "/run/y", "/run/x", false},
		{"unix and TCP", "unix", "/run/y", "127.0.0.1:25", false},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			if strings.HasPrefix(tt.upstream, "localhost:") {
				knowsLocalhost(t)
			}
			var l net.Addr = &net.UnixAddr{Name: tt.listen, Net: "unix"}
			if !strings.HasPrefix(tt.listen, "/") {
				l = net.TCPAddrFromAddrPort(netip.MustParseAddrPort(tt.listen))
			}
			err := New(Settings{Network: tt.network, Address: tt.upstream}).CheckListeners(t.Context(), []net.Addr{l})
			if err != nil && !errors.Is(err, ErrOwnListener) || tt.own != (err != nil) {
				t.Errorf("CheckListeners: %v, want own listener: %v", err, tt.own)
			}
		})
	}
}

// Each address of this machine is ours, and none of the networks that are reserved for documentation is.
func TestOurs(t *testing.T) {
	ifaces := testkit.Value(net.InterfaceAddrs())(t)
	for _, a := range ifaces {
		n, ok := a.(*net.IPNet)
		if ip, valid := netip.AddrFromSlice(n.IP); ok && valid && !ip.Unmap().IsLinkLocalUnicast() && !ours(ip.Unmap()) {
			t.Errorf("%s is not ours", ip)
		}
	}
	for _, text := range []string{"192.0.2.1", "198.51.100.7", "203.0.113.9", "2001:db8::1"} {
		if ours(netip.MustParseAddr(text)) {
			t.Errorf("%s is ours", text)
		}
	}
}

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
		return testkit.Value(d.Open(t.Context(), Client{}))(t)
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
		testkit.Equal(t, "its own reply", testkit.Value(c.R.ReadString('\n'))(t), "250 not asked for\r\n")
		c.Release()
		if _, err := c.Read(make([]byte, 1)); err != io.ErrClosedPipe {
			t.Errorf("a released connection reads with %v", err)
		}
	}
}

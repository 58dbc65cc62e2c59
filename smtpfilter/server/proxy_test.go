package server

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"strings"
	"syscall"
	"testing"
	"testing/iotest"
	"time"

	"github.com/pires/go-proxyproto"

	"blockd/internal/testkit"
)

// proxy2 is a header of version 2 that names source.
func proxy2(t testing.TB, source string) []byte {
	t.Helper()
	dest := "192.0.2.25:25"
	if strings.HasPrefix(source, "[") {
		dest = "[2001:db8::25]:25"
	}
	h := proxyproto.HeaderProxyFromAddrs(2, net.TCPAddrFromAddrPort(netip.MustParseAddrPort(source)), net.TCPAddrFromAddrPort(netip.MustParseAddrPort(dest)))
	return testkit.Value(h.Format())(t)
}

// withLength sets the length of a header of version 2 to n, and brings it there.
func withLength(header []byte, n int) []byte {
	out := append(bytes.Clone(header[:16]), make([]byte, n)...)
	copy(out[16:], header[16:])
	out[14], out[15] = byte(n>>8), byte(n)
	return out
}

func TestReadProxy(t *testing.T) {
	v2, v6 := proxy2(t, "203.0.113.7:4711"), proxy2(t, "[2001:db8::7]:4711")
	changed := func(at int, to byte) []byte {
		out := bytes.Clone(v2)
		out[at] = to
		return out
	}
	local := append(changed(12, 0x20)[:13], 0, 0, 0) // family and length 0
	unix := withLength(changed(13, 0x31), 216)
	tests := []struct {
		name   string
		header string
		want   string // source, "local", or "" for an error
	}{
		{"version 2", string(v2), "203.0.113.7:4711"},
		{"version 2, IPv6", string(v6), "[2001:db8::7]:4711"},
		{"version 2 with attributes", string(withLength(v2, 12+3+9)[:28]) + "\x04\x00\x09123456789", "203.0.113.7:4711"},
		{"version 2, LOCAL", string(local), "local"},
		{"version 1", "PROXY TCP4 203.0.113.7 192.0.2.25 4711 25\r\n", "203.0.113.7:4711"},
		{"version 1, IPv6", "PROXY TCP6 2001:db8::7 2001:db8::25 4711 25\r\n", "[2001:db8::7]:4711"},
		{"version 1, the longest", "PROXY TCP6 ffff:ffff:ffff:ffff:ffff:ffff:ffff:ffff ffff:ffff:ffff:ffff:ffff:ffff:ffff:ffff 65535 65535\r\n", "[ffff:ffff:ffff:ffff:ffff:ffff:ffff:ffff]:65535"},
		{"version 1, UNKNOWN", "PROXY UNKNOWN\r\n", "local"},
		{"a Unix socket is no client", string(unix), ""},
		{"too many attributes", string(withLength(v2, maxProxy2+1)), ""},
		{"unknown command", string(changed(12, 0x22)), ""},
		{"unknown version", string(changed(12, 0x31)), ""},
		{"unknown family", string(changed(13, 0x13)), ""},
		{"shorter than its addresses", string(withLength(v2, 12)[:14]) + "\x00\x04abcd", ""},
		{"version 1 without end", "PROXY TCP4 203.0.113.7 192.0.2.25 4711 25" + strings.Repeat(" ", 100), ""},
		{"version 1, LF alone", "PROXY TCP4 203.0.113.7 192.0.2.25 4711 25\n", ""},
		{"version 1, a name", "PROXY TCP4 mail.example 192.0.2.25 4711 25\r\n", ""},
		{"version 1, port too big", "PROXY TCP4 203.0.113.7 192.0.2.25 65536 25\r\n", ""},
		{"small letters", "proxy TCP4 203.0.113.7 192.0.2.25 4711 25\r\n", ""},
		{"PROXYX", "PROXYX TCP4 203.0.113.7 192.0.2.25 4711 25\r\n", ""},
		{"SMTP", "EHLO client.example\r\n", ""},
		{"a TLS handshake", "\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03abc", ""},
		{"nothing", "", ""},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			for _, pace := range []func(io.Reader) io.Reader{func(r io.Reader) io.Reader { return r }, iotest.OneByteReader} {
				r := strings.NewReader(tt.header + "EHLO c\r\n")
				h, err := readProxy(pace(r))
				got := ""
				switch {
				case err != nil:
				case h.Command.IsLocal():
					got = "local"
				case clientAddr(h.SourceAddr).IsValid():
					got = h.SourceAddr.String()
				}
				if got != tt.want {
					t.Fatalf("readProxy: %q, %v, want %q", got, err, tt.want)
				}
				if rest, _ := io.ReadAll(r); err == nil && string(rest) != "EHLO c\r\n" {
					t.Errorf("behind the header is %q", rest)
				}
			}
		})
	}
}

// FuzzReadProxy: what is taken is a header that the library takes too, and not
// one octet behind it is read.
func FuzzReadProxy(f *testing.F) {
	f.Add(proxy2(f, "203.0.113.7:4711"))
	f.Add(append(proxy2(f, "[2001:db8::7]:4711"), "EHLO c\r\n"...))
	f.Add([]byte("PROXY TCP4 203.0.113.7 192.0.2.25 4711 25\r\nEHLO c\r\n"))
	f.Add([]byte("PROXY UNKNOWN\r\n"))
	f.Fuzz(func(t *testing.T, data []byte) {
		r := bytes.NewReader(data)
		h, err := readProxy(r)
		read := data[:len(data)-r.Len()]
		if len(read) > 16+maxProxy2 {
			t.Fatalf("%d octets read", len(read))
		}
		if err != nil {
			return
		}
		whole := bufio.NewReaderSize(bytes.NewReader(data), 1<<17)
		same, err := proxyproto.Read(whole)
		if err != nil || !same.EqualsTo(h) {
			t.Fatalf("readProxy: %+v; the library: %+v, %v", h, same, err)
		}
		if rest, _ := io.ReadAll(whole); !bytes.Equal(rest, data[len(read):]) {
			t.Fatalf("readProxy leaves %q, the library %q", data[len(read):], rest)
		}
	})
}

// behindProxy dials r, sends header and returns what comes back line by line.
func behindProxy(t *testing.T, r *running, header []byte) *bufio.Reader {
	t.Helper()
	conn := testkit.Value(net.Dial("tcp", r.address))(t)
	t.Cleanup(func() { conn.Close() })
	conn.SetDeadline(time.Now().Add(time.Minute))
	testkit.Value(conn.Write(header))(t)
	return bufio.NewReader(conn)
}

var loopbackNet = []netip.Prefix{netip.MustParsePrefix("127.0.0.0/8")}

func TestClientBehindAProxy(t *testing.T) {
	r := start(t, Settings{Proxies: loopbackNet}, echo, (&peer{}).embedded())
	for _, tt := range []struct{ header, want string }{
		{string(proxy2(t, "203.0.113.7:4711")), "220 203.0.113.7\r\n"},
		{"PROXY TCP6 2001:db8::7 2001:db8::25 4711 25\r\n", "220 2001:db8::7\r\n"},
		{"PROXY TCP6 ::ffff:203.0.113.7 2001:db8::25 4711 25\r\n", "220 203.0.113.7\r\n"},
		{"PROXY UNKNOWN\r\n", "220 127.0.0.1\r\n"},
	} {
		if got, err := behindProxy(t, r, []byte(tt.header)).ReadString('\n'); got != tt.want {
			t.Errorf("%q: first line %q, %v, want %q", tt.header, got, err, tt.want)
		}
	}
	for _, header := range []string{"EHLO client.example\r\n", "PROXY TCP4 what\r\n\r\n"} {
		if got, err := io.ReadAll(behindProxy(t, r, []byte(header))); len(got) > 0 {
			t.Errorf("%q: answered with %q, %v, want a closed connection", header, got, err)
		}
	}
	testkit.Equal(t, "refused{proxy}", r.metric(t, "blockd_smtp_connections_refused_total", "why=proxy"), 2)
}

// Without trust a header is only what a client says.
func TestProxyHeaderOfAStranger(t *testing.T) {
	r := start(t, Settings{Proxies: []netip.Prefix{netip.MustParsePrefix("192.0.2.0/24")}}, echo, (&peer{}).embedded())
	if got, err := behindProxy(t, r, proxy2(t, "203.0.113.7:4711")).ReadString('\n'); got != "220 127.0.0.1\r\n" {
		t.Errorf("first line %q, %v, want the connection's own address", got, err)
	}
}

// Limits are those of the clients, not of the proxy that all come through.
func TestLimitsBehindAProxy(t *testing.T) {
	r := start(t, Settings{Proxies: loopbackNet, MaxPerClient: 2, MaxConnections: 5}, echo, (&peer{}).embedded())
	for i := range 2 {
		for _, ip := range []string{"203.0.113.7", "203.0.113.8"} {
			if got, _ := behindProxy(t, r, proxy2(t, ip+":1")).ReadString('\n'); got != "220 "+ip+"\r\n" {
				t.Fatalf("connection %d of %s: %q", i+1, ip, got)
			}
		}
	}
	if got, err := io.ReadAll(behindProxy(t, r, proxy2(t, "203.0.113.7:1"))); string(got) != "421 4.7.0 us.example Too many connections from your address\r\n" {
		t.Errorf("third connection: %q, %v", got, err)
	}
	testkit.Eventually(t, "the refused one has left", func() bool { return r.clients.open() == 4 })
	if got, _ := behindProxy(t, r, proxy2(t, "203.0.113.9:1")).ReadString('\n'); got != "220 203.0.113.9\r\n" {
		t.Errorf("another client: %q", got)
	}
	if got, _ := io.ReadAll(behindProxy(t, r, proxy2(t, "203.0.113.10:1"))); string(got) != "421 4.7.0 us.example Too many connections, try again later\r\n" {
		t.Errorf("one too many in all: %q", got)
	}
	testkit.Must(t, r.end(t))
	testkit.Equal(t, "after the end: open, clients", fmt.Sprint(r.clients.open(), " ", len(r.clients.each)), "0 0")
}

// A balancer looks every few seconds whether we are there. No limit of a client's may
// make it believe that we are not.
func TestHealthChecksOfAProxyAreNotLimited(t *testing.T) {
	r := start(t, Settings{Proxies: loopbackNet, MaxPerClient: 1, MaxRate: 1}, echo, (&peer{}).embedded())
	for _, header := range []string{"PROXY UNKNOWN\r\n", string(proxyproto.SIGV2) + "\x20\x00\x00\x00", "PROXY UNKNOWN\r\n"} {
		if got, _ := behindProxy(t, r, []byte(header)).ReadString('\n'); got != "220 127.0.0.1\r\n" {
			t.Errorf("%q: %q", header, got)
		}
	}
	testkit.Must(t, r.end(t))
	testkit.Equal(t, "after the end: open, clients", fmt.Sprint(r.clients.open(), " ", len(r.clients.each)), "0 0")
}

// A proxy that says nothing holds a place for the header's time and no longer.
func TestProxyHeaderHasADeadline(t *testing.T) {
	r := start(t, Settings{Proxies: loopbackNet, ProxyTimeout: 20 * time.Millisecond},
		func(context.Context, net.Conn, netip.AddrPort) { t.Error("a session without a header") }, (&peer{}).embedded())
	// What has come by then and was not read makes the close a reset.
	if got, err := io.ReadAll(behindProxy(t, r, []byte("PROXY TCP4 "))); len(got) > 0 || err != nil && !errors.Is(err, syscall.ECONNRESET) {
		t.Errorf("reads %q, %v, want a closed connection", got, err)
	}
}

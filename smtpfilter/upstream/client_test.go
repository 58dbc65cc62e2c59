package upstream

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"strconv"
	"strings"
	"testing"

	"blockd/internal/testkit"
)

var allXCLIENT = Caps{Lines: []string{"XCLIENT NAME ADDR PORT PROTO HELO"}}

func TestXCLIENTLine(t *testing.T) {
	tests := []struct {
		name string
		c    Client
		want string
	}{
		{"IPv4", Client{netip.MustParseAddrPort("192.0.2.7:25"), "mx.example", true},
			"XCLIENT NAME=[UNAVAILABLE] PORT=25 PROTO=ESMTP HELO=mx.example ADDR=192.0.2.7"},
		{"IPv6", Client{netip.MustParseAddrPort("[2001:db8::7]:25"), "mx.example", false},
			"XCLIENT NAME=[UNAVAILABLE] PORT=25 PROTO=SMTP HELO=mx.example ADDR=IPV6:2001:db8::7"},
		{"mapped IPv4", Client{netip.MustParseAddrPort("[::ffff:192.0.2.7]:25"), "[192.0.2.7]", true},
			"XCLIENT NAME=[UNAVAILABLE] PORT=25 PROTO=ESMTP HELO=[192.0.2.7] ADDR=192.0.2.7"},
		{"a zone", Client{netip.MustParseAddrPort("[fe80::1%eth0]:25"), "x", true},
			"XCLIENT NAME=[UNAVAILABLE] PORT=25 PROTO=ESMTP HELO=x ADDR=IPV6:fe80::1"},
		{"nothing known", Client{},
			"XCLIENT NAME=[UNAVAILABLE] PORT=[UNAVAILABLE] PROTO=SMTP HELO=[UNAVAILABLE] ADDR=[UNAVAILABLE]"},
		{"a name that is no name", Client{Helo: "a ADDR=127.0.0.1\r\nRCPT+", ESMTP: true},
			"XCLIENT NAME=[UNAVAILABLE] PORT=[UNAVAILABLE] PROTO=ESMTP HELO=a+20ADDR+3D127.0.0.1+0D+0ARCPT+2B ADDR=[UNAVAILABLE]"},
		{"UTF-8", Client{Helo: "\u00fc.example"},
			"XCLIENT NAME=[UNAVAILABLE] PORT=[UNAVAILABLE] PROTO=SMTP HELO=+C3+BC.example ADDR=[UNAVAILABLE]"},
		{"a name beyond 255 octets", Client{Helo: strings.Repeat("x", 256)},
			"XCLIENT NAME=[UNAVAILABLE] PORT=[UNAVAILABLE] PROTO=SMTP HELO=[UNAVAILABLE] ADDR=[UNAVAILABLE]"},
		{"a name that grows beyond the line", Client{Helo: strings.Repeat("\xff", 200)},
			"XCLIENT NAME=[UNAVAILABLE] PORT=[UNAVAILABLE] PROTO=SMTP HELO=[UNAVAILABLE] ADDR=[UNAVAILABLE]"},
	}
	for _, tt := range tests {
		if got, ok := xclient(allXCLIENT, tt.c); !ok || got != tt.want {
			t.Errorf("%s: xclient(%v) = %q, %v, want %q", tt.name, tt.c, got, ok, tt.want)
		}
	}
}

// After EHLO nothing is encoded, so only a plain word may stand there.
func TestHelloName(t *testing.T) {
	for _, tt := range []struct {
		clientInfo, helo, want string
		own                    bool
	}{
		{"none", "us.example", "us.example", false},
		{"xclient", "us.example", "us.example", true},
		{"none", "c.example", "us.example", false},
		{"", "c.example", "us.example", false},
		{"xclient", "c.example", "c.example", true},
		{"proxy-v2", "[IPv6:2001:db8::7]", "[IPv6:2001:db8::7]", true},
		{"xclient", "", "us.example", false},
		{"xclient", "a b", "us.example", false},
		{"xclient", "a\r\nMAIL", "us.example", false},
		{"xclient", "\u00fc.example", "us.example", false},
		{"xclient", "\x7f", "us.example", false},
		{"xclient", strings.Repeat("x", 256), "us.example", false},
	} {
		d := New(Settings{Hostname: "us.example", ClientInfo: tt.clientInfo})
		name, own := d.helloName(Client{Helo: tt.helo})
		testkit.Equal(t, fmt.Sprintf("helloName(%q) with %q", tt.helo, tt.clientInfo), name, tt.want)
		testkit.Equal(t, fmt.Sprintf("%q with %q is the client's", tt.helo, tt.clientInfo), own, tt.own)
	}
}

// TestRefusalOfAName: only some codes mind a name, and only the client's own is its fault. All others, also of a server
// that takes the header of PROXY for commands, are about blockd.
func TestRefusalOfAName(t *testing.T) {
	for _, tt := range []struct {
		clientInfo, helo string
		code             int
		want             bool
	}{
		{"proxy-v2", "c.example", 450, true},
		{"proxy-v2", "c.example", 421, false},
		{"proxy-v2", "c.example", 500, false},
		{"proxy-v2", "c.example", 501, true},
		{"proxy-v2", "c.example", 502, false},
		{"proxy-v2", "c.example", 503, false},
		{"proxy-v2", "c.example", 521, false},
		{"proxy-v2", "c.example", 530, false},
		{"proxy-v2", "c.example", 550, true},
		{"proxy-v2", "c.example", 553, true},
		{"proxy-v2", "c.example", 554, true},
		{"proxy-v2", "us.example", 550, true},
		{"proxy-v2", "\u00fc.example", 550, false}, // is not presented
		{"none", "us.example", 550, false},
	} {
		for _, protocol := range []Protocol{SMTP, LMTP} {
			dial := func(context.Context) (net.Conn, error) {
				near, far := net.Pipe()
				go func() {
					defer far.Close()
					if tt.clientInfo == "proxy-v2" {
						io.CopyN(io.Discard, far, 28) // of IPv4
					}
					io.WriteString(far, "220 hi\r\n")
					for in := bufio.NewScanner(far); in.Scan(); {
						fmt.Fprintf(far, "%d no\r\n", tt.code)
					}
				}()
				return near, nil
			}
			d := New(Settings{Hostname: "us.example", ClientInfo: tt.clientInfo, Protocol: protocol, Dial: dial})
			_, err := d.Open(t.Context(), Client{Addr: client.Addr, Helo: tt.helo, ESMTP: true})
			refused, ok := errors.AsType[*RefusedError](err)
			if !ok || refused.Reply.Code != tt.code || refused.Name != tt.want {
				t.Errorf("%+v: %v, %+v", tt, err, refused)
			}
		}
	}
}

// unxtext is a second reading of RFC 3461, section 4, written for clarity.
func unxtext(t *testing.T, s string) string {
	var out []byte
	for i := 0; i < len(s); i++ {
		if s[i] != '+' {
			out = append(out, s[i])
			continue
		}
		if i+3 > len(s) || strings.ToUpper(s[i+1:i+3]) != s[i+1:i+3] {
			t.Fatalf("xtext %q: bad code at %d", s, i)
		}
		b, err := strconv.ParseUint(s[i+1:i+3], 16, 8)
		if err != nil {
			t.Fatalf("xtext %q: %v", s, err)
		}
		out = append(out, byte(b))
		i += 2
	}
	return string(out)
}

// Whatever a client says in HELO, the line is one line of five attributes, and a
// reader finds the client's own words in it, or that they are unknown.
func FuzzXCLIENT(f *testing.F) {
	f.Add("mx.example", []byte{192, 0, 2, 7}, uint16(25), true)
	f.Add("a ADDR=127.0.0.1\r\nRCPT TO:<x@y>", []byte("\x20\x01\x0d\xb8aaaabbbbcccc"), uint16(0), false)
	f.Add("+41=\x00\xff\u00fc", []byte{}, uint16(1), true)
	f.Add(strings.Repeat("+", 255), []byte{1, 2, 3, 4}, uint16(65535), true)
	f.Add("[UNAVAILABLE]", []byte("\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\xff\xff\x7f\x00\x00\x01"), uint16(2), true)
	f.Fuzz(func(t *testing.T, helo string, ip []byte, port uint16, esmtp bool) {
		c := Client{Helo: helo, ESMTP: esmtp}
		if addr, ok := netip.AddrFromSlice(ip); ok {
			c.Addr = netip.AddrPortFrom(addr, port)
		}
		line, ok := xclient(allXCLIENT, c)
		if !ok || len(line)+2 > maxXCLIENT {
			t.Fatalf("line %q of %d octets", line, len(line)+2)
		}
		for _, b := range []byte(line) {
			if b < ' ' || b > '~' {
				t.Fatalf("octet %#x in %q", b, line)
			}
		}
		words := strings.Split(line, " ")
		names := []string{"NAME", "PORT", "PROTO", "HELO", "ADDR"}
		if len(words) != 1+len(names) || words[0] != "XCLIENT" {
			t.Fatalf("%d words in %q", len(words), line)
		}
		value := map[string]string{}
		for i, name := range names {
			n, v, _ := strings.Cut(words[1+i], "=")
			if n != name || v == "" || strings.Contains(v, "=") {
				t.Fatalf("attribute %q, want %s, in %q", words[1+i], name, line)
			}
			value[name] = unxtext(t, v)
		}
		if got := value["HELO"]; got != helo && got != unavailable {
			t.Errorf("HELO reads as %q, want %q", got, helo)
		}
		if value["HELO"] == unavailable && helo != "" && helo != unavailable && len(helo) < 100 {
			t.Errorf("HELO %q was left out", helo)
		}
		if !c.Addr.IsValid() {
			testkit.Equal(t, "ADDR reads as", value["ADDR"], unavailable)
			return
		}
		addr, err := netip.ParseAddr(strings.TrimPrefix(value["ADDR"], "IPV6:"))
		if err != nil || addr != c.Addr.Addr().Unmap() || addr.Is6() != strings.HasPrefix(value["ADDR"], "IPV6:") {
			t.Errorf("ADDR reads as %q (%v), want %s", value["ADDR"], err, c.Addr.Addr())
		}
		if value["PORT"] != strconv.Itoa(int(port)) {
			t.Errorf("PORT reads as %q, want %d", value["PORT"], port)
		}
	})
}

package upstream

import (
	"fmt"
	"net"
	"net/netip"
	"strconv"
	"strings"
	"time"

	"github.com/pires/go-proxyproto"
)

// Bounds of what blockd says about a client, from Postfix's XCLIENT_README.
const (
	maxXCLIENT  = 512 // octets of the line, with CRLF
	maxHelo     = 255 // octets of a HELO name before it is encoded
	unavailable = "[UNAVAILABLE]"
)

// xclient returns the XCLIENT line for c, without CRLF, and whether upstream takes
// one: it must have announced the command and at least its ADDR attribute.
// Attributes that it has not announced are left out.
//
// ADDR comes last, as in Postfix's own proxies. A HELO name that would break a
// bound is sent as unknown: cut short, it would be another name.
func xclient(caps Caps, c Client) (line string, ok bool) {
	announced, ok := caps.params("XCLIENT")
	if !ok {
		return "", false
	}
	offers := func(name string) bool {
		for word := range strings.FieldsSeq(announced) {
			if strings.EqualFold(word, name) {
				return true
			}
		}
		return false
	}
	if !offers("ADDR") {
		return "", false
	}
	addr, port, proto, helo := unavailable, unavailable, "SMTP", unavailable
	if c.Addr.IsValid() {
		addr = xclientAddr(c.Addr.Addr())
		port = strconv.Itoa(int(c.Addr.Port()))
	}
	if c.ESMTP {
		proto = "ESMTP"
	}
	if c.Helo != "" && len(c.Helo) <= maxHelo {
		helo = xtext(c.Helo)
	}
	build := func(helo string) string {
		var b strings.Builder
		b.WriteString("XCLIENT")
		// blockd does not look names up, so the name is unknown for all
		// clients. Without NAME, blockd's own name would stay in place.
		for _, a := range [...]struct{ name, value string }{
			{"NAME", unavailable}, {"PORT", port}, {"PROTO", proto}, {"HELO", helo}, {"ADDR", addr},
		} {
			if offers(a.name) {
				b.WriteString(" " + a.name + "=" + a.value)
			}
		}
		return b.String()
	}
	if line = build(helo); len(line)+len("\r\n") > maxXCLIENT {
		line = build(unavailable)
	}
	return line, true
}

// xclientAddr writes ip in XCLIENT's form. A zone means nothing to another host.
func xclientAddr(ip netip.Addr) string {
	ip = ip.Unmap().WithZone("")
	if ip.Is6() {
		return "IPV6:" + ip.String()
	}
	return ip.String()
}

// xtext encodes s by RFC 3461, section 4. Octets that are no printable ASCII, and the
// two signs with a meaning, become "+" and two hexadecimal digits. So no client
// can put a blank, a line end or another attribute into the line.
func xtext(s string) string {
	var b strings.Builder
	for _, c := range []byte(s) {
		if c > ' ' && c <= '~' && c != '+' && c != '=' {
			b.WriteByte(c)
		} else {
			fmt.Fprintf(&b, "+%02X", c)
		}
	}
	return b.String()
}

// helloName is the name for the EHLO after which c is the client. Upstream
// judges and records it together with c's address, and Postfix lets it replace
// the HELO attribute of XCLIENT. So it should be c's own. It is blockd's if upstream
// takes blockd for the client, or if c's name could be more than one word of
// printable ASCII. own reports whether it is c's.
func (d *Dialer) helloName(c Client) (name string, own bool) {
	presented := d.set.ClientInfo == ClientInfoXCLIENT || d.set.ClientInfo == ClientInfoPROXY
	if !presented || c.Helo == "" || len(c.Helo) > maxHelo || strings.ContainsFunc(c.Helo, func(r rune) bool { return r <= ' ' || r > '~' }) {
		return d.set.Hostname, false
	}
	return c.Helo, true
}

// sendPROXY writes the PROXY header of version 2, the first bytes of the
// connection. Without a client it has the form LOCAL.
func (d *Dialer) sendPROXY(conn *Conn, client netip.AddrPort) error {
	header, err := proxyHeader(client, conn.RemoteAddr()).Format()
	if err != nil {
		return fmt.Errorf("upstream: PROXY header: %w", err)
	}
	if err := conn.SetDeadline(time.Now().Add(d.set.ReplyTimeout)); err != nil {
		return fmt.Errorf("upstream: %w", err)
	}
	if _, err := conn.Write(header); err != nil {
		return fmt.Errorf("upstream: PROXY header: %w", err)
	}
	return nil
}

// proxyHeader presents client as the source of a connection to upstream. Both
// ends must be of one family. So an upstream of the other family, or behind a
// unix socket, gets the unspecified address of the client's family. No server decides
// by it, while a mapped source address would miss every IPv4 rule.
func proxyHeader(client netip.AddrPort, upstream net.Addr) *proxyproto.Header {
	if !client.IsValid() {
		return &proxyproto.Header{Version: 2, Command: proxyproto.LOCAL, TransportProtocol: proxyproto.UNSPEC}
	}
	source := netip.AddrPortFrom(client.Addr().Unmap().WithZone(""), client.Port())
	dest := netip.AddrPortFrom(netip.IPv4Unspecified(), 0)
	if source.Addr().Is6() {
		dest = netip.AddrPortFrom(netip.IPv6Unspecified(), 0)
	}
	if tcp, ok := upstream.(*net.TCPAddr); ok {
		if a := tcp.AddrPort(); a.Addr().Unmap().Is4() == source.Addr().Is4() {
			dest = netip.AddrPortFrom(a.Addr().Unmap().WithZone(""), a.Port())
		}
	}
	return proxyproto.HeaderProxyFromAddrs(2, net.TCPAddrFromAddrPort(source), net.TCPAddrFromAddrPort(dest))
}

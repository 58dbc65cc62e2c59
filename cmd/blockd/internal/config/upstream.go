package config

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"strconv"
	"strings"

	"blockd/smtpfilter/upstream"
)

// Upstream is where smtp.upstream leads.
type Upstream struct {
	Scheme  string // "smtp", "lmtp", "lmtp+unix", "maildir"
	Network string // "tcp", "unix"; "" for maildir
	Address string // HOST:PORT, or a path
}

// Protocol is what the next server speaks.
func (u Upstream) Protocol() upstream.Protocol {
	if u.Scheme == "lmtp" || u.Scheme == "lmtp+unix" {
		return upstream.LMTP
	}
	return upstream.SMTP
}

var errUpstream = errors.New(`want "smtp://HOST:PORT", "lmtp://HOST:PORT", "lmtp+unix:/PATH" or "maildir:DIR"`)

// ParseUpstream takes smtp.upstream apart.
func ParseUpstream(text string) (Upstream, error) {
	scheme, rest, _ := strings.Cut(text, ":")
	up := Upstream{Scheme: scheme, Address: rest}
	wrong := fmt.Errorf("%w, have %q", errUpstream, text)
	switch scheme {
	case "maildir":
	case "lmtp+unix":
		up.Network = "unix"
	case "smtp", "lmtp":
		up.Network = "tcp"
		up.Address = strings.TrimPrefix(rest, "//")
		host, port, err := net.SplitHostPort(up.Address)
		if err != nil || host == "" || up.Address == rest {
			return Upstream{}, wrong
		}
		if n, err := strconv.ParseUint(port, 10, 16); err != nil || n == 0 {
			return Upstream{}, wrong
		}
	default:
		return Upstream{}, wrong
	}
	if up.Address == "" {
		return Upstream{}, wrong
	}
	return up, nil
}

// UpstreamSettings are those of the next server, which is the embedded mailbox for maildir:.
func (s SMTP) UpstreamSettings(u Upstream, hostname string) (upstream.Settings, error) {
	trust, err := s.upstreamTrust()
	if err != nil {
		return upstream.Settings{}, fmt.Errorf("smtp.upstream_tls: %w", err)
	}
	return upstream.Settings{
		Protocol: u.Protocol(), Network: u.Network, Address: u.Address, Hostname: hostname, ClientInfo: s.ClientInfo,
		TLS: s.UpstreamTLS, Trust: trust, SelfTestRecipient: s.SelfTestRecipient,
	}, nil
}

// upstreamTrust reads what the next server's certificate is held against.
func (s SMTP) upstreamTrust() (upstream.Trust, error) {
	t := upstream.Trust{Name: s.UpstreamTLSName}
	if s.UpstreamTLSCA != "" {
		text, err := os.ReadFile(s.UpstreamTLSCA)
		if err == nil {
			t.Roots, err = upstream.ParseRoots(text)
		}
		if err != nil {
			return t, err
		}
	}
	for _, text := range s.UpstreamTLSPin {
		pin, err := parsePin(text)
		if err != nil {
			return t, err
		}
		t.Pins = append(t.Pins, pin)
	}
	return t, nil
}

// sameDoor reports whether dialling to would reach a listener at listen, as far
// as the texts tell. All of 127.0.0.0/8 is this machine, but a listener on one
// address of it does not hear the others.
func sameDoor(listen, to string) bool {
	ours, port, err := net.SplitHostPort(listen)
	theirs, toPort, err2 := net.SplitHostPort(to)
	if err != nil || err2 != nil || port != toPort || port == "0" {
		return false
	}
	if ours == "" || ours == "0.0.0.0" || ours == "::" {
		return OnLoopback(to)
	}
	a, err := netip.ParseAddr(ours)
	b, err2 := netip.ParseAddr(theirs)
	if err == nil && err2 == nil {
		return a.Unmap() == b.Unmap()
	}
	own := func(host string) bool { return host == "localhost" || host == "127.0.0.1" || host == "::1" }
	return ours == theirs || own(ours) && own(theirs)
}

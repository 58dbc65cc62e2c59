package main

import (
	"encoding/base64"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"strconv"
	"strings"
	"time"

	"blockd/addr"
	"blockd/smtpfilter/upstream"
)

// open reports whether [smtp] asks for a door at all.
func (s SMTP) open() bool { return s.Listen != "" || s.TLSListen != "" }

func (s SMTP) validate(f *Faults) {
	f.hostPort("smtp.listen", s.Listen)
	if s.Hostname != "" {
		if _, err := addr.DomainKey(s.Hostname); err != nil {
			f.add("smtp.hostname", "want a domain name, have %v", err)
		}
	}
	up, err := parseUpstream(s.Upstream)
	if err != nil {
		f.add("smtp.upstream", "%v", err)
	}
	for _, door := range []struct{ key, listen string }{{"smtp.listen", s.Listen}, {"smtp.tls_listen", s.TLSListen}} {
		if up.network == "tcp" && sameDoor(door.listen, up.address) {
			f.add("smtp.upstream", "%s is this filter's own door (%s): mail would run in a circle", up.address, door.key)
		}
	}
	s.validateClientInfo(f, up)
	s.validateSelfTest(f, up)
	s.validateTLS(f)
	s.validateUpstreamTLS(f, up)
	s.validateLimits(f)
	s.validateActions(f)
	f.oneOf("smtp.reject_at", s.RejectAt, "rcpt", "mail")
	f.oneOf("smtp.on_error", s.OnError, "accept", "tempfail")
	for i, local := range s.RecipientsExempt {
		if _, err := addr.LocalKey(local); err != nil {
			f.add(fmt.Sprintf("smtp.recipients_exempt[%d]", i), "want what stands before the @, have %v", err)
		}
	}
	if _, i, err := s.proxies(); err != nil {
		f.add(fmt.Sprintf("smtp.proxy_from[%d]", i), "%v", err)
	}
}

// validateClientInfo has no default to fall back on for a mail server behind:
// it would see every client as this filter's address, and if it trusts that
// address it relays for everybody.
func (s SMTP) validateClientInfo(f *Faults, up upstreamURL) {
	switch {
	case s.ClientInfo != "":
		f.oneOf("smtp.client_info", s.ClientInfo, "none", "xclient", "proxy-v2")
		if up.scheme == "maildir" && s.ClientInfo != "none" {
			f.add("smtp.client_info", "the mailbox of maildir: takes none, have %q", s.ClientInfo)
		}
	case up.scheme == "smtp":
		f.add("smtp.client_info", `must be said for an smtp:// upstream: "xclient", "proxy-v2", `+
			`or "none" if that server trusts this machine with nothing`)
	}
}

// validateSelfTest takes an address only that can go into RCPT as it is.
func (s SMTP) validateSelfTest(f *Faults, up upstreamURL) {
	const key = "smtp.selftest_recipient"
	if s.SelfTestRecipient == "" {
		return
	}
	a, err := addr.Parse(s.SelfTestRecipient)
	wireable := !strings.ContainsFunc(s.SelfTestRecipient, func(r rune) bool { return r <= ' ' || r > '~' || r == '<' || r == '>' })
	switch {
	case err != nil || !wireable || a.Domain() == "" || strings.HasPrefix(a.Domain(), "["):
		f.add(key, "want an address such as someone@elsewhere.example, in ASCII, have %q", s.SelfTestRecipient)
	case up.scheme != "" && up.scheme != "smtp":
		f.add(key, "has no effect: only an smtp:// upstream is tested")
	}
}

func (s SMTP) validateTLS(f *Faults) {
	f.hostPort("smtp.tls_listen", s.TLSListen)
	switch {
	case s.TLSCert != "" && s.TLSKey == "":
		f.add("smtp.tls_key", "is missing; smtp.tls_cert needs it")
	case s.TLSCert == "" && s.TLSKey != "":
		f.add("smtp.tls_cert", "is missing; smtp.tls_key needs it")
	case s.TLSCert == "" && s.TLSListen != "":
		f.add("smtp.tls_listen", "needs smtp.tls_cert and smtp.tls_key")
	}
}

// validateUpstreamTLS refuses what would look like protection and be none.
func (s SMTP) validateUpstreamTLS(f *Faults, up upstreamURL) {
	f.oneOf("smtp.upstream_tls", s.UpstreamTLS, upstream.TLSNone, upstream.TLSStart, upstream.TLSImplicit)
	if s.UpstreamTLS == upstream.TLSNone {
		for _, unused := range []struct {
			key string
			set bool
		}{
			{"smtp.upstream_tls_name", s.UpstreamTLSName != ""},
			{"smtp.upstream_tls_ca", s.UpstreamTLSCA != ""},
			{"smtp.upstream_tls_pin", len(s.UpstreamTLSPin) > 0},
		} {
			if unused.set {
				f.add(unused.key, `has no effect while smtp.upstream_tls is "none"`)
			}
		}
	} else if up.scheme != "" && up.network != "tcp" {
		f.add("smtp.upstream_tls", "%s is on this machine and speaks no TLS: want \"none\"", s.Upstream)
	}
	if s.UpstreamTLSName != "" {
		if _, err := addr.DomainKey(s.UpstreamTLSName); err != nil {
			f.add("smtp.upstream_tls_name", "want a domain name, have %v", err)
		}
	}
	if len(s.UpstreamTLSPin) > 0 && (s.UpstreamTLSCA != "" || s.UpstreamTLSName != "") {
		f.add("smtp.upstream_tls_pin", "decides alone: take smtp.upstream_tls_ca and smtp.upstream_tls_name out")
	}
	for i, pin := range s.UpstreamTLSPin {
		if _, err := parsePin(pin); err != nil {
			f.add(fmt.Sprintf("smtp.upstream_tls_pin[%d]", i), "%v", err)
		}
	}
}

// parsePin reads the base64 of a public key's SHA-256, as `openssl pkey -pubin
// -outform der | openssl dgst -sha256 -binary | base64` prints it.
func parsePin(text string) (upstream.Pin, error) {
	sum, err := base64.StdEncoding.DecodeString(text)
	if err != nil || len(sum) != len(upstream.Pin{}) {
		return upstream.Pin{}, fmt.Errorf("want the base64 of a SHA-256, 44 signs, have %q", text)
	}
	return upstream.Pin(sum), nil
}

// validateLimits holds what is set within what can serve: a limit that refuses
// every client is an outage, and one without bound is none.
func (s SMTP) validateLimits(f *Faults) {
	const most = 1 << 20 // a million connections are 16 GiB of idle sessions
	for _, l := range []struct {
		key               string
		have, least, most int
	}{
		{"max_connections", s.MaxConnections, 1, most},
		{"max_connections_per_ip", s.MaxConnectionsPerIP, 1, most},
		{"max_rate_per_ip", s.MaxRatePerIP, 0, most},
		{"max_command_rate", s.MaxCommandRate, 0, most},
		{"max_recipients", s.MaxRecipients, 100, 100_000}, // RFC 5321, section 4.5.3.1.8
		{"max_message_size", s.MaxMessageSize, 64 << 10, 1 << 40},
		{"max_junk_commands", s.MaxJunkCommands, 10, most},
		{"soft_errors", s.SoftErrors, 1, most},
		{"hard_errors", s.HardErrors, 2, most},
		{"min_data_rate", s.MinDataRate, 1, most},
	} {
		if l.have < l.least || l.have > l.most {
			f.add("smtp."+l.key, "want %d to %d, have %d", l.least, l.most, l.have)
		}
	}
	if s.SoftErrors >= s.HardErrors && s.HardErrors >= 2 {
		f.add("smtp.soft_errors", "want fewer than hard_errors, which is %d, have %d", s.HardErrors, s.SoftErrors)
	}
	for _, d := range []struct {
		key         string
		have        Duration
		least, most time.Duration
	}{
		{"error_delay", s.ErrorDelay, time.Millisecond, time.Minute},
		{"greet_wait", s.GreetWait, 0, time.Minute}, // clients give up after 5 min at the earliest
		{"command_timeout", s.CommandTimeout, 5 * time.Second, time.Hour},
		{"stress_timeout", s.StressTimeout, time.Second, time.Hour},
		{"data_start_timeout", s.DataStartTimeout, 5 * time.Second, time.Hour},
		{"data_timeout", s.DataTimeout, 5 * time.Second, time.Hour},
		{"session_timeout", s.SessionTimeout, time.Minute, 24 * time.Hour},
		{"tls_timeout", s.TLSTimeout, time.Second, time.Minute},
		{"proxy_timeout", s.ProxyTimeout, time.Second, time.Minute},
		{"upstream_connect_timeout", s.UpstreamConnectTimeout, 100 * time.Millisecond, time.Minute},
		{"upstream_timeout", s.UpstreamTimeout, time.Second, time.Hour},
		{"upstream_final_timeout", s.UpstreamFinalTimeout, 10 * time.Second, time.Hour},
		{"drain_timeout", s.DrainTimeout, time.Second, time.Hour},
	} {
		f.between("smtp."+d.key, d.have, d.least, d.most)
	}
}

// proxies returns the networks of proxy_from, or the first one that is none and
// its place. A bare address is a network of one.
func (s SMTP) proxies() (nets []netip.Prefix, at int, err error) {
	return networks(s.ProxyFrom, "whoever connects could name any client")
}

// networks reads a list of networks, or returns the first text that is none and
// its place; everybody says why none may be the whole world.
func networks(texts []string, everybody string) (nets []netip.Prefix, at int, err error) {
	for i, text := range texts {
		p, err := netip.ParsePrefix(text)
		if err != nil {
			var a netip.Addr
			if a, err = netip.ParseAddr(text); err == nil && a.Zone() == "" {
				p = netip.PrefixFrom(a, a.BitLen())
			} else {
				return nil, i, fmt.Errorf(`want a network such as "10.0.0.0/8", have %q`, text)
			}
		}
		if p.Bits() == 0 {
			return nil, i, fmt.Errorf("%s is everybody: %s", text, everybody)
		}
		if p.Addr().Is4In6() {
			return nil, i, fmt.Errorf("want the IPv4 network itself, have %q", text)
		}
		nets = append(nets, p.Masked())
	}
	return nets, 0, nil
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
		return onLoopback(to)
	}
	a, err := netip.ParseAddr(ours)
	b, err2 := netip.ParseAddr(theirs)
	if err == nil && err2 == nil {
		return a.Unmap() == b.Unmap()
	}
	own := func(host string) bool { return host == "localhost" || host == "127.0.0.1" || host == "::1" }
	return ours == theirs || own(ours) && own(theirs)
}

// upstreamURL is smtp.upstream, taken apart.
type upstreamURL struct {
	scheme  string // "smtp", "lmtp", "lmtp+unix", "maildir"
	network string // "tcp", "unix"; "" for maildir
	address string // HOST:PORT, or a path
}

var errUpstream = errors.New(`want "smtp://HOST:PORT", "lmtp://HOST:PORT", "lmtp+unix:/PATH" or "maildir:DIR"`)

func parseUpstream(text string) (upstreamURL, error) {
	scheme, rest, _ := strings.Cut(text, ":")
	up := upstreamURL{scheme: scheme, address: rest}
	wrong := fmt.Errorf("%w, have %q", errUpstream, text)
	switch scheme {
	case "maildir":
	case "lmtp+unix":
		up.network = "unix"
	case "smtp", "lmtp":
		up.network = "tcp"
		up.address = strings.TrimPrefix(rest, "//")
		host, port, err := net.SplitHostPort(up.address)
		if err != nil || host == "" || up.address == rest {
			return upstreamURL{}, wrong
		}
		if n, err := strconv.ParseUint(port, 10, 16); err != nil || n == 0 {
			return upstreamURL{}, wrong
		}
	default:
		return upstreamURL{}, wrong
	}
	if up.address == "" {
		return upstreamURL{}, wrong
	}
	return up, nil
}

package config

import (
	"encoding/base64"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"blockd/addr"
	"blockd/smtpfilter/upstream"
)

// Open reports whether [smtp] asks for a door at all.
func (s SMTP) Open() bool { return s.Listen != "" || s.TLSListen != "" }

func (s SMTP) validate(f *Faults) {
	f.hostPort("smtp.listen", s.Listen)
	if s.Hostname != "" {
		if _, err := addr.DomainKey(s.Hostname); err != nil {
			f.add("smtp.hostname", "want a domain name, have %v", err)
		}
	}
	up, err := ParseUpstream(s.Upstream)
	if err != nil {
		f.add("smtp.upstream", "%v", err)
	}
	for _, door := range []struct{ key, listen string }{{"smtp.listen", s.Listen}, {"smtp.tls_listen", s.TLSListen}} {
		if up.Network == "tcp" && sameDoor(door.listen, up.Address) {
			f.add("smtp.upstream", "%s is this filter's own door (%s): mail would run in a circle", up.Address, door.key)
		}
	}
	s.validateClientInfo(f, up)
	s.validateSelfTest(f, up)
	s.validateTLS(f)
	s.validateUpstreamTLS(f, up)
	s.validateActions(f)
	for i, local := range s.RecipientsExempt {
		if _, err := addr.LocalKey(local); err != nil {
			f.add(fmt.Sprintf("smtp.recipients_exempt[%d]", i), "want what stands before the @, have %v", err)
		}
	}
	f.networks("smtp.proxy_from", s.ProxyFrom, "whoever connects could name any client")
}

// validateClientInfo has no default to fall back on for a mail server behind:
// it would see every client as this filter's address, and if it trusts that
// address it relays for everybody.
func (s SMTP) validateClientInfo(f *Faults, up Upstream) {
	switch {
	case s.ClientInfo != "":
		f.oneOf("smtp.client_info", s.ClientInfo, "none", "xclient", "proxy-v2")
		if up.Scheme == "maildir" && s.ClientInfo != "none" {
			f.add("smtp.client_info", "the mailbox of maildir: takes none, have %q", s.ClientInfo)
		}
	case up.Scheme == "smtp":
		f.add("smtp.client_info", `must be said for an smtp:// upstream: "xclient", "proxy-v2", `+
			`or "none" if that server trusts this machine with nothing`)
	}
}

// validateSelfTest takes an address only that can go into RCPT as it is.
func (s SMTP) validateSelfTest(f *Faults, up Upstream) {
	const key = "smtp.selftest_recipient"
	if s.SelfTestRecipient == "" {
		return
	}
	a, err := addr.Parse(s.SelfTestRecipient)
	wireable := !strings.ContainsFunc(s.SelfTestRecipient, func(r rune) bool { return r <= ' ' || r > '~' || r == '<' || r == '>' })
	switch {
	case err != nil || !wireable || a.Domain() == "" || strings.HasPrefix(a.Domain(), "["):
		f.add(key, "want an address such as someone@elsewhere.example, in ASCII, have %q", s.SelfTestRecipient)
	case up.Scheme != "" && up.Scheme != "smtp":
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
func (s SMTP) validateUpstreamTLS(f *Faults, up Upstream) {
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
	} else if up.Scheme != "" && up.Network != "tcp" {
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

// networks checks a list of networks; everybody says why none may be the whole world.
func (f *Faults) networks(key string, texts []string, everybody string) {
	for i, text := range texts {
		at := fmt.Sprintf("%s[%d]", key, i)
		switch p, err := parseNetwork(text); {
		case err != nil:
			f.add(at, `want a network such as "10.0.0.0/8", have %q`, text)
		case p.Bits() == 0:
			f.add(at, "%s is everybody: %s", text, everybody)
		case p.Addr().Is4In6():
			f.add(at, "want the IPv4 network itself, have %q", text)
		}
	}
}

// Networks reads the texts of a key that Validate has found to be networks.
func Networks(texts []string) (nets []netip.Prefix) {
	for _, text := range texts {
		if p, err := parseNetwork(text); err == nil {
			nets = append(nets, p.Masked())
		}
	}
	return nets
}

// parseNetwork takes a bare address for a network of one.
func parseNetwork(text string) (netip.Prefix, error) {
	if a, err := netip.ParseAddr(text); err == nil && a.Zone() == "" {
		return netip.PrefixFrom(a, a.BitLen()), nil
	}
	return netip.ParsePrefix(text)
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

// validateActions checks what [smtp] does with clients and mail beside refusing.
func (s SMTP) validateActions(f *Faults) {
	if s.Auth == "forward" && s.TLSCert == "" {
		f.add("smtp.auth", "\"forward\" needs smtp.tls_cert: passwords are taken under TLS alone")
	}
	f.networks("smtp.trusted", s.Trusted, "no list would be asked of anybody")
	if s.Quarantine != "" && s.QuarantineMax < s.MaxMessageSize {
		f.add("smtp.quarantine_max", "want room for one message at least, which is max_message_size, %s, have %s", s.MaxMessageSize, s.QuarantineMax)
	}
	if up, err := ParseUpstream(s.Upstream); err == nil && s.Quarantine != "" && up.Scheme == "maildir" &&
		filepath.Clean(up.Address) == filepath.Clean(s.Quarantine) {
		f.add("smtp.quarantine", "is the mailbox of smtp.upstream: mail set aside would be delivered")
	}
}

// validateQuarantine checks that what is to be set aside has a place.
func (c Config) validateQuarantine(f *Faults) {
	if !c.SMTP.Open() || c.SMTP.Quarantine != "" {
		return
	}
	for i, l := range c.Lists {
		if l.OnMatch == "quarantine" {
			f.add(fmt.Sprintf("list[%d].on_match", i), `"quarantine" needs smtp.quarantine`)
		}
	}
}

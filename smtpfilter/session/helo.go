package session

import (
	"net/netip"
	"strings"

	"blockd/policy/reply"
)

// spared reports whether only lists are checked, and not the rules on the client's names. That
// holds for clients on this machine, in trusted networks or authenticated, and for recipients
// that must be reachable (RFC 5321, section 4.5.1).
func (s *session) spared(recipient string) bool {
	client := &s.rules.Client
	return client.Trusted || client.Authenticated || s.client.Addr().Unmap().IsLoopback() || s.rules.Exempts(recipient)
}

// heloFault returns the refusal of a recipient because of the client's HELO name; the zero
// Reply if there is none.
func (s *session) heloFault(recipient string) reply.Reply {
	if s.settings.Helo != "valid" || s.spared(recipient) {
		return reply.Reply{}
	}
	switch literal, ip := heloLiteral(s.rules.Client.Helo); {
	case literal && !ip.IsValid(), !literal && !validHost(s.rules.Client.Helo):
		return refuseBadHelo
	case literal && ip == s.ownAddr(), strings.EqualFold(strings.TrimSuffix(s.rules.Client.Helo, "."), s.settings.Hostname):
		return refuseOurHelo
	}
	return reply.Reply{}
}

// ownAddr returns our own address in the client's connection; zero if it is not known.
func (s *session) ownAddr() netip.Addr {
	at, err := netip.ParseAddrPort(s.conn.LocalAddr().String())
	if err != nil {
		return netip.Addr{}
	}
	return at.Addr().Unmap().WithZone("")
}

// heloLiteral reads an address literal (RFC 5321, section 4.1.3). ip is zero if the literal is
// malformed.
func heloLiteral(name string) (literal bool, ip netip.Addr) {
	text, ok := strings.CutPrefix(name, "[")
	if !ok {
		return false, netip.Addr{}
	}
	text, ok = strings.CutSuffix(text, "]")
	six := len(text) > 5 && strings.EqualFold(text[:5], "IPv6:")
	if six {
		text = text[5:]
	}
	ip, err := netip.ParseAddr(text)
	if !ok || err != nil || ip.Is4() == six || ip.Zone() != "" {
		return true, netip.Addr{}
	}
	return true, ip.Unmap()
}

// validHost reports whether name is a domain name. Its labels have letters, digits, hyphens
// inside, and underscores, which many machines have in their names. A bare address is not
// valid, because it needs brackets.
func validHost(name string) bool {
	name = strings.TrimSuffix(name, ".")
	if len(name) == 0 || len(name) > 253 {
		return false
	}
	label := ""
	for label = range strings.SplitSeq(name, ".") {
		if len(label) == 0 || len(label) > 63 || label[0] == '-' || label[len(label)-1] == '-' {
			return false
		}
		for _, c := range []byte(label) {
			if c != '-' && c != '_' && !('0' <= c && c <= '9') && !('a' <= c|0x20 && c|0x20 <= 'z') {
				return false
			}
		}
	}
	return strings.Trim(label, "0123456789") != "" // no top-level domain is a number: RFC 3696, section 2
}

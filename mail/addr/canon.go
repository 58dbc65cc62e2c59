package addr

import (
	"net/netip"
	"strings"
)

// canonLocal gives the canonical form of a scanned local-part.
func canonLocal(s string, seen octet) (string, fault) {
	body := s
	if seen&quoted != 0 {
		body = unescape(s[1 : len(s)-1])
	}
	switch {
	case seen&high != 0:
		if f := badRune(s, false); !f.none() {
			return "", f
		}
		// x/text puts U+034F behind 30 combining marks in a row (the Stream-Safe
		// Text Format of UAX 15): an invisible character in a key, which the key
		// itself would be refused for. No language comes near that number.
		if body = Fold(body); strings.ContainsRune(body, '\u034F') {
			return "", syntax("more than 30 combining marks in a row")
		}
	case seen&capital != 0:
		body = strings.ToLower(body)
	}
	// Judged by what the text has become, not by how it was written: NFC turns
	// U+037E into ";", which needs quotes, and quotes around atoms need not be.
	if n, _, f := scanLocal(body); f.none() && n == len(body) && body[0] != '"' {
		return body, fault{}
	}
	return quote(body), fault{}
}

// unescape drops the backslash of every quoted pair.
func unescape(s string) string {
	if !strings.Contains(s, `\`) {
		return s
	}
	b := make([]byte, 0, len(s))
	for i := 0; i < len(s); i++ {
		if s[i] == '\\' {
			i++ // scanQuoted saw that an octet follows
		}
		b = append(b, s[i])
	}
	return string(b)
}

// quote is the only way in which a local-part is written in quotes.
func quote(body string) string {
	b := make([]byte, 0, len(body)+4)
	b = append(b, '"')
	for i := range len(body) {
		if body[i] == '"' || body[i] == '\\' {
			b = append(b, '\\')
		}
		b = append(b, body[i])
	}
	return string(append(b, '"'))
}

// canonDomain gives the canonical form of a scanned domain, which may be longer
// than maxDomain.
func canonDomain(s string, seen octet) (string, fault) {
	switch {
	case seen&literal != 0:
		return canonLiteral(s)
	case seen&high != 0:
		return mapDomain(s)
	}
	return strings.ToLower(s), fault{}
}

// canonLiteral reads an address literal (RFC 5321, section 4.1.3). IPv6 needs
// its tag. An IPv4 address mapped into IPv6 is the same host, so the same key.
func canonLiteral(s string) (string, fault) {
	bad := syntax("malformed address literal")
	inner, tag := s[1:len(s)-1], ""
	if len(inner) > 5 && strings.EqualFold(inner[:5], "ipv6:") {
		tag, inner = "ipv6:", inner[5:]
	}
	ip, err := netip.ParseAddr(inner)
	if err != nil || ip.Zone() != "" || ip.Is6() != (tag != "") {
		return "", bad
	}
	if ip.Is4In6() {
		ip, tag = ip.Unmap(), ""
	}
	return "[" + tag + ip.String() + "]", fault{}
}

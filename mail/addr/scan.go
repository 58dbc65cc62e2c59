package addr

// text lets one scanner serve list entries and octets from the wire.
type text interface{ string | []byte }

// octet is what one octet may be part of; the scanners gather what they have
// seen in the same bits.
type octet uint8

const (
	atext    octet = 1 << iota // RFC 5322, section 3.2.3
	nameChar                   // of a domain: letter, digit, "-" and, as real names have it, "_"
	capital
	high // above 127
	// Seen only:
	quoted  // a local-part in quotes
	literal // an address literal for a domain
)

var octets = func() (t [256]octet) {
	for _, c := range "!#$%&'*+-/=?^_`{|}~" {
		t[c] = atext
	}
	for c := '0'; c <= '9'; c++ {
		t[c] = atext | nameChar
	}
	for c := 'a'; c <= 'z'; c++ {
		t[c] = atext | nameChar
		t[c-'a'+'A'] = atext | nameChar | capital
	}
	t['-'] |= nameChar
	t['_'] |= nameChar
	for c := 128; c < 256; c++ {
		t[c] = high
	}
	return t
}()

// shape is where the parts of a path lie and what octets they have. It says
// nothing yet about UTF-8, IDNA and what stands in a literal.
type shape struct {
	start, at, end       int // of the local-part; of the "@", or the end where none is; of the path
	route, local, domain octet
}

// scan reads a path without its angle brackets at the start of s, and stops
// where the grammar of RFC 5321, section 4.1.2, ends it; what follows is for the
// caller to judge.
func scan[T text](s T) (p shape, f fault) {
	if len(s) > 0 && s[0] == '@' {
		if p.start, p.route, f = scanRoute(s); !f.none() {
			return p, f
		}
	}
	n, seen, f := scanLocal(s[p.start:])
	p.local, p.at = seen, p.start+n
	p.end = p.at
	if !f.none() {
		return p, f
	}
	if p.at == len(s) || s[p.at] != '@' {
		switch {
		case p.start > 0:
			return p, syntax("source route without a domain behind it")
		case seen&quoted == 0 && oddDots(s[p.start:p.at]):
			return p, syntax("a name with nothing between two dots, or beside one") // rather than a local-part that has them
		}
		return p, fault{}
	}
	n, p.domain, f = scanDomain(s[p.at+1:])
	p.end = p.at + 1 + n
	return p, f
}

// scanRoute reads "@one,@two:" and returns its length.
func scanRoute[T text](s T) (n int, seen octet, f fault) {
	for {
		if n == len(s) || s[n] != '@' {
			return n, seen, syntax("source route has no @ before a domain")
		}
		m, o, f := scanDomain(s[n+1:])
		n, seen = n+1+m, seen|o
		switch {
		case !f.none():
			return n, seen, f
		case n == len(s) || s[n] != ':' && s[n] != ',':
			return n, seen, syntax("empty local-part, or a source route without its colon")
		}
		n++
		if s[n-1] == ':' {
			return n, seen, fault{}
		}
	}
}

// scanLocal reads a local-part and returns its length. Dots may stand anywhere in it, beyond the grammar: real senders
// have them at the end and two in a row, and Postfix, Exim and Sendmail take them.
func scanLocal[T text](s T) (n int, seen octet, f fault) {
	if len(s) > 0 && s[0] == '"' {
		return scanQuoted(s)
	}
	for ; n < len(s) && (octets[s[n]]&(atext|high) != 0 || s[n] == '.'); n++ {
		seen |= octets[s[n]]
	}
	if n == 0 {
		return n, seen, syntax("empty local-part")
	}
	return n, seen, fault{}
}

// scanQuoted reads a local-part in quotes. A quoted pair is a backslash and one
// printable ASCII character, a tab is not allowed anywhere: RFC 5321 is narrower
// here than RFC 5322.
func scanQuoted[T text](s T) (n int, seen octet, f fault) {
	seen = quoted
	for n = 1; n < len(s); n++ {
		switch {
		case s[n] == '"':
			return n + 1, seen, fault{}
		case s[n] == '\\':
			n++
			if n == len(s) || s[n] < ' ' || s[n] > '~' {
				return n, seen, syntax("backslash before what is not printable ASCII")
			}
		case s[n] < ' ' || s[n] == 0x7F:
			return n, seen, syntax("control character in quotes")
		}
		seen |= octets[s[n]]
	}
	return n, seen, syntax("quote without an end")
}

// scanDomain reads a domain or a literal and returns its length. It stops before
// a trailing dot, which some callers allow. It has judged a name of ASCII in
// full but for maxDomain; others are for canonDomain.
func scanDomain[T text](s T) (n int, seen octet, f fault) {
	if len(s) > 0 && s[0] == '[' {
		return scanLiteral(s)
	}
	longest, start := 0, 0
	for {
		for n < len(s) && octets[s[n]]&(nameChar|high) != 0 {
			seen |= octets[s[n]]
			n++
		}
		switch label := s[start:n]; {
		case len(label) == 0:
			return n, seen, syntax("empty domain or label")
		case onlyHyphens(label):
			return n, seen, syntax("label of hyphens alone")
		}
		longest = max(longest, n-start)
		if n+1 >= len(s) || s[n] != '.' || octets[s[n+1]]&(nameChar|high) == 0 {
			break
		}
		n++
		start = n
	}
	switch {
	case isNumber(s[start:n]):
		return n, seen, syntax("last label is a number")
	case longest > maxLabel && seen&high == 0:
		return n, seen, fault{LabelTooLong, "label of more than 63 octets"}
	}
	return n, seen, fault{}
}

// scanLiteral reads "[...]" and returns its length. It judges what stands inside
// as well, since in a source route nobody else does: an unread literal could hold
// ">", a blank or an LF, and with it a second address or command.
func scanLiteral[T text](s T) (n int, seen octet, f fault) {
	const longest = len("[IPv6:0000:0000:0000:0000:0000:ffff:255.255.255.255]")
	for n = 1; n < len(s) && n < longest; n++ {
		if s[n] == ']' {
			n++
			_, f = canonLiteral(string(s[:n]))
			return n, literal, f
		}
	}
	return n, literal, syntax("address literal without an end")
}

// onlyHyphens reports whether a label has nothing but hyphens, as lines have that people draw. Other labels may begin
// and end with one, as real names do.
func onlyHyphens[T text](label T) bool {
	for i := range len(label) {
		if label[i] != '-' {
			return false
		}
	}
	return true
}

// oddDots reports whether a text begins or ends with a dot, or has two in a row.
func oddDots[T text](s T) bool {
	dot := true
	for i := range len(s) {
		if s[i] == '.' && dot {
			return true
		}
		dot = s[i] == '.'
	}
	return dot
}

// isACE reports whether label begins with "xn--" in any case.
func isACE[T text](label T) bool {
	return len(label) >= 4 && label[0]|0x20 == 'x' && label[1]|0x20 == 'n' && label[2] == '-' && label[3] == '-'
}

// isNumber reports whether label is what inet_aton takes for a number: digits, or
// "0x" and hexadecimal digits. A name that ends so is an IPv4 address to much
// software, and no top-level domain looks like it.
func isNumber[T text](label T) bool {
	hex := len(label) >= 2 && label[0] == '0' && label[1]|0x20 == 'x'
	if hex {
		label = label[2:]
	}
	for i := range len(label) {
		c := label[i]
		if (c < '0' || c > '9') && (!hex || c|0x20 < 'a' || c|0x20 > 'f') {
			return false
		}
	}
	return true
}

// hasDotEnd finds the trailing dots of UTS 46 that are not ASCII: U+3002, U+FF0E
// and U+FF61.
func hasDotEnd[T text](s T) bool {
	if len(s) < 3 {
		return false
	}
	switch string(s[len(s)-3:]) {
	case "\u3002", "\uFF0E", "\uFF61":
		return true
	}
	return false
}

package lists

import (
	"slices"
	"strings"
)

// maxZoneTail and, in octets, maxLine bound a record that parentheses spread over
// lines. An SOA has seven or so.
const maxZoneTail = 256

// zoneFile cuts a zone file (RFC 1035, section 5.1) into records. It does so line
// by line, since a record that cannot be read must cost no other one: parentheses
// that are not closed cost the line that opens them alone. Nothing that a file says
// makes it open another.
type zoneFile struct {
	r     *reading
	ahead []zoneLine // looked at and still to be read
	words []string   // of the record in hand, or of the line that was measured last
	cut   int        // the line whose words they are, if they are of one line
}

// zoneLine is a physical line and what it does to parentheses.
type zoneLine struct {
	line
	net, low int  // how many it leaves open, and the fewest within it
	whole    bool // no quote is open at its end, and it has no fault of its own
}

// each hands every record to parse, with its words and whether it begins with a
// blank, and every line that could not be cut into words to lost.
func (f *zoneFile) each(parse func(words []string, indented bool), lost func(text string)) error {
	for f.r.err == nil {
		head, ok := f.peek(0)
		if !ok {
			break
		}
		n, closed := f.span()
		f.r.take(head.line)
		text := trim(head.text)
		switch {
		case f.r.common(text, semicolonComment):
			if f.r.failed {
				lost(text)
			}
		case !closed:
			f.r.fail(Syntax, "", "a quote or a parenthesis that is not closed, or not opened")
			lost(text)
		default:
			if f.join(n); len(f.words) == 0 {
				f.r.skip(Blank, "") // nothing but parentheses
			} else {
				parse(f.words, blankAt(head.text) > 0)
			}
		}
		f.r.flush()
		for _, l := range f.ahead[1:n] {
			f.r.continuation(l.line, semicolonComment)
		}
		f.ahead = slices.Delete(f.ahead, 0, n)
	}
	return f.r.end()
}

// join makes words those of the n lines ahead.
func (f *zoneFile) join(n int) {
	if n == 1 && f.cut == f.ahead[0].number {
		return
	}
	f.words, f.cut = f.words[:0], 0
	for _, l := range f.ahead[:n] {
		f.words, _, _, _ = zoneWords(f.words, l.text)
	}
}

// peek returns the i-th of the lines still to be read; false beyond the last one.
func (f *zoneFile) peek(i int) (zoneLine, bool) {
	for len(f.ahead) <= i {
		l, ok := f.r.lines.next()
		if !ok {
			return zoneLine{}, false
		}
		z := zoneLine{line: l}
		f.words, z.net, z.low, z.whole = zoneWords(f.words[:0], l.text)
		f.cut = l.number
		at, _ := controlIn(l.text)
		z.whole = z.whole && at < 0 && !l.long
		f.ahead = append(f.ahead, z)
	}
	return f.ahead[i], true
}

// span returns how many of the lines ahead are one record. closed is false if the
// first of them is none: it is then read over alone. Each line is measured once,
// so that lines which open parentheses and close none cost no more than others.
func (f *zoneFile) span() (n int, closed bool) {
	depth, size := 0, 0
	for n = 0; n < maxZoneTail && size <= maxLine; n++ {
		l, ok := f.peek(n)
		if !ok || !l.whole || depth+l.low < 0 {
			break
		}
		size += len(l.text)
		if depth += l.net; depth == 0 {
			return n + 1, true
		}
	}
	return 1, false
}

// zoneWords appends the words of one line to dst. Parentheses only join lines, and
// are no words; quoted words keep their quotes, and backslashes stay.
func zoneWords(dst []string, text string) (words []string, net, low int, whole bool) {
	words = dst
	for i := 0; i < len(text); {
		switch c := text[i]; {
		case c == ';':
			return words, net, low, true
		case c == '(':
			net++
			i++
		case c == ')':
			net--
			low = min(low, net)
			i++
		case blankAt(text[i:]) > 0:
			i += blankAt(text[i:])
		default:
			n, closed := zoneWord(text[i:])
			if !closed {
				return words, net, low, false
			}
			words = append(words, text[i:i+n])
			i += n
		}
	}
	return words, net, low, true
}

// zoneWord returns the octets of the word that text begins with; false if its quote
// is not closed.
func zoneWord(text string) (n int, closed bool) {
	quoted := text[0] == '"'
	if quoted {
		n = 1
	}
	for ; n < len(text); n++ {
		switch c := text[n]; {
		case c == '\\':
			n++
		case quoted && c == '"':
			return n + 1, true
		case !quoted && (strings.IndexByte(`;()"`, c) >= 0 || blankAt(text[n:]) > 0):
			return n, true
		}
	}
	return len(text), !quoted
}

// recordTypes are those that zone files hold, apart from "TYPE123".
var recordTypes = [...]string{"A", "AAAA", "AFSDB", "APL", "CAA", "CDNSKEY", "CDS", "CERT", "CNAME", "CSYNC", "DHCID", "DLV",
	"DNAME", "DNSKEY", "DS", "EUI48", "EUI64", "HINFO", "HIP", "HTTPS", "IPSECKEY", "KEY", "KX", "LOC", "MX", "NAPTR", "NS",
	"NSEC", "NSEC3", "NSEC3PARAM", "OPENPGPKEY", "PTR", "RP", "RRSIG", "SIG", "SMIMEA", "SOA", "SPF", "SRV", "SSHFP", "SVCB",
	"TLSA", "TXT", "URI", "ZONEMD"}

// recordType finds the type of a record in what follows its owner, behind a TTL and
// a class in either order, and returns it in capitals with the data; "" without one.
func recordType(words []string) (kind string, data []string) {
	ttl, class := false, false
	for i, w := range words {
		kind = strings.ToUpper(w)
		switch {
		case !ttl && isTTL(w):
			ttl = true
		case !class && (kind == "IN" || kind == "CH" || kind == "HS"):
			class = true
		case slices.Contains(recordTypes[:], kind), strings.HasPrefix(kind, "TYPE") && allDigits(kind[len("TYPE"):]):
			return kind, words[i+1:]
		default:
			return "", nil
		}
	}
	return "", nil
}

// isTTL tells seconds, or numbers with units as in 1h30m.
func isTTL(word string) bool {
	return word[0] >= '0' && word[0] <= '9' && strings.Trim(word, "0123456789smhdwSMHDW") == ""
}

package addr

import (
	"strings"
	"unicode"
	"unicode/utf8"
)

// Reading is one way to read a text that need not be an address: as Addr, or if that
// is zero by its domain alone, with what stands in front of it left out.
type Reading struct {
	Addr   Addr
	Domain Key
}

// Readings returns what mail servers and people may take text for, the most literal
// reading first. It is for texts that Parse refuses or finds no domain in. It returns none if
// not even a domain can be read, and none for a text of more than 8,192 octets.
//
//   - A text that Parse accepts, with a domain, has this one reading.
//   - Invisible characters are dropped: see Ignorable. So are joiners, except where a
//     domain may hold them (RFC 5892, appendix A). A full-width "@" counts as "@".
//   - An "@" that no domain follows is dropped, and so are quotes around the whole text.
//     Without any "@", site!user and user%site are user@site. Postfix reads them so:
//     swap_bangpath, allow_percent_hack, and its access tables for "a@b@".
//   - Comments, a name in front of angle brackets, blanks around dots and the "@", and the end of a
//     list or group are left out (RFC 5322, sections 3.2.2, 3.4 and 4.4): mail servers take an
//     envelope sender as they take one in a header.
//   - If the text still is no address, only its domain is read: the text after the last
//     "@" that a domain follows. An "@" in quotes does not count. Labels that cannot be
//     read are left out, with everything before them.
func Readings(text string) (all []Reading) {
	if len(text) > maxText { // it may have been cut
		return nil
	}
	if a, err := Parse(text); err == nil && a.Domain() != "" {
		return []Reading{{Addr: a}}
	}
	text = unbracket(text)
	kept := drop(text, func(r rune) bool { return Ignorable(r) && !Joiner(r) })
	at := strings.LastIndexByte(kept, '@') + 1
	kept = drop(kept[:at], Ignorable) + kept[at:]
	r, ok := roughly(kept)
	if ok {
		all = append(all, r)
	}
	if dropped := drop(kept, Ignorable); dropped != kept && !r.whole() {
		if r, ok := roughly(dropped); ok {
			all = append(all, r)
		}
	}
	if len(all) == 0 || all[0].Addr == (Addr{}) {
		if bare := mailbox(kept); bare != kept {
			if r, ok := roughly(bare); ok && (len(all) == 0 || r.Addr != (Addr{})) {
				all = append(all, r)
			}
		}
	}
	return all
}

// mailbox is what RFC 5322 makes of a mailbox: its address, without what people may read beside it.
func mailbox(text string) string {
	var b strings.Builder
	depth, quoted := 0, false
	for i := 0; i < len(text); i++ {
		c := text[i]
		switch {
		case c == '\\' && i+1 < len(text):
			switch i++; {
			case quoted:
				b.WriteString(text[i-1 : i+1])
			case depth == 0: // outside of quotes it says nothing (RFC 822 had it there)
				b.WriteByte(text[i])
			}
			continue
		case c == '"' && depth == 0:
			quoted = !quoted
		case quoted:
		case c == '(':
			depth++
			continue
		case c == ')' && depth > 0:
			depth--
			continue
		case depth > 0:
			continue
		case c == '<':
			b.Reset() // what stood in front is a name, or a part of one
			continue
		case c == '>':
			if b.Len() > 0 {
				i = len(text) // what stands behind says nothing
			}
			continue
		}
		if depth == 0 {
			b.WriteByte(c)
		}
	}
	text = strings.Trim(b.String(), " \t;,")
	if group, rest, has := strings.Cut(text, ":"); has && !strings.ContainsAny(group, `@"[`) {
		text = rest
	}
	local := 0 // octets of a quoted local-part
	if strings.HasPrefix(text, `"`) {
		local = quotedLength(text)
	}
	rest := strings.Join(strings.FieldsFunc(text[local:], func(r rune) bool { return r == ' ' || r == '\t' }), " ")
	if at := strings.LastIndexByte(rest, '@'); at >= 0 {
		rest = rest[:at] + strings.ReplaceAll(rest[at:], `"`, "")
	}
	for _, sign := range []string{".", "@"} {
		rest = strings.ReplaceAll(strings.ReplaceAll(rest, " "+sign, sign), sign+" ", sign)
	}
	return strings.Trim(text[:local]+rest, " ")
}

// whole reports whether all labels of a domain have been read.
func (r Reading) whole() bool {
	return r.Addr != Addr{} || r.Domain.Text != "" && !strings.HasPrefix(r.Domain.Text, unread+".")
}

// Joiner reports whether r is ZWNJ or ZWJ, which a domain may hold (RFC 5892, appendix A).
func Joiner(r rune) bool { return r == '\u200C' || r == '\u200D' }

// Ignorable reports whether r shows nothing: a format character (soft hyphen,
// zero width, joiners, bidi controls), a variation selector, or another of the code
// points that Unicode has ignored by default, as UTS 46 does. Blanks are not.
func Ignorable(r rune) bool {
	return r == '\u00AD' || r > 0xFF && unicode.In(r, unicode.Cf, unicode.Other_Default_Ignorable_Code_Point, unicode.Variation_Selector)
}

// WideAt reports whether r is a full-width or small form of "@". Mail programs show it
// like one.
func WideAt(r rune) bool { return r == '\uFF20' || r == '\uFE6B' }

// drop returns text without the characters that without says, and with its full-width
// forms of "@" as such.
func drop(text string, without func(rune) bool) string {
	odd := func(r rune) bool { return WideAt(r) || without(r) }
	first := strings.IndexFunc(text, odd)
	if first < 0 {
		return text
	}
	var b strings.Builder
	b.Grow(len(text))
	b.WriteString(text[:first])
	for i := first; i < len(text); {
		r, n := utf8.DecodeRuneInString(text[i:])
		switch {
		case WideAt(r):
			b.WriteByte('@')
		case !without(r):
			b.WriteString(text[i : i+n]) // octets that are no UTF-8 too
		}
		i += n
	}
	return b.String()
}

// unbracket takes off blanks and one pair of angle brackets.
func unbracket(text string) string {
	text = strings.Trim(text, " \t")
	if len(text) > 1 && text[0] == '<' && text[len(text)-1] == '>' {
		text = strings.Trim(text[1:len(text)-1], " \t")
	}
	return text
}

// roughly reads text as an address, or else its domain.
func roughly(text string) (Reading, bool) {
	text = routed(text)
	if a, err := Parse(text); err == nil && a.Domain() != "" {
		return Reading{Addr: a}, true
	}
	quotes := 0 // octets of the text
	if strings.HasPrefix(text, `"`) {
		quotes = quotedLength(text)
	}
	for end := len(text); ; {
		at := strings.LastIndexByte(text[quotes:end], '@') + quotes
		if at < quotes {
			return Reading{}, false
		}
		if k, ok := readableDomain(text[at+1 : end]); ok {
			return Reading{Domain: k}, true
		}
		end = at
	}
}

// quotedLength is the length of the quoted string that text begins with, 0 if it has
// no end. Controls, which scanQuoted refuses, do not end it.
func quotedLength(text string) int {
	for i := 1; i < len(text); i++ {
		switch text[i] {
		case '\\':
			i++
		case '"':
			return i + 1
		}
	}
	return 0
}

// routed returns text with an "@" in front of its domain, where another way to write
// one has led there. Each round makes it shorter or ends.
func routed(text string) string {
	for {
		text = strings.TrimRight(text, "@")
		if strings.HasPrefix(text, `"`) && quotedLength(text) == len(text) {
			text = unescape(text[1 : len(text)-1])
			continue
		}
		if strings.Contains(text, "@") {
			return text
		}
		if found := Rewritten(text); found != text {
			return found
		}
		if !strings.HasSuffix(text, "%") {
			return text
		}
		text = strings.TrimRight(text, "%")
	}
}

// Rewritten is what Postfix makes of an address without an "@" when it takes the
// message (swap_bangpath and allow_percent_hack, both on by default): site!user and
// user%site are user@site. Its quotes, if any, are off already.
func Rewritten(address string) string {
	if strings.Contains(address, "@") {
		return address
	}
	if site, user, _ := strings.Cut(address, "!"); site != "" && user != "" {
		return user + "@" + site
	}
	if i := strings.LastIndexByte(address, '%'); i > 0 && i < len(address)-1 {
		return address[:i] + "@" + address[i+1:]
	}
	return address
}

// unread stands for the labels of a domain that cannot be read. No key holds it.
const unread = "?"

// readableDomain makes the key of a domain, or of as much of its end as can be read. The
// key is then a name below that, which no list can hold: its parents are what matters.
func readableDomain(s string) (Key, bool) {
	s = strings.TrimRight(strings.Trim(s, " \t"), ".")
	if len(s) > 1 && s[0] == '"' && s[len(s)-1] == '"' {
		s = s[1 : len(s)-1]
	}
	s = strings.ReplaceAll(s, `\`, "")
	if k, err := DomainKey(s); err == nil {
		return k, true
	}
	name := ""
	for rest, whole := dots.Replace(s), false; !whole; {
		at := strings.LastIndexByte(rest, '.')
		label, ok := readableLabel(rest[at+1:], name == "")
		if !ok || len(label)+1+len(name) > maxDomain-len(unread+".") {
			break
		}
		if whole = at < 0; !whole {
			rest = rest[:at]
		}
		if name == "" {
			name = label
		} else {
			name = label + "." + name
		}
	}
	if name == "" {
		return Key{}, false
	}
	name = unread + "." + name
	return Key{Text: name, Kind: Domain, Labels: countLabels(name)}, true
}

// readableLabel gives the canonical form of one label. last is that of the domain.
func readableLabel(label string, last bool) (string, bool) {
	if f := badRune(label, true); !f.none() {
		return "", false
	}
	label, f := mapLabel(label)
	if !f.none() {
		return "", false
	}
	n, seen, f := scanDomain(label)
	ok := n == len(label) && seen&(high|capital|literal) == 0 && (f.none() || !last && isNumber(label))
	return label, ok
}

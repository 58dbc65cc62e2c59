package header

import (
	"io"
	"mime"
	"net/mail"
	"regexp"
	"strings"
	"unicode"
	"unicode/utf16"
	"unicode/utf8"

	"blockd/mail/addr"
)

// Addresses returns the addresses that a field with this text shows, quoted where
// they must be and without angle brackets. By the grammar of RFC 5322, section 3.4,
// if the text keeps to it; else what stands in angle brackets, and in a part of the
// list without any the words with an "@": "a@b.example <c@d.example>" is malformed,
// common, and shown as from c@d.example. Not everything that it returns then is
// an address.
//
// What shows nothing (addr.Ignorable) is not in them. The joiners among that may belong
// to a domain: an address with such is returned twice, with and without. Encoded words
// (RFC 2047) where an address stands are returned as they are and decoded. Names are no
// addresses, whatever they show. Each address is returned once.
func Addresses(text string) []string {
	text = legible(text)
	all := read(text)
	if strings.ContainsFunc(text, addr.Joiner) {
		all = append(all, read(withoutJoiners(text))...)
	}
	seen, shown := map[string]bool{}, all[:0]
	for _, address := range all {
		if address = tidy(address); !seen[address] {
			seen[address] = true
			shown = append(shown, address)
		}
	}
	return shown
}

func withoutJoiners(text string) string {
	return strings.Map(func(r rune) rune {
		if addr.Joiner(r) {
			return -1
		}
		return r
	}, text)
}

// read is Addresses as they stand there.
func read(text string) []string {
	parser := mail.AddressParser{WordDecoder: &mime.WordDecoder{CharsetReader: anyCharset}}
	list, err := parser.ParseList(text)
	var all []string
	if err != nil {
		all = loose(text)
	}
	for _, a := range list {
		bare := mail.Address{Address: a.Address} // which prints the quotes that the parser took off
		all = append(all, strings.TrimSuffix(strings.TrimPrefix(bare.String(), "<"), ">"))
	}
	return append(all, encoded(text)...)
}

// encoded returns the addresses in text that have encoded words in them, decoded.
func encoded(text string) (all []string) {
	if !strings.Contains(text, "=?") {
		return nil
	}
	for part := range split(text) {
		part = outside(part)
		pieces := angled(part)
		if pieces == nil {
			pieces = []string{part}
		}
		for _, piece := range pieces {
			if !strings.Contains(piece, "=?") {
				continue
			}
			decoded := decode(piece)
			all = append(all, words(closeUp(decoded, "@."))...)
		}
	}
	return all
}

// decode returns text with its encoded words decoded, if they can be.
func decode(text string) string {
	decoder := mime.WordDecoder{CharsetReader: anyCharset}
	decoded, err := decoder.DecodeHeader(padded(text))
	if err != nil {
		return text
	}
	return legible(decoded)
}

// base64Word is an encoded word in base64 with the padding that it has.
var base64Word = regexp.MustCompile(`(?i)(=\?[^?\s]+\?b\?[a-z0-9+/]*)=*\?=`)

// padded gives encoded words in base64 the padding that some lack: mail programs read
// them all the same.
func padded(text string) string {
	return base64Word.ReplaceAllStringFunc(text, func(word string) string {
		word = strings.TrimRight(strings.TrimSuffix(word, "?="), "=")
		digits := len(word) - strings.LastIndexByte(word, '?') - 1
		return word + strings.Repeat("=", -digits&3) + "?="
	})
}

// anyCharset reads UTF-16, in which even ASCII has other octets, and leaves what is in
// other foreign sets as it is: addresses are seldom in foreign characters.
func anyCharset(name string, r io.Reader) (io.Reader, error) {
	if name = strings.ToLower(name); !strings.HasPrefix(name, "utf-16") {
		return r, nil
	}
	octets, err := io.ReadAll(r)
	if err != nil {
		return nil, err
	}
	low := 1 // the place of the low octet; without a mark big-endian (RFC 2781, section 4.3)
	if name == "utf-16le" || len(octets) > 1 && octets[0] == 0xFF && octets[1] == 0xFE {
		low = 0
	}
	units := make([]uint16, len(octets)/2)
	for i := range units {
		units[i] = uint16(octets[2*i+low]) | uint16(octets[2*i+1-low])<<8
	}
	return strings.NewReader(string(utf16.Decode(units))), nil
}

// legible is text as it is shown: on one line (Postfix hands folded ones over with LF
// alone), octets that are no UTF-8 as Latin-1, blanks of all kinds as such, full-width
// forms of "@" too, and without what shows nothing but for joiners.
func legible(text string) string {
	text = strings.ReplaceAll(text, "\r\n", " ")
	plain := true
	for i := range len(text) {
		plain = plain && (text[i] >= ' ' && text[i] < utf8.RuneSelf || text[i] == '\t')
	}
	if plain {
		return text
	}
	var b strings.Builder
	b.Grow(len(text))
	for i := 0; i < len(text); {
		r, n := utf8.DecodeRuneInString(text[i:])
		if r == utf8.RuneError && n == 1 {
			r = rune(text[i])
		}
		i += n
		switch {
		case r == '\r', r == '\n', r == 0, r > '~' && unicode.In(r, unicode.Z):
			b.WriteByte(' ')
		case addr.WideAt(r):
			b.WriteByte('@')
		case addr.Ignorable(r) && !addr.Joiner(r):
		default:
			b.WriteRune(r)
		}
	}
	return b.String()
}

// loose finds what may be an address in malformed text.
func loose(text string) []string {
	var all []string
	for part := range split(text) {
		all = append(all, inPart(part)...)
	}
	if len(all) == 0 { // what stands alone is shown, in quotes, too
		all = words(text)
	}
	if len(all) == 0 { // and so is what is encoded
		all = words(decode(text))
	}
	return all
}

// inPart returns the addresses of one part of a list.
func inPart(part string) []string {
	plain := closeUp(outside(part), "")
	var found []string
	for _, inside := range angled(plain) {
		found = append(found, words(closeUp(inside, "@."))...)
	}
	if found != nil {
		return found
	}
	all, last := words(plain), plain
	for _, marks := range [...]string{"@", "@."} { // without angle brackets a dot may end a sentence, or not
		if closed := closeUp(plain, marks); closed != last {
			all, last = append(all, words(closed)...), closed
		}
	}
	return all
}

// angled returns what stands in angle brackets. One that is not closed has the rest.
func angled(plain string) (all []string) {
	for rest := plain; ; {
		_, behind, ok := strings.Cut(rest, "<")
		if !ok {
			return all
		}
		inside, after, _ := strings.Cut(behind, ">")
		all, rest = append(all, inside), after
	}
}

// tidy makes an address that can be looked up of what mail programs show as one: with
// quotes around a local-part that needs them, as "a[b" does, and without what stands
// behind a domain and can be no part of it. Other lists than of whole addresses are about
// the domain, so what cannot stand in any local-part becomes a question mark.
func tidy(address string) string {
	at := strings.LastIndexByte(address, '@')
	if at < 0 {
		return address
	}
	local, domain := address[:at], strings.ReplaceAll(address[at+1:], `\`, "")
	if end := strings.IndexFunc(domain, notInDomain); end > 0 {
		local, domain = strings.TrimLeft(local, "'`[{|"), domain[:end]
	}
	local = strings.Map(func(r rune) rune {
		if r < ' ' || r == 0x7f || r == utf8.RuneError {
			return '?'
		}
		return r
	}, local)
	if !strings.HasPrefix(local, `"`) && strings.ContainsAny(local, `[]\`) {
		local = `"` + strings.ReplaceAll(local, `\`, `\\`) + `"`
	}
	return local + "@" + domain
}

// notInDomain tells what no domain has. A literal, which begins with such a sign, is
// left as it is.
func notInDomain(r rune) bool {
	return r <= '~' && r != '-' && r != '.' && r != '_' && !('0' <= r && r <= '9') && !('a' <= r|0x20 && r|0x20 <= 'z')
}

// closeUp leaves one blank where there are several, and none beside any of marks,
// where an obsolete form (RFC 5322, section 4.4) may have them and mail programs
// still read it. In free text a dot ends sentences; there it is no mark.
func closeUp(text, marks string) string {
	var b strings.Builder
	open := true // no blank is wanted
	for word := range strings.FieldsSeq(text) {
		if !open && !strings.ContainsAny(word[:1], marks) {
			b.WriteByte(' ')
		}
		b.WriteString(word)
		open = strings.ContainsAny(word[len(word)-1:], marks)
	}
	return b.String()
}

// words returns the words with an "@" that has something on both sides. A quoted
// local-part belongs to its word. Of several "@" the last one with something behind it
// counts, and what it is the domain of; several in a row are one.
func words(text string) []string {
	const ends = " \t,;:<>()\""
	var all []string
	quotes := true // false: one had no end, and so none behind it has
	for from := 0; from < len(text); {
		local := 0
		if quotes && text[from] == '"' {
			n := enclosed(text[from:])
			if quotes = n > 0; strings.HasPrefix(text[from+n:], "@") {
				local = n
			}
		}
		end := len(text)
		if n := strings.IndexAny(text[from+local:], ends); n >= 0 {
			end = from + local + n
		}
		word := text[from:end]
		if from = end + 1; word != "" && end < len(text) && text[end] == '"' {
			from = end // where the next word may begin
		}
		word = strings.TrimRight(word, "@")
		at := strings.LastIndexByte(word, '@')
		if at < 1 {
			continue
		}
		front, domain := strings.TrimRight(word[:at], "@"), word[at:]
		if local == 0 {
			front = front[strings.LastIndexByte(front, '@')+1:]
		}
		if front != "" {
			all = append(all, front+domain)
		}
	}
	return all
}

// split yields the parts of a list, which commas and semicolons separate, and the
// colon behind a group's name. Inside quotes and comments they are text, and in angle
// brackets, where a source route may stand, too.
func split(text string) func(func(string) bool) {
	return func(yield func(string) bool) {
		from, angle := 0, false
		for i := range walk(text) {
			switch c := text[i]; {
			case c == '<':
				angle = true
			case c == '>':
				angle = false
			case !angle && (c == ',' || c == ';' || c == ':'):
				if !yield(text[from:i]) {
					return
				}
				from = i + 1
			}
		}
		yield(text[from:])
	}
}

// outside is text without comments and without the quoted strings that are no part of
// an address: a local-part, a word of one beside a dot, or, against every grammar, a
// domain.
func outside(text string) string {
	var b strings.Builder
	last, sign := 0, byte(0) // behind the octet before; that octet, blanks aside
	hidden := func(from, to int) {
		if from == to {
			return
		}
		all, behind := text[from:to], strings.TrimLeft(text[to:], " \t")
		if strings.HasSuffix(all, `"`) && strings.HasPrefix(behind, "@") && sign != '.' {
			b.WriteString(all) // "a b"@c.example
			return
		}
		for n := 0; from < to; from += n {
			if n = enclosed(text[from:]); text[from] == '"' && (sign == '@' || sign == '.' || strings.HasPrefix(text[from+n:], ".")) {
				b.WriteString(unquoted(text[from : from+n]))
			}
		}
	}
	for i := range walk(text) {
		if hidden(last, i); text[i] != ' ' && text[i] != '\t' {
			sign = text[i]
		}
		b.WriteByte(text[i])
		last = i + 1
	}
	hidden(last, len(text))
	return b.String()
}

// unquoted is what a quoted string says.
func unquoted(text string) string {
	return strings.ReplaceAll(text[1:len(text)-1], `\`, "")
}

// walk yields the places of the octets outside quoted strings and comments. One
// without its end is none, and hides nothing.
func walk(text string) func(func(int) bool) {
	return func(yield func(int) bool) {
		endless := "" // the openers of which one had no end; to look again would be quadratic
		for i := 0; i < len(text); i++ {
			if c := text[i]; (c == '"' || c == '(') && !strings.Contains(endless, text[i:i+1]) {
				if n := enclosed(text[i:]); n > 0 {
					i += n - 1
					continue
				}
				endless += text[i : i+1]
			}
			if !yield(i) {
				return
			}
		}
	}
}

// enclosed is the length of the quoted string or the comment that text begins
// with, 0 if it has no end.
func enclosed(text string) int {
	depth := 0
	for i := 0; i < len(text); i++ {
		switch c := text[i]; {
		case c == '\\':
			i++
		case text[0] == '"' && c == '"' && i > 0, text[0] == '(' && c == ')' && depth == 1:
			return i + 1
		case c == '(':
			depth++
		case c == ')':
			depth--
		}
	}
	return 0
}

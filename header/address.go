package header

import (
	"io"
	"mime"
	"net/mail"
	"strings"
	"unicode/utf8"
)

// Addresses returns the addresses that a field with this text names, quoted where
// they must be and without angle brackets. By the grammar of RFC 5322, section 3.4,
// if the text keeps to it; else what stands in angle brackets, and in a part of the
// list without any the words with an "@": "a@b.example <c@d.example>" is malformed,
// common, and shown as from c@d.example. Not everything that it returns then is
// an address.
func Addresses(text string) []string {
	all := read(text)
	for i, address := range all {
		all[i] = tidy(address)
	}
	return all
}

// read is Addresses as they stand there.
func read(text string) []string {
	parser := mail.AddressParser{WordDecoder: &mime.WordDecoder{CharsetReader: anyCharset}}
	text = unfold(text)
	list, err := parser.ParseList(text)
	if err != nil {
		return loose(text)
	}
	all := make([]string, len(list))
	for i, a := range list {
		bare := mail.Address{Address: a.Address} // which prints the quotes that the parser took off
		all[i] = strings.TrimSuffix(strings.TrimPrefix(bare.String(), "<"), ">")
	}
	return all
}

// anyCharset leaves names in foreign characters as they are: nobody reads them.
func anyCharset(_ string, r io.Reader) (io.Reader, error) { return r, nil }

// unfold joins the lines of a field. Postfix hands them over with LF alone.
func unfold(text string) string {
	return strings.NewReplacer("\r\n", " ", "\r", " ", "\n", " ", "\x00", " ").Replace(text)
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
		decoder := mime.WordDecoder{CharsetReader: anyCharset}
		if decoded, err := decoder.DecodeHeader(text); err == nil {
			all = words(unfold(decoded))
		}
	}
	return all
}

// inPart returns the addresses of one part of a list.
func inPart(part string) []string {
	var angled []string
	plain := closeUp(outside(part), "")
	for rest := plain; ; {
		_, behind, ok := strings.Cut(rest, "<")
		if !ok {
			break
		}
		inside, after, _ := strings.Cut(behind, ">")
		angled, rest = append(angled, words(closeUp(inside, "@."))...), after
	}
	if angled != nil {
		return angled
	}
	all, last := words(plain), plain
	for _, marks := range [...]string{"@", "@."} { // without angle brackets a dot may end a sentence, or not
		if closed := closeUp(plain, marks); closed != last {
			all, last = append(all, words(closed)...), closed
		}
	}
	return all
}

// tidy makes an address that can be looked up of what mail programs show as one: with
// quotes around a local-part that needs them, as "a..b" does, and without what stands
// behind a domain and can be no part of it. Other lists than of whole addresses are about
// the domain, so what cannot stand in any local-part becomes a question mark.
func tidy(address string) string {
	at := strings.LastIndexByte(address, '@')
	if at < 0 {
		return address
	}
	local, domain := address[:at], address[at+1:]
	if end := strings.IndexFunc(domain, notInDomain); end > 0 {
		local, domain = strings.TrimLeft(local, "'`[{|"), domain[:end]
	}
	local = strings.Map(func(r rune) rune {
		if r < ' ' || r == 0x7f || r == utf8.RuneError {
			return '?'
		}
		return r
	}, local)
	dots := strings.HasPrefix(local, ".") || strings.HasSuffix(local, ".") || strings.Contains(local, "..")
	if !strings.HasPrefix(local, `"`) && (dots || strings.ContainsAny(local, `[]\`)) {
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
// local-part belongs to its word. Of several "@" the last one counts, and what it is
// the domain of.
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
		at := strings.LastIndexByte(word, '@')
		if at < 1 || at == len(word)-1 {
			continue
		}
		if local == 0 {
			word = word[strings.LastIndexByte(word[:at], '@')+1:]
		}
		if word[0] != '@' {
			all = append(all, word)
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

// outside is text without comments and without the quoted strings that are no
// local-part.
func outside(text string) string {
	var b strings.Builder
	last := 0
	for i := range walk(text) {
		if hidden := text[last:i]; strings.HasSuffix(hidden, "\"") && strings.HasPrefix(strings.TrimLeft(text[i:], " \t"), "@") {
			b.WriteString(hidden) // "a b"@c.example
		}
		b.WriteByte(text[i])
		last = i + 1
	}
	return b.String()
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

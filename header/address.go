package header

import (
	"io"
	"mime"
	"net/mail"
	"strings"
)

// Addresses returns the addresses that a field with this text names, quoted where
// they must be and without angle brackets. By the grammar of RFC 5322, section 3.4,
// if the text keeps to it; else what stands in angle brackets, and in a part of the
// list without any the words with an "@": "a@b.example <c@d.example>" is malformed,
// common, and shown as from c@d.example. Not everything that it returns then is
// an address.
func Addresses(text string) []string {
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
	if len(all) == 0 { // a quote or a comment without its end hides nothing
		all = words(text)
	}
	return all
}

// inPart returns the addresses of one part of a list.
func inPart(part string) []string {
	var angled []string
	plain := outside(part)
	for rest := plain; ; {
		_, behind, ok := strings.Cut(rest, "<")
		if !ok {
			break
		}
		inside, after, _ := strings.Cut(behind, ">")
		angled, rest = append(angled, strings.TrimSpace(inside)), after
	}
	if angled != nil {
		return angled
	}
	return words(plain)
}

// words returns the words with an "@".
func words(text string) []string {
	var all []string
	for word := range strings.FieldsFuncSeq(text, func(r rune) bool { return strings.ContainsRune(" \t,;:<>()\"", r) }) {
		if strings.Contains(word, "@") {
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
		if i > last && strings.Contains(text[last:i], "\"") && text[i] == '@' {
			b.WriteString(text[last:i]) // "a b"@c.example
		}
		b.WriteByte(text[i])
		last = i + 1
	}
	return b.String()
}

// walk yields the places of the octets outside quoted strings and comments.
func walk(text string) func(func(int) bool) {
	return func(yield func(int) bool) {
		quoted, depth := false, 0
		for i := 0; i < len(text); i++ {
			switch c := text[i]; {
			case c == '\\' && (quoted || depth > 0):
				i++
			case c == '"' && depth == 0:
				quoted = !quoted
			case quoted:
			case c == '(':
				depth++
			case c == ')' && depth > 0:
				depth--
			case depth == 0:
				if !yield(i) {
					return
				}
			}
		}
	}
}

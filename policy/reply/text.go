package reply

import (
	"fmt"
	"strings"
	"unicode"

	"golang.org/x/text/unicode/norm"
)

// maxContact bounds a contact, in octets and with its placeholders filled. Beside the
// longest sender there is then still room for a text.
const maxContact = 150

// textWords are the placeholders of a list's text, contactWords those of a contact.
var (
	textWords    = []string{"sender", "list", "reason", "ref", "contact"}
	contactWords = []string{"list", "ref"}
)

// CheckText says what is wrong with a list's text.
func CheckText(text string) error {
	var unknown error
	Fill(text, func(word string) (string, bool) {
		for _, w := range textWords {
			if w == word {
				return "", true
			}
		}
		if unknown == nil {
			unknown = fmt.Errorf("%%%s is no placeholder; want %%%s, and %%%% for a percent sign", word, strings.Join(textWords, ", %"))
		}
		return "", false
	})
	switch {
	case unknown != nil:
		return unknown
	case ForClient(text, true) != strings.TrimSpace(text):
		return fmt.Errorf("control characters have no place in a reply")
	case len(text) > maxLine:
		return fmt.Errorf("%d octets; a reply has at most %d", len(text), maxLine)
	}
	return nil
}

// CheckContact says what is wrong with a contact that lists of these names have.
func CheckContact(contact string, lists ...string) error {
	if ForClient(contact, false) != contact {
		return fmt.Errorf("want printable ASCII without a blank at either end")
	}
	for _, list := range append(lists, "") {
		if n := len(Contact(contact, list, strings.Repeat("0", maxRef))); n >= maxContact {
			return fmt.Errorf("%d octets or more with the placeholders filled; want fewer than %d", n, maxContact)
		}
	}
	return nil
}

// Contact fills the placeholders of a contact. Other percent signs are its own: it
// may be a URL.
func Contact(contact, list, ref string) string {
	if contact == "" {
		return ""
	}
	values := map[string]string{"list": list, "ref": ref}
	var b strings.Builder
	for {
		head, rest, ok := strings.Cut(contact, "%")
		b.WriteString(head)
		if !ok {
			break
		}
		contact = rest
		word := ""
		for _, w := range contactWords {
			if strings.HasPrefix(rest, w) {
				word = w
			}
		}
		if word == "" {
			b.WriteByte('%')
			continue
		}
		b.WriteString(values[word])
		contact = rest[len(word):]
	}
	return cutText(ForClient(b.String(), false), maxContact)
}

// Fill replaces the placeholders of a text, "%" and letters, by what value gives, and
// "%%" by one sign. What value does not know stays as it is.
func Fill(text string, value func(word string) (string, bool)) string {
	var b strings.Builder
	for {
		head, rest, ok := strings.Cut(text, "%")
		b.WriteString(head)
		if !ok {
			return b.String()
		}
		if strings.HasPrefix(rest, "%") {
			b.WriteByte('%')
			text = rest[1:]
			continue
		}
		n := 0
		for n < len(rest) && rest[n] >= 'a' && rest[n] <= 'z' {
			n++
		}
		if filled, known := value(rest[:n]); known {
			b.WriteString(filled)
			text = rest[n:]
			continue
		}
		b.WriteByte('%')
		text = rest
	}
}

// ForClient makes a text fit for one line of a reply: nothing in it ends the line, moves
// the cursor or turns the direction of what follows. Characters beyond ASCII are
// transcribed, unless the client has said SMTPUTF8 (RFC 6531, section 3.7.4.2).
func ForClient(text string, smtputf8 bool) string {
	if plainASCII(text) {
		return strings.Trim(text, " ")
	}
	text = strings.ToValidUTF8(text, "?")
	if !smtputf8 {
		text = norm.NFKD.String(text)
	}
	var b strings.Builder
	for _, r := range text {
		switch {
		case r >= ' ' && r <= '~':
			b.WriteRune(r)
		case unicode.IsControl(r), r == '\u2028', r == '\u2029':
			b.WriteByte(' ')
		case unicode.Is(unicode.Cf, r): // bidi controls, joiners, soft hyphens
		case smtputf8:
			b.WriteRune(r)
		case unicode.Is(unicode.M, r): // the accent of the letter before it
		default:
			b.WriteString(transcribed(r))
		}
	}
	return strings.TrimSpace(b.String())
}

func plainASCII(text string) bool {
	for i := range len(text) {
		if text[i] < ' ' || text[i] > '~' {
			return false
		}
	}
	return true
}

// transcriptions are of characters that do not decompose.
var transcriptions = map[rune]string{
	'ß': "ss", 'æ': "ae", 'Æ': "AE", 'ø': "o", 'Ø': "O", 'œ': "oe", 'Œ': "OE", 'đ': "d", 'Đ': "D", 'ð': "d", 'Ð': "D",
	'þ': "th", 'Þ': "Th", 'ł': "l", 'Ł': "L", 'ı': "i", '€': "EUR", '‘': "'", '’': "'", '‚': "'", '“': `"`, '”': `"`,
	'„': `"`, '«': `"`, '»': `"`, '‹': "'", '›': "'", '‐': "-", '‑': "-", '–': "-", '—': "-", '→': "->", '•': "*", '·': "*",
}

func transcribed(r rune) string {
	if text, ok := transcriptions[r]; ok {
		return text
	}
	return "?"
}

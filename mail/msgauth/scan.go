package msgauth

import (
	"errors"
	"strings"
)

// errScan is the error of a text with an open quote, comment or escape, or with
// control characters.
var errScan = errors.New("not structured text")

// word is one part of a structured field body: an atom, a quoted text or a sign.
type word struct {
	text   string // unquoted; "" of a sign
	sign   byte   // one of signs, that stands for itself, or 0
	quoted bool
	joined bool // nothing, not even a comment, stands between this and the word before
}

// maxNesting of comments. Mail has one level; a reader that recurses must not be
// led down a thousand.
const maxNesting = 20

// scan cuts a structured field body (RFC 5322, section 3.2) into words. Comments,
// blanks and folded line ends are between them. An atom is any run of other
// characters, of UTF-8 too.
func scan(s string) (words []word, err error) {
	joined := false
	for i := 0; i < len(s); {
		w := word{joined: joined}
		joined = true
		switch c := s[i]; {
		case c == ' ' || c == '\t' || c == '\r' || c == '\n':
			i++
			joined = false
			continue
		case c < ' ' || c == 0x7f:
			return nil, errScan
		case c == '(':
			if i, err = skipComment(s, i); err != nil {
				return nil, err
			}
			joined = false
			continue
		case c == '"':
			w.quoted = true
			if w.text, i, err = quotedText(s, i+1); err != nil {
				return nil, err
			}
		case strings.IndexByte(signs, c) >= 0:
			w.sign = c
			i++
		default:
			end := i
			for end < len(s) && s[end] > ' ' && s[end] != 0x7f && s[end] != '"' && strings.IndexByte(signs, s[end]) < 0 {
				end++
			}
			w.text, i = s[i:end], end
		}
		words = append(words, w)
	}
	return words, nil
}

// signs stand for themselves. A comment's end without its beginning is one, and so
// is an escape outside quotes: neither has a place in anything well-formed.
const signs = `()<>[]:;@\,.`

// skipComment returns where the comment that begins at i ends.
func skipComment(s string, i int) (end int, err error) {
	depth := 0
	for ; i < len(s); i++ {
		switch s[i] {
		case '\\':
			i++
		case '(':
			if depth++; depth > maxNesting {
				return 0, errScan
			}
		case ')':
			if depth--; depth == 0 {
				return i + 1, nil
			}
		case 0:
			return 0, errScan
		}
	}
	return 0, errScan
}

// quotedText returns the text whose opening quote stands before i, and where it
// ends. Folded line ends in it are not part of it (RFC 5322, section 3.2.4).
func quotedText(s string, i int) (text string, end int, err error) {
	var b strings.Builder
	for ; i < len(s); i++ {
		switch c := s[i]; c {
		case '"':
			return b.String(), i + 1, nil
		case '\\':
			if i++; i == len(s) {
				return "", 0, errScan
			}
			b.WriteByte(s[i])
		case '\r', '\n':
		case 0:
			return "", 0, errScan
		default:
			b.WriteByte(c)
		}
	}
	return "", 0, errScan
}

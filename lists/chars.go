package lists

import (
	"strings"
	"unicode/utf8"
)

// isControl tells the octets that no line may hold: C0 without TAB and the line
// ends, and DEL. C1 controls have two octets and are found by controlIn.
func isControl(c byte) bool {
	return c < ' ' && c != '\t' && c != '\n' && c != '\r' || c == 0x7f
}

// controlIn returns where the first NUL or, without any, the first control
// character of text is, and its class; -1 if there is none.
func controlIn(text string) (at int, c Class) {
	at = -1
	i := 0
	for i < len(text) && text[i]-' ' <= '~'-' ' {
		i++ // printable ASCII, as most lines are as a whole
	}
	for ; i < len(text); i++ {
		switch b := text[i]; {
		case b == 0:
			return i, NUL
		case at >= 0:
		case b < 0x20 && b != '\t', b == 0x7f,
			b == 0xc2 && i+1 < len(text) && text[i+1] >= 0x80 && text[i+1] < 0xa0:
			at, c = i, Control
		}
	}
	return at, c
}

// trim cuts leading and trailing blanks off: space, TAB, U+00A0 and U+3000.
func trim(s string) string { return trimRight(trimLeft(s)) }

func trimLeft(s string) string {
	for len(s) > 0 {
		n := blankAt(s)
		if n == 0 {
			break
		}
		s = s[n:]
	}
	return s
}

func trimRight(s string) string {
	for len(s) > 0 {
		switch c := s[len(s)-1]; {
		case c == ' ' || c == '\t':
			s = s[:len(s)-1]
		case c < utf8.RuneSelf:
			return s
		case strings.HasSuffix(s, "\u00a0"), strings.HasSuffix(s, "\u3000"):
			_, n := utf8.DecodeLastRuneInString(s)
			s = s[:len(s)-n]
		default:
			return s
		}
	}
	return s
}

// blankAt returns the octets of the blank that s begins with, 0 without one.
func blankAt(s string) int {
	switch {
	case s == "":
		return 0
	case s[0] == ' ' || s[0] == '\t':
		return 1
	case s[0] < utf8.RuneSelf:
		return 0
	case strings.HasPrefix(s, "\u00a0"):
		return 2
	case strings.HasPrefix(s, "\u3000"):
		return 3
	}
	return 0
}

// indexBlank returns where the first blank of s is, -1 without one.
func indexBlank(s string) int {
	for i := 0; i < len(s); i++ {
		if c := s[i]; c == ' ' || c == '\t' || c >= utf8.RuneSelf && blankAt(s[i:]) > 0 {
			return i
		}
	}
	return -1
}

package addr

import (
	"strings"
	"unicode"
	"unicode/utf8"

	"golang.org/x/text/unicode/norm"
)

// badRune finds the first character of s that no entry and no sender may hold,
// ASCII or not. The joiners ZWNJ and ZWJ are left to IDNA in a domain.
func badRune(s string, joiners bool) fault {
	for i, r := range s {
		switch {
		case r == 0:
			return fault{NUL, "NUL octet"}
		case r == '\t':
			return syntax("tab in an address")
		case r < ' ' || 0x7F <= r && r <= 0x9F:
			return fault{Control, "control character"}
		case r < utf8.RuneSelf:
		case r == utf8.RuneError && !strings.HasPrefix(s[i:], "\uFFFD"):
			return fault{BadUTF8, "not UTF-8"}
		case joiners && Joiner(r):
		case invisible(r):
			return fault{Invisible, "invisible character"}
		case r == '\uFF20':
			return syntax("full-width @ is no @")
		}
	}
	return fault{}
}

// invisible reports whether r shows nothing, or a blank that is not U+0020:
// format characters (the bidi controls among them), line and paragraph
// separators, and Unicode's default-ignorable code points, all of which UTS 46
// would drop or map in silence.
func invisible(r rune) bool {
	return r != ' ' && unicode.In(r, unicode.Cf, unicode.Zl, unicode.Zp, unicode.Zs,
		unicode.Other_Default_Ignorable_Code_Point, unicode.Variation_Selector)
}

// Fold gives local-part text in NFC and lower case. Normalising comes
// first and last: lower-casing tells I with a dot in one code point from the
// same in two, and J with a caron has a composed form in lower case only.
func Fold(s string) string {
	return norm.NFC.String(lower(norm.NFC.String(s)))
}

// lower is Unicode's full lower-casing without its one context rule: a capital
// sigma has two small forms, by its place in the word, so all three are one here.
// unicode.ToLower alone would take the dot off U+0130, an accent like others.
func lower(s string) string {
	var b strings.Builder
	b.Grow(len(s))
	for _, r := range s {
		switch r {
		case '\u0130':
			b.WriteString("i\u0307")
		case '\u03C2':
			b.WriteRune('\u03C3')
		default:
			b.WriteRune(unicode.ToLower(r))
		}
	}
	return b.String()
}

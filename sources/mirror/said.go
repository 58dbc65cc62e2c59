package mirror

import (
	"strings"
	"unicode"
)

// MaxSaid bounds what an error repeats of a server's words, in octets.
const MaxSaid = 300

// Said is a text of a server as a part of a line: printable, at most MaxSaid octets and a mark where it is cut, and without the
// secret that was sent to it. An empty secret is none.
func Said(text, secret string) string {
	if secret != "" {
		text = strings.ReplaceAll(text, secret, "…")
	}
	text = strings.Map(func(r rune) rune {
		if !unicode.IsPrint(r) {
			return ' '
		}
		return r
	}, strings.ToValidUTF8(text, "?"))
	if len(text) > MaxSaid {
		text = strings.ToValidUTF8(text[:MaxSaid], "") + "…"
	}
	return strings.TrimSpace(text)
}

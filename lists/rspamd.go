package lists

import "strings"

// rspamdLine reads one line of a map: its first word is the key. A value, score or
// symbol behind it says what rspamd makes of a match, not what is listed.
func rspamdLine(r *reading, text string) {
	text = cutAnyHash(text)
	key, _ := cutKey(text, " \t")
	expr := slashed(text)
	switch {
	case expr > 0 && !r.settings.Patterns:
		r.fail(Unsupported, key, "a regular expression")
	case expr > 0:
		if r.utf8(text[:expr]) {
			r.slashedExpression(text[:expr])
		}
	case key == "":
		r.fail(Syntax, text, "an empty key")
	case !r.utf8(key):
	case strings.IndexByte(key, '*') >= 0 && !isWild(key):
		glob := key
		if strings.IndexByte(key, '@') < 0 {
			glob = "*@" + key
		}
		r.wildcard(key, glob, `a pattern with "*"`)
	default:
		r.tableKey(key)
	}
}

// cutAnyHash cuts a comment off, which "#" begins anywhere but behind a backslash.
func cutAnyHash(text string) string {
	for i := 0; i < len(text); i++ {
		if text[i] == '\\' {
			i++
		} else if text[i] == '#' {
			text = text[:i]
		}
	}
	return trimRight(strings.ReplaceAll(text, `\#`, "#"))
}

// slashed tells a key of the form /…/flags, which may hold blanks, from an address
// that begins with a slash: it returns the octets of the one, 0 for the other.
func slashed(text string) int {
	closed := false // a slash, and nothing but letters since
	for i := 1; i < len(text) && text[0] == '/'; i++ {
		switch c := text[i]; {
		case c == '/':
			closed = true
		case closed && blankAt(text[i:]) > 0:
			return i
		case c|0x20 < 'a' || c|0x20 > 'z':
			closed = false
		}
	}
	if closed {
		return len(text)
	}
	return 0
}

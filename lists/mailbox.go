package lists

import "strings"

// mailbox queues an entry that has an "@" or angle brackets: an address, alone or
// as mail programs show it, or one of the forms of a domain or a local-part.
func (r *reading) mailbox(text string) bool {
	for _, header := range [...]string{"mailto:", "from:"} {
		if hasFold(text, header) {
			return r.pasted(trimLeft(text[len(header):]))
		}
	}
	if indexUnquoted(text, "<(") >= 0 {
		return r.pasted(text)
	}
	return r.forms(text)
}

// forms queues an address, or one of the forms of a domain or a local-part that
// have an "@".
func (r *reading) forms(text string) bool {
	at, closed := lastAt(text)
	if !closed {
		return r.fail(Syntax, text, "a quote that is not closed")
	}
	if at < 0 {
		return r.fail(Syntax, text, `no "@" outside quotes`)
	}
	local, name := text[:at], text[at+1:]
	switch {
	case local == "" && strings.HasPrefix(name, "."):
		return r.name(name[1:], Sub) // @.bulk.test
	case local == "":
		return r.name(name, Exact) // @bulk.test
	case local == "*" && strings.HasPrefix(name, "*."):
		return r.name(name[2:], Sub) // *@*.bulk.test
	case local == "*" && strings.HasPrefix(name, "."):
		return r.name(name[1:], Sub) // *@.bulk.test
	case local == "*":
		return r.name(name, Exact) // *@bulk.test
	case local[0] == '*', local[len(local)-1] == '*':
		return r.wildcard(text, text, `a local-part with "*" at an end is a pattern; an address that really has it is written in quotes`)
	case strings.IndexByte(name, '*') >= 0:
		return r.wildcard(name, text, `a "*" inside a name`)
	case name == "":
		return r.local(local) // offers@
	}
	return r.address(text)
}

// pasted queues the address in what a mail program shows: with a display name,
// comments (RFC 5322, section 3.2.2) and angle brackets. What is around the
// address is only checked, and never an entry itself.
func (r *reading) pasted(text string) bool {
	text = outsideComments(text)
	open := indexUnquoted(text, "<")
	if open < 0 {
		return r.plainAddress(text)
	}
	if text[len(text)-1] != '>' {
		return r.fail(Syntax, text[open:], `the address in brackets is not closed by ">" at the end`)
	}
	if i := indexUnquoted(text[:open], notInPhrase); i >= 0 {
		return r.fail(Syntax, text, "the display name has a "+text[i:i+1]+" outside quotes; write one address a line")
	}
	inner := text[open+1 : len(text)-1]
	if inner == "" {
		return r.fail(NullSender, "<>", "the null sender cannot be listed")
	}
	return r.plainAddress(inner)
}

// plainAddress queues an address without brackets and nothing else: a pasted form
// cannot name a domain or a local-part.
func (r *reading) plainAddress(text string) bool {
	at, _ := lastAt(text)
	switch {
	case at <= 0, at == len(text)-1, strings.HasPrefix(text, "<"):
		return r.fail(Syntax, text, "no address")
	case text[0] == '*', text[at-1] == '*', strings.IndexByte(text[at:], '*') >= 0:
		return r.fail(Unsupported, text, `an address with "*" is a pattern`)
	}
	return r.address(text)
}

// lastAt returns where the last "@" outside quotes is, -1 without one. closed is
// false if a quote is open at the end.
func lastAt(text string) (at int, closed bool) {
	if strings.IndexByte(text, '"') < 0 {
		return strings.LastIndexByte(text, '@'), true
	}
	at = -1
	quoted := false
	for i := 0; i < len(text); i++ {
		switch c := text[i]; {
		case c == '"':
			quoted = !quoted
		case quoted && c == '\\':
			i++
		case !quoted && c == '@':
			at = i
		}
	}
	return at, !quoted
}

// outsideComments drops comments in parentheses at the beginning and the end.
func outsideComments(text string) string {
	for strings.HasPrefix(text, "(") {
		n := commentLen(text)
		if n < 0 {
			return text
		}
		text = trimLeft(text[n:])
	}
	first := indexUnquoted(text, "(")
	if first <= 0 {
		return text
	}
	for rest := text[first:]; rest != ""; {
		n := -1
		if rest[0] == '(' {
			n = commentLen(rest)
		}
		if n < 0 {
			return text // what follows is more than comments: not ours to cut
		}
		rest = trimLeft(rest[n:])
	}
	return trimRight(text[:first])
}

// commentLen returns the octets of the comment that text begins with, nested ones
// included; -1 if it is not closed.
func commentLen(text string) int {
	depth := 0
	for i := 0; i < len(text); i++ {
		switch text[i] {
		case '\\':
			i++
		case '(':
			depth++
		case ')':
			if depth--; depth == 0 {
				return i + 1
			}
		}
	}
	return -1
}

// notInPhrase are the characters that make a display name something else: a second
// address, a group, an SMTP command (RFC 5322, section 3.2.3).
const notInPhrase = `()<>[]:;@\,`

// hasFold reports whether text begins with prefix, in any case.
func hasFold(text, prefix string) bool {
	return len(text) >= len(prefix) && strings.EqualFold(text[:len(prefix)], prefix)
}

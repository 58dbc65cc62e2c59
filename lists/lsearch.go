package lists

import "strings"

// lsearchLine reads one logical line of a file that Exim searches: a key, a colon
// or blanks, and the data, which is the reason. Keys that Exim's address lists ask
// for, *@NAME, cover every sender at the name.
func lsearchLine(r *reading, text string) {
	if !r.utf8(text) {
		return
	}
	key, data := cutKey(text, ": \t")
	data = trimLeft(data)
	if rest, ok := strings.CutPrefix(data, ":"); ok {
		data = trimLeft(rest)
	}
	r.because(data)
	switch {
	case key == "":
		r.fail(Syntax, text, "no key before the colon")
	case key[0] == '^':
		r.expression(key, key)
	default:
		r.tableKey(key)
	}
}

// tableKey queues the entry of a key that is looked up as it is: an address without
// brackets, a client, a name, or one of the forms of a domain.
func (r *reading) tableKey(key string) bool {
	switch {
	case key == "<>":
		return r.fail(NullSender, key, "the null sender cannot be listed")
	case key[0] == '<':
		return r.fail(Syntax, key, "a key is written without brackets")
	case isWild(key):
		return r.fail(TooBroad, key, "this covers every sender")
	case looksNet(key):
		return r.networks(key)
	case strings.IndexByte(key, '@') >= 0:
		return r.forms(key)
	}
	return r.bareName(key)
}

// cutKey cuts text before the first of ends outside quotes. A key that stands in
// quotes as a whole comes without them.
func cutKey(text, ends string) (key, rest string) {
	key = text
	if i := indexUnquoted(text, ends); i >= 0 {
		key, rest = text[:i], text[i:]
	}
	return unquote(key), rest
}

// unquote returns what stands in double quotes, if text is one quoted string and
// no more; else text.
func unquote(text string) string {
	if len(text) < 2 || text[0] != '"' {
		return text
	}
	if inner := text[1 : len(text)-1]; text[len(text)-1] == '"' && !strings.ContainsAny(inner, `"\`) {
		return inner // as nearly all are
	}
	var inner strings.Builder
	for i := 1; i < len(text); i++ {
		switch c := text[i]; {
		case c == '"' && i == len(text)-1:
			return inner.String()
		case c == '"':
			return text
		case c == '\\' && i+1 < len(text):
			i++
			inner.WriteByte(text[i])
		default:
			inner.WriteByte(c)
		}
	}
	return text
}

package lists

import (
	"slices"
	"strings"
)

// unboundLine reads one line of unbound.conf(5): a local-zone that refuses, which
// covers the name and all below, and local-data that points to a sink.
func unboundLine(r *reading, text string) {
	text = cutHash(text)
	if hasFold(text, "server:") && len(text) > len("server:") {
		text = trimLeft(text[len("server:"):]) // a clause and its first option on one line
	}
	option, rest, ok := strings.Cut(text, ":")
	option = strings.ToLower(option)
	switch {
	case !ok || !isOption(option):
		r.fail(Syntax, "", "no option of unbound")
	case option != "local-zone" && option != "local-data":
		r.skip(Directive, "")
	case !r.utf8(text):
	case option == "local-zone":
		r.localZone(trimLeft(rest))
	default:
		r.localData(trimLeft(rest))
	}
}

// unboundTransparent are the zone types that let queries pass, or that do not say
// by themselves that the name is refused.
var unboundTransparent = [...]string{"transparent", "typetransparent", "always_transparent", "nodefault", "noview",
	"inform", "inform_redirect", "block_a", "ipset", "truncate"}

// localZone reads NAME TYPE.
func (r *reading) localZone(text string) {
	name, rest, ok := cutString(text)
	kind, more := cutWord(rest)
	kind = strings.ToLower(strings.Trim(kind, `"'`))
	switch {
	case !ok || name == "" || kind == "" || more != "":
		r.fail(Syntax, text, `a local-zone is "NAME" and a type`)
		return
	case slices.Contains(unboundTransparent[:], kind):
		r.skip(Directive, "a zone of type "+kind+" refuses nothing")
		return
	}
	switch kind {
	case "refuse", "deny", "static", "redirect", "inform_deny":
	default:
		if !strings.HasPrefix(kind, "always_") {
			r.fail(Syntax, kind, "no type of a local-zone")
			return
		}
	}
	if name == "." {
		r.fail(TooBroad, text, "the root zone covers every name")
		return
	}
	r.name(name, r.bare)
}

// localData reads one resource record in quotes.
func (r *reading) localData(text string) {
	record, more, ok := cutString(text)
	words := strings.Fields(record)
	if !ok || more != "" || len(words) == 0 {
		r.fail(Syntax, text, "a local-data is one record in quotes")
		return
	}
	switch kind, data := recordType(words[1:]); kind {
	case "":
		r.fail(Syntax, record, "a record without a type")
	case "A", "AAAA":
		switch {
		case len(data) == 1 && isSink(data[0]):
			r.name(words[0], Exact)
		case len(data) == 1 && isIP(data[0]):
			r.fail(NotASink, data[0], "this address is a real host")
		default:
			r.fail(Syntax, record, "a record without an address")
		}
	default:
		r.skip(Directive, "a record of type "+kind)
	}
}

// cutString returns the first word of text, in double or single quotes or without
// any, and the rest without leading blanks; false if a quote is not closed.
func cutString(text string) (word, rest string, ok bool) {
	if text == "" || text[0] != '"' && text[0] != '\'' {
		word, rest = cutWord(text)
		return word, rest, true
	}
	word, rest, ok = strings.Cut(text[1:], text[:1])
	return word, trimLeft(rest), ok
}

// unboundMark tells an option that only unbound has.
func unboundMark(text string) bool {
	return hasFold(text, "local-zone:") || hasFold(text, "local-data:")
}

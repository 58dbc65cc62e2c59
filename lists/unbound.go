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
	"inform", "block_a", "ipset", "truncate"}

// unboundNone are those of them that make no zone of their own: what is above counts.
var unboundNone = [...]string{"nodefault", "noview"}

// unboundMayFree tells a line that may be an exception: any but a comment, a zone that
// refuses and data that lead nowhere, as they are usually written.
func unboundMayFree(text string) bool {
	text = trim(text)
	switch {
	case text == "", text[0] == '#':
		return false
	case hasFold(text, "local-zone:"):
		for _, kind := range unboundTransparent {
			if strings.Contains(text, kind) {
				return true // in the name, perhaps
			}
		}
		return false
	case hasFold(text, "local-data:"):
		for _, sink := range [...]string{` 0.0.0.0"`, ` 127.0.0.1"`, ` ::"`, ` ::1"`, ` 0.0.0.0'`, ` ::'`} {
			if strings.HasSuffix(text, sink) {
				return false
			}
		}
	}
	return !strings.EqualFold(text, "server:")
}

// localZone reads NAME TYPE. The zone of the longest name decides: one that lets queries
// pass is an exception if it is below one that refuses. Data of a name in a zone that
// refuses are answered, but for the types that always do the same.
func (r *reading) localZone(text string) {
	name, rest, ok := cutString(text)
	kind, more := cutWord(rest)
	kind = strings.ToLower(strings.Trim(kind, `"'`))
	switch {
	case !ok || name == "" || kind == "" || more != "":
		r.fail(Syntax, text, `a local-zone is "NAME" and a type`)
		return
	case slices.Contains(unboundTransparent[:], kind):
		if !slices.Contains(unboundNone[:], kind) && r.freed(name, Tree, false) {
			return
		}
		r.skip(Directive, "a zone of type "+kind+" refuses nothing")
		return
	}
	said := blocksTree
	switch kind {
	case "refuse", "deny", "static", "inform_deny":
	case "redirect", "inform_redirect":
		said |= firmly
	default:
		if !strings.HasPrefix(kind, "always_") {
			r.fail(Syntax, kind, "no type of a local-zone")
			return
		}
		said |= firmly
	}
	switch {
	case name == ".":
		r.fail(TooBroad, text, "the root zone covers every name")
	case r.bare == Exact && r.noted(name, blocksName), r.noted(name, said):
	default:
		r.blocked(name, r.bare)
	}
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
			if !r.noted(words[0], blocksName) {
				r.blocked(words[0], Exact)
			}
		case len(data) == 1 && isIP(data[0]):
			if !r.freed(words[0], Exact, true) {
				r.fail(NotASink, data[0], "this address is a real host")
			}
		default:
			r.fail(Syntax, record, "a record without an address")
		}
	case "CNAME", "MX":
		if !r.freed(words[0], Exact, true) {
			r.skip(Directive, "a record of type "+kind)
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

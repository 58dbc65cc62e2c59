package msgauth

import (
	"errors"
	"slices"
	"strings"
)

// The errors of Author.
var (
	errNoFrom    = errors.New("no From field")
	errManyFroms = errors.New("more than one From field")
	errFrom      = errors.New("the From field has not exactly one plain address")
)

// author returns the domain of a message's one author, in canonical form.
func (h *header) author() (string, error) {
	switch values := h.values("from"); len(values) {
	case 0:
		return "", errNoFrom
	case 1:
		return Author(values[0])
	default:
		return "", errManyFroms
	}
}

// Author returns the canonical domain of the one address in the value of a From
// field. Groups, routes and address literals have no part in what a reader takes
// for an author, and are errors; so is whatever RFC 5322, section 3.4, does not
// have.
func Author(value string) (string, error) {
	words, err := scan(value)
	if err != nil {
		return "", errFrom
	}
	spec := words // of an address alone
	if open := indexSign(words, '<'); open >= 0 {
		end := len(words) - 1
		if words[end].sign != '>' || !isPhrase(words[:open]) {
			return "", errFrom
		}
		spec = words[open+1 : end]
	}
	domain := addrSpec(spec)
	if domain == "" {
		return "", errFrom
	}
	return domain, nil
}

func indexSign(words []word, sign byte) int {
	return slices.IndexFunc(words, func(w word) bool { return w.sign == sign })
}

// isPhrase tells a display name: atoms, quoted texts and, as many write without
// quotes, dots (RFC 5322, section 4.1).
func isPhrase(words []word) bool {
	return !slices.ContainsFunc(words, func(w word) bool { return w.sign != 0 && w.sign != '.' })
}

// addrSpec returns the canonical domain of local-part@domain, "" if words are
// something else. Blanks and comments within it (RFC 5322, section 4.4) are read
// in more than one way, so they are something else.
func addrSpec(words []word) string {
	for i, w := range words {
		if i > 0 && !w.joined {
			return ""
		}
	}
	at := indexSign(words, '@')
	if at < 0 || !isDotted(words[:at], true) || !isDotted(words[at+1:], false) {
		return ""
	}
	var domain strings.Builder
	for _, w := range words[at+1:] {
		if w.sign == '.' {
			domain.WriteByte('.')
		}
		domain.WriteString(w.text)
	}
	return canonical(domain.String())
}

// isDotted tells words with a dot between each two of them.
func isDotted(words []word, quoted bool) bool {
	for i, w := range words {
		if i%2 == 1 && w.sign != '.' || i%2 == 0 && (w.sign != 0 || w.quoted && !quoted) {
			return false
		}
	}
	return len(words)%2 == 1
}

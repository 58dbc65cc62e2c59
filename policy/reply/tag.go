package reply

import "strings"

// Tag is what a header field, or a quarantine, says of a message that a list has a match
// for. The zero Tag is none.
type Tag struct{ List, Ref string }

// String is the text of the field, in printable ASCII.
func (t Tag) String() string {
	if t == (Tag{}) {
		return ""
	}
	word := strings.Map(func(r rune) rune {
		if r <= ' ' || r > '~' || strings.ContainsRune(`"(),;<=>[\]`, r) {
			return '?'
		}
		return r
	}, t.List)
	return "list=" + word + " ref=" + t.Ref
}

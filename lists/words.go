package lists

import (
	"fmt"
	"slices"
)

// The words are part of blockd's JSON output: see docs/lists.md, section 9.
var (
	kindWords   = [...]string{Skip: "skip", Err: "err", Addr: "addr", Domain: "domain", IP: "ip", CIDR: "cidr", Glob: "glob", Regexp: "regexp", Recipient: "recipient"}
	scopeWords  = [...]string{Exact: "exact", Sub: "sub", Tree: "tree", Local: "local"}
	actionWords = [...]string{Block: "block", Allow: "allow", Tempfail: "tempfail", Discard: "discard",
		AllowIfAuth: "allow-if-auth", Remove: "remove"}
)

// String returns the word of k in lint's output, "kind(N)" for another number.
func (k Kind) String() string { return word(kindWords[:], "kind", uint8(k)) }

// String returns the word of s in lint's output, "scope(N)" for another number.
func (s Scope) String() string { return word(scopeWords[:], "scope", uint8(s)) }

// String returns the word of a in lint's output, "action(N)" for another number.
func (a Action) String() string { return word(actionWords[:], "action", uint8(a)) }

// Allows reports whether a is an exception of either kind, and refuses nobody.
func (a Action) Allows() bool { return a == Allow || a == AllowIfAuth }

func word(words []string, name string, i uint8) string {
	if int(i) < len(words) {
		return words[i]
	}
	return fmt.Sprintf("%s(%d)", name, i)
}

// ParseKind is the inverse of Kind.String.
func ParseKind(text string) (Kind, bool) {
	i := slices.Index(kindWords[:], text)
	return Kind(max(i, 0)), i >= 0
}

// ParseScope is the inverse of Scope.String.
func ParseScope(text string) (Scope, bool) {
	i := slices.Index(scopeWords[:], text)
	return Scope(max(i, 0)), i >= 0
}

// ParseAction is the inverse of Action.String for the action of a list, which is
// "block" or "allow"; "" is Block. The other actions belong to single entries.
func ParseAction(text string) (Action, error) {
	if text == "" {
		return Block, nil
	}
	if i := slices.Index(actionWords[:Allow+1], text); i >= 0 {
		return Action(i), nil
	}
	return Block, fmt.Errorf(`want "block" or "allow", have %q`, text)
}

// EntryAction reads the action of a single entry as a program writes it: "block", "allow", "tempfail" or "discard".
func EntryAction(word string) (a Action, ok bool) {
	i := slices.Index(actionWords[:Discard+1], word)
	return Action(max(i, 0)), i >= 0
}

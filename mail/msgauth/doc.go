// Package msgauth collects facts about where a message comes from: what SPF says
// of its client (RFC 7208), which of its DKIM signatures hold (RFC 6376), who its
// one author is, and whether these names belong together. It decides nothing.
//
// Everything that it reads is hostile: the message, the records that its sender
// publishes, and the time that their servers take. A fact is therefore Pass, No,
// Unknown or Short, and only Pass may ever be taken for proof. Unknown means that it could
// not be told now, because of DNS; Short, because of us: nobody may be refused for that.
package msgauth

// State is what came of looking for one proof.
type State uint8

// The states.
const (
	No      State = iota // there is no such proof, and asking again would not help
	Pass                 // proved
	Unknown              // could not be told now
	Short                // could not be told, for want of room here or beyond a bound of ours
)

// String returns "no", "pass" or "unknown".
func (s State) String() string {
	switch s {
	case Pass:
		return "pass"
	case Unknown, Short:
		return "unknown"
	}
	return "no"
}

// or is the better of two: a pass, else what may still be one, ours before DNS.
func (s State) or(o State) State {
	if s == Pass || o == Pass {
		return Pass
	}
	return max(s, o)
}

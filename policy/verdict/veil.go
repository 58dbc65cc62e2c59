package verdict

import (
	"blockd/index"
	"blockd/mail/addr"
)

// Veil says whose entries a caller may not see. nil = it may see all.
type Veil func(owner addr.Key) (hidden bool)

// Hides reports whether some matches of v are hidden.
func (h Veil) Hides(v *Verdict) bool {
	for i := 0; h != nil && i < v.owned; i++ {
		if h(v.Matches[i].Owner) {
			return true
		}
	}
	return false
}

// Veil returns v as a caller sees it who may know what is decided for a recipient, and not all entries of its owners. It is to be
// shown, and not to be decided again. at has the places of the matches of v in those that are left; -1 = it is hidden.
func (v Verdict) Veil(hides Veil) (veiled Verdict, at []int) {
	at = make([]int, len(v.Matches))
	left, owned := make([]index.Match, 0, len(v.Matches)), 0
	for i := range v.Matches {
		if at[i] = len(left); i < v.owned && hides(v.Matches[i].Owner) {
			at[i] = -1
			continue
		}
		if left = append(left, v.Matches[i]); i < v.owned {
			owned++
		}
	}
	moved := func(i int) int {
		if i < 0 {
			return i
		}
		return at[i]
	}
	v.Matches, v.owned = left, owned
	v.Decider, v.Shadow, v.excused = moved(v.Decider), moved(v.Shadow), moved(v.excused-1)+1
	return v, at
}

package verdict

import (
	"slices"

	"blockd/index"
	"blockd/lists"
)

// Own returns v as it is for a recipient whose owners have entries that cover the sender, or that are about the
// recipient itself: the most telling first, those of owners before those of everybody.
func (v Verdict) Own(entries []index.Match) Verdict {
	v.Matches = slices.Concat(entries, v.Matches)
	for v.owned = 0; v.owned < len(entries) && entries[v.owned].Owner.Text != ""; v.owned++ {
	}
	v.Decide(nil)
	return v
}

// Owner is the owner whose entry logs and the history name; "" where that is an entry of everybody.
func (v *Verdict) Owner() string {
	if i := v.Told(); i >= 0 && i < v.owned {
		return v.Matches[i].Owner.Text
	}
	return ""
}

// Owned reports whether v is for one recipient alone, by entries that are about it.
func (v *Verdict) Owned() bool { return len(v.Matches) > 0 && v.AboutRecipient(0) }

// AboutRecipient reports whether Matches[i] is about the recipient: an entry of his owner, or one that refuses his address.
func (v *Verdict) AboutRecipient(i int) bool {
	return i < v.owned || v.Matches[i].Kind == lists.Recipient
}

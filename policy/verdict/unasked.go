package verdict

import (
	"errors"

	"blockd/index"
)

// Unasked is a list whose store could not be asked about the sender (package ask), so that nobody knows whether it has it.
type Unasked struct {
	Row    int   // of Verdict.Lists
	Defers bool  // mail that no other list decides about is put off
	Allows bool  // the list may hold an exception
	Faint  bool  // the list has no filter, and is as if it were empty for mail that no other list blocks
	Err    error // one line
}

// ErrUnasked is wrapped by Verdict.Err where no list decides and one could not be asked.
var ErrUnasked = errors.New("a list could not be asked")

// unasked reports whether a list that counts could not be asked.
func (v *Verdict) unasked(only map[string]bool, which func(*Unasked) bool) bool {
	for i := range v.Unasked {
		u := &v.Unasked[i]
		source := &v.Lists[u.Row].Source
		if source.Mode != index.Shadow && (only == nil || only[source.List]) && which(u) {
			return true
		}
	}
	return false
}

// doubt says what follows from the lists that could not be asked, for a verdict that is decided by all others. Where
// mail is put off, the verdict is Unknown: no door says yes or no. Decider stays the entry that would decide.
func (v *Verdict) doubt(only map[string]bool) {
	switch {
	case len(v.Unasked) == 0 || v.Kind == Unknown || v.Frees():
	case v.Kind == Blocked:
		v.Unlifted = v.unasked(only, func(u *Unasked) bool {
			reach := v.Lists[u.Row].Source.Reach()
			return u.Allows && (reach == index.AllExceptions || reach == index.OwnExceptions && v.Lists[u.Row].Source.List == v.ListName(v.Decider))
		})
		if v.Unlifted {
			v.Kind = Unknown
		}
	default:
		counts := func(u *Unasked) bool { return !u.Faint && v.rests(v.Lists[u.Row].Source.List, false) == "" }
		v.PutOff = v.unasked(only, func(u *Unasked) bool { return u.Defers && counts(u) })
		if v.PutOff || v.Kind == Clear && v.unasked(only, counts) {
			v.Kind = Unknown
		}
	}
}

// UnaskedLists are the names of the lists that could not be asked; nil if there are none.
func (v *Verdict) UnaskedLists() (names []string) {
	for i := range v.Unasked {
		names = append(names, v.Lists[v.Unasked[i].Row].Source.List)
	}
	return names
}

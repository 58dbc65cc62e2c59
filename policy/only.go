package policy

// Only returns v as it would be if there were one list alone. A list that has no
// match makes it Clear, and so does one in shadow mode.
func (v Verdict) Only(list string) Verdict {
	if len(v.Matches) > 0 {
		v.decide(map[string]bool{list: true})
	}
	return v
}

package verdict

// pardoning are the proofs that have an Excusable sender not be refused: that its mail comes from its domain.
const pardoning = SPFProof | DKIMProof

// pardons reports whether the entry Matches[i], which refuses, does not refuse this sender. Entries of LiveList do:
// whoever adds one has this sender in mind.
func (v *Verdict) pardons(i int, found Proof) bool {
	return v.Excusable && found&pardoning != 0 && v.ListName(i) != LiveList
}

// LiveList is the name of the list of live entries.
const LiveList = "live"

// pardon sets Pardoned of a sender that would be blocked without its proof.
func (v *Verdict) pardon(only map[string]bool, found Proof) {
	if !v.Excusable || found&pardoning == 0 || v.Kind == Blocked {
		return
	}
	v.Excusable = false
	kind, i := v.Judge(only, found)
	v.Excusable = true
	if kind == Blocked {
		v.Pardoned = true
		if v.Decider < 0 {
			v.excused = i + 1
		}
	}
}

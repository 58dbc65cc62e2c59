package policy

import "blockd/addr"

// Explanation says how a verdict came about, for `explain=1` of HTTP.
type Explanation struct {
	Keys    []ExplainedKey `json:"keys"`            // all that were looked up, never null
	Decider int            `json:"decider"`         // index of the match that decided; -1 none
	Shadow  int            `json:"shadow"`          // index of the match that would have refused; -1 none
	Error   string         `json:"error,omitempty"` // of an unknown verdict: why
}

// ExplainedKey is one key of a sender and what the lists have under it.
type ExplainedKey struct {
	Key     string `json:"key"`
	Kind    string `json:"kind"`    // "addr" or "domain", as in a match
	Matches []int  `json:"matches"` // indexes into the answer's matches, never null
}

// Explain explains v.
func (v Verdict) Explain() Explanation {
	e := Explanation{Keys: []ExplainedKey{}, Decider: v.Decider, Shadow: v.Shadow}
	if v.Err != nil {
		e.Error = v.Err.Error()
	}
	for _, k := range v.Sender.Keys(make([]addr.Key, 0, addr.MaxKeys)) {
		key := ExplainedKey{Key: k.Text, Kind: kindWord(k.Kind), Matches: []int{}}
		for i := range v.Matches {
			if v.Matches[i].Key.Text == k.Text {
				key.Matches = append(key.Matches, i)
			}
		}
		e.Keys = append(e.Keys, key)
	}
	return e
}

package policy

import (
	"blockd/addr"
	"blockd/index"
	"blockd/lists"
	"blockd/verdict"
)

// Explanation says how a verdict came about, for `explain=1` of HTTP.
type Explanation struct {
	Keys    []ExplainedKey `json:"keys" doc:"all that were looked up"`
	Decider int            `json:"decider" minimum:"-1" doc:"index of the match that decided; -1: none"`
	Shadow  int            `json:"shadow" minimum:"-1" doc:"index of the match that would have refused, had its list counted; -1: none"`
	Reply   string         `json:"reply,omitempty" doc:"what SMTP says to a recipient that is not exempt; ID stands for the reference"`
	Error   string         `json:"error,omitempty" doc:"of an unknown verdict: why"`

	Decision Decision `json:"-"` // about mail to the verdict's recipient
}

// ExplainedKey is one key of a sender, network of a client or pattern, and what
// the lists have under it. Patterns are shown only where they match.
type ExplainedKey struct {
	Key     string `json:"key"`
	Kind    string `json:"kind" doc:"as in a match"`
	Filter  string `json:"filter" enum:",perhaps,no" doc:"empty where the filter was not asked"`
	Exact   string `json:"exact" enum:",listed,not listed" doc:"empty where the store was not asked"`
	Matches []int  `json:"matches" doc:"indexes into the answer's matches"`
}

// The answers of the two halves.
const (
	filterPerhaps  = "perhaps"
	filterNo       = "no"
	exactListed    = "listed"
	exactNotListed = "not listed"
)

// Explain explains v, one of the answers of AskAll. After Reset it does not know what the
// filter and the store have answered.
func (b *Batch) Explain(v *verdict.Verdict) Explanation {
	c := b.checker
	e := Explanation{Keys: []ExplainedKey{}, Decider: v.Decider, Shadow: v.Shadow}
	if v.Err != nil {
		e.Error = v.Err.Error()
	}
	e.Decision = c.decideAsked(*v, v.Recipient)
	if v.Kind == verdict.Blocked {
		if o := c.consequence(&questions, v).Outcome; o == Refuse || o == Defer {
			e.Reply = c.words(v, o, v.ListName(v.Decider), "ID").String()
		}
	}
	for _, p := range b.probe(v) {
		e.Keys = append(e.Keys, explainedKey(p))
	}
	for i, m := range v.Matches {
		e.note(i, m)
	}
	return e
}

// probe returns the keys of v and, if they are to be had, both halves' answers.
func (b *Batch) probe(v *verdict.Verdict) []index.Probe {
	keys := v.Sender.Keys(nil)
	if v.Domain.Text != "" {
		keys = v.Domain.AndParents(keys)
	}
	if b.index != nil {
		if probes, err := b.index.Probe(keys, v.Client); err == nil {
			return probes
		}
	}
	probes := make([]index.Probe, len(keys))
	for i := range keys {
		probes[i].Key = keys[i]
	}
	return probes
}

func explainedKey(p index.Probe) ExplainedKey {
	k := ExplainedKey{Key: p.Key.Text, Kind: lists.Addr.String(), Matches: []int{}}
	switch {
	case p.Net.IsSingleIP():
		k.Key, k.Kind = p.Net.Addr().String(), lists.IP.String()
	case p.Net.IsValid():
		k.Key, k.Kind = p.Net.String(), lists.CIDR.String()
	case p.Key.Kind == addr.Domain:
		k.Kind = lists.Domain.String()
	}
	if !p.Asked {
		return k
	}
	if k.Filter = filterNo; p.Perhaps {
		k.Filter, k.Exact = filterPerhaps, exactNotListed
	}
	if p.Listed {
		k.Exact = exactListed
	}
	return k
}

// note puts the i-th match to its key, or adds that: a pattern has none.
func (e *Explanation) note(i int, m index.Match) {
	name, kind := m.Name(), m.Kind.String()
	for k := range e.Keys {
		if e.Keys[k].Key == name && e.Keys[k].Kind == kind {
			e.Keys[k].Matches = append(e.Keys[k].Matches, i)
			return
		}
	}
	e.Keys = append(e.Keys, ExplainedKey{Key: name, Kind: kind, Matches: []int{i}})
}

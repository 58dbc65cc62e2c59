package verdict

import (
	"blockd/index"
	"blockd/lists"
	"blockd/mail/addr"
)

// ExplainedKey is one key of a sender, network of a client or pattern, and what
// the lists have under it. Patterns are shown only where they match.
type ExplainedKey struct {
	Key     string `json:"key"`
	Kind    string `json:"kind" doc:"as in a match; owner: the key tells whether an owner of the recipient has entries"`
	Owner   string `json:"owner,omitempty" doc:"whose entry the key would have; absent: everybody's"`
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

// ExplainKey is the key that p was about, without matches.
func ExplainKey(p index.Probe) ExplainedKey {
	k := ExplainedKey{Key: p.Key.Text, Kind: lists.Addr.String(), Owner: p.Owner.Text, Matches: []int{}}
	switch {
	case p.Marks():
		k.Key, k.Kind = p.Owner.Text, "owner"
	case p.Recipient:
		k.Key, k.Kind = "recipient:"+p.Key.Text, lists.Recipient.String()
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

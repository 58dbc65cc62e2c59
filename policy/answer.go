package policy

import (
	"blockd/addr"
	"blockd/index"
)

// Answer is a verdict as `blockd check --json` and HTTP print it. Field names
// and their order are part of blockd's interface.
type Answer struct {
	Input      string        `json:"input"`  // as asked
	Sender     string        `json:"sender"` // canonical; "" for <> and for what is no sender
	Verdict    Kind          `json:"verdict"`
	Matches    []AnswerMatch `json:"matches"` // never null
	Generation string        `json:"generation"`
}

// AnswerMatch is one entry that covers the sender, the most specific first.
type AnswerMatch struct {
	List   string `json:"list"`
	File   string `json:"file"`
	Line   int    `json:"line"`
	Entry  string `json:"entry"` // its canonical key
	Kind   string `json:"kind"`  // "addr" or "domain"
	Scope  string `json:"scope"`
	Action string `json:"action"`
	Reason string `json:"reason"`
	Mode   string `json:"mode,omitempty"` // "shadow": the match does not count
}

// Answer puts v into the form for programs. input is the text that was asked.
func (v Verdict) Answer(input string) Answer {
	a := Answer{Input: input, Sender: v.Sender.String(), Verdict: v.Kind,
		Matches: make([]AnswerMatch, len(v.Matches)), Generation: v.Generation}
	for i := range v.Matches {
		m, source := &v.Matches[i], &v.Lists[v.Matches[i].Row].Source
		a.Matches[i] = AnswerMatch{List: source.List, File: source.Path, Line: m.Line, Entry: m.Key.Text,
			Kind: kindWord(m.Key.Kind), Scope: m.Scope.String(), Action: m.Action.String(), Reason: m.Reason}
		if source.Mode == index.Shadow {
			a.Matches[i].Mode = source.Mode.String()
		}
	}
	return a
}

// kindWord is the word that lint has for such a key, where a local-part counts
// as an address.
func kindWord(k addr.Kind) string {
	if k == addr.Domain {
		return "domain"
	}
	return "addr"
}

package policy

import "blockd/index"

// Answer is a verdict as `blockd check --json` and HTTP print it. Field names
// and their order are part of blockd's interface.
type Answer struct {
	Input      string        `json:"input"`  // as asked
	Sender     string        `json:"sender"` // canonical; "" for <>, for what is no sender, and where none was asked about
	Client     string        `json:"client,omitempty"`
	Domain     string        `json:"domain,omitempty"` // of a question about a domain: canonical
	Verdict    Kind          `json:"verdict"`
	Matches    []AnswerMatch `json:"matches"` // never null
	Generation string        `json:"generation"`
}

// AnswerMatch is one entry that covers what was asked about, the most specific
// first.
type AnswerMatch struct {
	List   string `json:"list"`
	File   string `json:"file"`
	Line   int    `json:"line"`
	Entry  string `json:"entry"` // in canonical form
	Kind   string `json:"kind"`  // "addr" (local-parts too), "domain", "ip", "cidr", "glob" or "regexp"
	Scope  string `json:"scope"`
	Action string `json:"action"`
	Reason string `json:"reason"`
	Mode   string `json:"mode,omitempty"` // "shadow": the match does not count
}

// Answer puts v into the form for programs. input is the text that was asked.
func (v Verdict) Answer(input string) Answer {
	a := Answer{Input: input, Sender: v.Sender.String(), Verdict: v.Kind,
		Domain: v.Domain.Text, Matches: make([]AnswerMatch, len(v.Matches)), Generation: v.Generation}
	if v.Client.IsValid() {
		a.Client = v.Client.String()
	}
	for i := range v.Matches {
		m, source := &v.Matches[i], &v.Lists[v.Matches[i].Row].Source
		a.Matches[i] = AnswerMatch{List: source.List, File: source.Path, Line: m.Line, Entry: m.Name(),
			Kind: m.Kind.String(), Scope: m.Scope.String(), Action: m.Action.String(), Reason: m.Reason}
		if source.Mode == index.Shadow {
			a.Matches[i].Mode = source.Mode.String()
		}
	}
	return a
}

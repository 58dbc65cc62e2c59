package httpapi

import (
	"bytes"
	"strings"

	"blockd/policy"
)

// The sandbox: questions that always have the same answer, for who writes a program
// that asks. No list is looked at and nothing is counted, so a daemon with any lists
// answers them alike. The names are below .invalid, which nobody can have (RFC 6761,
// section 6.4), and the addresses in the prefix that goes nowhere (RFC 6666): no mail
// comes from them, so no answer about mail is hidden.
const (
	sandboxName       = "sandbox" // of the list and of the generation
	sandboxDomain     = "sandbox.blockd.invalid"
	sandboxReason     = "the sandbox always answers so"
	sandboxClear      = "100::1"
	sandboxBlocked    = "100::2" // 127.0.0.2 of DNS lists is listed, 127.0.0.1 is not (RFC 5782, section 5)
	sandboxAllowed    = "100::3"
	sandboxUnreadable = "100::4"
)

// sandbox is the answer to what a question is about, if it belongs to the sandbox.
func sandbox(about subject, input string) (answer, bool) {
	var kind policy.Kind
	a := answer{Answer: policy.Answer{Input: input, Matches: []policy.AnswerMatch{}, Generation: sandboxName}, Sandbox: true}
	match := policy.AnswerMatch{List: sandboxName, Reason: sandboxReason}
	switch about {
	case aClient:
		switch input {
		case sandboxClear:
			kind = policy.Clear
		case sandboxBlocked:
			kind = policy.Blocked
		case sandboxAllowed:
			kind = policy.Allowed
		case sandboxUnreadable:
			kind = policy.Unknown
		default:
			return a, false
		}
		a.Client = input
		match.Entry, match.Kind, match.Scope = input, "ip", "exact"
	case aDomain:
		name := strings.ToLower(input)
		if kind = sandboxKind(strings.CutSuffix(name, "."+sandboxDomain)); kind == "" {
			return a, false
		}
		a.Domain = name
		match.Entry, match.Kind, match.Scope = name, "domain", "tree"
	case aSender:
		if len(input) < len(sandboxDomain) || len(input) > 2*len(sandboxDomain) { // nearly all senders end here or in the next line
			return a, false
		}
		name := strings.ToLower(strings.TrimSuffix(strings.TrimPrefix(input, "<"), ">"))
		if kind = sandboxKind(strings.CutSuffix(name, "@"+sandboxDomain)); kind == "" {
			return a, false
		}
		a.Sender = name
		match.Entry, match.Kind, match.Scope = name, "addr", "exact"
	}
	a.Verdict = kind
	switch kind {
	case policy.Blocked:
		match.Action = "block"
		a.Matches = append(a.Matches, match)
	case policy.Allowed:
		match.Action = "allow"
		a.Matches = append(a.Matches, match)
	case policy.Unknown:
		a.Sender, a.Domain = "", "" // as of every text that is no sender
	}
	return a, true
}

// sandboxKind is the verdict that a name in the sandbox stands for; "" for others.
func sandboxKind(name string, inside bool) policy.Kind {
	switch kind := policy.Kind(name); {
	case !inside:
	case kind == policy.Blocked, kind == policy.Allowed, kind == policy.Clear, kind == policy.Unknown:
		return kind
	}
	return ""
}

// explained is a with the explanation that a list of this one entry would have.
func (a answer) explained() answer {
	e := policy.Explanation{Keys: []policy.ExplainedKey{}, Decider: -1, Shadow: -1}
	for i, m := range a.Matches {
		e.Decider = i
		e.Keys = append(e.Keys, policy.ExplainedKey{Key: m.Entry, Kind: m.Kind, Filter: "perhaps", Exact: "listed", Matches: []int{i}})
	}
	if a.Verdict == policy.Unknown {
		e.Error = sandboxReason
	}
	a.Explain = &e
	return a
}

// appendJSON appends a, without a line end.
func (a answer) appendJSON(dst []byte) []byte {
	var b bytes.Buffer
	encoder(&b).Encode(a) // strings and numbers, and a Buffer: nothing can fail
	return append(dst, bytes.TrimSuffix(b.Bytes(), []byte("\n"))...)
}

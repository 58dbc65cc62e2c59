package policy

import (
	"log/slog"
	"net/netip"

	"blockd/addr"
	"blockd/index"
	"blockd/lists"
)

// Verdict is the decision about one envelope, client or domain, by one
// generation. It holds copies only and keeps no generation in memory.
type Verdict struct {
	Kind       Kind
	Sender     addr.Addr        // canonical; zero for <>, for what is no sender, and where none was asked about
	Client     netip.Addr       // zero if it is not known
	Domain     addr.Key         // of a question about a domain; else zero
	Source     Source           // where Sender stood
	Matches    []index.Match    // all of them, the most specific first
	Lists      []index.ListInfo // the table that Match.Row points into
	Decider    int              // index into Matches of the entry that decided; -1 none
	Shadow     int              // index into Matches of the entry that would have refused, had its list counted; -1 none
	Generation string
	Seen       Seen // set by the front door, for the history

	// Of allow entries that need proof (docs/auth.md).
	Evidence   Evidence // what was found so far
	Wants      Proof    // of a blocked sender: any one of them that were found would have it allowed
	Unsure     Proof    // of a blocked sender: those that would have it allowed, and DNS did not say
	Unverified bool     // allowed on the sender's word against an entry that blocks
	allows     *allowRules

	// Err says why v is Unknown. *addr.Error: no sender or no domain; else the
	// store. It stands beside another verdict only where the text is no sender and
	// an entry for the client decided.
	Err error
}

// decide sets Kind, Decider and Shadow from Matches. Their order is the most
// specific first and the first list between equals, so the first that counts
// decides. Lists that are not in only have no part in it; nil means all.
func (v *Verdict) decide(only map[string]bool) {
	v.Kind, v.Decider, v.Shadow = Clear, -1, -1
	v.Wants, v.Unsure, v.Unverified = 0, 0, false
	needs := Proof(0) // of allow entries that do not count
	for i := range v.Matches {
		switch {
		case v.mode(i) == index.Shadow || !v.counts(i, only):
		case v.Matches[i].Action.Allows():
			s := v.standing(i)
			if s.why == "" {
				v.Kind, v.Decider = Allowed, i
				v.Unverified = s.plain && v.blocks(only)
				return
			}
			needs |= s.needs
		case v.Decider < 0:
			v.Kind, v.Decider = Blocked, i // unless an allow follows
		}
	}
	if v.Kind == Blocked {
		v.Wants, v.Unsure = needs&^v.Evidence.Tried, needs&v.Evidence.Unknown
		if v.Source == EnvelopeSource {
			v.Wants &^= ClientProof // it is with Client, or never
		}
	}
	if v.Kind == Clear {
		v.Shadow = v.shadow(only)
		if v.Err != nil {
			v.Kind = Unknown // nothing but the client could be judged
		}
	}
}

// shadow finds the entry that would have refused a sender whom nothing that
// counts refuses or allows, or -1. Each list in shadow mode is judged alone, as
// its operator will when turning it on: its own allow entries excuse its blocks,
// and those of another shadow list do not.
func (v *Verdict) shadow(only map[string]bool) int {
	for i := range v.Matches {
		if v.counts(i, only) && !v.Matches[i].Action.Allows() && !v.allowedBy(v.ListName(i)) {
			return i
		}
	}
	return -1
}

func (v *Verdict) counts(i int, only map[string]bool) bool {
	return only == nil || only[v.ListName(i)]
}

func (v *Verdict) allowedBy(list string) bool {
	for i := range v.Matches {
		if v.ListName(i) == list && v.Matches[i].Action.Allows() && v.standing(i).why == "" {
			return true
		}
	}
	return false
}

// blocks reports whether an entry that counts would block without exceptions.
func (v *Verdict) blocks(only map[string]bool) bool {
	for i := range v.Matches {
		if !v.Matches[i].Action.Allows() && v.mode(i) != index.Shadow && v.counts(i, only) {
			return true
		}
	}
	return false
}

// ListName is the name of the list that Matches[i] stands in.
func (v Verdict) ListName(i int) string { return v.Lists[v.Matches[i].Row].Source.List }

func (v *Verdict) mode(i int) index.Mode { return v.Lists[v.Matches[i].Row].Source.Mode }

// aboutClient reports whether Matches[i] is an entry for client addresses.
func (v *Verdict) aboutClient(i int) bool {
	return v.Matches[i].Kind == lists.IP || v.Matches[i].Kind == lists.CIDR
}

// LogValue gives the fields of a decision's log line: the entry behind it with
// its list, file and line, or what went wrong. Log it under an empty key to have
// them beside the front door's own.
func (v Verdict) LogValue() slog.Value {
	fields := []slog.Attr{slog.String("verdict", string(v.Kind))}
	if i := max(v.Decider, v.Shadow); i >= 0 { // at most one of them is set
		m, source := &v.Matches[i], &v.Lists[v.Matches[i].Row].Source
		fields = append(fields,
			slog.String("list", source.List), slog.String("file", source.Path), slog.Int("line", m.Line),
			slog.String("entry", m.Name()), slog.String("scope", m.Scope.String()),
			slog.String("action", m.Action.String()))
		if m.Reason != "" {
			fields = append(fields, slog.String("reason", m.Reason))
		}
		if v.Decider < 0 {
			fields = append(fields, slog.String("mode", index.Shadow.String()))
		}
	}
	if v.Unverified {
		fields = append(fields, slog.String("proof", "none: believed on the sender's word"))
	} else if v.Kind == Allowed && v.Evidence.Found != 0 {
		fields = append(fields, slog.String("proof", v.Evidence.Found.String()))
	}
	if v.Unsure != 0 {
		fields = append(fields, slog.String("not_told", v.Unsure.String()))
	}
	if v.Err != nil {
		fields = append(fields, slog.String("error", v.Err.Error()))
	}
	return slog.GroupValue(append(fields, slog.String("generation", v.Generation))...)
}

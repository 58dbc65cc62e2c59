package policy

import (
	"log/slog"

	"blockd/addr"
	"blockd/index"
	"blockd/lists"
)

// Verdict is the decision about one sender, by one generation. It holds copies
// only and keeps no generation in memory.
type Verdict struct {
	Kind       Kind
	Sender     addr.Addr        // canonical; zero for <> and for what is no sender
	Matches    []index.Match    // all of them, the most specific first
	Lists      []index.ListInfo // the table that Match.Row points into
	Decider    int              // index into Matches of the entry that decided; -1 none
	Shadow     int              // index into Matches of the entry that would have refused, had its list counted; -1 none
	Generation string
	Err        error // of Unknown: why. *addr.Error: no sender; else the store
}

// decide sets Kind, Decider and Shadow from Matches. Their order is Lookup's,
// the most specific first and the first list between equals, so the first that
// counts decides.
func (v *Verdict) decide() {
	v.Kind = Clear
	for i := range v.Matches {
		switch {
		case v.mode(i) == index.Shadow:
		case v.Matches[i].Action == lists.Allow:
			v.Kind, v.Decider = Allowed, i
			return
		case v.Decider < 0:
			v.Kind, v.Decider = Blocked, i // unless an allow follows
		}
	}
	if v.Kind == Clear {
		v.Shadow = v.shadow()
	}
}

// shadow finds the entry that would have refused a sender whom nothing that
// counts refuses or allows, or -1. Each list in shadow mode is judged alone, as
// its operator will when turning it on: its own allow entries excuse its blocks,
// and those of another shadow list do not.
func (v *Verdict) shadow() int {
	for i := range v.Matches {
		if v.Matches[i].Action != lists.Allow && !v.allowedBy(v.ListName(i)) {
			return i
		}
	}
	return -1
}

func (v *Verdict) allowedBy(list string) bool {
	for i := range v.Matches {
		if v.Matches[i].Action == lists.Allow && v.ListName(i) == list {
			return true
		}
	}
	return false
}

// ListName is the name of the list that Matches[i] stands in.
func (v Verdict) ListName(i int) string { return v.Lists[v.Matches[i].Row].Source.List }

func (v *Verdict) mode(i int) index.Mode { return v.Lists[v.Matches[i].Row].Source.Mode }

// LogValue gives the fields of a decision's log line: the entry behind it with
// its list, file and line, or what went wrong. Log it under an empty key to have
// them beside the front door's own.
func (v Verdict) LogValue() slog.Value {
	fields := []slog.Attr{slog.String("verdict", string(v.Kind))}
	if i := max(v.Decider, v.Shadow); i >= 0 { // at most one of them is set
		m, source := &v.Matches[i], &v.Lists[v.Matches[i].Row].Source
		fields = append(fields,
			slog.String("list", source.List), slog.String("file", source.Path), slog.Int("line", m.Line),
			slog.String("entry", m.Key.Text), slog.String("scope", m.Scope.String()),
			slog.String("action", m.Action.String()))
		if m.Reason != "" {
			fields = append(fields, slog.String("reason", m.Reason))
		}
		if v.Decider < 0 {
			fields = append(fields, slog.String("mode", index.Shadow.String()))
		}
	}
	if v.Err != nil {
		fields = append(fields, slog.String("error", v.Err.Error()))
	}
	return slog.GroupValue(append(fields, slog.String("generation", v.Generation))...)
}

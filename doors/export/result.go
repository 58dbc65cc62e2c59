package export

import (
	"fmt"
	"strings"

	"blockd/internal/term"
	"blockd/lists"
)

// Result is what became of the entries.
type Result struct {
	format   string
	written  int
	narrowed int      // of those: a name with all below became the name
	reduced  int      // of those: without the part that an exception covers
	excepted int      // left out, since an exception covers all of it
	stayed   int      // exceptions left out, since they lift their own list's blocks alone
	unsaid   []unsaid // by kind of entry, in order of appearance

	restricted []Restricted
}

// Restricted is a list that was written and whose licence is known not to let everybody pass it on.
type Restricted struct {
	List    string `json:"list"`
	Licence string `json:"licence"` // its words
}

// Restricted are the lists that may not be passed on, as far as that is known.
func (r *Result) Restricted() []Restricted { return r.restricted }

// unsaid counts the entries of one kind that the format has no words for.
type unsaid struct {
	what string
	n    int
}

func (r *Result) leave(it *lists.Item) {
	what := it.Kind.String()
	switch it.Kind {
	case lists.Addr:
		if what = "address"; it.Scope == lists.Local {
			what = "local-part"
		}
	case lists.Domain:
		what = map[lists.Scope]string{lists.Exact: "name alone", lists.Sub: "names below", lists.Tree: "name with names below"}[it.Scope]
	case lists.IP:
		what = "client address"
	case lists.CIDR:
		what = "client network"
	case lists.Glob, lists.Regexp:
		what = "pattern"
	}
	switch it.Action {
	case lists.Block:
	case lists.AllowIfAuth:
		what += " (allow with proof)"
	default:
		what += " (" + it.Action.String() + ")"
	}
	for i := range r.unsaid {
		if r.unsaid[i].what == what {
			r.unsaid[i].n++
			return
		}
	}
	r.unsaid = append(r.unsaid, unsaid{what, 1})
}

// Partial reports whether something is missing in the list, or covers less.
func (r *Result) Partial() bool {
	return r.narrowed+r.reduced+r.excepted+r.stayed+len(r.unsaid) > 0
}

// Told is a Result for programs.
type Told struct {
	Format     string       `json:"format"`
	Written    int          `json:"written"`
	Partial    bool         `json:"partial"`  // something is missing in the list, or covers less
	Said       string       `json:"said"`     // what people read
	Narrowed   int          `json:"narrowed"` // of the written: a name with all below became the name
	Reduced    int          `json:"reduced"`  // of the written: without the part that an exception covers
	LeftOut    int          `json:"left_out"`
	Restricted []Restricted `json:"restricted"` // never null
}

// Told is r for programs.
func (r *Result) Told() Told {
	t := Told{Format: r.format, Written: r.written, Partial: r.Partial(), Said: r.String(), Narrowed: r.narrowed, Reduced: r.reduced, LeftOut: r.excepted + r.stayed,
		Restricted: append([]Restricted{}, r.restricted...)}
	for _, u := range r.unsaid {
		t.LeftOut += u.n
	}
	return t
}

// String tells people in one line.
func (r *Result) String() string {
	text := fmt.Sprintf("%s: %s written", r.format, term.Counted(r.written, "entry"))
	if r.narrowed > 0 {
		text += fmt.Sprintf(", %s of them as the name alone", term.Grouped(r.narrowed))
	}
	if r.reduced > 0 {
		text += fmt.Sprintf(", %s without what exceptions cover", term.Grouped(r.reduced))
	}
	if r.excepted > 0 {
		text += fmt.Sprintf("; %s under exceptions left out", term.Grouped(r.excepted))
	}
	if r.stayed > 0 {
		text += fmt.Sprintf("; %s left out, since they lift what their own list blocks, and another list blocks too", term.Counted(r.stayed, "exception"))
	}
	if len(r.unsaid) > 0 {
		var parts []string
		for _, u := range r.unsaid {
			parts = append(parts, fmt.Sprintf("%s× %s", term.Grouped(u.n), u.what))
		}
		text += "; left out, since the format cannot say them: " + strings.Join(parts, ", ")
	}
	return text
}

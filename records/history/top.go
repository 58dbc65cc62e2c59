package history

import (
	"cmp"
	"container/heap"
	"context"
	"slices"
	"strings"
	"time"
	"unicode/utf8"
)

const (
	// MaxTop bounds how many rows a Top has.
	MaxTop = 10_000

	// topMemory bounds the names that are counted at a time, in octets: some 400,000
	// addresses. The program takes twice that, and 32 MiB for reading.
	topMemory = 64 << 20

	// maxName is the longest name in octets: a list and a sender. The lower-case form of a text can be longer.
	maxName = maxText + 1 + 3*maxText
)

// Groups are what decisions may be counted by.
func Groups() []string { return []string{"client", "sender", "domain", "list", "recipient", "entry"} }

// TopQuery selects decisions and says what they are counted by.
type TopQuery struct {
	Query         // Limit bounds the rows: 1 to MaxTop
	By     string // one of Groups
	Memory int64  // octets of names in memory; 0: 64 MiB. More go to temporary files

	// Progress is told how many octets are read of how many, if it is not nil.
	Progress func(done, total int64)
}

// Top is what has the most decisions. Its field names are part of blockd's interface.
type Top struct {
	By        string   `json:"by"`
	Decisions uint64   `json:"decisions"` // that fit the query. A folded refusal counts as often as it was repeated
	Without   uint64   `json:"without"`   // of Decisions: those without a client, a domain, a list, an entry or a recipient
	Distinct  uint64   `json:"distinct"`  // names
	Rows      []TopRow `json:"top"`       // the most decisions first, and names in their order where these are equal; never null
	Damaged   int      `json:"damaged"`   // lines that were left out
}

// TopRow is one name and its decisions.
type TopRow struct {
	Name      string  `json:"name"` // in lower case; <> is the null sender
	Decisions uint64  `json:"decisions"`
	Share     float64 `json:"share"` // of all decisions that fit, 0 to 1
}

// Most counts the decisions in a folder and returns the names with the most. The counts are
// exact. A daemon may write there meanwhile. The error is that of ctx or of a disk; for a
// missing folder it wraps fs.ErrNotExist.
func Most(ctx context.Context, folder string, q TopQuery) (Top, error) {
	top := Top{By: q.By, Rows: []TopRow{}}
	names := newTally(cmp.Or(q.Memory, topMemory))
	defer names.close()
	var full error
	w := walker{since: q.Since, until: q.Until, parts: q.parts(), passing: passingBy(folder, &q.Query), progress: q.Progress, each: func(r *Record) bool {
		if !q.matches(r) {
			return true
		}
		q.narrow(r)
		n, named := r.Times(), r.timesOf(q.By)
		top.Decisions += n
		top.Without += n - named
		if named > 0 {
			full = names.add(nameOf(r, q.By), named)
		}
		return full == nil
	}}
	if err := cmp.Or(w.walk(ctx, folder), full); err != nil {
		return top, err
	}
	top.Damaged = w.damaged
	var rows topRows
	err := names.each(ctx, func(name string, n uint64) {
		top.Distinct++
		rows.offer(TopRow{Name: name, Decisions: n}, min(q.Limit, MaxTop))
	})
	slices.SortFunc(rows, func(a, b TopRow) int { return -compareRows(a, b) })
	for i := range rows {
		rows[i].Share = float64(rows[i].Decisions) / float64(top.Decisions)
	}
	top.Rows = append(top.Rows, rows...)
	return top, err
}

// Counts calls name for the decisions since a time, the newest first, and then use for every name that it had, in no order, with
// how many decisions had it. The counts are exact: names that do not fit into so many octets of memory go to temporary files. A
// decision whose name is "" is left out, and a folded refusal counts as often as it was repeated. The record is valid only during the call.
// Errors are those of Most.
func Counts(ctx context.Context, folder string, since time.Time, memory int64, name func(*Record) string, use func(name string, n uint64)) (damaged int, err error) {
	names := newTally(cmp.Or(memory, topMemory))
	defer names.close()
	var full error
	w := walker{since: since, each: func(r *Record) bool {
		if text := name(r); text != "" {
			full = names.add(text[:min(len(text), maxName)], r.Times())
		}
		return full == nil
	}}
	if err := cmp.Or(w.walk(ctx, folder), full); err != nil {
		return w.damaged, err
	}
	return w.damaged, names.each(ctx, use)
}

// Times is how many decisions r stands for.
func (r *Record) Times() uint64 { return uint64(max(r.Repeated, 1)) }

// timesOf is how many of Times have the name of r in a group: those of several recipients are the last one's once,
// and nobody knows whose the others are.
func (r *Record) timesOf(by string) uint64 {
	switch {
	case nameOf(r, by) == "":
		return 0
	case by == "recipient" && r.Several:
		return 1
	}
	return r.Times()
}

// nameOf is what a decision counts for, "" if it has none. Upper and lower case are the same, as
// they are for Search.
func nameOf(r *Record, by string) string {
	switch by {
	case "client":
		if r.Client.IsValid() {
			return r.Client.Unmap().String()
		}
		return ""
	case "list":
		return r.List
	case "entry":
		if r.Entry == "" {
			return ""
		}
		return r.List + " " + r.Entry
	case "recipient":
		return Lower(r.Recipient)
	case "sender":
		return cmp.Or(Lower(r.Sender), "<>")
	default:
		if r.Sender == "" {
			return "<>"
		}
		return Lower(r.Sender[strings.LastIndexByte(r.Sender, '@')+1:])
	}
}

// Lower is s in lower case. A text that is not UTF-8 stays as it is, because its
// lower-case form would be that of other texts too.
func Lower(s string) string {
	if !utf8.ValidString(s) {
		return s
	}
	return strings.ToLower(s)
}

// topRows is a heap with the row that has the least at its root.
type topRows []TopRow

// compareRows is below 0 if a ranks below b.
func compareRows(a, b TopRow) int {
	return cmp.Or(cmp.Compare(a.Decisions, b.Decisions), strings.Compare(b.Name, a.Name))
}

func (t topRows) Len() int           { return len(t) }
func (t topRows) Less(i, j int) bool { return compareRows(t[i], t[j]) < 0 }
func (t topRows) Swap(i, j int)      { t[i], t[j] = t[j], t[i] }
func (t *topRows) Push(row any)      { *t = append(*t, row.(TopRow)) }
func (t *topRows) Pop() any          { panic("rows are replaced, and never popped") }

// offer takes a row if it is among the first k of all that were offered.
func (t *topRows) offer(row TopRow, k int) {
	switch {
	case len(*t) < k:
		heap.Push(t, row)
	case compareRows(row, (*t)[0]) > 0:
		(*t)[0] = row
		heap.Fix(t, 0)
	}
}

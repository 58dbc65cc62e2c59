package main

import (
	"cmp"
	"fmt"
	"io"
	"slices"
	"time"

	"blockd/httpapi"
)

// listingView says how people see lists.
type listingView struct {
	files, overlaps, entries bool
	now                      time.Time
	paint                    paint
}

func (v *listingView) print(w io.Writer, lists httpapi.ListTable) error {
	if len(lists.Worth) == 0 {
		_, err := fmt.Fprintln(w, "no lists")
		return err
	}
	var err error
	if v.files {
		err = v.printFiles(w, lists.Lists)
	} else {
		err = v.printLists(w, lists.Worth)
	}
	if err != nil {
		return err
	}
	if len(lists.Problems) > 0 {
		fmt.Fprintln(w)
	}
	if lists.Lacks != "" {
		fmt.Fprintln(w, v.paint.red(lists.Lacks))
	}
	for _, text := range lists.Problems {
		fmt.Fprintln(w, v.paint.red(visible(text)))
	}
	if len(lists.Remarks) > 0 {
		fmt.Fprintln(w)
	}
	for _, text := range lists.Remarks {
		fmt.Fprintln(w, v.paint.yellow(visible(text)))
	}
	if err := v.printOverlaps(w, lists.Worth); err != nil || !v.entries {
		return err
	}
	return v.printEntries(w, lists.Entries)
}

// listingWidth is for what is no terminal, and what one shows without a break more often
// than not. The names of other lists give way to the width, down to leastName.
const (
	listingWidth = 100
	leastName    = 6
)

func (v *listingView) printLists(w io.Writer, all []httpapi.ListWorth) error {
	width := cmp.Or(terminalWidth(w), listingWidth)
	t := v.listRows(all, width)
	right := []int{2, 3, 4, 6, 8, 9, 10, 11}
	over, longest := 0, 0
	for _, line := range t.lines(right...) {
		over = max(over, columns(line)-width)
	}
	for _, l := range all {
		if len(l.Overlaps) > 0 {
			longest = max(longest, columns(visible(l.Overlaps[0].List)))
		}
	}
	if over > 0 {
		t = v.listRows(all, max(longest-over, leastName))
	}
	return t.print(w, right...)
}

// listRows is the table of lists, with the names of others in so many columns.
func (v *listingView) listRows(all []httpapi.ListWorth, name int) *table {
	t := &table{}
	head := []string{"list", "action", "entries", "keys", "unique", "shared", "age", "state", "hits", "sole", "last"}
	overruled := slices.ContainsFunc(all, func(l httpapi.ListWorth) bool { return l.Overridden != nil && *l.Overridden > 0 })
	if overruled { // most installations have no exceptions, and lines are long
		head = append(head, "overruled")
	}
	t.add(head...)
	for i := range all {
		l := &all[i]
		action := cmp.Or(l.Action, "-")
		if l.Mode == "shadow" {
			action = "shadow"
		}
		shared := ""
		if len(l.Overlaps) > 0 {
			o := l.Overlaps[0]
			shared = fmt.Sprintf("%4s %s", percent(o.Keys, l.Keys), cutName(visible(o.List), name))
		}
		row := []string{visible(l.List), action, grouped(uint64(l.Entries)), grouped(l.Keys),
			fmt.Sprintf("%s %4s", grouped(l.Unique), percent(l.Unique, l.Keys)), shared,
			v.age(l.Modified), v.stateOf(l), countOf(l.Hits), countOf(l.Sole), v.age(l.LastHit)}
		if overruled {
			row = append(row, countOf(l.Overridden))
		}
		t.add(row...)
	}
	return t
}

// cutName is the beginning of a name that is longer than that many columns.
func cutName(name string, width int) string {
	if columns(name) <= width {
		return name
	}
	cut, n := "", 0
	for _, r := range name {
		if n += columnsOf(r); n > width-1 {
			break
		}
		cut += string(r)
	}
	return cut + "…"
}

func (v *listingView) printFiles(w io.Writer, all []httpapi.ListFile) error {
	var t table
	t.add("list", "file", "format", "entries", "errors", "age", "state")
	for i := range all {
		f := &all[i]
		t.add(visible(f.List), shownPath(f.File), visible(f.Format), grouped(uint64(f.Entries)), grouped(uint64(f.Errors)),
			v.age(f.Modified), v.state(f.State))
	}
	return t.print(w, 3, 4, 5)
}

// shownPairs is how many pairs of lists are shown unasked.
const shownPairs = 10

// printOverlaps shows the pairs that have most in common first, as shares of the
// smaller list: that is the one which may not be needed.
func (v *listingView) printOverlaps(w io.Writer, all []httpapi.ListWorth) error {
	type pair struct {
		a, b *httpapi.ListWorth // a has not more keys than b
		keys uint64
	}
	byName := map[string]int{}
	for i := range all {
		byName[all[i].List] = i
	}
	var pairs []pair
	for i := range all {
		for _, o := range all[i].Overlaps {
			k, known := byName[o.List]
			if !known || k <= i {
				continue
			}
			p := pair{a: &all[i], b: &all[k], keys: o.Keys}
			if p.b.Keys < p.a.Keys {
				p.a, p.b = p.b, p.a
			}
			pairs = append(pairs, p)
		}
	}
	if len(pairs) == 0 {
		return nil
	}
	slices.SortStableFunc(pairs, func(p, q pair) int {
		return cmp.Or(cmp.Compare(share(q.keys, q.a.Keys), share(p.keys, p.a.Keys)), cmp.Compare(q.keys, p.keys))
	})
	shown := len(pairs)
	if !v.overlaps {
		shown = min(shown, shownPairs)
	}
	var t table
	t.add("list", "with", "shared keys", "of list", "of with")
	for _, p := range pairs[:shown] {
		t.add(visible(p.a.List), visible(p.b.List), grouped(p.keys), percent(p.keys, p.a.Keys), percent(p.keys, p.b.Keys))
	}
	fmt.Fprintln(w)
	err := t.print(w, 2, 3, 4)
	if more := len(pairs) - shown; more > 0 && err == nil {
		_, err = fmt.Fprintf(w, "%s more: --overlaps\n", counted(more, "pair"))
	}
	return err
}

// shownEntries is how many entries people see.
const shownEntries = 50

// printEntries shows the entries with the most hits. A count that may be another
// entry's in part says so.
func (v *listingView) printEntries(w io.Writer, all []httpapi.EntryWorth) error {
	fmt.Fprintln(w)
	if len(all) == 0 {
		_, err := fmt.Fprintln(w, "no entry had a hit since the start of the daemon")
		return err
	}
	var t table
	t.add("entry", "list", "hits", "sole", "overruled", "last")
	for i := range all[:min(len(all), shownEntries)] {
		e := &all[i]
		hits := grouped(e.Hits)
		if e.AtMostOver > 0 {
			hits = grouped(e.Hits-e.AtMostOver) + " to " + hits
		}
		t.add(visible(e.Entry), fmt.Sprintf("%s:%d", visible(e.List), e.Line), hits, grouped(e.Sole), grouped(e.Overridden), v.age(&e.LastHit))
	}
	return t.print(w, 2, 3, 4, 5)
}

// stateOf is the state of a list, with the number of its entries that are held back.
func (v *listingView) stateOf(l *httpapi.ListWorth) string {
	if l.Held == 0 {
		return v.state(l.State)
	}
	held := v.paint.yellow(grouped(uint64(l.Held)) + " held back")
	if l.State == httpapi.ListHeld {
		return held
	}
	return v.state(l.State) + ", " + held
}

func (v *listingView) state(s httpapi.ListState) string {
	switch s {
	case httpapi.ListOK:
		return string(s)
	case httpapi.ListStale, httpapi.ListPartial, httpapi.ListHeld:
		return v.paint.yellow(string(s))
	}
	return v.paint.red(visible(string(s)))
}

// age is how long ago at was, "-" if nobody knows.
func (v *listingView) age(at *time.Time) string {
	if at == nil {
		return "-"
	}
	return span(v.now.Sub(*at))
}

// span is about how long d is, 0 at least.
func span(d time.Duration) string {
	switch d = max(d, 0); {
	case d < 2*time.Minute:
		return fmt.Sprintf("%ds", d/time.Second)
	case d < 2*time.Hour:
		return fmt.Sprintf("%dm", d/time.Minute)
	case d < 2*day:
		return fmt.Sprintf("%dh", d/time.Hour)
	case d < 2*365*day:
		return fmt.Sprintf("%dd", d/day)
	default:
		return fmt.Sprintf("%dy", d/(365*day))
	}
}

func countOf(n *uint64) string {
	if n == nil {
		return "-"
	}
	return grouped(*n)
}

func share(n, of uint64) float64 { return float64(n) / float64(max(of, 1)) }

// percent is a share in whole per cent, in which little is not nothing and nearly
// all is not all.
func percent(n, of uint64) string {
	switch p := 100 * share(n, of); {
	case of == 0:
		return ""
	case n > 0 && p < 1:
		return "<1%"
	case n < of && p > 99:
		return ">99%"
	default:
		return fmt.Sprintf("%.0f%%", p)
	}
}

package main

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"slices"
	"time"

	"github.com/spf13/cobra"

	"blockd/cmd/blockd/internal/config"
	"blockd/cmd/blockd/internal/control"
	"blockd/doors/httpapi"
	"blockd/internal/term"
)

func newListing() *cobra.Command {
	var path, file string
	var asJSON bool
	var view listingView
	cmd := &cobra.Command{
		Use:   "lists [-c config.toml | -i FILE.bdx] [--files] [--overlaps] [--entries] [--json]",
		Short: "show what each list is worth, how old it is, and how it does",
		Long: `Show a row for each list: its entries and distinct keys; the keys that no other list
has; the list with which it shares most, and how much of it; the age of what serves,
since it was written or its server confirmed it; its state; and since the daemon's
start how often it had an entry for an envelope or a question, how often no other
list had one, when it last had, and, if there is such a list, how often an allow entry
overruled its block. Below it stands what is wrong with lists, which lines of them are
refused (of a list whose state is "partial"), and which pairs of them share most. With --entries, those with the most hits follow.

The daemon is asked at [http] listen. Where none answers, the index file tells what
it knows, and hits are "-".`,
		Example: `  blockd lists
  blockd lists --files -c /etc/blockd/config.toml
  blockd lists --json | jq -r '.worth[] | select(.unique == 0).list'`,
		Args: noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			lists, err := listing(cmd.Context(), path, file, view.entries, cmd.ErrOrStderr())
			if err != nil {
				return err
			}
			if asJSON {
				return term.JSON(cmd.OutOrStdout(), lists)
			}
			view.now, view.paint = time.Now(), term.NewPaint(cmd.OutOrStdout())
			return view.print(cmd.OutOrStdout(), lists)
		},
	}
	configFlag(cmd, &path)
	indexFlag(cmd, &file, "read")
	cmd.Flags().BoolVar(&view.files, "files", false, "a row for each file")
	cmd.Flags().BoolVar(&view.overlaps, "overlaps", false, "all pairs of lists that share keys, not the first ten")
	cmd.Flags().BoolVar(&view.entries, "entries", false, "the entries with the most hits")
	cmd.Flags().BoolVar(&asJSON, "json", false, "print what /v1/lists answers")
	return cmd
}

// listing asks the daemon of a configuration, or else reads the index file and
// says so on stderr.
func listing(ctx context.Context, path, file string, entries bool, stderr io.Writer) (httpapi.ListTable, error) {
	if file != "" {
		return control.IndexLists(file, "", nil)
	}
	c, err := config.Load(path)
	if err != nil {
		return httpapi.ListTable{}, err
	}
	lists, asked := control.Lists(ctx, c, entries)
	if asked == nil {
		return lists, nil
	}
	lists, err = control.IndexLists(c.Index.Path, path, &c)
	if err == nil {
		fmt.Fprintf(stderr, "no hits, and problems only as of the build: %v\n", asked)
	}
	return lists, err
}

// listingView says how people see lists.
type listingView struct {
	files, overlaps, entries bool
	now                      time.Time
	paint                    term.Paint
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
		fmt.Fprintln(w, v.paint.Red(lists.Lacks))
	}
	for _, text := range lists.Problems {
		fmt.Fprintln(w, v.paint.Red(term.Visible(text)))
	}
	if len(lists.Remarks) > 0 {
		fmt.Fprintln(w)
	}
	for _, text := range lists.Remarks {
		fmt.Fprintln(w, v.paint.Yellow(term.Visible(text)))
	}
	v.printProposals(w, lists.Worth)
	if err := v.printOrigins(w, lists.Worth); err != nil {
		return err
	}
	if err := v.printSources(w, lists.Worth); err != nil {
		return err
	}
	if err := v.printFilters(w, lists.Filters); err != nil {
		return err
	}
	if err := v.printOverlaps(w, lists.Worth); err != nil || !v.entries {
		return err
	}
	return v.printEntries(w, lists.Entries)
}

// printProposals says what speaks against what waits to be adopted.
func (v *listingView) printProposals(w io.Writer, all []httpapi.ListWorth) {
	for i := range all {
		if p := all[i].Pinned; p != nil && p.Proposal != nil {
			for _, text := range p.Proposal.Findings {
				fmt.Fprintln(w, v.paint.Yellow(term.Visible("list "+all[i].List+", against what waits: "+text)))
			}
		}
	}
}

// printOrigins shows where lists come from, as far as they say it.
func (v *listingView) printOrigins(w io.Writer, all []httpapi.ListWorth) error {
	var t term.Table
	t.Add("origin of", "licence", "homepage", "complaints")
	some := false
	for i := range all {
		l := &all[i]
		if l.Licence+l.Homepage+l.Complaints == "" {
			continue
		}
		some = true
		licence := term.Clip(term.Visible(cmp.Or(l.Licence, "-")), 30)
		if l.Restricted {
			licence = v.paint.Yellow(licence)
		}
		t.Add(term.Visible(l.List), licence, term.Visible(cmp.Or(l.Homepage, "-")), term.Visible(cmp.Or(l.Complaints, "-")))
	}
	if !some {
		return nil
	}
	fmt.Fprintln(w)
	return t.Print(w)
}

// printSources shows the sources of lists: of copies, and of lists that are asked, whose rows are the keys in the filter.
func (v *listingView) printSources(w io.Writer, all []httpapi.ListWorth) error {
	var t term.Table
	t.Add("source of", "state", "since", "rows", "behind", "missed")
	some := false
	for i := range all {
		s := all[i].Source
		if s == nil {
			continue
		}
		some = true
		state, behind := s.State, "-"
		if s.Mode == "ask" {
			state = "asked, " + state
		}
		if s.Class != "" {
			state += ": " + s.Class
		}
		if s.State != "ok" {
			state = v.paint.Yellow(term.Visible(state))
		}
		if s.LagSeconds != nil {
			behind = term.Span(time.Duration(*s.LagSeconds * float64(time.Second)))
		}
		t.Add(term.Visible(all[i].List), state, v.age(&s.Since), term.Grouped(s.Rows), behind, term.Grouped(s.Missed))
	}
	if !some {
		return nil
	}
	fmt.Fprintln(w)
	return t.Print(w, 3, 4, 5)
}

// printFilters shows the filters of [[filter]]: what is written, and why one is not.
func (v *listingView) printFilters(w io.Writer, all []httpapi.KeptFilter) error {
	if len(all) == 0 {
		return nil
	}
	var t term.Table
	t.Add("filter", "keys", "size", "age", "state", "to")
	for i := range all {
		f := &all[i]
		keys, size, state := "-", "-", "not yet written"
		if f.Written != nil {
			keys, size, state = term.Grouped(f.Keys), term.Octets(f.Bytes), "ok"
		}
		if f.Patterns > 0 {
			state = v.paint.Yellow("lacks " + term.Counted(f.Patterns, "pattern"))
		}
		if f.Error != "" {
			state = v.paint.Red("failed")
		}
		t.Add(term.Visible(f.Name), keys, size, v.age(f.Written), state, term.Visible(f.To))
	}
	fmt.Fprintln(w)
	if err := t.Print(w, 1, 2, 3); err != nil {
		return err
	}
	for i := range all {
		if f := &all[i]; f.Error != "" {
			fmt.Fprintln(w, v.paint.Red(term.Visible("filter "+f.Name+": "+f.Error)))
		}
	}
	return nil
}

// leastName is how far the names of other lists give way to the width of the terminal.
const leastName = 6

func (v *listingView) printLists(w io.Writer, all []httpapi.ListWorth) error {
	width := cmp.Or(term.Width(w), term.PlainWidth)
	t := v.listRows(all, width)
	right := []int{2, 3, 4, 6, 8, 9, 10, 11}
	over, longest := 0, 0
	for _, line := range t.Lines(right...) {
		over = max(over, term.Columns(line)-width)
	}
	for _, l := range all {
		if len(l.Overlaps) > 0 {
			longest = max(longest, term.Columns(term.Visible(l.Overlaps[0].List)))
		}
	}
	if over > 0 {
		t = v.listRows(all, max(longest-over, leastName))
	}
	return t.Print(w, right...)
}

// listRows is the table of lists, with the names of others in so many columns.
func (v *listingView) listRows(all []httpapi.ListWorth, name int) *term.Table {
	t := &term.Table{}
	head := []string{"list", "action", "entries", "keys", "unique", "shared", "age", "state", "hits", "sole", "last"}
	overruled := slices.ContainsFunc(all, func(l httpapi.ListWorth) bool { return l.Overridden != nil && *l.Overridden > 0 })
	if overruled { // most installations have no exceptions, and lines are long
		head = append(head, "overruled")
	}
	t.Add(head...)
	for i := range all {
		l := &all[i]
		action := cmp.Or(l.Action, "-")
		switch {
		case l.Mode == "shadow":
			action = "shadow"
		case l.Pause != nil:
			action = "paused"
		case l.Percent > 0 && l.Percent < 100: // a daemon of before says nothing
			action = fmt.Sprintf("%s %v%%", action, l.Percent)
		}
		shared := ""
		if len(l.Overlaps) > 0 {
			o := l.Overlaps[0]
			shared = fmt.Sprintf("%4s %s", term.Percent(o.Keys, l.Keys), term.Clip(term.Visible(o.List), name))
		}
		row := []string{term.Visible(l.List), action, term.Grouped(l.Entries), term.Grouped(l.Keys),
			fmt.Sprintf("%s %4s", term.Grouped(l.Unique), term.Percent(l.Unique, l.Keys)), shared,
			v.age(l.Modified), v.stateOf(l), countOf(l.Hits), countOf(l.Sole), v.age(l.LastHit)}
		if overruled {
			row = append(row, countOf(l.Overridden))
		}
		t.Add(row...)
	}
	return t
}

func (v *listingView) printFiles(w io.Writer, all []httpapi.ListFile) error {
	var t term.Table
	t.Add("list", "file", "format", "entries", "errors", "age", "state")
	for i := range all {
		f := &all[i]
		t.Add(term.Visible(f.List), term.Path(f.File), term.Visible(f.Format), term.Grouped(f.Entries), term.Grouped(f.Errors),
			v.age(f.Modified), v.state(f.State))
	}
	return t.Print(w, 3, 4, 5)
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
		return cmp.Or(cmp.Compare(term.Share(q.keys, q.a.Keys), term.Share(p.keys, p.a.Keys)), cmp.Compare(q.keys, p.keys))
	})
	shown := len(pairs)
	if !v.overlaps {
		shown = min(shown, shownPairs)
	}
	var t term.Table
	t.Add("list", "with", "shared keys", "of list", "of with")
	for _, p := range pairs[:shown] {
		t.Add(term.Visible(p.a.List), term.Visible(p.b.List), term.Grouped(p.keys), term.Percent(p.keys, p.a.Keys), term.Percent(p.keys, p.b.Keys))
	}
	fmt.Fprintln(w)
	err := t.Print(w, 2, 3, 4)
	if more := len(pairs) - shown; more > 0 && err == nil {
		_, err = fmt.Fprintf(w, "%s more: --overlaps\n", term.Counted(more, "pair"))
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
		_, err := fmt.Fprintln(w, "no entry had a hit yet")
		return err
	}
	var t term.Table
	t.Add("entry", "list", "hits", "sole", "overruled", "last")
	for i := range all[:min(len(all), shownEntries)] {
		e := &all[i]
		hits := term.Grouped(e.Hits)
		if e.AtMostOver > 0 {
			hits = term.Grouped(e.Hits-e.AtMostOver) + " to " + hits
		}
		t.Add(term.Visible(e.Entry), fmt.Sprintf("%s:%d", term.Visible(e.List), e.Line), hits, term.Grouped(e.Sole), term.Grouped(e.Overridden), v.age(&e.LastHit))
	}
	return t.Print(w, 2, 3, 4, 5)
}

// stateOf is the state of a list, with the number of its entries that are held back.
func (v *listingView) stateOf(l *httpapi.ListWorth) string {
	if l.Held == 0 {
		return v.state(l.State)
	}
	held := v.paint.Yellow(term.Grouped(l.Held) + " held back")
	if l.State == httpapi.ListHeld {
		return held
	}
	return v.state(l.State) + ", " + held
}

func (v *listingView) state(s httpapi.ListState) string {
	switch s {
	case httpapi.ListOK, httpapi.ListAsked:
		return string(s)
	case httpapi.ListStale, httpapi.ListPartial, httpapi.ListHeld, httpapi.ListWaits:
		return v.paint.Yellow(string(s))
	}
	return v.paint.Red(term.Visible(string(s)))
}

// age returns how long ago at was; "-" if that is unknown.
func (v *listingView) age(at *time.Time) string {
	if at == nil {
		return "-"
	}
	return term.Span(v.now.Sub(*at))
}

func countOf(n *uint64) string {
	if n == nil {
		return "-"
	}
	return term.Grouped(*n)
}

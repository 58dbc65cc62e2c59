package main

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net"
	"net/http"
	"net/netip"
	"os"
	"slices"
	"time"

	"github.com/spf13/cobra"

	"blockd/httpapi"
	"blockd/index"
	"blockd/reload"
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
overruled its block. Below it stands what is wrong with lists, and
which pairs of them share most. With --entries, those with the most hits follow.

The daemon is asked at [http] listen. Where none answers, the index file tells what
it knows, and hits are "-".`,
		Example: `  blockd lists
  blockd lists --files -c /etc/blockd/config.toml
  blockd lists --json | jq -r '.worth[] | select(.unique == 0).list'`,
		Args: noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if file != "" && cmd.Flags().Changed("config") {
				return usagef("want -c or -i, not both")
			}
			lists, err := listing(cmd.Context(), path, file, view.entries, cmd.ErrOrStderr())
			if err != nil {
				return err
			}
			if asJSON {
				enc := json.NewEncoder(cmd.OutOrStdout())
				enc.SetEscapeHTML(false)
				return enc.Encode(lists)
			}
			view.now, view.paint = time.Now(), newPaint(cmd.OutOrStdout())
			return view.print(cmd.OutOrStdout(), lists)
		},
	}
	configFlag(cmd, &path)
	cmd.Flags().StringVarP(&file, "index", "i", "", "compiled index `file` to read, with no configuration")
	must(cmd.MarkFlagFilename("index", "bdx"))
	cmd.Flags().BoolVar(&view.files, "files", false, "a row for each file")
	cmd.Flags().BoolVar(&view.overlaps, "overlaps", false, "all pairs of lists that share keys, not the first ten")
	cmd.Flags().BoolVar(&view.entries, "entries", false, "the entries with the most hits")
	cmd.Flags().BoolVar(&asJSON, "json", false, "print what /v1/lists answers")
	return cmd
}

// listing asks the daemon of a configuration, or else reads the index file and
// says so on stderr.
func listing(ctx context.Context, config, file string, entries bool, stderr io.Writer) (httpapi.ListTable, error) {
	if file != "" {
		return indexListing(file, nil)
	}
	c, err := load(config)
	if err != nil {
		return httpapi.ListTable{}, err
	}
	lists, asked := c.daemonListing(ctx, entries)
	if asked == nil {
		return lists, nil
	}
	lists, err = indexListing(c.Index.Path, c.reload().Lists)
	if err == nil {
		fmt.Fprintf(stderr, "no hits, and problems only as of the build: %v\n", asked)
	}
	return lists, err
}

const (
	listingTimeout = 2 * time.Second // for all of a question to the daemon
	maxListing     = 64 << 20        // octets of its answer; that of 4,096 files and all overlaps has 12 MiB
)

// daemonListing is the answer of /v1/lists. The error says why there is none.
func (c Config) daemonListing(ctx context.Context, entries bool) (lists httpapi.ListTable, err error) {
	ctx, cancel := context.WithTimeout(ctx, listingTimeout)
	defer cancel()
	path := "/v1/lists"
	if entries {
		path += fmt.Sprintf("?entries=%d", httpapi.MaxEntryWorth)
	}
	err = c.askDaemon(ctx, http.MethodGet, path, nil, &lists)
	return lists, err
}

// reachable is where a listener on address is reached from this machine: one that
// has no address of its own, or any, on loopback.
func reachable(address string) string {
	host, port, err := net.SplitHostPort(address)
	if err != nil {
		return address // nobody listens there either
	}
	ip, err := netip.ParseAddr(host)
	switch {
	case host == "", err == nil && ip.Is4() && ip.IsUnspecified():
		host = "127.0.0.1"
	case err == nil && ip.IsUnspecified():
		host = "::1"
	}
	return net.JoinHostPort(host, port)
}

// bareError is the system's word without the address, which is said before.
func bareError(err error) error {
	if op, ok := errors.AsType[*net.OpError](err); ok {
		return op.Err
	}
	if errors.Is(err, context.DeadlineExceeded) {
		return fmt.Errorf("no answer in %v", listingTimeout)
	}
	return err
}

// indexListing is what an index file and the list files tell. all are the lists of
// the configuration, if there is one.
func indexListing(file string, all []reload.List) (httpapi.ListTable, error) {
	ix, err := index.Open(file)
	if errors.Is(err, fs.ErrNotExist) {
		return httpapi.ListTable{}, fmt.Errorf("%s: no index yet: start the daemon, or run: blockd compile", shownPath(file))
	} else if err != nil {
		return httpapi.ListTable{}, err
	}
	s := reload.Status{Generation: ix.Generation(), Files: ix.Lists(), Worth: ix.Worth(), Overlaps: ix.Overlaps(),
		Dates: map[[2]string]time.Time{}}
	now := time.Now()
	for _, row := range s.Files {
		info, err := os.Stat(row.Source.Path)
		if err != nil || info.ModTime().After(ix.Built()) {
			continue // not what was compiled
		}
		at := info.ModTime()
		i := slices.IndexFunc(all, func(l reload.List) bool { return l.Name == row.Source.List })
		if i >= 0 && all[i].Confirmed != nil {
			if confirmed := all[i].Confirmed(); !confirmed.IsZero() {
				at = confirmed
			}
		}
		s.Dates[[2]string{row.Source.List, row.Source.Path}] = at
		if i >= 0 && all[i].MaxAge > 0 && now.Sub(at) > all[i].MaxAge && !slices.Contains(s.Stale, row.Source.List) {
			s.Stale = append(s.Stale, row.Source.List)
		}
	}
	return httpapi.NewListTable(s, nil), nil
}

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
	for _, text := range lists.Problems {
		fmt.Fprintln(w, v.paint.red(visible(text)))
	}
	if err := v.printOverlaps(w, lists.Worth); err != nil || !v.entries {
		return err
	}
	return v.printEntries(w, lists.Entries)
}

// listingWidth is what terminals show without a break more often than not. The
// names of other lists give way to it, down to leastName.
const (
	listingWidth = 100
	leastName    = 6
)

func (v *listingView) printLists(w io.Writer, all []httpapi.ListWorth) error {
	t := v.listRows(all, listingWidth)
	right := []int{2, 3, 4, 6, 8, 9, 10, 11}
	over, longest := 0, 0
	for _, line := range t.lines(right...) {
		over = max(over, columns(line)-listingWidth)
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
			v.age(l.Modified), v.state(l.State), countOf(l.Hits), countOf(l.Sole), v.age(l.LastHit)}
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

func (v *listingView) state(s httpapi.ListState) string {
	switch s {
	case httpapi.ListOK:
		return string(s)
	case httpapi.ListStale:
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

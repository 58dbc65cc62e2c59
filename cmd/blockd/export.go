package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/netip"
	"os/signal"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"blockd/addr"
	"blockd/index"
	"blockd/internal/durable"
	"blockd/internal/term"
	"blockd/lists"
	"blockd/policy"
)

// exitPartial is export's own code for a file in which something is missing or
// covers less.
const exitPartial = 1

func newExport() *cobra.Command {
	var path, file, format, out string
	var names []string
	cmd := &cobra.Command{
		Use:   "export [-c config.toml | -i FILE.bdx] --format F [--list NAME]... [-o FILE]",
		Short: "write the lists in another program's format",
		Long: `Write what the compiled index holds as a list in the format of another program:
` + strings.Join(lists.WritableFormats(), ", ") + `.

What is written refuses less than blockd, not more. An entry that the format has no
words for is left out; a name with all names below it becomes the name alone where the
format knows no more; and a block is left out as far as an exception covers it that
cannot be written, or that the other program would not put first. All of this is
counted on standard error, and makes it end with 1. So are exceptions that cannot be
written: of one for a single address, the block of its domain stays. An exception for
senders that wants proof ([[list]] require) is such a one in every format. What
[[policy]] says of some recipients is not written.

Lists in shadow mode are written only if --list names them, and so are those whose
on_match does not refuse (quarantine, tag) or whose match leaves the envelope out,
where a configuration tells of it.

Ends with 0 when the file says all that the lists say, 1 when it says less, 2 on an
error.`,
		Example: `  blockd export --format postfix -o /etc/postfix/sender_access
  blockd export -i bad.bdx --format rpz >bad.zone
  blockd export --format hosts --list malware --list scam`,
		Args: noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			switch {
			case file != "" && cmd.Flags().Changed("config"):
				return usagef("want -c or -i, not both")
			case !slices.Contains(lists.WritableFormats(), format):
				return usagef("want --format, one of %s", strings.Join(lists.WritableFormats(), ", "))
			}
			var config Config
			if file == "" {
				var err error
				if config, err = load(path); err != nil {
					return checkError{err}
				}
				file = config.Index.Path
			} else {
				path = ""
			}
			ctx, stop := signal.NotifyContext(cmd.Context(), syscall.SIGINT, syscall.SIGTERM)
			defer stop()
			job := exportJob{index: file, config: path, format: format, out: out, names: names, rules: config.policy().Lists, ignoreSenders: config.Auth.UnverifiedAllow == "ignore", progress: term.NewBar(cmd.ErrOrStderr())}
			told, err := job.run(ctx, cmd.OutOrStdout())
			if err != nil {
				return checkError{err}
			}
			fmt.Fprintln(cmd.ErrOrStderr(), told)
			if told.partial() {
				return answer(exitPartial)
			}
			return nil
		},
	}
	configFlag(cmd, &path)
	cmd.Flags().StringVarP(&file, "index", "i", "", "compiled index `file` to export, with no configuration")
	must(cmd.MarkFlagFilename("index", "bdx"))
	cmd.Flags().StringVar(&format, "format", "", "format `F` to write")
	must(cmd.RegisterFlagCompletionFunc("format", cobra.FixedCompletions(lists.WritableFormats(), cobra.ShellCompDirectiveNoFileComp)))
	cmd.Flags().StringArrayVar(&names, "list", nil, "only the list `NAME`; may be repeated")
	must(cmd.RegisterFlagCompletionFunc("list", completion(&path, listNames)))
	cmd.Flags().StringVarP(&out, "output", "o", "", "`file` to write, put in place when it is whole; without it standard output")
	return cmd
}

// exportJob is one file to write.
type exportJob struct {
	index, format string
	config        string                     // that names the index; "" = none does
	out           string                     // "" = standard output
	names         []string                   // of lists; none: all that refuse
	rules         map[string]policy.ListRule // by list; without a configuration all refuse
	ignoreSenders bool                       // auth.unverified_allow = "ignore": exceptions for senders without require override nothing
	progress      *term.Bar
}

// believed reports whether the other program may let pass what an exception of a list
// covers: none of them can ask for the proof that the list wants. Entries for client
// addresses prove themselves.
func (j *exportJob) believed(list string, kind lists.Kind) bool {
	return kind == lists.IP || kind == lists.CIDR || !j.ignoreSenders && j.rules[list].Require == 0
}

// run writes the file.
func (j *exportJob) run(ctx context.Context, stdout io.Writer) (*exported, error) {
	ix, err := openIndex(j.index, j.config)
	if err != nil {
		return nil, err
	}
	rows, err := j.rows(ix)
	if err != nil {
		return nil, err
	}
	if j.out == "" {
		if term.IsTerminal(stdout) {
			j.progress = term.NewBar(io.Discard) // the lines are to be seen
		}
		return j.write(ctx, stdout, ix, rows)
	}
	// Other programs watch such files as blockd does: they must see it whole.
	var told *exported
	err = durable.Replace(j.out, 0o644, func(w io.Writer) (err error) {
		told, err = j.write(ctx, w, ix, rows)
		return err
	})
	return told, err
}

// rows are those of the named lists; without names, of those that refuse, and of
// exceptions.
func (j *exportJob) rows(ix *index.Index) ([]bool, error) {
	rows, known := make([]bool, len(ix.Lists())), []string{}
	for i, row := range ix.Lists() {
		name := row.Source.List
		known = append(known, name)
		rule := j.rules[name]
		passes := rule.OnMatch == policy.QuarantineOnMatch || rule.OnMatch == policy.TagOnMatch || !rule.Match.Has(policy.EnvelopeSource)
		if rows[i] = row.Source.Mode == index.Enforce && !passes; len(j.names) > 0 {
			rows[i] = slices.Contains(j.names, name)
		}
	}
	for _, name := range j.names {
		if !slices.Contains(known, name) {
			return nil, fmt.Errorf("no list %q in the index%s", name, didYouMean(name, "", known))
		}
	}
	return rows, nil
}

// shownEvery is after how many entries the bar moves.
const shownEvery = 4096

func (j *exportJob) write(ctx context.Context, out io.Writer, ix *index.Index, rows []bool) (*exported, error) {
	w, err := lists.NewWriter(out, j.format, fmt.Sprintf("written by blockd export: generation %s, built %s",
		ix.Generation(), ix.Built().UTC().Format(time.RFC3339)))
	if err != nil {
		return nil, err
	}
	defer j.progress.Clear()
	e := exporter{ix: ix, w: w, rows: rows, now: time.Now(), told: &exported{format: j.format}, believed: j.believed}
	for n, row := range ix.Lists() {
		if rows[n] && row.Source.Settings.Action != lists.Allow {
			e.blocking = append(e.blocking, row.Source.List)
		}
		if counts := row.Source.Mode == index.Enforce || rows[n]; counts && row.Summary.Verdict != lists.Refused {
			e.excepts = append(e.excepts, n)
		}
		if rows[n] {
			e.total += int64(row.Summary.Entries)
		}
	}
	n := int64(0)
	for entry, err := range ix.Entries(ctx, func(row int) bool { return rows[row] }) {
		if n++; n%shownEvery == 0 {
			j.progress.Show(term.Step{Stage: "export", Done: n, Total: e.total, Things: true})
		}
		switch {
		case err != nil:
			return nil, err
		case entry.Again || !entry.Expires.IsZero() && !entry.Expires.After(e.now):
			continue
		}
		it, list := &entry.Item, ix.Lists()[entry.Row].Source.List
		switch {
		case it.Action == lists.Block && j.rules[list].OnMatch == policy.TempfailOnMatch:
			it.Action = lists.Tempfail
		case it.Action == lists.Allow && !j.believed(list, it.Kind):
			it.Action = lists.AllowIfAuth
		}
		if err := e.write(&entry.Item, entry.Row); err != nil {
			return nil, err
		}
	}
	return e.told, w.Close()
}

// exporter writes one index in one format.
type exporter struct {
	ix       *index.Index
	w        *lists.Writer
	rows     []bool // that are written
	excepts  []int  // rows whose exceptions count, written or not, if they are believed
	believed func(list string, kind lists.Kind) bool
	blocking []string // lists that are written and may block
	total    int64    // entries, at most
	now      time.Time
	told     *exported
	matches  []index.Match
}

// reaches reports whether the exceptions of a row go before the blocks of another.
func (e *exporter) reaches(row, block int) bool {
	source := &e.ix.Lists()[row].Source
	switch source.Reach() {
	case index.AllExceptions:
		return true
	case index.OwnExceptions:
		return source.List == e.ix.Lists()[block].Source.List
	}
	return false
}

// written reports whether all exceptions of a row are written, see sayable.
func (e *exporter) written(row int) bool {
	source := &e.ix.Lists()[row].Source
	return source.Reach() == index.AllExceptions || !slices.ContainsFunc(e.blocking, func(list string) bool { return list != source.List })
}

// sayable reports whether the file may have an exception of a row: the other program
// knows one list, in which it goes before the blocks of all. Of one that lifts its own
// list's blocks alone, this is so where no other list that is written can block there:
// where there is none, and for a single address or client that none has.
func (e *exporter) sayable(it *lists.Item, row int) (bool, error) {
	source := &e.ix.Lists()[row].Source
	switch {
	case source.Reach() == index.NoExceptions:
		return false, nil
	case e.written(row):
		return true, nil
	}
	var err error
	switch {
	case it.Kind == lists.IP:
		e.matches, err = e.ix.LookupClient(e.matches[:0], it.Net.Addr(), e.now)
	case it.Kind == lists.Addr && it.Scope == lists.Exact:
		a, bad := addr.Parse(it.Key.Text)
		if bad != nil {
			return false, nil
		}
		e.matches, err = e.ix.Lookup(e.matches[:0], a, e.now)
	default:
		return false, nil
	}
	return !slices.ContainsFunc(e.matches, func(m index.Match) bool {
		return e.rows[m.Row] && !m.Action.Allows() && e.ix.Lists()[m.Row].Source.List != source.List
	}), err
}

// write writes one entry, as far as no exception covers it.
func (e *exporter) write(it *lists.Item, row int) error {
	if it.Action.Allows() {
		if ok, err := e.sayable(it, row); err != nil {
			return err
		} else if !ok {
			e.told.stayed++
			return nil
		}
	} else {
		rest, err := e.uncovered(it, row)
		if err != nil {
			return err
		}
		if rest == nil {
			e.told.excepted++
			return nil
		}
		if rest.Scope != it.Scope {
			e.told.reduced++
		}
		it = rest
	}
	narrowed, err := e.w.Write(it)
	switch {
	case errors.Is(err, lists.ErrUnsayable):
		e.told.leave(it)
		return nil
	case narrowed:
		e.told.narrowed++
	}
	e.told.written++
	return err
}

// uncovered is what is left of an entry when all is taken away that an exception
// covers which the file will not have, or which is not put first there: nil if that
// is all of it. A single exception inside the entry takes nothing away.
func (e *exporter) uncovered(it *lists.Item, row int) (*lists.Item, error) {
	switch it.Kind {
	case lists.IP, lists.CIDR:
		covered, err := e.covered(it, row, "", it.Net.Addr())
		if err != nil || covered {
			return nil, err
		}
	case lists.Addr:
		if it.Scope == lists.Local {
			return it, nil
		}
		covered, err := e.covered(it, row, it.Key.Text, netip.Addr{})
		if err != nil || covered {
			return nil, err
		}
	case lists.Domain:
		var name, below bool
		var err error
		if it.Scope != lists.Sub {
			name, err = e.covered(it, row, "x@"+it.Key.Text, netip.Addr{})
		}
		if it.Scope != lists.Exact && err == nil {
			below, err = e.covered(it, row, "x@0."+it.Key.Text, netip.Addr{})
		}
		rest := *it
		switch {
		case err != nil:
			return nil, err
		case it.Scope == lists.Tree && name && !below:
			rest.Scope = lists.Sub
		case it.Scope == lists.Tree && below && !name:
			rest.Scope = lists.Exact
		case name || below:
			return nil, nil
		}
		return &rest, nil
	}
	return it, nil
}

// covered reports whether an exception that counts here covers all senders like
// that one, or the whole of the entry's network.
func (e *exporter) covered(it *lists.Item, row int, sender string, client netip.Addr) (bool, error) {
	var err error
	if client.IsValid() {
		e.matches, err = e.ix.LookupClient(e.matches[:0], client, e.now)
	} else {
		a, bad := addr.Parse(sender)
		if bad != nil {
			return false, nil // too long for an address
		}
		e.matches, err = e.ix.Lookup(e.matches[:0], a, e.now)
	}
	return slices.ContainsFunc(e.matches, func(m index.Match) bool {
		switch {
		case m.Action != lists.Allow || !slices.Contains(e.excepts, m.Row) || !e.believed(e.ix.Lists()[m.Row].Source.List, m.Kind):
			return false
		case !e.reaches(m.Row, row):
			return false
		case e.rows[m.Row] && e.w.Exceptions() == lists.Prevail && e.written(m.Row):
			return false // it is written, and does the same there
		case client.IsValid():
			return m.Net.Bits() <= it.Net.Bits()
		case it.Kind == lists.Domain: // a listed name of the probe's own tells nothing
			return m.Kind == lists.Domain && len(m.Key.Text) <= len(it.Key.Text)
		}
		return true
	}), err
}

// exported is what became of the entries.
type exported struct {
	format   string
	written  int
	narrowed int      // of those: a name with all below became the name
	reduced  int      // of those: without the part that an exception covers
	excepted int      // left out, since an exception covers all of it
	stayed   int      // exceptions left out, since they lift their own list's blocks alone
	unsaid   []unsaid // by kind of entry, in order of appearance
}

// unsaid counts the entries of one kind that the format has no words for.
type unsaid struct {
	what string
	n    int
}

func (e *exported) leave(it *lists.Item) {
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
	for i := range e.unsaid {
		if e.unsaid[i].what == what {
			e.unsaid[i].n++
			return
		}
	}
	e.unsaid = append(e.unsaid, unsaid{what, 1})
}

func (e *exported) partial() bool {
	return e.narrowed+e.reduced+e.excepted+e.stayed+len(e.unsaid) > 0
}

// String tells people in one line.
func (e *exported) String() string {
	text := fmt.Sprintf("%s: %s written", e.format, term.Counted(e.written, "entry"))
	if e.narrowed > 0 {
		text += fmt.Sprintf(", %s of them as the name alone", term.Grouped(e.narrowed))
	}
	if e.reduced > 0 {
		text += fmt.Sprintf(", %s without what exceptions cover", term.Grouped(e.reduced))
	}
	if e.excepted > 0 {
		text += fmt.Sprintf("; %s under exceptions left out", term.Grouped(e.excepted))
	}
	if e.stayed > 0 {
		text += fmt.Sprintf("; %s left out, since they lift what their own list blocks, and another list blocks too", term.Counted(e.stayed, "exception"))
	}
	if len(e.unsaid) > 0 {
		var parts []string
		for _, u := range e.unsaid {
			parts = append(parts, fmt.Sprintf("%s× %s", term.Grouped(u.n), u.what))
		}
		text += "; left out, since the format cannot say them: " + strings.Join(parts, ", ")
	}
	return text
}

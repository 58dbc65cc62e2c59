package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/signal"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"blockd/addr"
	"blockd/index"
	"blockd/lists"
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

What is written refuses nobody whom blockd would let pass. An entry that the format
has no words for is left out; a name with all names below it becomes the name alone
where the format knows no more; a block under an exception that cannot be written is
left out with it. All of this is counted on standard error, and makes it end with 1.
Lists in shadow mode are written only if --list names them.

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
			if file == "" {
				c, err := load(path)
				if err != nil {
					return checkError{err}
				}
				file = c.Index.Path
			}
			ctx, stop := signal.NotifyContext(cmd.Context(), syscall.SIGINT, syscall.SIGTERM)
			defer stop()
			told, err := export(ctx, cmd.OutOrStdout(), file, format, out, names)
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
	cmd.Flags().StringVarP(&out, "output", "o", "", "`file` to write, put in place when it is whole; without it standard output")
	return cmd
}

// export writes the entries of the named lists, or of all that count, to the file
// out, or to stdout if that is "".
func export(ctx context.Context, stdout io.Writer, file, format, out string, names []string) (*exported, error) {
	ix, err := index.Open(file)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("%s: no index yet: start the daemon, or run: blockd compile", shownPath(file))
	} else if err != nil {
		return nil, err
	}
	rows, err := rowsOf(ix, names)
	if err != nil {
		return nil, err
	}
	if out == "" {
		return writeExport(ctx, stdout, ix, format, rows)
	}
	// Other programs watch such files as blockd does: they must see it whole.
	temp, err := os.CreateTemp(filepath.Dir(out), "."+filepath.Base(out)+".*")
	if err != nil {
		return nil, err
	}
	defer os.Remove(temp.Name())
	told, err := writeExport(ctx, temp, ix, format, rows)
	if err == nil {
		err = cmp.Or(temp.Chmod(0o644), temp.Sync())
	}
	if err = cmp.Or(err, temp.Close()); err == nil {
		err = os.Rename(temp.Name(), out)
	}
	return told, err
}

// rowsOf are the rows of the named lists; without names, of those that count.
func rowsOf(ix *index.Index, names []string) ([]bool, error) {
	rows, known := make([]bool, len(ix.Lists())), []string{}
	for i, row := range ix.Lists() {
		known = append(known, row.Source.List)
		if rows[i] = row.Source.Mode == index.Enforce; len(names) > 0 {
			rows[i] = slices.Contains(names, row.Source.List)
		}
	}
	for _, name := range names {
		if !slices.Contains(known, name) {
			return nil, fmt.Errorf("no list %q in the index%s", name, didYouMean(name, "", known))
		}
	}
	return rows, nil
}

func writeExport(ctx context.Context, out io.Writer, ix *index.Index, format string, rows []bool) (*exported, error) {
	w, err := lists.NewWriter(out, format, fmt.Sprintf("written by blockd export: generation %s, built %s",
		ix.Generation(), ix.Built().UTC().Format(time.RFC3339)))
	if err != nil {
		return nil, err
	}
	told, now := &exported{format: format}, time.Now()
	e := exporter{ix: ix, w: w, rows: rows, now: now, told: told}
	for entry, err := range ix.Entries(ctx, func(row int) bool { return rows[row] }) {
		if err == nil && (entry.Expires.IsZero() || entry.Expires.After(now)) {
			err = e.write(&entry.Item)
		}
		if err != nil {
			return nil, err
		}
	}
	return told, w.Close()
}

// exporter writes one index in one format.
type exporter struct {
	ix      *index.Index
	w       *lists.Writer
	rows    []bool
	now     time.Time
	told    *exported
	matches []index.Match
}

// write writes one entry. Where exceptions cannot be written, what they are made
// from must not be either.
func (e *exporter) write(it *lists.Item) error {
	if it.Action != lists.Allow && !e.w.Exceptions() {
		excepted, err := e.excepted(it)
		if err != nil {
			return err
		}
		if excepted {
			e.told.excepted++
			return nil
		}
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

// excepted reports whether an exception covers all that it blocks.
func (e *exporter) excepted(it *lists.Item) (bool, error) {
	sender := it.Name()
	switch {
	case it.Kind == lists.Domain:
		sender = "x@" + sender
	case it.Kind != lists.Addr || it.Scope == lists.Local:
		return false, nil
	}
	a, err := addr.Parse(sender)
	if err != nil {
		return false, nil
	}
	if e.matches, err = e.ix.Lookup(e.matches[:0], a, e.now); err != nil {
		return false, err
	}
	for _, m := range e.matches {
		if m.Action == lists.Allow && e.rows[m.Row] && (m.Kind == lists.Domain || it.Kind == lists.Addr) {
			return true, nil
		}
	}
	return false, nil
}

// exported is what became of the entries.
type exported struct {
	format                      string
	written, narrowed, excepted int
	unsaid                      []unsaid // by kind of entry, in order of appearance
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
	}
	if it.Action != lists.Block {
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

func (e *exported) partial() bool { return e.narrowed+e.excepted+len(e.unsaid) > 0 }

// String tells people in one line.
func (e *exported) String() string {
	text := fmt.Sprintf("%s: %s written", e.format, counted(e.written, "entry"))
	if e.narrowed > 0 {
		text += fmt.Sprintf(", %s of them as the name alone", grouped(uint64(e.narrowed)))
	}
	if e.excepted > 0 {
		text += fmt.Sprintf("; %s under exceptions left out", grouped(uint64(e.excepted)))
	}
	if len(e.unsaid) > 0 {
		var parts []string
		for _, u := range e.unsaid {
			parts = append(parts, fmt.Sprintf("%s× %s", grouped(uint64(u.n)), u.what))
		}
		text += "; left out, since the format cannot say them: " + strings.Join(parts, ", ")
	}
	return text
}

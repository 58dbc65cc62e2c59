package main

import (
	"bufio"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"blockd/cmd/blockd/internal/config"
	"blockd/cmd/blockd/internal/control"
	"blockd/index"
	"blockd/index/kept"
	"blockd/internal/term"
	"blockd/lists"
	"blockd/reload"
)

func newLint() *cobra.Command {
	var all, asJSON, held bool
	var path string
	var flags *listFlags
	cmd := &cobra.Command{
		Use:   "lint [-c config.toml] [--format F] [--all] [--json] LIST... | --held [-c config.toml] [--json] [LIST...]",
		Short: "say what each line of a list means",
		Long: `Read lists as the daemon would and show each line that is refused or worth a
look, with the reason, and a summary a file. A list with self-tests is compiled
aside to run them. Ends with 0 when all is good (warnings allowed), 1 when a line or
a file was refused, 2 on wrong usage.

A list that the configuration names is read as its [[list]] says (format, action,
protected domains and so on), unless a flag says otherwise; any other as the flags say.
Of such a list it also says whether the gate refuses it, compared with what it had.

With --held, show the entries that the daemon holds back, because they would refuse
senders who wrote lately, or correspondents, to whom users of this server write: of
the lists of the configuration with these names, or of all. Those that refuse most come first. blockd compile --accept LIST lets them in;
an entry that goes from its list is not held any more.

Each distinct entry is remembered while its file is read, to find it again: about
60 octets an entry, 60 MB for a million.`,
		Example: `  blockd lint lists/*.txt
  blockd lint --format hosts --all ads.hosts
  blockd lint --held own
  blockd lint --json --format csv:sender export.csv.gz | jq 'select(.kind == "err")'`,
		Args: func(_ *cobra.Command, args []string) error {
			if len(args) == 0 && !held {
				return usagef("want a LIST to read")
			}
			return nil
		},
		RunE: func(cmd *cobra.Command, args []string) error {
			if held {
				return lintHeld(cmd.OutOrStdout(), path, args, asJSON)
			}
			sources, err := newLintSources(flags, path, cmd.Flags().Changed("config"), cmd.ErrOrStderr())
			if err != nil {
				return err
			}
			w := bufio.NewWriterSize(cmd.OutOrStdout(), 64<<10)
			var out lintOutput = newLintText(w, term.NewPaint(cmd.OutOrStdout()), term.Width(cmd.OutOrStdout()), all)
			if asJSON {
				out = lintJSON{w, all}
			}
			good, err := lint(cmd.Context(), args, sources, out)
			if err := errors.Join(err, w.Flush()); err != nil {
				return err
			}
			if !good {
				return answer(1)
			}
			return nil
		},
	}
	configFlag(cmd, &path)
	flags = addListFlags(cmd)
	cmd.Flags().BoolVar(&all, "all", false, "show every line, good ones, comments and blanks too")
	cmd.Flags().BoolVar(&asJSON, "json", false, "one JSON object a line")
	cmd.Flags().BoolVar(&held, "held", false, "show the entries of lists that are held back")
	return cmd
}

// lintOutput is a form that lint's findings take: text for people, or JSON.
type lintOutput interface {
	item(file string, it *lists.Item) error
	summary(file string, s lists.Summary, keys int) error
	end() error
}

// lint reads all files, whatever becomes of each, and reports whether no line
// and no file was refused.
func lint(ctx context.Context, files []string, sources *lintSources, out lintOutput) (good bool, err error) {
	good = true
	for _, file := range files {
		tested := false
		source := sources.of(file)
		sum, keys, err := lists.Lint(ctx, file, source.Settings, func(it *lists.Item) error {
			tested = tested || it.Test != nil
			return out.item(file, it)
		})
		if err == nil && tested {
			sum, err = selfTest(ctx, source, sum)
		}
		if refused := (*lists.FileError)(nil); err != nil && !errors.As(err, &refused) {
			return false, err // the output's error, or ctx's
		}
		if why := sources.refused(ctx, file, sum); why != "" {
			sum.Verdict, sum.Why = lists.Refused, why
		}
		if sum.Errors > 0 || sum.Verdict == lists.Refused || strings.HasPrefix(sum.Why, string(lists.Empty)+": ") {
			good = false
		}
		if err := out.summary(file, sum, keys); err != nil {
			return false, err
		}
	}
	return good, out.end()
}

// selfTest compiles the list in a folder of its own, which runs its self-tests, and
// returns its summary with what came of them.
func selfTest(ctx context.Context, source index.Source, sum lists.Summary) (lists.Summary, error) {
	dir, err := os.MkdirTemp("", "blockd-lint-")
	if err != nil {
		return sum, err
	}
	defer os.RemoveAll(dir)
	draft, err := index.Build(ctx, filepath.Join(dir, "lint.bdx"), []index.Source{source}, index.Options{})
	if err == nil {
		draft.Discard()
	}
	if refused := (*lists.FileError)(nil); errors.As(err, &refused) {
		sum.Verdict, sum.Why = lists.Refused, refused.Why()
	}
	return sum, err
}

// lintSources says how each file is to be read: as the configuration has it if that
// names the file, else as the flags say. Flags that are given go first.
type lintSources struct {
	flags      index.Source
	given      func(flag string) bool
	configured []configuredFile
	config     config.Config // with configured
}

// configuredFile is a file of a configured list that is there.
type configuredFile struct {
	source index.Source
	info   os.FileInfo
}

// newLintSources reads the configuration at path. One that is not there, or has
// faults, is of no concern unless asked says that the user has named it.
func newLintSources(flags *listFlags, path string, asked bool, stderr io.Writer) (*lintSources, error) {
	settings, err := flags.settings()
	if err != nil {
		return nil, err
	}
	s := &lintSources{given: flags.cmd.Flags().Changed}
	s.flags = index.Source{List: "lint", Settings: settings}
	if s.flags.Exceptions, err = flags.reach(); err != nil {
		return nil, err
	}
	if _, err := os.Stat(path); err != nil && !asked {
		return s, nil
	}
	c, err := config.Load(path)
	switch {
	case err != nil && asked:
		return nil, err
	case err != nil:
		fmt.Fprintf(stderr, "%s: note: %s has faults, so what it says of lists does not count; blockd config --check names them\n", flags.cmd.CommandPath(), term.Path(path))
		return s, nil
	}
	s.config = c
	sources, _ := reload.Sources(c.Reload().Lists) // a list that is missing has no file to be linted
	for _, source := range sources {
		if info, err := os.Stat(source.Path); err == nil {
			s.configured = append(s.configured, configuredFile{source, info})
		}
	}
	return s, nil
}

// of is the source of a file, in whatever way its path is written.
func (s *lintSources) of(file string) index.Source {
	source := s.flags
	if c := s.configuredAs(file); c != nil {
		source = s.overridden(c.source)
	}
	source.List, source.Path = "lint", file
	return source
}

// configuredAs is the file of a configured list that a path leads to; nil if it is of none.
func (s *lintSources) configuredAs(file string) *configuredFile {
	info, err := os.Stat(file)
	if err != nil {
		return nil
	}
	for i := range s.configured {
		if os.SameFile(s.configured[i].info, info) {
			return &s.configured[i]
		}
	}
	return nil
}

// refused says why the gate keeps a file of a configured list out that is good by itself, with the command that takes
// it all the same: by its size, compared with what the index has, and by what a daemon that runs says of the list.
// "": it does not, or is not known to.
func (s *lintSources) refused(ctx context.Context, file string, sum lists.Summary) string {
	c := s.configuredAs(file)
	if c == nil || sum.Verdict == lists.Refused {
		return ""
	}
	if pins, err := s.config.Kept().Pins(); err == nil && slices.ContainsFunc(pins, func(p kept.Pin) bool { return p.List == c.source.List }) {
		return "" // it does not follow its files: a change waits
	}
	if ix, err := index.Open(s.config.Index.Path); err == nil {
		for _, d := range reload.Compare(s.config.Reload().Lists, ix, s.wouldBe(ctx, ix, c, sum)) {
			if d.List == c.source.List && d.Rests.IsZero() {
				return d.Told()
			}
		}
	}
	table, err := control.Lists(ctx, s.config, false)
	if err != nil {
		return ""
	}
	for _, w := range table.Worth {
		if w.List == c.source.List && w.Accept != "" {
			return strings.Join(w.Problems, "; ") + "; " + w.Accept + " takes it all the same"
		}
	}
	return ""
}

// wouldBe are the sources of an index with a list as its files are now: one as it was linted, those that have changed
// since the index as they read. Where each file is one owner's, no other file matters to it.
func (s *lintSources) wouldBe(ctx context.Context, ix *index.Index, c *configuredFile, sum lists.Summary) (rows []index.ListInfo) {
	named := slices.ContainsFunc(s.config.Reload().Lists, func(l reload.List) bool { return l.Name == c.source.List && l.Named })
	was := map[string]index.ListInfo{}
	for _, row := range ix.Lists() {
		switch {
		case row.Source.List != c.source.List || named && row.Source.Path != c.source.Path:
			rows = append(rows, row)
		default:
			was[row.Source.Path] = row
		}
	}
	for _, f := range s.configured {
		row, had := was[f.source.Path]
		linted := f.source.Path == c.source.Path
		if f.source.List != c.source.List || named && !linted {
			continue
		}
		if changed := !had || f.info.Size() != row.Summary.Size || f.info.ModTime().After(ix.Built()); linted {
			row.Source, row.Summary = f.source, sum
		} else if changed {
			read, err := lists.ReadFile(ctx, f.source.Path, f.source.Settings, func(*lists.Item) error { return nil })
			if err == nil {
				row.Source, row.Summary = f.source, read
			} else if !had {
				continue
			}
		}
		rows = append(rows, row)
	}
	return rows
}

// overridden is a configured source with what flags say otherwise.
func (s *lintSources) overridden(source index.Source) index.Source {
	set, flags := &source.Settings, &s.flags.Settings
	if s.given("format") {
		set.Format = flags.Format
	}
	if s.given("action") {
		set.Action = flags.Action
	}
	if s.given("subdomains") {
		set.Subdomains = flags.Subdomains
	}
	if s.given("patterns") {
		set.Patterns = flags.Patterns
	}
	if s.given("allow-public-suffix") || s.given("action") || s.given("exceptions") {
		set.Guard = flags.Guard // which depends on all three
	}
	if s.given("exceptions") {
		source.Exceptions = s.flags.Exceptions
	}
	return source
}

// lintText shows people what is wrong where, and ends with a table.
type lintText struct {
	w     *bufio.Writer
	paint term.Paint
	all   bool
	said  bool // anything yet: the table stands apart from it
	files term.Table
}

// newLintText writes into w, for a terminal of that width; 0: for none.
func newLintText(w *bufio.Writer, p term.Paint, width int, all bool) *lintText {
	t := &lintText{w: w, paint: p, all: all, files: term.Table{Width: width}}
	t.files.Add("file", "format", "lines", "entries", "keys", "errors", "skipped", "verdict")
	return t
}

func (t *lintText) item(file string, it *lists.Item) error {
	t.said = t.said || t.all || it.Kind != lists.Skip && it.Class != ""
	where := fmt.Sprintf("%s:%d", term.Visible(file), it.Line)
	switch {
	case it.Kind == lists.Err:
		if it.Column > 0 {
			where += fmt.Sprintf(":%d", it.Column)
		}
		fmt.Fprintf(t.w, "%s: %s: %s\n", t.paint.Bold(where), t.paint.Red(string(it.Class)), term.Visible(it.Message))
		t.excerpt(it)
	case it.Kind != lists.Skip && it.Class != "":
		fmt.Fprintf(t.w, "%s: %s: %s\n", t.paint.Bold(where), t.paint.Yellow("warning: "+string(it.Class)), term.Visible(it.Message))
		t.excerpt(it)
	case t.all && it.Kind == lists.Skip:
		fmt.Fprintln(t.w, t.paint.Faint(fmt.Sprintf("%s: skip: %s", where, it.Class)))
	case t.all:
		fmt.Fprintf(t.w, "%s: %s %s %s %s", where, it.Kind, term.Visible(it.Name()), it.Scope, it.Action)
		if it.Reason != "" {
			fmt.Fprintf(t.w, " %q", it.Reason)
		}
		fmt.Fprintln(t.w)
	}
	return nil // a failed write stays in w and comes out of Flush
}

// The excerpt of a line is at most excerptColumns wide, with at most
// leadColumns before the fault: it fits a terminal of 80.
const (
	excerptColumns = 73
	leadColumns    = 49
)

// excerpt shows the line with a mark under the fault, and a hint beside it.
func (t *lintText) excerpt(it *lists.Item) {
	before, after := it.Text, ""
	marked := it.Column > 0 && it.Column <= len(it.Text)+1
	if marked {
		before, after = it.Text[:it.Column-1], it.Text[it.Column-1:]
	}
	before, after = term.Visible(before), term.Visible(after)
	if marked {
		before = term.ClipLeft(before, leadColumns)
	}
	line := term.Clip(before+after, excerptColumns)
	if line != "" {
		fmt.Fprintln(t.w, t.paint.Faint("  | ")+line)
	}
	hint := lists.Hint(it.Class)
	if marked {
		mark := strings.Repeat(" ", term.Columns(before)) + t.paint.Red("^")
		fmt.Fprintln(t.w, strings.TrimRight(t.paint.Faint("  | ")+mark+" "+t.paint.Faint(hint), " "))
	} else if hint != "" {
		fmt.Fprintln(t.w, t.paint.Faint("  = "+hint))
	}
}

func (t *lintText) summary(file string, s lists.Summary, keys int) error {
	verdict := string(s.Verdict)
	if s.Verdict == lists.Refused {
		t.said = true
		fmt.Fprintf(t.w, "%s: %s: %s\n", t.paint.Bold(term.Visible(file)), t.paint.Red("refused"), term.Visible(s.Why))
		if strings.HasPrefix(s.Why, string(lists.Ambiguous)+":") {
			fmt.Fprintln(t.w, t.paint.Faint("  = Try --format F, and then write format = \"F\" into its [[list]]; --help has all F."))
		}
	} else if what := cmp.Or(s.Why, s.Read); what != "" {
		verdict += " (" + term.Visible(what) + ")"
	}
	num := func(n int) string { return term.Grouped(n) }
	t.files.Add(term.Visible(file), s.Format, num(s.Lines), num(s.Entries), num(keys), num(s.Errors), num(s.Skipped), verdict)
	return nil
}

func (t *lintText) end() error {
	if t.said {
		fmt.Fprintln(t.w)
	}
	return t.files.Print(t.w, 2, 3, 4, 5, 6)
}

// lintJSON prints an object a line. docs/lists.md, section 9, fixes its form.
type lintJSON struct {
	w   io.Writer
	all bool
}

func (l lintJSON) item(file string, it *lists.Item) error {
	if !l.all && quiet(it) {
		return nil
	}
	o := struct {
		File    string `json:"file"`
		Line    int    `json:"line"`
		Kind    string `json:"kind"`
		Key     string `json:"key"`
		Scope   string `json:"scope"`
		Action  string `json:"action"`
		Reason  string `json:"reason"`
		Class   string `json:"class"`
		Message string `json:"message"`
		Expires int64  `json:"expires,omitempty"`
		Origin  string `json:"origin,omitempty"`
	}{
		File: file, Line: it.Line, Kind: it.Kind.String(), Key: it.Name(),
		Reason: it.Reason, Class: string(it.Class), Message: it.Message, Expires: it.Expires, Origin: it.Origin,
	}
	if it.Kind != lists.Skip && it.Kind != lists.Err {
		o.Scope, o.Action = it.Scope.String(), it.Action.String()
	}
	return term.JSON(l.w, o)
}

// quiet reports a line that is shown on request only: a blank or a comment.
func quiet(it *lists.Item) bool {
	return it.Kind == lists.Skip && (it.Class == lists.Blank || it.Class == lists.Comment)
}

func (l lintJSON) summary(file string, s lists.Summary, keys int) error {
	type summary struct {
		Format  string `json:"format"`
		Lines   int    `json:"lines"`
		Entries int    `json:"entries"`
		Keys    int    `json:"keys"`
		Errors  int    `json:"errors"`
		Skipped int    `json:"skipped"`
		Verdict string `json:"verdict"`
		Why     string `json:"why"`
		Read    string `json:"read,omitempty"`
	}
	return term.JSON(l.w, struct {
		File    string  `json:"file"`
		Summary summary `json:"summary"`
	}{file, summary{s.Format, s.Lines, s.Entries, keys, s.Errors, s.Skipped, string(s.Verdict), s.Why, s.Read}})
}

func (l lintJSON) end() error { return nil }

// lintHeld shows the entries that are held back, of some lists of a configuration or of
// all. That there are some is no fault of a list.
func lintHeld(w io.Writer, path string, names []string, asJSON bool) error {
	c, err := config.Load(path)
	if err != nil {
		return err
	}
	if err := wantLists("--held", names, c.Reload().Lists); err != nil {
		return err
	}
	held, err := reload.Held(c.Index.Path)
	if err != nil {
		return err
	}
	if len(names) > 0 {
		held = slices.DeleteFunc(held, func(e reload.HeldEntry) bool { return !slices.Contains(names, e.List) })
	}
	if asJSON {
		return heldJSON(w, held)
	}
	if len(held) == 0 {
		_, err := fmt.Fprintln(w, "nothing is held back")
		return err
	}
	var t term.Table
	t.Add("list", "file", "line", "entry", "scope", "senders", "such as", "since")
	for _, e := range held {
		example := term.Visible(e.Example)
		if e.Correspondent {
			example = "(correspondents)"
		}
		t.Add(term.Visible(e.List), term.Path(e.File), fmt.Sprint(e.Line), term.Visible(e.Name), e.Scope.String(),
			term.Grouped(e.Senders), example, term.Moment(e.Since))
	}
	return t.Print(w, 2, 5)
}

// heldJSON prints an object a line. docs/lists.md, section 9, fixes its form.
func heldJSON(w io.Writer, held []reload.HeldEntry) error {
	for _, e := range held {
		if err := term.JSON(w, struct {
			List    string    `json:"list"`
			File    string    `json:"file"`
			Line    int       `json:"line"`
			Kind    string    `json:"kind"`
			Key     string    `json:"key"`
			Scope   string    `json:"scope"`
			Senders int       `json:"senders"`
			Example string    `json:"example"`
			Since   time.Time `json:"since"`
			Class   string    `json:"class"`
		}{e.List, e.File, e.Line, e.Kind.String(), e.Name, e.Scope.String(), e.Senders, e.Example, e.Since, e.Class()}); err != nil {
			return err
		}
	}
	return nil
}

package main

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"

	"github.com/spf13/cobra"

	"blockd/index"
	"blockd/internal/config"
	"blockd/internal/term"
	"blockd/lists"
)

// listFlags are the flags that say how a list on the command line is read; they
// take the same words as a [[list]] of the configuration.
type listFlags struct {
	format, action    string
	subdomains        bool
	patterns          bool
	allowPublicSuffix bool
	exceptions        string
	cmd               *cobra.Command
}

func addListFlags(cmd *cobra.Command) *listFlags {
	f := &listFlags{cmd: cmd}
	cmd.Flags().StringVar(&f.format, "format", "auto", "`F`, the format of the lists: "+strings.Join(formatNames(), ", "))
	cmd.Flags().StringVar(&f.action, "action", "block", "`A`, what an entry asks for: block or allow")
	cmd.Flags().BoolVar(&f.subdomains, "subdomains", false, "whether a bare domain covers the names below it (default: as the format has it)")
	cmd.Flags().BoolVar(&f.patterns, "patterns", false, "take globs and regular expressions as entries")
	cmd.Flags().BoolVar(&f.allowPublicSuffix, "allow-public-suffix", false, "take entries for a whole top-level domain or public suffix")
	cmd.Flags().StringVar(&f.exceptions, "exceptions", "own", "`E`, what the exceptions of a list that blocks lift: own, all or none")
	must(cmd.RegisterFlagCompletionFunc("exceptions", cobra.FixedCompletions([]string{"own", "all", "none"}, cobra.ShellCompDirectiveNoFileComp)))
	must(cmd.RegisterFlagCompletionFunc("format", cobra.FixedCompletions(formatNames(), cobra.ShellCompDirectiveNoFileComp)))
	must(cmd.RegisterFlagCompletionFunc("action", cobra.FixedCompletions([]string{"block", "allow"}, cobra.ShellCompDirectiveNoFileComp)))
	return f
}

// formatNames are the formats, each with the argument that it may have.
func formatNames() []string {
	var names []string
	for _, f := range lists.Formats() {
		name := f.Name
		if f.Argument != "" {
			name += "[:" + f.Argument + "]"
		}
		names = append(names, name)
	}
	return names
}

// settings turns the flags into what package lists takes.
func (f *listFlags) settings() (lists.Settings, error) {
	s := lists.Settings{Format: f.format, Patterns: f.patterns}
	if err := config.CheckFormat(f.format); err != nil {
		return s, usagef("--format: %v", err)
	}
	var err error
	if s.Action, err = lists.ParseAction(f.action); err != nil {
		return s, usagef("--action: %v", err)
	}
	if f.cmd.Flags().Changed("subdomains") {
		s.Subdomains = &f.subdomains
	}
	guard := lists.DefaultGuard()
	guard.AllowPublicSuffix = f.allowPublicSuffix
	guard.Frees = s.Action == lists.Allow || f.exceptions == "all"
	s.Guard, err = lists.NewGuard(guard)
	return s, err
}

// reach is how far the exceptions reach.
func (f *listFlags) reach() (index.Exceptions, error) {
	e, err := index.ParseExceptions(f.exceptions)
	if err != nil {
		return e, usagef("--exceptions: %v", err)
	}
	return e, nil
}

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

With --held, show the entries that the daemon holds back, because they would refuse
senders who wrote lately: of the lists of the configuration with these names, or of
all. Those that refuse most come first. blockd compile --accept LIST lets them in;
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
				out = newLintJSON(w, all)
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
		if sum.Errors > 0 || sum.Verdict == lists.Refused {
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

// lintJSON prints an object a line. docs/lists.md, section 9, fixes its form.
type lintJSON struct {
	enc *json.Encoder
	all bool
}

func newLintJSON(w io.Writer, all bool) *lintJSON {
	enc := json.NewEncoder(w)
	enc.SetEscapeHTML(false)
	return &lintJSON{enc, all}
}

func (l *lintJSON) item(file string, it *lists.Item) error {
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
	}{
		File: file, Line: it.Line, Kind: it.Kind.String(), Key: it.Name(),
		Reason: it.Reason, Class: string(it.Class), Message: it.Message,
	}
	if it.Kind != lists.Skip && it.Kind != lists.Err {
		o.Scope, o.Action = it.Scope.String(), it.Action.String()
	}
	return l.enc.Encode(o)
}

// quiet reports a line that is shown on request only: a blank or a comment.
func quiet(it *lists.Item) bool {
	return it.Kind == lists.Skip && (it.Class == lists.Blank || it.Class == lists.Comment)
}

func (l *lintJSON) summary(file string, s lists.Summary, keys int) error {
	type summary struct {
		Format  string `json:"format"`
		Lines   int    `json:"lines"`
		Entries int    `json:"entries"`
		Keys    int    `json:"keys"`
		Errors  int    `json:"errors"`
		Skipped int    `json:"skipped"`
		Verdict string `json:"verdict"`
		Why     string `json:"why"`
	}
	return l.enc.Encode(struct {
		File    string  `json:"file"`
		Summary summary `json:"summary"`
	}{file, summary{s.Format, s.Lines, s.Entries, keys, s.Errors, s.Skipped, string(s.Verdict), s.Why}})
}

func (l *lintJSON) end() error { return nil }

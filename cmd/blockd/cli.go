package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"blockd/cmd/blockd/internal/config"
	"blockd/index"
	"blockd/internal/spelling"
	"blockd/internal/term"
	"blockd/lists"
	"blockd/reload"
)

// The exit codes.
const (
	exitFault   = 1 // it did not work, or an answer that is not the best one
	exitUsage   = 2 // wrong words on the command line
	exitTrouble = 2 // it did not work, where 1 is an answer
)

// exitError is an error that chooses the exit code.
type exitError interface {
	error
	exitCode() int
}

// answer is an exit code that says something by itself; nothing is printed.
type answer int

func (a answer) Error() string { return fmt.Sprintf("exit %d", int(a)) }
func (a answer) exitCode() int { return int(a) }

// checkError is an error of a command whose 1 is an answer.
type checkError struct{ error }

func (e checkError) Unwrap() error { return e.error }
func (e checkError) exitCode() int { return exitTrouble }

// noneBlocked is an answer of check, which ends as grep does.
const noneBlocked = answer(1)

// answering runs a command whose 1 is an answer.
func answering(run func(*cobra.Command, []string) error) func(*cobra.Command, []string) error {
	return func(cmd *cobra.Command, args []string) error {
		err := run(cmd, args)
		if chosen := exitError(nil); err == nil || errors.As(err, &chosen) {
			return err
		}
		return checkError{err}
	}
}

// usageError is a command line that blockd does not understand.
type usageError struct{ text string }

func (e usageError) Error() string { return e.text }
func (e usageError) exitCode() int { return exitUsage }

func usagef(format string, args ...any) error { return usageError{fmt.Sprintf(format, args...)} }

// complain prints an error in one line. Faults of a configuration have a line
// each, file and number first, where editors look for them.
func complain(w io.Writer, command string, err error) {
	var (
		silent answer
		usage  usageError
		faults config.Faults
	)
	switch {
	case errors.As(err, &silent):
	case errors.As(err, &usage):
		fmt.Fprintf(w, "%s: %s; see: %s --help\n", command, usage.text, command)
	case errors.As(err, &faults):
		fmt.Fprintln(w, faults)
		fmt.Fprintf(w, "%s: %s: %s\n", command, faults[0].File, term.Counted(len(faults), "fault"))
	case errors.Is(err, context.Canceled):
		fmt.Fprintf(w, "%s: interrupted\n", command)
	default:
		fmt.Fprintf(w, "%s: %s\n", command, strings.ReplaceAll(err.Error(), "\n", "; "))
	}
}

// configFlag adds -c. The default is the file of the current folder, so that a
// checkout runs as it is, and else that of the machine, so that who has installed
// blockd need not name it each time.
func configFlag(cmd *cobra.Command, path *string) {
	cmd.Flags().StringVarP(path, "config", "c", firstFile("config.toml", "/etc/blockd/config.toml"), "configuration `file`")
	must(cmd.MarkFlagFilename("config", "toml"))
}

// indexFlag adds -i, which stands in the place of -c.
func indexFlag(cmd *cobra.Command, file *string, use string) {
	cmd.Flags().StringVarP(file, "index", "i", "", "compiled index `file` to "+use+", with no configuration")
	must(cmd.MarkFlagFilename("index", "bdx"))
	cmd.PreRunE = func(cmd *cobra.Command, _ []string) error {
		if *file != "" && cmd.Flags().Changed("config") {
			return usagef("want -c or -i, not both")
		}
		return nil
	}
}

// firstFile is the first of paths that is there, or the first of all.
func firstFile(paths ...string) string {
	for _, path := range paths {
		if _, err := os.Stat(path); err == nil {
			return path
		}
	}
	return paths[0]
}

// must is for what can only be a slip in this program's own text, which each
// test of a command would meet.
func must(err error) {
	if err != nil {
		panic(err)
	}
}

// noArgs is for a command that takes flags only.
func noArgs(_ *cobra.Command, args []string) error {
	if len(args) > 0 {
		return usagef("unexpected argument %q", args[0])
	}
	return nil
}

// wantLists returns an error that names the first of names which is no list. flag is the
// flag that has them, for the error.
func wantLists(flag string, names []string, all []reload.List) error {
	var known []string
	for _, l := range all {
		known = append(known, l.Name)
	}
	for _, name := range names {
		if !slices.Contains(known, name) {
			return usagef("%s: no list %q%s", flag, name, spelling.Hint(name, "", known))
		}
	}
	return nil
}

// completion offers words to a shell: those of the configuration at *path, as the flags
// before the word have it. A configuration that cannot be read offers nothing; the command
// itself will say why.
func completion(path *string, words func(config.Config) []string) cobra.CompletionFunc {
	return func(_ *cobra.Command, given []string, begun string) ([]cobra.Completion, cobra.ShellCompDirective) {
		c, err := config.Load(*path)
		if err != nil {
			return nil, cobra.ShellCompDirectiveNoFileComp
		}
		return slices.DeleteFunc(words(c), func(word string) bool {
			return !strings.HasPrefix(word, begun) || slices.Contains(given, word)
		}), cobra.ShellCompDirectiveNoFileComp
	}
}

// listNames are the words of flags that take the name of a list.
func listNames(c config.Config) (names []string) {
	for _, l := range c.Lists {
		names = append(names, l.Name+"\t"+term.Path(l.Path))
	}
	return names
}

// parseSince reads how long ago, or when.
func parseSince(text string, now time.Time) (time.Time, error) {
	if d, err := config.ParseDuration(text); err == nil && d > 0 {
		return now.Add(-d), nil
	}
	for _, layout := range []string{time.RFC3339, "2006-01-02T15:04", time.DateOnly} {
		if at, err := time.ParseInLocation(layout, text, time.Local); err == nil {
			return at, nil
		}
	}
	return time.Time{}, usagef("--since: want how long ago, such as 7d or 12h, or a time such as 2027-01-31, have %q", text)
}

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
	guard.Machine = config.MachineNames("")
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

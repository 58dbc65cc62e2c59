// Blockd refuses mail from listed senders, in front of any mail server.
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"blockd/internal/config"
	"blockd/internal/daemon"
	"blockd/internal/spelling"
	"blockd/internal/term"
)

func main() { os.Exit(run(os.Args[1:], os.Stdin, os.Stdout, os.Stderr)) }

// run is the whole program but for the process around it.
func run(args []string, stdin io.Reader, stdout, stderr io.Writer) int {
	return runContext(context.Background(), args, stdin, stdout, stderr)
}

// runContext is run with an end from outside: what SIGTERM is to a command, the
// end of ctx is too.
func runContext(ctx context.Context, args []string, stdin io.Reader, stdout, stderr io.Writer) int {
	root := newRoot()
	root.SetArgs(args)
	root.SetIn(stdin)
	root.SetOut(stdout)
	root.SetErr(stderr)
	cmd, err := root.ExecuteContextC(ctx)
	if err == nil {
		return 0
	}
	code := exitFault
	if answer := exitError(nil); errors.As(err, &answer) {
		code = answer.exitCode()
	}
	complain(stderr, cmd.CommandPath(), err)
	return code
}

// The exit codes. Lint's and check's own are answers: see there.
const (
	exitFault = 1 // it did not work
	exitUsage = 2 // wrong words on the command line
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

func newRoot() *cobra.Command {
	root := &cobra.Command{
		Use:   "blockd",
		Short: "refuse mail from listed senders",
		Long: `Blockd refuses mail from the senders on its lists (a spam blacklist), in front
of any mail server, and never refuses a sender who is not listed.`,
		Example: `  blockd serve                              filter by config.toml
  blockd check someone@bad.example          is this sender listed, and where?
  blockd add someone@bad.example            refuse this sender from now on
  blockd lint lists/*.txt                   what does each line mean?
  blockd doctor                             is what is configured safe, and does it work?`,
		Version:       daemon.Version(),
		Args:          cobra.ArbitraryArgs, // RunE says better what is wrong with them
		SilenceErrors: true,
		SilenceUsage:  true,
		RunE: func(cmd *cobra.Command, args []string) error {
			if len(args) == 0 {
				return usagef("want a command: serve, compile, lint, check, lists, add, remove, list, history, replay, token, export, import, config, doctor or health")
			}
			var names []string
			for _, c := range cmd.Commands() {
				names = append(names, c.Name())
			}
			return usagef("unknown command %q%s", args[0], spelling.Hint(args[0], "", names))
		},
	}
	root.SetFlagErrorFunc(func(cmd *cobra.Command, err error) error {
		text := err.Error()
		if unknown := (*pflag.NotExistError)(nil); errors.As(err, &unknown) {
			var names []string
			cmd.Flags().VisitAll(func(f *pflag.Flag) { names = append(names, f.Name) })
			text += spelling.Hint(unknown.GetSpecifiedName(), "--", names)
		}
		return usageError{text}
	})
	for _, c := range []*cobra.Command{newServe(), newCompile(), newLint(), newCheck(), newListing(), newAdd(), newRemove(), newEntryList(), newHistory(), newReplay(), newToken(), newExport(), newImport(), newConfig(), newDoctor(), newHealth()} {
		c.DisableFlagsInUseLine = true // Use names them
		root.AddCommand(c)
	}
	return root
}

// configFlag adds -c. The default is the file of the current folder, so that a
// checkout runs as it is, and else that of the machine, so that who has installed
// blockd need not name it each time.
func configFlag(cmd *cobra.Command, path *string) {
	cmd.Flags().StringVarP(path, "config", "c", firstFile("config.toml", "/etc/blockd/config.toml"), "configuration `file`")
	must(cmd.MarkFlagFilename("config", "toml"))
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

// Blockd refuses mail from listed senders, in front of any mail server.
package main

import (
	"context"
	"errors"
	"io"
	"os"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"blockd/cmd/blockd/internal/version"
	"blockd/internal/spelling"
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
		Version:       version.String(),
		Args:          cobra.ArbitraryArgs, // RunE says better what is wrong with them
		SilenceErrors: true,
		SilenceUsage:  true,
		RunE: func(cmd *cobra.Command, args []string) error {
			if len(args) == 0 {
				return usagef("want a command: serve, compile, lint, check, lists, source, add, remove, list, history, replay, quarantine, requests, audit, token, export, compare, filter, import, config, doctor, health, pause, resume, learn, forget, generations, diff, rollback, adopt, publish, fleet, live, reload, notify, report, init, junk, complaints, proposals, catalogue, subscribe or version")
			}
			var names []string
			for _, c := range cmd.Commands() {
				if c.Hidden {
					continue
				}
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
	for _, c := range []*cobra.Command{newServe(), newCompile(), newLint(), newCheck(), newListing(), newSource(), newAdd(), newRemove(), newEntryList(), newHistory(), newReplay(), newQuarantine(), newRequests(), newAudit(), newToken(), newExport(), newCompare(), newFilter(), newImport(), newConfig(), newDoctor(), newHealth(), newPause(), newResume(), newLearn(), newForget(), newPublish(), newFleet(), newLive(), newGenerations(), newDiff(), newRollback(), newAdopt(), newReload(), newNotify(), newReport(), newInit(), newJunk(), newComplaints(), newProposals(), newCatalogue(), newSubscribe(), newVersion(), newBuilder()} {
		c.DisableFlagsInUseLine = true // Use names them
		root.AddCommand(c)
	}
	return root
}

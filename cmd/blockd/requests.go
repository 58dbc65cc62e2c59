package main

import (
	"cmp"
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"blockd/cmd/blockd/internal/config"
	"blockd/cmd/blockd/internal/control"
	"blockd/doors/httpapi"
	"blockd/doors/receipt"
	"blockd/index/live"
	"blockd/internal/term"
)

func newRequests() *cobra.Command {
	var path, state string
	var all, asJSON bool
	cmd := &cobra.Command{
		Use:   "requests [-c config.toml] [--state STATE | --all] [--json]  |  requests grant|decline",
		Short: "show who asks to be let in, and decide",
		Long: `Show the requests of refused people: those who followed the address in a refusal to the
door [receipts], and asked there to be let in. Without --state or --all those that are open.

The daemon is asked; where none runs, the files are read.

Ends with 0 if something is found, 1 if nothing is, 2 on an error.`,
		Example: `  blockd requests
  blockd requests grant 7m3k9q2vxtb81dc0 --for 365d
  blockd requests decline 7m3k9q2vxtb81dc0`,
		Args: noArgs,
	}
	cmd.RunE = answering(func(cmd *cobra.Command, _ []string) error {
		c, err := config.Load(path)
		if err != nil {
			return err
		}
		wanted, err := httpapi.ParseRequestState(state)
		switch {
		case err != nil:
			return usagef("--%v", err)
		case all && state != "":
			return usagef("want --state or --all, not both")
		case !all:
			wanted = cmp.Or(wanted, receipt.Open)
		}
		found, err := control.Requests(cmd.Context(), c, wanted)
		if err != nil {
			return err
		}
		return printRequests(cmd, found, asJSON)
	})
	configFlag(cmd, &path)
	cmd.Flags().StringVar(&state, "state", "", "those that are `STATE`: open, granted or declined")
	cmd.Flags().BoolVar(&all, "all", false, "of all states")
	cmd.Flags().BoolVar(&asJSON, "json", false, "one JSON object a request")
	must(cmd.RegisterFlagCompletionFunc("state", cobra.FixedCompletions([]string{"open", "granted", "declined"}, cobra.ShellCompDirectiveNoFileComp)))
	for _, sub := range []*cobra.Command{newGrant(), newDecline()} {
		sub.DisableFlagsInUseLine = true
		cmd.AddCommand(sub)
	}
	return cmd
}

func printRequests(cmd *cobra.Command, found httpapi.RequestList, asJSON bool) (err error) {
	out, notes := cmd.OutOrStdout(), cmd.ErrOrStderr()
	switch {
	case asJSON:
		err = term.JSONLines(out, found.Requests)
	case len(found.Requests) > 0:
		p := term.NewPaint(out)
		var t term.Table
		t.Add(p.Faint("reference"), p.Faint("state"), p.Faint("asked"), p.Faint("sender"), p.Faint("proof"), p.Faint("list"), p.Faint("refused"), p.Faint("note"))
		for _, q := range found.Requests {
			t.Add(q.Ref, string(q.State), term.Moment(q.Time), requester(q), cmp.Or(term.Visible(string(q.Proof)), "-"), cmp.Or(term.Visible(q.List), "-"), term.Moment(q.Refused), term.Visible(q.Note))
		}
		err = t.Print(out)
	}
	if found.Damaged > 0 {
		fmt.Fprintf(notes, "%s: note: left out %s that cannot be read\n", cmd.CommandPath(), term.Counted(found.Damaged, "file"))
	}
	if len(found.Requests) == 0 && err == nil {
		fmt.Fprintf(notes, "%s: nothing found\n", cmd.CommandPath())
		return answer(exitFault)
	}
	return err
}

// requester is whom a request is about.
func requester(q receipt.Request) string {
	return cmp.Or(term.Visible(q.Sender), term.Visible(q.Client), "<>")
}

func newGrant() *cobra.Command {
	var path, life string
	var asJSON, noProof bool
	cmd := &cobra.Command{
		Use:   "grant [-c config.toml] [--for 30d] [--no-proof] [--json] REF...",
		Short: "let in whom a request is about",
		Long: `Add an exception for the sender of the refused message, or for the client where it had no
sender. It acts at once, as one of blockd add --action allow does, and ends by itself. The page
of who asked then says so.

Where SPF passed the client that was refused, the exception counts only for mail with SPF or
DKIM, so that nobody else can use the address. Else it counts for all, and the answer says so.`,
		Args: oneRef,
	}
	cmd.RunE = func(cmd *cobra.Command, refs []string) error {
		if life != "" {
			if _, err := live.ParseLife(life); err != nil {
				return usagef("--for: want how long, such as 30d or 12h, have %q", life)
			}
		}
		return decideAll(cmd, path, refs, asJSON, func(c config.Config, ref string) (any, string, error) {
			done, err := control.Grant(cmd.Context(), c, ref, life, userName(), noProof)
			until := "for good"
			if done.Until != nil {
				until = "until " + term.Moment(*done.Until)
			}
			return done, fmt.Sprintf("granted: %s may write %s%s", requester(done.Request), until, grantedBy(done)), err
		})
	}
	configFlag(cmd, &path)
	cmd.Flags().StringVar(&life, "for", "", "for how long, such as 30d, which it is if it is not said, or 365d")
	cmd.Flags().BoolVar(&noProof, "no-proof", false, "let in whoever writes this address, whatever SPF says")
	cmd.Flags().BoolVar(&asJSON, "json", false, "one JSON object a request")
	return cmd
}

// grantedBy says what the exception of a grant asks of mail.
func grantedBy(done httpapi.RequestGrant) string {
	switch e := done.Change.Entry; {
	case e == nil || aboutClient(e):
		return ""
	case len(e.Require) > 0:
		return ", with " + strings.Join(e.Require, " or ") + " as proof"
	}
	return "; no proof is asked for, so whoever writes this address may"
}

func newDecline() *cobra.Command {
	var path string
	var asJSON bool
	cmd := &cobra.Command{
		Use:   "decline [-c config.toml] [--json] REF...",
		Short: "decline a request",
		Long:  `Decline requests. The page of who asked then says so; nobody is written to.`,
		Args:  oneRef,
	}
	cmd.RunE = func(cmd *cobra.Command, refs []string) error {
		return decideAll(cmd, path, refs, asJSON, func(c config.Config, ref string) (any, string, error) {
			done, err := control.Decline(cmd.Context(), c, ref, userName())
			return done, "declined: " + requester(done), err
		})
	}
	configFlag(cmd, &path)
	cmd.Flags().BoolVar(&asJSON, "json", false, "one JSON object a request")
	return cmd
}

func oneRef(_ *cobra.Command, args []string) error {
	if len(args) == 0 {
		return usagef("want a reference, which blockd requests shows")
	}
	return nil
}

// decideAll decides about requests in turn, and ends with the first that fails.
func decideAll(cmd *cobra.Command, path string, refs []string, asJSON bool, decide func(c config.Config, ref string) (answer any, line string, err error)) error {
	c, err := config.Load(path)
	if err != nil {
		return err
	}
	for _, ref := range refs {
		answer, line, err := decide(c, ref)
		switch {
		case err != nil:
			return fmt.Errorf("%s: %w", ref, err)
		case asJSON:
			err = term.JSONLines(cmd.OutOrStdout(), []any{answer})
		default:
			_, err = fmt.Fprintln(cmd.OutOrStdout(), line)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

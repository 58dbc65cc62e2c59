package main

import (
	"cmp"
	"fmt"

	"github.com/spf13/cobra"

	"blockd/cmd/blockd/internal/config"
	"blockd/cmd/blockd/internal/control"
	"blockd/doors/httpapi"
	"blockd/index/live"
	"blockd/internal/term"
	"blockd/policy/junk"
)

func newProposals() *cobra.Command {
	var path, state string
	var all, asJSON bool
	cmd := &cobra.Command{
		Use:   "proposals [-c config.toml] [--state STATE | --all] [--json]  |  proposals adopt|decline",
		Short: "show senders whom several users do not want, and decide",
		Long: `Show the senders that as many users have moved to Junk, or complained about, as junk.agree says.
Without --state or --all those that wait for a person. None of them is blocked for everybody
until one adopts it.

The daemon is asked; where none runs, the file is read.

Ends with 0 if something is found, 1 if nothing is, 2 on an error.`,
		Example: `  blockd proposals
  blockd proposals adopt promo@bulk.example --for 365d
  blockd proposals decline promo@bulk.example`,
		Args: noArgs,
	}
	cmd.RunE = answering(func(cmd *cobra.Command, _ []string) error {
		c, err := config.Load(path)
		if err != nil {
			return err
		}
		wanted, err := httpapi.ParseProposalState(state)
		switch {
		case err != nil:
			return usagef("--%v", err)
		case all && state != "":
			return usagef("want --state or --all, not both")
		case !all:
			wanted = cmp.Or(wanted, junk.Open)
		}
		found, err := control.Proposals(cmd.Context(), c, wanted)
		if err != nil {
			return err
		}
		return printProposals(cmd, found, asJSON)
	})
	configFlag(cmd, &path)
	cmd.Flags().StringVar(&state, "state", "", "those that are `STATE`: open, adopted or declined")
	cmd.Flags().BoolVar(&all, "all", false, "of all states")
	cmd.Flags().BoolVar(&asJSON, "json", false, "one JSON object a proposal")
	must(cmd.RegisterFlagCompletionFunc("state", cobra.FixedCompletions([]string{"open", "adopted", "declined"}, cobra.ShellCompDirectiveNoFileComp)))
	for _, sub := range []*cobra.Command{newAdoptProposal(), newDeclineProposal()} {
		sub.DisableFlagsInUseLine = true
		cmd.AddCommand(sub)
	}
	return cmd
}

func printProposals(cmd *cobra.Command, found httpapi.ProposalList, asJSON bool) (err error) {
	out, notes := cmd.OutOrStdout(), cmd.ErrOrStderr()
	switch {
	case asJSON:
		err = term.JSONLines(out, found.Proposals)
	case len(found.Proposals) > 0:
		p := term.NewPaint(out)
		var t term.Table
		t.Add(p.Faint("sender"), p.Faint("state"), p.Faint("users"), p.Faint("domains"), p.Faint("complaints"), p.Faint("last"), p.Faint("note"))
		for _, q := range found.Proposals {
			note := ""
			if q.Correspondent {
				note = "users here write to it"
			}
			last := q.Last
			if q.Decided != nil {
				last = *q.Decided
			}
			t.Add(term.Visible(q.Entry), string(q.State), term.Grouped(q.Users), term.Grouped(q.Domains), term.Grouped(q.Complaints), term.Moment(last), note)
		}
		err = t.Print(out)
	}
	if found.Damaged > 0 {
		fmt.Fprintf(notes, "%s: note: left out %s that cannot be read\n", cmd.CommandPath(), term.Counted(found.Damaged, "line"))
	}
	if len(found.Proposals) == 0 && err == nil {
		fmt.Fprintf(notes, "%s: nothing found\n", cmd.CommandPath())
		return answer(exitFault)
	}
	return err
}

func newAdoptProposal() *cobra.Command {
	var path, life string
	var force, asJSON bool
	cmd := &cobra.Command{
		Use:   "adopt [-c config.toml] [--for 90d] [--force] [--json] SENDER...",
		Short: "block a proposed sender for everybody",
		Long: `Add a live entry that blocks the sender for everybody. It acts at once, as one of blockd add
does, and ends by itself. A sender that users of this server write to wants --force,
and so does one whom complaints alone accuse: who has sent the messages can write these.`,
		Args: oneProposal,
	}
	cmd.RunE = func(cmd *cobra.Command, senders []string) error {
		if life != "" {
			if _, err := live.ParseLife(life); err != nil {
				return usagef("--for: want how long, such as 30d or 12h, have %q", life)
			}
		}
		return decideAll(cmd, path, senders, asJSON, func(c config.Config, sender string) (any, string, error) {
			done, err := control.AdoptProposal(cmd.Context(), c, sender, life, force, userName())
			until := ""
			if done.Until != nil {
				until = " until " + term.Moment(*done.Until)
			}
			return done, fmt.Sprintf("adopted: %s is blocked for everybody%s", term.Visible(done.Entry), until), err
		})
	}
	configFlag(cmd, &path)
	cmd.Flags().StringVar(&life, "for", "", "for how long, such as 90d, which it is if it is not said, or 365d")
	cmd.Flags().BoolVar(&force, "force", false, "whatever speaks against it")
	cmd.Flags().BoolVar(&asJSON, "json", false, "one JSON object a proposal")
	return cmd
}

func newDeclineProposal() *cobra.Command {
	var path string
	var asJSON bool
	cmd := &cobra.Command{
		Use:   "decline [-c config.toml] [--json] SENDER...",
		Short: "decline a proposal",
		Long:  `Decline proposals. One waits again when as many users have said so anew. What users have blocked for themselves stays.`,
		Args:  oneProposal,
	}
	cmd.RunE = func(cmd *cobra.Command, senders []string) error {
		return decideAll(cmd, path, senders, asJSON, func(c config.Config, sender string) (any, string, error) {
			done, err := control.DeclineProposal(cmd.Context(), c, sender, userName())
			return done, "declined: " + term.Visible(done.Entry), err
		})
	}
	configFlag(cmd, &path)
	cmd.Flags().BoolVar(&asJSON, "json", false, "one JSON object a proposal")
	return cmd
}

func oneProposal(_ *cobra.Command, args []string) error {
	if len(args) == 0 {
		return usagef("want a sender, which blockd proposals shows")
	}
	return nil
}

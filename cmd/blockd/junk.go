package main

import (
	"errors"
	"fmt"

	"github.com/spf13/cobra"

	"blockd/addr"
	"blockd/httpapi"
	"blockd/internal/config"
	"blockd/internal/control"
	"blockd/internal/term"
	"blockd/junk"
	"blockd/live"
)

// byJunk is the reason of entries that come of a message in Junk. Only such an entry goes when the message is moved back.
const byJunk = "moved to Junk"

func newJunk() *cobra.Command {
	var path, recipient, life string
	var undo, ham bool
	cmd := &cobra.Command{
		Use:   "junk [-c config.toml] --recipient USER [--for 30d] [--undo | --ham]",
		Short: "block, for one user, the sender of a message on standard input",
		Long: `Make the sender of the message on standard input an entry of the user's own, with an
end: for the mail server to call when the user moves a message to Junk. With --undo or
--ham, when it is moved back, that entry goes; one that the user has made himself stays.

The sender is that of Return-Path, which the delivering server has written, never From:
that is the sender's own words. An address of the user's own domain is not blocked, nor
is the sender of a bounce.

Ends with 0 when it is done, 1 with a sentence when nothing is blocked, 2 on an error.`,
		Example: `  blockd junk --recipient anna@here.example <mail
  blockd junk --recipient anna@here.example --undo <mail`,
		Args: noArgs,
		RunE: answering(func(cmd *cobra.Command, _ []string) error {
			owner, err := addr.ParseOwner(recipient)
			if err != nil || owner.Kind != addr.Address {
				return usagef("want --recipient, the mailbox of the user")
			}
			if _, err := live.ParseLife(life); err != nil {
				return usagef("--for: want how long, such as 30d or 12h, have %q", life)
			}
			c, err := config.Load(path)
			if err != nil {
				return err
			}
			if a, err := addr.Parse(owner.Text); err == nil {
				if k, ok := a.Untagged("+").Key(); ok {
					owner = k // whose mail it is, a look-up asks without the tag too
				}
			}
			sender, err := junk.Sender(cmd.InOrStdin(), owner)
			if errors.Is(err, junk.ErrRefused) {
				fmt.Fprintf(cmd.OutOrStdout(), "%s\n", term.Visible(err.Error()))
				return answer(exitFault)
			} else if err != nil {
				return err
			}
			entries, err := control.OwnerEntries(cmd.Context(), c, owner)
			if err != nil {
				return err
			}
			var there *httpapi.LiveEntry
			for _, e := range entries.Entries {
				if e.Entry == sender.Text {
					there = e
				}
			}
			switch {
			case there != nil && there.Why != byJunk:
				fmt.Fprintf(cmd.OutOrStdout(), "%s stays: the user has an entry of his own, %s\n", term.Visible(sender.Text), there.Action)
				return answer(exitFault)
			case (undo || ham) && there == nil:
				fmt.Fprintf(cmd.OutOrStdout(), "%s was not blocked\n", term.Visible(sender.Text))
				return nil
			case undo || ham:
				return changeEntries(cmd, path, nil, []string{sender.Text}, owner.Text, "moved back from Junk", false)
			}
			add := httpapi.EntryChange{LiveEntry: httpapi.LiveEntry{Owner: owner.Text, Entry: sender.Text, Why: byJunk, Author: owner.Text}, For: life}
			return changeEntries(cmd, path, []httpapi.EntryChange{add}, nil, owner.Text, "", false)
		}),
	}
	configFlag(cmd, &path)
	cmd.Flags().StringVar(&recipient, "recipient", "", "mailbox of the `USER` who has moved the message")
	cmd.Flags().StringVar(&life, "for", "30d", "how long the sender is blocked, a `TIME`")
	cmd.Flags().BoolVar(&undo, "undo", false, "the message was moved back: the entry goes")
	cmd.Flags().BoolVar(&ham, "ham", false, "the same")
	return cmd
}

package main

import (
	"fmt"

	"github.com/spf13/cobra"

	"blockd/forget"
	"blockd/httpapi"
	"blockd/internal/config"
	"blockd/internal/control"
	"blockd/internal/term"
)

func newForget() *cobra.Command {
	var path, why string
	var asJSON bool
	cmd := &cobra.Command{
		Use:   "forget [-c config.toml] [--why TEXT] [--json] ADDRESS",
		Short: "erase what is kept about one person",
		Long: `Erase what blockd keeps about an address, as a sender, a recipient, or somebody whom your users
write to: correspondents, senders accepted lately, decisions of the history, requests to be
let in. Files are written anew. It works with a daemon that runs and without.

Not erased: entries of lists and live entries, which are rules of yours (blockd list, blockd
remove), messages in quarantine (blockd quarantine), the daemon's log on standard error, and
lines of the audit journal; the line about the erasure names the person by a keyed hash.
Ends with 0 also where nothing was kept.`,
		Example: `  blockd forget bob@there.example --why "request of the 3rd of May"`,
		Args: func(_ *cobra.Command, args []string) error {
			if len(args) != 1 {
				return usagef("want one ADDRESS")
			}
			return nil
		},
		RunE: func(cmd *cobra.Command, args []string) error {
			a, err := httpapi.ParsePerson(args[0])
			if err != nil {
				return usagef("%v", err)
			}
			c, err := config.Load(path)
			if err != nil {
				return err
			}
			f, _, err := control.Forget(cmd.Context(), c, a, userName(), why)
			if err != nil {
				return err
			}
			if asJSON {
				return term.JSON(cmd.OutOrStdout(), f)
			}
			_, err = fmt.Fprintln(cmd.OutOrStdout(), shownForgotten(f))
			return err
		},
	}
	configFlag(cmd, &path)
	cmd.Flags().StringVar(&why, "why", "", "a line for the audit journal, which keeps it: do not name the person")
	cmd.Flags().BoolVar(&asJSON, "json", false, "one JSON object")
	return cmd
}

func shownForgotten(f forget.Forgotten) string {
	if f.Nothing() {
		return "nothing was kept about this address"
	}
	text := "erased: " + term.Counted(f.Decisions, "decision") + ", " + term.Counted(f.Requests, "request")
	if f.Correspondent {
		text += ", the correspondent"
	}
	if f.Recent {
		text += ", the recent sender"
	}
	if f.Proposals > 0 {
		text += ", " + term.Counted(f.Proposals, "word") + " about unwanted senders"
	}
	if f.Held > 0 {
		text += ", the example of " + term.Counted(f.Held, "held entry")
	}
	return text
}

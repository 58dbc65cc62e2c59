package main

import (
	"fmt"

	"github.com/spf13/cobra"

	"blockd/cmd/blockd/internal/config"
	"blockd/cmd/blockd/internal/control"
	"blockd/doors/forget"
	"blockd/doors/httpapi"
	"blockd/internal/term"
)

func newForget() *cobra.Command {
	var path, why string
	var asJSON bool
	var wish forget.Wish
	cmd := &cobra.Command{
		Use:   "forget [-c config.toml] [--entries] [--quarantine] [--why TEXT] [--json] ADDRESS",
		Short: "erase what is kept about one person",
		Long: `Erase what blockd keeps about an address, as a sender, a recipient, or somebody whom your users
write to: correspondents, senders accepted lately, decisions of the history, requests to be
let in, live entries whose owner it is, counts of hits, notes for the next letter. Files are
written anew. It works with a daemon that runs and without.

What stays is shown, with the reason: entries of lists; live entries that people have made for
the address, unless --entries removes them; messages in quarantine, unless --quarantine removes
them: those from the address, whoever waits for them, and those to it, which stay for others
if there are any; lines of the audit journal. The line about the erasure names the person by a
keyed hash. Not looked at are the daemon's log on standard error, delivered mail, what lists
held before, and backups. Ends with 0 also where nothing was kept.`,
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
			wish.Author = userName()
			f, err := control.Forget(cmd.Context(), c, a, wish, why)
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
	cmd.Flags().BoolVar(&wish.Entries, "entries", false, "remove live entries for the address too")
	cmd.Flags().BoolVar(&wish.Quarantine, "quarantine", false, "remove messages from it, and those to it alone, from quarantine too")
	cmd.Flags().StringVar(&why, "why", "", "a line for the audit journal, which keeps it: do not name the person")
	cmd.Flags().BoolVar(&asJSON, "json", false, "one JSON object")
	return cmd
}

func shownForgotten(f forget.Forgotten) string {
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
	for _, part := range []struct {
		n    int
		what string
	}{{f.Own, "own live entry"}, {f.Entries, "other live entry"}, {f.Quarantined, "quarantined message"}, {f.Hits, "hit count"}, {f.Report, "letter's note"}, {f.Sessions, "session of a browser"}} {
		if part.n > 0 {
			text += ", " + term.Counted(part.n, part.what)
		}
	}
	if f.Nothing() {
		text = "nothing was kept about this address that may be erased"
	}
	for _, r := range f.Remains {
		text += fmt.Sprintf("\nremains in %s, %s: %s", r.Where, term.Grouped(r.Count), r.Why)
	}
	return text
}

package main

import (
	"fmt"

	"github.com/spf13/cobra"

	"blockd/internal/term"
	"blockd/sources/catalogue"
)

func newCatalogue() *cobra.Command {
	var asJSON bool
	cmd := &cobra.Command{
		Use:   "catalogue [--json]",
		Short: "show public lists that blockd knows",
		Long: `Show public lists: name, licence, format, how often each changes, what blockd's gate
found in the copy that it read last, and on which day that copy was made; then where to fetch
the list, and where to complain about it. Nothing is fetched, and nobody is asked.`,
		Example: `  blockd catalogue
  blockd catalogue --json | jq -r '.[].url'`,
		Args: noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			all, err := catalogue.Lists()
			if err != nil {
				return err
			}
			out := cmd.OutOrStdout()
			if asJSON {
				return term.JSON(out, all)
			}
			var facts, places term.Table
			facts.Add("name", "licence", "format", "changes", "entries", "refused", "judged", "what")
			places.Add("name", "address", "complaints")
			for _, l := range all {
				facts.Add(l.Name, l.Licence, l.Format, l.Cadence, term.Grouped(l.Entries), term.Grouped(l.Refused), l.Judged.String(), l.What)
				places.Add(l.Name, l.URL, l.Complaints)
			}
			if err := facts.Print(out, 4, 5); err != nil {
				return err
			}
			fmt.Fprintln(out)
			return places.Print(out)
		},
	}
	cmd.Flags().BoolVar(&asJSON, "json", false, "print an array of objects, one a list")
	return cmd
}

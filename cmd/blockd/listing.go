package main

import (
	"context"
	"fmt"
	"io"
	"time"

	"github.com/spf13/cobra"

	"blockd/httpapi"
	"blockd/internal/config"
	"blockd/internal/daemon"
	"blockd/internal/term"
)

func newListing() *cobra.Command {
	var path, file string
	var asJSON bool
	var view listingView
	cmd := &cobra.Command{
		Use:   "lists [-c config.toml | -i FILE.bdx] [--files] [--overlaps] [--entries] [--json]",
		Short: "show what each list is worth, how old it is, and how it does",
		Long: `Show a row for each list: its entries and distinct keys; the keys that no other list
has; the list with which it shares most, and how much of it; the age of what serves,
since it was written or its server confirmed it; its state; and since the daemon's
start how often it had an entry for an envelope or a question, how often no other
list had one, when it last had, and, if there is such a list, how often an allow entry
overruled its block. Below it stands what is wrong with lists, which lines of them are
refused (of a list whose state is "partial"), and which pairs of them share most. With --entries, those with the most hits follow.

The daemon is asked at [http] listen. Where none answers, the index file tells what
it knows, and hits are "-".`,
		Example: `  blockd lists
  blockd lists --files -c /etc/blockd/config.toml
  blockd lists --json | jq -r '.worth[] | select(.unique == 0).list'`,
		Args: noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if file != "" && cmd.Flags().Changed("config") {
				return usagef("want -c or -i, not both")
			}
			lists, err := listing(cmd.Context(), path, file, view.entries, cmd.ErrOrStderr())
			if err != nil {
				return err
			}
			if asJSON {
				return term.JSON(cmd.OutOrStdout(), lists)
			}
			view.now, view.paint = time.Now(), term.NewPaint(cmd.OutOrStdout())
			return view.print(cmd.OutOrStdout(), lists)
		},
	}
	configFlag(cmd, &path)
	cmd.Flags().StringVarP(&file, "index", "i", "", "compiled index `file` to read, with no configuration")
	must(cmd.MarkFlagFilename("index", "bdx"))
	cmd.Flags().BoolVar(&view.files, "files", false, "a row for each file")
	cmd.Flags().BoolVar(&view.overlaps, "overlaps", false, "all pairs of lists that share keys, not the first ten")
	cmd.Flags().BoolVar(&view.entries, "entries", false, "the entries with the most hits")
	cmd.Flags().BoolVar(&asJSON, "json", false, "print what /v1/lists answers")
	return cmd
}

// listing asks the daemon of a configuration, or else reads the index file and
// says so on stderr.
func listing(ctx context.Context, path, file string, entries bool, stderr io.Writer) (httpapi.ListTable, error) {
	if file != "" {
		return daemon.IndexLists(file, "", nil)
	}
	c, err := config.Load(path)
	if err != nil {
		return httpapi.ListTable{}, err
	}
	lists, asked := daemon.Lists(ctx, c, entries)
	if asked == nil {
		return lists, nil
	}
	lists, err = daemon.IndexLists(c.Index.Path, path, c.Reload().Lists)
	if err == nil {
		fmt.Fprintf(stderr, "no hits, and problems only as of the build: %v\n", asked)
	}
	return lists, err
}

package main

import (
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"blockd/cmd/blockd/internal/config"
	"blockd/cmd/blockd/internal/control"
	"blockd/doors/httpapi"
	"blockd/internal/term"
	"blockd/records/history"
)

func newHistoryTop() *cobra.Command {
	var path, by string
	var rows int
	var asJSON bool
	var flags *decisionFlags
	cmd := &cobra.Command{
		Use:   "top [-c config.toml] --by GROUP [-k N] [--since 7d] [--sender WHO] [--recipient WHO] [--client NET] [--list NAME] [--verdict V] [--outcome O] [--json]",
		Short: "show which clients, senders, domains, lists, recipients or entries have the most decisions",
		Long: `Count past decisions by client, sender, domain (of the sender), list, recipient or entry, and
show those with the most. The counts are exact: a refusal that stands for many counts
as often as it was repeated. The other flags select decisions as they do for history.

The files of the history are read, whether or not the daemon runs; that needs its user,
or root. Names that do not fit into 64 MiB go to temporary files in TMPDIR.

Ends with 0 if something is found, 1 if nothing is, 2 on an error.`,
		Example: `  blockd history top --by sender --outcome refuse --since 7d
  blockd history top --by client -k 5 --list own
  blockd history top --by domain --verdict clear --json | jq -r '.top[].name'`,
		Args: noArgs,
		RunE: answering(func(cmd *cobra.Command, _ []string) error {
			switch {
			case !slices.Contains(history.Groups(), by):
				return usagef("want --by, one of %s", strings.Join(history.Groups(), ", "))
			case rows < 1 || rows > history.MaxTop:
				return usagef("-k: want 1 to %d, have %d", history.MaxTop, rows)
			}
			c, err := config.Load(path)
			if err != nil {
				return err
			}
			ask, err := flags.parameters()
			if err != nil {
				return err
			}
			q := history.TopQuery{By: by}
			if q.Query, err = httpapi.ParseDecisionQuery(ask); err != nil {
				return err
			}
			q.Limit = rows
			bar := term.NewBar(cmd.ErrOrStderr())
			defer bar.Clear()
			q.Progress = func(done, total int64) { bar.Show(term.Step{Stage: "history", Done: done, Total: total}) }
			ctx, stop := interruptible(cmd)
			defer stop()
			top, err := control.MostDecisions(ctx, c, q)
			bar.Clear()
			if err != nil {
				return err
			}
			return printTop(cmd, top, asJSON)
		}),
	}
	configFlag(cmd, &path)
	cmd.Flags().StringVar(&by, "by", "", "`GROUP`: "+strings.Join(history.Groups(), ", "))
	must(cmd.RegisterFlagCompletionFunc("by", cobra.FixedCompletions(history.Groups(), cobra.ShellCompDirectiveNoFileComp)))
	cmd.Flags().IntVarP(&rows, "top", "k", 20, fmt.Sprintf("`N` rows at most, up to %d", history.MaxTop))
	flags = addDecisionFlags(cmd, &path)
	cmd.Flags().BoolVar(&asJSON, "json", false, "print one JSON object")
	return cmd
}

func printTop(cmd *cobra.Command, top history.Top, asJSON bool) (err error) {
	noteDamaged(cmd, top.Damaged)
	switch {
	case asJSON:
		err = term.JSON(cmd.OutOrStdout(), top)
	case len(top.Rows) > 0:
		err = printTopRows(cmd, top)
	}
	if top.Without > 0 && !asJSON {
		fmt.Fprintf(cmd.ErrOrStderr(), "%s: note: %s of %s have no %s\n", cmd.CommandPath(), term.Grouped(top.Without), term.Counted(int(top.Decisions), "decision"), top.By)
	}
	if len(top.Rows) == 0 && err == nil {
		if top.Without == 0 {
			fmt.Fprintf(cmd.ErrOrStderr(), "%s: nothing found\n", cmd.CommandPath())
		}
		return answer(exitFault)
	}
	return err
}

func printTopRows(cmd *cobra.Command, top history.Top) error {
	p := term.NewPaint(cmd.OutOrStdout())
	var t term.Table
	t.Add(p.Faint("decisions"), p.Faint("share"), p.Faint(top.By))
	for _, row := range top.Rows {
		t.Add(term.Grouped(row.Decisions), term.Percent(row.Decisions, top.Decisions), term.Visible(row.Name))
	}
	if err := t.Print(cmd.OutOrStdout(), 0, 1); err != nil {
		return err
	}
	_, err := fmt.Fprintf(cmd.OutOrStdout(), "%s of %s in %s\n", term.Grouped(len(top.Rows)), term.Counted(int(top.Distinct), top.By), term.Counted(int(top.Decisions), "decision"))
	return err
}

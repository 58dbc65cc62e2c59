package main

import (
	"fmt"

	"github.com/spf13/cobra"

	"blockd/cmd/blockd/internal/config"
	"blockd/cmd/blockd/internal/control"
	"blockd/doors/httpapi"
	"blockd/index/live"
	"blockd/internal/term"
)

func newPause() *cobra.Command {
	var path string
	var q httpapi.PauseQuestion
	cmd := &cobra.Command{
		Use:   "pause [-c config.toml] [--for 1h] [--why TEXT] LIST",
		Short: "let a list's blocks not count for a while",
		Long: `Let the blocks of a list not count for a while, an hour unless --for says otherwise. They
count as those of a list in shadow mode do: logs and history show whom they would have
refused. Exceptions of the list count as before, so that nobody is refused because of it.

It acts within a second at all doors, outlasts restarts, ends by itself, and shows in
/readyz, blockd lists, the console and check --explain. A list that is paused already has
the new end. The live entries are the list "live".`,
		Example: `  blockd pause bulk
  blockd pause bulk --for 8h --why "refuses our bank"`,
		Args: oneList,
		RunE: func(cmd *cobra.Command, args []string) error {
			if _, err := live.ParseLife(q.For); err != nil {
				return usagef("--for: want how long, such as 1h or 2d, have %q", q.For)
			}
			c, err := config.Load(path)
			if err != nil {
				return err
			}
			q.Author = userName()
			done, alone, err := control.Pause(cmd.Context(), c, args[0], q)
			if err != nil {
				return err
			}
			noDaemon(cmd, alone)
			_, err = fmt.Fprintf(cmd.OutOrStdout(), "paused: %s does not count until %s, or: blockd resume %s\n",
				term.Visible(done.List), term.Moment(done.Pause.Until), term.Word(done.List))
			return err
		},
	}
	configFlag(cmd, &path)
	cmd.Flags().StringVar(&q.For, "for", httpapi.UsualPause, "for `how long`, such as 30m, 1h or 2d; 31d at most")
	cmd.Flags().StringVar(&q.Why, "why", "", "a line that says why")
	return cmd
}

func newResume() *cobra.Command {
	var path string
	var q httpapi.PauseQuestion
	cmd := &cobra.Command{
		Use:   "resume [-c config.toml] [--why TEXT] LIST",
		Short: "let a paused list count again",
		Long: `Let the blocks of a paused list count again, before the pause ends by itself. It acts within a
second at all doors.`,
		Example: `  blockd resume bulk`,
		Args:    oneList,
		RunE: func(cmd *cobra.Command, args []string) error {
			c, err := config.Load(path)
			if err != nil {
				return err
			}
			q.Author = userName()
			alone, err := control.Resume(cmd.Context(), c, args[0], q)
			if err != nil {
				return err
			}
			noDaemon(cmd, alone)
			_, err = fmt.Fprintf(cmd.OutOrStdout(), "resumed: %s counts\n", term.Visible(args[0]))
			return err
		},
	}
	configFlag(cmd, &path)
	cmd.Flags().StringVar(&q.Why, "why", "", "a line that says why")
	return cmd
}

func oneList(_ *cobra.Command, args []string) error {
	if len(args) != 1 {
		return usagef("want one list, whose name blockd lists has")
	}
	return nil
}

// noDaemon says that nothing serves which could feel the change.
func noDaemon(cmd *cobra.Command, alone bool) {
	if alone {
		fmt.Fprintf(cmd.ErrOrStderr(), "%s: note: no daemon runs; the next one keeps to it\n", cmd.CommandPath())
	}
}

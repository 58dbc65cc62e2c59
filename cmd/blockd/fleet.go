package main

import (
	"errors"
	"fmt"
	"strconv"

	"github.com/spf13/cobra"

	"blockd/cmd/blockd/internal/config"
	"blockd/cmd/blockd/internal/control"
	"blockd/cmd/blockd/internal/daemon"
	"blockd/internal/term"
	"blockd/records/audit"
	"blockd/sources/snapshot"
)

func newFleet() *cobra.Command {
	var path string
	var asJSON bool
	cmd := &cobra.Command{
		Use:   "fleet [-c config.toml] [--json] | pin N|unpin|turn",
		Short: "see all nodes, stay at a snapshot, and see whose turn it is",
		Long: `Without another word: show each node of the fleet, as it has reported in the last 90
seconds: its version, the sequence and generation that it serves, how old these are, lists
that its gate refuses, sources that do not answer, the revision of shared live entries,
checks a second, the share of refused senders, and problems; and each node that does not
report any more, for a day. It is asked on the publisher ([publish]), or on any machine with
live.shared.

Keep this node at a sequence of its channel, whatever is published, or let it follow again; and
see when nodes have their turn in the stages of a sequence.`,
		Example: `  blockd fleet
  blockd fleet pin 4709 --why "ticket 4711"
  blockd fleet unpin
  blockd fleet turn --channel prod --sequence 4711 mx17.eu mx18.eu`,
		Args: func(_ *cobra.Command, args []string) error {
			if len(args) > 0 {
				return usagef("want pin, unpin or turn, or nothing to see all nodes")
			}
			return nil
		},
		RunE: func(cmd *cobra.Command, _ []string) error { return showFleet(cmd, path, asJSON) },
	}
	configFlag(cmd, &path)
	cmd.Flags().BoolVar(&asJSON, "json", false, "the answer of /v1/fleet")
	for _, sub := range []*cobra.Command{newFleetPin(), newFleetUnpin(), newFleetTurn()} {
		sub.DisableFlagsInUseLine = true
		cmd.AddCommand(sub)
	}
	return cmd
}

// pinTo is what pin and unpin do; 0 unpins.
func pinTo(cmd *cobra.Command, path, why string, sequence int64) error {
	c, err := config.Load(path)
	if err != nil {
		return err
	}
	if !c.Fleet.On() {
		return errors.New("this machine follows no channel: fleet.from is empty")
	}
	if c.Fleet.Pin != "" {
		return fmt.Errorf("fleet.pin = %q of the configuration holds; change it there", c.Fleet.Pin)
	}
	line := audit.Line{By: userName(), Action: audit.FleetPin, Subject: strconv.FormatInt(sequence, 10), Why: why, Detail: "channel " + c.Fleet.Channel}
	if sequence == 0 {
		line.Action, line.Subject = audit.FleetUnpin, c.Fleet.Channel
	}
	if err := daemon.MakeIndexFolder(c); err != nil {
		return err
	}
	if err := c.Journal().Add(line); err != nil {
		return err
	}
	if err := snapshot.SetPin(c.FleetFolder(), sequence); err != nil {
		return err
	}
	if err := daemon.HandOver(c.FleetFolder()); err != nil {
		return err
	}
	_, err = control.Reload(cmd.Context(), path, userName())
	if noDaemon(cmd, !errors.Is(err, control.ErrNoDaemon)); errors.Is(err, control.ErrNoDaemon) {
		return nil
	}
	return err
}

func newFleetPin() *cobra.Command {
	var path, why string
	cmd := &cobra.Command{
		Use:   "pin [-c config.toml] [--why TEXT] N",
		Short: "keep this node at sequence N",
		Long: `Keep this node at a sequence of its channel, older or newer than what it has, until unpin. It is
fetched if it is not here any more, and signed as any other.`,
		Example: `  blockd fleet pin 4709`,
		Args: func(_ *cobra.Command, args []string) error {
			if len(args) != 1 {
				return usagef("want the number of one sequence")
			}
			return nil
		},
		RunE: func(cmd *cobra.Command, args []string) error {
			n, err := strconv.ParseInt(args[0], 10, 64)
			if err != nil || n < 1 {
				return usagef("want the number of a sequence, have %q", args[0])
			}
			if err := pinTo(cmd, path, why, n); err != nil {
				return err
			}
			_, err = fmt.Fprintf(cmd.OutOrStdout(), "pinned: this node stays at sequence %d, until: blockd fleet unpin\n", n)
			return err
		},
	}
	configFlag(cmd, &path)
	cmd.Flags().StringVar(&why, "why", "", "a line that says why")
	return cmd
}

func newFleetUnpin() *cobra.Command {
	var path, why string
	cmd := &cobra.Command{
		Use:     "unpin [-c config.toml] [--why TEXT]",
		Short:   "let this node follow its channel again",
		Long:    `Let this node follow its channel again: it takes the newest sequence when it has its turn.`,
		Example: `  blockd fleet unpin`,
		Args:    noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := pinTo(cmd, path, why, 0); err != nil {
				return err
			}
			_, err := fmt.Fprintln(cmd.OutOrStdout(), "unpinned: this node follows its channel")
			return err
		},
	}
	configFlag(cmd, &path)
	cmd.Flags().StringVar(&why, "why", "", "a line that says why")
	return cmd
}

func newFleetTurn() *cobra.Command {
	var channel string
	var sequence int64
	cmd := &cobra.Command{
		Use:   "turn --sequence N [--channel C] NODE...",
		Short: "show when nodes have their turn in the stages of a sequence",
		Long: `Print the turn of each node, 0 to 100: it takes the sequence as soon as a stage with a greater
share begins.`,
		Example: `  blockd fleet turn --channel prod --sequence 4711 mx17.eu mx18.eu`,
		Args: func(_ *cobra.Command, args []string) error {
			if len(args) == 0 {
				return usagef("want the names of nodes")
			}
			return nil
		},
		RunE: func(cmd *cobra.Command, args []string) error {
			if sequence < 1 {
				return usagef("--sequence: want the number of a sequence")
			}
			if !snapshot.IsChannel(channel) {
				return usagef("--channel: want small letters, digits and . _ -, have %q", channel)
			}
			for _, node := range args {
				if _, err := fmt.Fprintf(cmd.OutOrStdout(), "%s %.4f\n", term.Visible(node), snapshot.Turn(channel, sequence, node)); err != nil {
					return err
				}
			}
			return nil
		},
	}
	cmd.Flags().StringVar(&channel, "channel", "prod", "`C`, the channel")
	cmd.Flags().Int64Var(&sequence, "sequence", 0, "`N`, the sequence")
	return cmd
}

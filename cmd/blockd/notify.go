package main

import (
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"blockd/cmd/blockd/internal/config"
	"blockd/cmd/blockd/internal/daemon"
	"blockd/cmd/blockd/internal/version"
	"blockd/records/bell"
)

func newNotify() *cobra.Command {
	var path string
	var test bool
	cmd := &cobra.Command{
		Use:   "notify --test [-c config.toml]",
		Short: "send a test to the address of [notify]",
		Long: `Send an event that means nothing to notify.url, signed like every other, and print what comes
back. No daemon is asked. Ends with 0 if the answer is a 2xx, and with 1 if it is not, or none
comes.`,
		Example: `  blockd notify --test`,
		Args:    noArgs,
	}
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		if !test {
			return usagef("want --test")
		}
		c, err := config.Load(path)
		if err != nil {
			return err
		}
		if c.Notify.URL == "" {
			return fmt.Errorf("notify.url is empty, so that nobody is told")
		}
		target, err := daemon.NewTarget(c)
		if err != nil {
			return err
		}
		answer, err := target.Ring(cmd.Context(), bell.NewTest(daemon.Hostname(c), version.String(), time.Now()))
		if err != nil {
			return err
		}
		_, err = fmt.Fprintf(cmd.OutOrStdout(), "delivered: %s in %s\n", answer.Status, answer.Took.Round(time.Millisecond))
		if err == nil && answer.Text != "" {
			_, err = fmt.Fprintln(cmd.OutOrStdout(), answer.Text)
		}
		return err
	}
	configFlag(cmd, &path)
	cmd.Flags().BoolVar(&test, "test", false, "send the test")
	return cmd
}

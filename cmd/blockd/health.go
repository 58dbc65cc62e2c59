package main

import (
	"context"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"blockd/cmd/blockd/internal/config"
	"blockd/cmd/blockd/internal/control"
)

func newHealth() *cobra.Command {
	var path string
	var strict bool
	var timeout time.Duration
	cmd := &cobra.Command{
		Use:   "health [-c config.toml] [--strict] [--timeout 5s]",
		Short: "say whether the daemon is ready, for monitors and containers",
		Long: `Ask the daemon whether it is ready, print one line, and end with 0 if it is and with 1 if
it is not, or does not answer in time. A daemon that is degraded is ready; with --strict it
is not. The daemon is asked by its Unix socket or http.listen, and where these do not say,
by health.listen, which knows no "degraded": with --strict that is not enough.`,
		Example: `  blockd health -c /etc/blockd/config.toml
  HEALTHCHECK CMD ["blockd", "health"]`,
		Args: noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if timeout <= 0 {
				return usagef("--timeout: want a time above 0, have %v", timeout)
			}
			c, err := config.Load(path)
			if err != nil {
				return err
			}
			ctx, cancel := context.WithTimeout(cmd.Context(), timeout)
			defer cancel()
			h, err := control.AskHealth(ctx, c, strict)
			if err != nil && ctx.Err() != nil && cmd.Context().Err() == nil {
				return fmt.Errorf("no answer in %v", timeout)
			} else if err != nil {
				return err
			}
			if _, err := io.WriteString(cmd.OutOrStdout(), healthLine(h)+"\n"); err != nil {
				return err
			}
			if !h.Ready || strict && h.Degraded() {
				return answer(exitFault)
			}
			return nil
		},
	}
	configFlag(cmd, &path)
	cmd.Flags().BoolVar(&strict, "strict", false, "end with 1 if the daemon is degraded too")
	cmd.Flags().DurationVar(&timeout, "timeout", healthTimeout, "how long to wait for the answer, in all")
	return cmd
}

// healthTimeout is below that of the probes of containers, which is 30 seconds for Docker.
const healthTimeout = 5 * time.Second

// healthLine is the first line of an answer, with the first of those below it where all is not well.
func healthLine(h control.Health) string {
	switch more := len(h.Lines) - 1; {
	case h.Word == "ok" || more < 0:
		return h.First
	case more == 0:
		return h.First + "; " + h.Lines[0]
	default:
		return fmt.Sprintf("%s; %s (and %d more: /readyz)", h.First, strings.TrimSuffix(h.Lines[0], "."), more)
	}
}

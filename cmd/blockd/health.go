package main

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"time"

	"github.com/spf13/cobra"

	"blockd/internal/config"
	"blockd/internal/control"
)

func newHealth() *cobra.Command {
	var path string
	cmd := &cobra.Command{
		Use:   "health [-c config.toml]",
		Short: "say whether the daemon is ready, for monitors",
		Long: `Ask the daemon whether it is ready, print what it says, and end with 0 if it is
(/readyz says 200) and with 1 if it is not, or does not answer in five seconds. A daemon that
is degraded is ready.`,
		Example: `  blockd health -c /etc/blockd/config.toml
  HEALTHCHECK CMD ["blockd", "health"]`,
		Args: noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			c, err := config.Load(path)
			if err != nil {
				return err
			}
			ctx, cancel := context.WithTimeout(cmd.Context(), healthTimeout)
			defer cancel()
			status, body, err := control.Text(ctx, c, "/readyz")
			if err == nil && status != http.StatusOK && status != http.StatusServiceUnavailable {
				err = fmt.Errorf("/readyz answers %d: %s", status, control.TokenHint)
			}
			if err != nil {
				return err
			}
			if _, err := io.WriteString(cmd.OutOrStdout(), body); err != nil {
				return err
			}
			if status != http.StatusOK {
				return answer(exitFault)
			}
			return nil
		},
	}
	configFlag(cmd, &path)
	return cmd
}

const healthTimeout = 5 * time.Second

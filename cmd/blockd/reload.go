package main

import (
	"errors"
	"fmt"
	"io"
	"strings"

	"github.com/spf13/cobra"

	"blockd/cmd/blockd/internal/control"
	"blockd/doors/httpapi"
	"blockd/internal/term"
)

func newReload() *cobra.Command {
	var path string
	cmd := &cobra.Command{
		Use:   "reload [-c config.toml]",
		Short: "make the daemon read its configuration and lists again",
		Long: `Make the daemon read its configuration and all lists again, wait until they are taken up,
and say what has changed. A configuration with a fault changes nothing: its faults are
printed, each with its line.

It ends with 0 if all is taken up, or nothing had changed; with 1 if the configuration or a
list is not taken up; with 2 if no daemon answers. A list that the gate refuses, compared
with what it had, is named with the command that takes it all the same.`,
		Example: `  blockd reload -c /etc/blockd/config.toml`,
		Args:    noArgs,
		RunE: answering(func(cmd *cobra.Command, _ []string) error {
			said, err := control.Reload(cmd.Context(), path, userName())
			if err != nil {
				return err
			}
			showReload(cmd.OutOrStdout(), said)
			switch {
			case len(said.Faults) > 0:
			case len(said.Problems) > 0:
				return reloadError{errors.New("not all is taken up: what was there before serves on")}
			default:
				return nil
			}
			for _, f := range said.Faults {
				fmt.Fprintln(cmd.ErrOrStderr(), term.Visible(f))
			}
			return reloadError{errors.New("nothing of the configuration is taken up: the one of before is in force")}
		}),
	}
	configFlag(cmd, &path)
	return cmd
}

// reloadError is a configuration, or a list, that the daemon has refused.
type reloadError struct{ error }

func (reloadError) exitCode() int { return exitFault }

// showReload says what a reload has changed.
func showReload(w io.Writer, said httpapi.Reloaded) {
	var t term.Table
	if len(said.Keys) > 0 {
		t.Add("keys", strings.Join(said.Keys, ", "))
	}
	if len(said.Lists) > 0 {
		t.Add("lists", strings.Join(said.Lists, ", "))
	}
	if said.Swapped {
		t.Add("generation", said.Generation)
	}
	for _, p := range said.Problems {
		if !strings.HasPrefix(p, "configuration not taken up: ") {
			t.Add("problem", term.Visible(p))
		}
	}
	for _, line := range t.Lines() {
		fmt.Fprintln(w, line)
	}
	if said.Nothing() {
		fmt.Fprintln(w, "nothing changed")
	}
}

package main

import (
	"context"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"

	"github.com/pelletier/go-toml/v2"
	"github.com/spf13/cobra"

	"blockd/cmd/blockd/internal/config"
	"blockd/cmd/blockd/internal/control"
	"blockd/internal/term"
	"blockd/lists"
)

func newConfig() *cobra.Command {
	var path string
	var check, effective, defaults bool
	cmd := &cobra.Command{
		Use:   "config [-c config.toml] --check | --effective | --defaults",
		Short: "check a configuration, or print the values in force",
		Long: `Check a configuration and report every fault in one go, each with its line, and
what is allowed but worth a second thought. Nothing is started and nothing is
changed. Ends with 0 when the file can be used, 1 when it has a fault.

--effective prints the values in force, what the file leaves out included, with
paths as blockd will open them. --defaults prints what an empty file means. Both
print TOML that can be loaded again.`,
		Example: `  blockd config --check -c /etc/blockd/config.toml
  blockd config --effective
  blockd config --defaults >config.toml`,
		Args: noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			given := slices.DeleteFunc([]bool{check, effective, defaults}, func(flag bool) bool { return !flag })
			if len(given) != 1 {
				return usagef("want one of --check, --effective and --defaults")
			}
			if defaults {
				return printConfig(cmd.OutOrStdout(), config.Default(), nil)
			}
			if effective {
				c, err := config.Load(path)
				if err != nil {
					return err
				}
				return printConfig(cmd.OutOrStdout(), c, c.OwnDomains())
			}
			c, err := config.LoadToServe(path)
			if err != nil {
				return err
			}
			return printWarnings(cmd.OutOrStdout(), path, c, closedLists(cmd.Context(), c))
		},
	}
	configFlag(cmd, &path)
	cmd.Flags().BoolVar(&check, "check", false, "report every fault and warning")
	cmd.Flags().BoolVar(&effective, "effective", false, "print the values in force")
	cmd.Flags().BoolVar(&defaults, "defaults", false, "print the values of an empty file")
	return cmd
}

// closedLists are the lists that this user may read and the daemon's may not.
func closedLists(ctx context.Context, c config.Config) (w []string) {
	u, _, err := control.DaemonUser(ctx, c)
	if err != nil || u.UID == os.Geteuid() {
		return nil // warnings has said it
	}
	for _, l := range c.Lists {
		if closed := l.ClosedTo(u); closed != "" {
			w = append(w, fmt.Sprintf("list %q: closed to the daemon: %s", l.Name, closed))
		}
	}
	return w
}

func printWarnings(w io.Writer, path string, c config.Config, more []string) error {
	var b strings.Builder
	warnings := append(c.Warnings(), more...)
	for _, text := range warnings {
		fmt.Fprintf(&b, "%s: warning: %s\n", path, text)
	}
	for _, text := range c.SampleReplies() {
		fmt.Fprintf(&b, "%s: %s\n", path, text)
	}
	_, err := fmt.Fprintf(w, "%s%s: good, %s, %s\n", &b, path, term.Counted(len(c.Lists), "list"), term.Counted(len(warnings), "warning"))
	return err
}

// printConfig prints the values, and what is protected without being said as a comment.
func printConfig(w io.Writer, c config.Config, own []string) error {
	enc := toml.NewEncoder(w)
	enc.SetIndentTables(false)
	if err := enc.Encode(c); err != nil {
		return err
	}
	text := "\n# Protected in any case, besides index.protected"
	if len(own) > 0 {
		text += " and this server's own\n# " + strings.Join(own, " and ")
	}
	const width = 76
	names := term.Fold(strings.Join(lists.ShippedProtected(), " "), width)
	_, err := io.WriteString(w, text+":\n# "+strings.Join(names, "\n# ")+"\n")
	return err
}

package main

import (
	_ "embed"
	"fmt"
	"io"
	"strings"

	"github.com/spf13/cobra"

	"blockd/cmd/blockd/internal/version"
	"blockd/internal/term"
)

// licences are those of all that is linked in, made by `make licences`: a line for each module, then the texts.
//
//go:embed licences.txt
var licences string

func newVersion() *cobra.Command {
	var asJSON, texts bool
	cmd := &cobra.Command{
		Use:   "version [--json | --licences]",
		Short: "say which version this is, and what is inside",
		Long: `Print the version, the commit that it was built from and its date, Go's version, the
platform, and the settings of the build. With --licences the modules that are linked in, each with
its version and licence, and then the texts of these licences.`,
		Example: `  blockd version
  blockd version --json | jq -r .commit
  blockd version --licences | less`,
		Args: noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			out, v := cmd.OutOrStdout(), version.Read()
			switch {
			case asJSON && texts:
				return usagef("want --json or --licences, not both")
			case asJSON:
				return term.JSON(out, v)
			case texts:
				_, err := io.WriteString(out, "blockd is under Apache-2.0, by the blockd authors. Linked in:\n\n"+licences)
				return err
			}
			var b strings.Builder
			row := func(name, value string) {
				if value != "" {
					fmt.Fprintf(&b, "%-9s %s\n", name, value)
				}
			}
			row("blockd", v.Version)
			commit := v.Commit
			if v.Modified {
				commit += ", with changes"
			}
			row("commit", commit)
			row("date", v.Date)
			row("go", v.Go)
			row("platform", v.Platform)
			row("flags", strings.Join(v.Flags, " "))
			row("inside", term.Counted(len(v.Modules), "module")+" (--licences)")
			_, err := io.WriteString(out, b.String())
			return err
		},
	}
	cmd.Flags().BoolVar(&asJSON, "json", false, "all of it as JSON, with the modules")
	cmd.Flags().BoolVar(&texts, "licences", false, "what is linked in, and under which licences")
	return cmd
}

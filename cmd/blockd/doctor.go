package main

import (
	"cmp"
	"fmt"
	"io"
	"strings"

	"github.com/spf13/cobra"

	"blockd/cmd/blockd/internal/doctor"
	"blockd/internal/term"
)

func newDoctor() *cobra.Command {
	var path string
	var asJSON bool
	cmd := &cobra.Command{
		Use:   "doctor [-c config.toml] [--json]",
		Short: "examine whether what is configured is safe and works",
		Long: `Examine whether what is configured is safe and works: the configuration; files and
folders, as the daemon's user sees them; each door; the next server, whether it would
relay for strangers (it is asked now, and no mail is sent) and whether it understands who
the client is; TLS and certificates; DNS, the clock, room on disks; the lists.

Each line is ok, a warning or a fault, with what to do. Ends with 0, with 1 if there is
a warning, with 2 if there is a fault. Nothing is changed. It takes ten seconds at most,
give or take.

Run it as root or as the daemon's user: others may not look at all files. The daemon's
user is that of the running daemon, or else the owner of the index's folder.`,
		Example: `  blockd doctor -c /etc/blockd/config.toml
  blockd doctor --json | jq -r 'select(.state != "ok")'`,
		Args: noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			found := doctor.Examine(cmd.Context(), path)
			var err error
			if asJSON {
				err = term.JSONLines(cmd.OutOrStdout(), found)
			} else {
				err = printFindings(cmd.OutOrStdout(), found)
			}
			if err != nil {
				return err
			}
			if code := worst(found); code > 0 {
				return answer(code)
			}
			return nil
		},
	}
	configFlag(cmd, &path)
	cmd.Flags().BoolVar(&asJSON, "json", false, "print one object a line")
	return cmd
}

func worst(found []doctor.Finding) int {
	var code doctor.State
	for _, f := range found {
		code = max(code, f.State)
	}
	return int(code)
}

// printFindings writes a line for each finding, and below it what to do. Long texts are
// folded within their column.
func printFindings(w io.Writer, found []doctor.Finding) error {
	p, width := term.NewPaint(w), cmp.Or(term.Width(w), term.PlainWidth)
	names, states, counts := 0, len("warning"), [3]int{}
	for _, f := range found {
		names = max(names, term.Columns(f.Check))
		counts[f.State]++
	}
	indent := strings.Repeat(" ", states+2+names+2)
	room := max(width-len(indent), 30)
	var b strings.Builder
	for _, f := range found {
		word := map[doctor.State]func(string) string{doctor.OK: p.Green, doctor.Warning: p.Yellow, doctor.Fault: p.Red}[f.State](f.State.String())
		head := word + strings.Repeat(" ", states+2-len(f.State.String())) + f.Check + strings.Repeat(" ", names+2-term.Columns(f.Check))
		for _, line := range term.Fold(term.Visible(f.Text), room) {
			b.WriteString(head + line + "\n")
			head = indent
		}
		if f.Hint == "" {
			continue
		}
		arrow := "-> "
		for _, line := range term.Fold(term.Visible(f.Hint), room-len(arrow)) {
			b.WriteString(indent + p.Faint(arrow+line) + "\n")
			arrow = "   "
		}
	}
	fmt.Fprintf(&b, "\n%d ok, %s, %s\n", counts[doctor.OK], term.Counted(counts[doctor.Warning], "warning"), term.Counted(counts[doctor.Fault], "fault"))
	_, err := io.WriteString(w, b.String())
	return err
}

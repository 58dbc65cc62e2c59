package main

import (
	"errors"
	"fmt"
	"os"
	"slices"
	"time"

	"github.com/spf13/cobra"

	"blockd/cmd/blockd/internal/config"
	"blockd/index/kept"
	"blockd/internal/term"
	"blockd/records/pause"
	"blockd/reload"
)

// standings says of the lists of a configuration which do not serve what their files hold, and whose blocks do not count now.
func standings(c config.Config, pins []kept.Pin, pauses []pause.Pause) (lines []string) {
	known := c.Undoable()
	lines = reload.PinRemarks(slices.DeleteFunc(slices.Clone(pins), func(p kept.Pin) bool { return !slices.Contains(known, p.List) }))
	for _, p := range pauses {
		if slices.ContainsFunc(c.Lists, func(l config.List) bool { return l.Name == p.List }) {
			lines = append(lines, fmt.Sprintf("list %s is paused %s; its blocks do not count", p.List, p))
		}
	}
	return lines
}

// tellStandings says on standard error why answers are other ones than the files of lists have. Who may not read the files that
// say so is told nothing: the answers themselves are those of the daemon, and say "paused".
func tellStandings(cmd *cobra.Command, c config.Config) {
	pins, err := c.Kept().Pins()
	if err != nil && !errors.Is(err, os.ErrPermission) {
		fmt.Fprintf(cmd.ErrOrStderr(), "%s: note: which lists are held cannot be read: %v\n", cmd.CommandPath(), err)
	}
	pauses, _ := pause.Open(c.PausesPath()) // what is wrong with them, openToCheck or the daemon says
	for _, text := range standings(c, pins, pauses.All(time.Now())) {
		fmt.Fprintf(cmd.ErrOrStderr(), "%s: note: %s\n", cmd.CommandPath(), term.Visible(text))
	}
}

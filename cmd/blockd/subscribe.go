package main

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"blockd/cmd/blockd/internal/config"
	"blockd/cmd/blockd/internal/control"
	"blockd/cmd/blockd/internal/subscription"
	"blockd/internal/term"
	"blockd/records/history"
	"blockd/sources/catalogue"
)

func newSubscribe() *cobra.Command {
	var path string
	var enforce, remove bool
	cmd := &cobra.Command{
		Use:   "subscribe [-c config.toml] [--enforce | --remove] NAME|ADDRESS",
		Short: "add a public list, which only watches at first",
		Long: `Add a list of the catalogue (blockd catalogue), or the list at an https address, to the
configuration, or to the file of http.lists_file if there is one. It is in shadow mode: it
refuses nobody, and the history shows whom it would have refused. Called again with its name, it
says that so far. After a week of that, --enforce lets the list count, if you like what you saw;
--remove takes it out of the configuration.

The configuration is checked before it takes the place of the old one, and a running daemon
takes it up at once. Comments and all else in the file stay. The daemon fetches the list from
its maintainers; nobody else is told.`,
		Example: `  blockd catalogue
  blockd subscribe disposable-domains
  blockd subscribe --enforce disposable-domains`,
		Args: func(_ *cobra.Command, args []string) error {
			if len(args) != 1 {
				return usagef("want one name, which blockd catalogue shows")
			}
			return nil
		},
		ValidArgsFunction: func(*cobra.Command, []string, string) (names []string, _ cobra.ShellCompDirective) {
			all, _ := catalogue.Lists()
			for _, l := range all {
				names = append(names, l.Name+"\t"+l.What)
			}
			return names, cobra.ShellCompDirectiveNoFileComp
		},
	}
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		if enforce && remove {
			return usagef("want --enforce or --remove, not both")
		}
		c, err := config.Load(path)
		if err != nil {
			return err
		}
		files, err := subscription.Open(path, c)
		if err != nil {
			return err
		}
		s := subscriber{cmd: cmd, config: c, file: path, files: files, name: args[0]}
		now, there, err := files.Of(s.name)
		switch {
		case err != nil:
			return err
		case remove:
			return s.remove()
		case enforce:
			return s.enforce(now, there)
		case there:
			return s.worth(now)
		}
		return s.subscribe()
	}
	configFlag(cmd, &path)
	cmd.Flags().BoolVar(&enforce, "enforce", false, "let the list count")
	cmd.Flags().BoolVar(&remove, "remove", false, "take the list out of the configuration")
	return cmd
}

// subscriber changes the [[list]] of one name.
type subscriber struct {
	cmd    *cobra.Command
	config config.Config
	file   string // the configuration
	files  *subscription.Files
	name   string
}

func (s *subscriber) subscribe() error {
	change, err := s.files.Add(s.name, time.Now())
	if errors.Is(err, subscription.ErrWhat) && !strings.Contains(s.name, "://") {
		if _, unknown := catalogue.Named(s.name); unknown != nil {
			err = unknown // it has the names
		}
	}
	if err == nil {
		err = change.Make(nil)
	}
	if err != nil {
		return err
	}
	l, err := catalogue.Named(s.name)
	if err != nil {
		fmt.Fprintf(s.cmd.OutOrStdout(), "subscribed: %s, from %s, in %s\nIt refuses nobody. Whom it would have refused: blockd subscribe %[1]s\n", change.List, s.name, change.File)
	} else {
		fmt.Fprintf(s.cmd.OutOrStdout(), "subscribed: %s, %s (%s), from %s\nIt refuses nobody. Whom it would have refused: blockd subscribe %s\nComplaints about its entries: %s\n",
			l.Name, l.What, l.Licence, l.URL, l.Name, l.Complaints)
	}
	return s.takeUp()
}

func (s *subscriber) enforce(now subscription.Place, there bool) error {
	if there && now.Enforced {
		fmt.Fprintf(s.cmd.OutOrStdout(), "%s counts already\n", s.name)
		return nil
	}
	change, err := s.files.Enforce(s.name)
	if err != nil {
		return err
	}
	if watched := time.Since(now.Since); watched < catalogue.Trial {
		fmt.Fprintf(s.cmd.ErrOrStderr(), "%s: note: it was watched for %s; a week shows mail of every weekday\n", s.cmd.CommandPath(), term.Span(watched))
	}
	if err := change.Make(nil); err != nil {
		return err
	}
	fmt.Fprintf(s.cmd.OutOrStdout(), "%s counts from now on\n", s.name)
	return s.takeUp()
}

func (s *subscriber) remove() error {
	change, err := s.files.Remove(s.name)
	if err == nil {
		err = change.Make(nil)
	}
	if err != nil {
		return err
	}
	copied := filepath.Join(s.config.SubscribedFolder(), s.name)
	fmt.Fprintf(s.cmd.OutOrStdout(), "removed: %s; its copy may go too: %s\n", s.name, term.Path(copied))
	return s.takeUp()
}

// takeUp has a running daemon read its configuration.
func (s *subscriber) takeUp() error {
	said, err := control.Reload(s.cmd.Context(), s.file, userName())
	switch {
	case errors.Is(err, control.ErrNoDaemon):
		fmt.Fprintf(s.cmd.ErrOrStderr(), "%s: note: no daemon runs; it takes this up when it starts\n", s.cmd.CommandPath())
		return nil
	case err != nil:
		return fmt.Errorf("%s is written, but not taken up: %w", s.file, err)
	case len(said.Faults) > 0:
		return fmt.Errorf("%s is written, but not taken up:\n%s", s.file, term.Visible(strings.Join(said.Faults, "\n")))
	}
	return nil
}

// worth says what the list would have done so far.
func (s *subscriber) worth(now subscription.Place) error {
	out := s.cmd.OutOrStdout()
	if now.Enforced {
		fmt.Fprintf(out, "%s counts, and was subscribed to on %s. What it refuses: blockd history --list %s\n", s.name, now.Since.Format(time.DateOnly), s.name)
		return nil
	}
	top := history.Top{}
	if _, err := os.Stat(s.config.HistoryFolder()); !errors.Is(err, fs.ErrNotExist) { // else no daemon has run yet
		if top, err = control.MostDecisions(s.cmd.Context(), s.config, history.TopQuery{By: "sender", Query: history.Query{List: s.name, Since: now.Since, Limit: 10}}); err != nil {
			return err
		}
	}
	would := "nobody"
	if top.Decisions > 0 {
		would = term.Counted(int(top.Decisions), "mail") + " from " + term.Counted(int(top.Distinct), "sender")
	}
	fmt.Fprintf(out, "%s watches since %s, %s of %s. It would have refused %s.\n", s.name, now.Since.Format(time.DateOnly),
		term.Span(time.Since(now.Since)), term.Span(catalogue.Trial), would)
	if len(top.Rows) > 0 {
		if err := printRefused(out, top); err != nil {
			return err
		}
		fmt.Fprintf(out, "All of them: blockd history --list %s. Somebody who should write: blockd add SENDER --action allow\n", s.name)
	}
	if time.Since(now.Since) >= catalogue.Trial {
		fmt.Fprintf(out, "To let it count: blockd subscribe --enforce %s\n", s.name)
	}
	return nil
}

func printRefused(out io.Writer, top history.Top) error {
	var t term.Table
	t.Add("mails", "sender")
	for _, r := range top.Rows {
		t.Add(term.Grouped(int(r.Decisions)), term.Visible(r.Name))
	}
	return t.Print(out, 0)
}

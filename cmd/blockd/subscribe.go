package main

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"blockd/catalogue"
	"blockd/history"
	"blockd/internal/config"
	"blockd/internal/control"
	"blockd/internal/durable"
	"blockd/internal/term"
)

func newSubscribe() *cobra.Command {
	var path string
	var enforce, remove bool
	cmd := &cobra.Command{
		Use:   "subscribe [-c config.toml] [--enforce | --remove] NAME",
		Short: "add a public list, which only watches at first",
		Long: `Add a list of the catalogue (blockd catalogue) to the configuration, in shadow mode: it
refuses nobody, and the history shows whom it would have refused. Called again, it says that
so far. After a week of that, --enforce lets the list count, if you like what you saw;
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
		text, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		s := subscriber{cmd: cmd, config: c, file: path, text: text, name: args[0]}
		now, there, err := catalogue.Find(text, s.name)
		switch {
		case err != nil:
			return fmt.Errorf("%s: %w", path, err)
		case remove:
			return s.remove(there)
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
	file   string
	text   []byte // of the file, as it was read
	name   string
}

func (s *subscriber) subscribe() error {
	l, err := catalogue.Named(s.name)
	if err != nil {
		return err
	}
	for _, other := range s.config.Lists {
		if other.Name == l.Name || other.URL == l.URL {
			return fmt.Errorf("%s has this list already, as %q, and not by blockd subscribe", s.file, other.Name)
		}
	}
	copied, err := filepath.Abs(filepath.Join(filepath.Dir(s.config.Index.Path), "subscribed", l.Name))
	if err != nil {
		return err
	}
	text, err := catalogue.Subscribe(s.text, l, copied, time.Now())
	if err == nil {
		err = s.put(text)
	}
	if err != nil {
		return err
	}
	fmt.Fprintf(s.cmd.OutOrStdout(), "subscribed: %s, %s (%s), from %s\nIt refuses nobody. Whom it would have refused: blockd subscribe %s\nComplaints about its entries: %s\n",
		l.Name, l.What, l.Licence, l.URL, l.Name, l.Complaints)
	return s.takeUp()
}

func (s *subscriber) enforce(now catalogue.Subscription, there bool) error {
	if there && now.Enforced {
		fmt.Fprintf(s.cmd.OutOrStdout(), "%s counts already\n", s.name)
		return nil
	}
	text, err := catalogue.Enforce(s.text, s.name)
	if err != nil {
		return err
	}
	if watched := time.Since(now.Since); watched < catalogue.Trial {
		fmt.Fprintf(s.cmd.ErrOrStderr(), "%s: note: it was watched for %s; a week shows mail of every weekday\n", s.cmd.CommandPath(), term.Span(watched))
	}
	if err := s.put(text); err != nil {
		return err
	}
	fmt.Fprintf(s.cmd.OutOrStdout(), "%s counts from now on\n", s.name)
	return s.takeUp()
}

func (s *subscriber) remove(there bool) error {
	text, err := catalogue.Unsubscribe(s.text, s.name)
	if err == nil {
		err = s.put(text)
	}
	if err != nil {
		return err
	}
	copied := filepath.Join(filepath.Dir(s.config.Index.Path), "subscribed", s.name)
	fmt.Fprintf(s.cmd.OutOrStdout(), "removed: %s; its copy may go too: %s\n", s.name, term.Path(copied))
	return s.takeUp()
}

// put puts another text in place of the configuration, if that is a good one and nobody else has changed it meanwhile.
func (s *subscriber) put(text []byte) error {
	info, err := os.Lstat(s.file)
	if err != nil {
		return err
	}
	if info.Mode()&fs.ModeSymlink != 0 {
		target, err := os.Readlink(s.file)
		if err != nil {
			return err
		}
		return fmt.Errorf("%s is a link to %s; say -c with the file itself", s.file, target)
	}
	draft, err := durable.Create(s.file, info.Mode().Perm())
	if err != nil {
		return err
	}
	defer draft.Discard()
	if _, err := draft.Write(text); err != nil {
		return err
	}
	// Paths in it are relative to its folder, which is the draft's too.
	if _, err := config.LoadToServe(draft.Name()); err != nil {
		return fmt.Errorf("%s stays as it is: with the change it would not be good:\n%s", s.file, strings.ReplaceAll(err.Error(), draft.Name(), s.file))
	}
	if meanwhile, err := os.ReadFile(s.file); err != nil || !bytes.Equal(meanwhile, s.text) {
		return errors.Join(fmt.Errorf("%s stays as it is: somebody has just changed it; try again", s.file), err)
	}
	return draft.Commit()
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
func (s *subscriber) worth(now catalogue.Subscription) error {
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

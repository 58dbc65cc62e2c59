package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"blockd/cmd/blockd/internal/config"
	"blockd/cmd/blockd/internal/daemon"
	"blockd/index/live"
	"blockd/internal/spelling"
	"blockd/internal/term"
	"blockd/lists"
	"blockd/sources/mirror"
)

func newSource() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "source test|ddl|lua [-c config.toml] LIST",
		Short: "try the database of a list, and print what it needs",
		Long: `Try the source of a list with a [list.source], or print what its database needs so that
blockd learns of each change. The daemon need not run, and is not asked.`,
		Example: `  blockd source test abuse-desk
  blockd source ddl abuse-desk | psql mail
  blockd source lua abuse-desk > blockd.lua`,
		RunE: func(*cobra.Command, []string) error { return usagef("want test, ddl or lua") },
	}
	for _, sub := range []*cobra.Command{newSourceTest(), newSourceDDL(), newSourceLua()} {
		sub.DisableFlagsInUseLine = true
		cmd.AddCommand(sub)
	}
	return cmd
}

// withSource gives a command -c, and runs it with the list that it names.
func withSource(cmd *cobra.Command, run func(cmd *cobra.Command, c config.Config, l config.List) error) *cobra.Command {
	var path string
	configFlag(cmd, &path)
	sources := func(c config.Config) (names []string) {
		for _, l := range c.Lists {
			if l.Source != nil {
				names = append(names, l.Name)
			}
		}
		return names
	}
	cmd.ValidArgsFunction = completion(&path, sources)
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		if len(args) != 1 {
			return usagef("want the name of one LIST")
		}
		if args[0] == live.ListName && cmd.Name() == "ddl" {
			ddl, err := daemon.SharedDDL()
			if err == nil {
				_, err = io.WriteString(cmd.OutOrStdout(), ddl)
			}
			return err
		}
		c, err := config.Load(path)
		if err != nil {
			return err
		}
		for _, l := range c.Lists {
			switch {
			case l.Name != args[0]:
			case l.Source == nil:
				return usagef("list %q has no [list.source]", l.Name)
			default:
				return run(cmd, c, l)
			}
		}
		return usagef("no list %q%s", args[0], spelling.Hint(args[0], "", sources(c)))
	}
	return cmd
}

func newSourceTest() *cobra.Command {
	var rows int
	cmd := withSource(&cobra.Command{
		Use:   "test [-c config.toml] [--rows N] LIST",
		Short: "connect, and show the first rows as blockd understands them",
		Long: `Connect as the daemon would, and show the server, the way in which the list is read, and
its first rows: what blockd makes of each, or why it is no entry. Nothing is written
anywhere. The exit code is 1 if the list cannot be read, or if none of these rows is an entry.`,
		Example: `  blockd source test abuse-desk
  blockd source test --rows 100 abuse-desk`,
	}, func(cmd *cobra.Command, c config.Config, l config.List) error {
		if rows < 1 || rows > 10_000 {
			return usagef("--rows: want 1 to 10000, have %d", rows)
		}
		return testSource(cmd.Context(), cmd.OutOrStdout(), c, l, rows)
	})
	cmd.Flags().IntVar(&rows, "rows", 10, "`N`, how many rows are shown")
	return cmd
}

// How long a source may take, so that the command ends when the server hangs.
const (
	greetingLimit = 15 * time.Second // for the first answer
	readingLimit  = 2 * time.Minute  // for the first rows: a database may sort all of them before
)

// testSource shows what a source gives.
func testSource(ctx context.Context, w io.Writer, c config.Config, l config.List, rows int) error {
	source, err := daemon.OpenSource(l)
	if err != nil {
		return sourceError(l, err)
	}
	defer source.Close()
	p := term.NewPaint(w)
	var head term.Table
	head.Add(p.Faint("list"), l.Name)
	head.Add(p.Faint("source"), fmt.Sprintf("%s, changes by %q, asked every %s", l.Source.Kind, l.Source.FoundBy(), config.Duration(l.Source.Poll())))
	if l.Asked() {
		head.Add(p.Faint("asked"), "where it is, if a filter of its keys says perhaps; no copy is kept")
	} else {
		head.Add(p.Faint("copy"), term.Path(l.CopyFolder()))
	}
	greeting, cancel := context.WithTimeout(ctx, greetingLimit)
	defer cancel()
	server, err := source.Fingerprint(greeting)
	if err != nil {
		return errors.Join(head.Print(w), sourceError(l, err))
	}
	head.Add(p.Faint("server"), term.Visible(server))
	if err := head.Print(w); err != nil {
		return err
	}
	ctx, cancel = context.WithTimeout(ctx, readingLimit)
	defer cancel()
	var unlogged *mirror.Unlogged
	if planner, ok := source.(interface {
		Plan(context.Context) (string, error)
	}); ok {
		plan, err := planner.Plan(ctx)
		if err != nil && !errors.As(err, &unlogged) {
			return sourceError(l, err)
		}
		fmt.Fprintln(w, p.Faint("plan"))
		for line := range strings.Lines(plan) {
			fmt.Fprintln(w, "  "+term.Visible(strings.TrimRight(line, "\n")))
		}
	}
	shown, good, err := showRows(ctx, w, source, c.ListSettings(l), rows)
	switch {
	case err != nil:
		return sourceError(l, err)
	case shown == 0:
		_, err := fmt.Fprintln(w, "no rows: a list that is empty never replaces one that is not")
		return err
	case good == 0:
		return fmt.Errorf("list %q: none of these rows is an entry", l.Name)
	case unlogged != nil:
		return sourceError(l, unlogged)
	}
	return nil
}

// showRows prints the first rows of a source. It returns how many these are, and how many of them are entries.
func showRows(ctx context.Context, w io.Writer, source mirror.Source, s lists.Settings, most int) (shown, good int, err error) {
	p := term.NewPaint(w)
	var t term.Table
	t.Add(p.Faint("entry"), p.Faint("action"), p.Faint("scope"), p.Faint("ends"), p.Faint("id"), p.Faint("reason"))
	enough := errors.New("enough rows")
	_, err = source.All(ctx, func(row mirror.Row) error {
		if shown == most {
			return enough
		}
		shown++
		line, no := mirror.Say(row, s)
		if no != nil {
			t.Add(term.Clip(term.Visible(written(row)), 60), p.Red("none"), "", "", term.Visible(no.ID), fmt.Sprintf("%s: %s", no.Class, term.Visible(no.Message)))
			return nil
		}
		good++
		t.Add(entryCells(line)...)
		return nil
	})
	if shown > 0 {
		fmt.Fprintln(w)
		if err := t.Print(w); err != nil {
			return shown, good, err
		}
	}
	if shown == most { // any error is that of enough
		err = nil
	}
	return shown, good, err
}

// written is what the source has as the entry.
func written(row mirror.Row) string {
	if row.Item != nil {
		return row.Item.Text
	}
	return row.Entry
}

// entryCells are the cells of a line of entries, in words.
func entryCells(line string) []string {
	field := append(strings.Split(line, "\t"), "", "", "", "", "")
	words := map[string]string{"b": "block", "a": "allow", "t": "tempfail", "d": "discard", "p": "allow-if-auth"}
	scopes := map[string]string{"x": "exact", "s": "sub", "t": "tree", "l": "local"}
	ends := ""
	if seconds, err := strconv.ParseInt(field[3], 10, 64); err == nil {
		ends = term.Moment(time.Unix(seconds, 0))
	}
	return []string{term.Visible(field[0]), words[field[1]], scopes[field[2]], ends, term.Visible(field[4]), term.Clip(term.Visible(field[5]), 60)}
}

// sourceError is an error of a source with what to do about it.
func sourceError(l config.List, err error) error {
	hint := mirror.Hint(err)
	if hint != "" {
		return fmt.Errorf("list %q: %w; hint: %s", l.Name, err, hint)
	}
	return fmt.Errorf("list %q: %w", l.Name, err)
}

func newSourceDDL() *cobra.Command {
	return withSource(&cobra.Command{
		Use:   "ddl [-c config.toml] LIST",
		Short: "print the log and the triggers of a table, for its database",
		Long: `Print, in the SQL of the list's database, the log that tells blockd of each change, and
the triggers that fill it: what changes = "log" needs. The database is not asked.

The LIST "live" is the table of the live entries that a fleet shares (live.shared =
"postgres"). The daemon makes it by itself where its role may.`,
		Example: `  blockd source ddl abuse-desk | psql mail
  blockd source ddl live | psql mail`,
	}, func(cmd *cobra.Command, _ config.Config, l config.List) error {
		source, err := daemon.OpenSource(l)
		if err != nil {
			return sourceError(l, err)
		}
		defer source.Close()
		printer, ok := source.(interface{ DDL() (string, error) })
		switch {
		case l.Source.Kind == "redis":
			return fmt.Errorf("a Redis has no SQL; blockd source lua %s prints the script that it needs", l.Name)
		case !ok:
			return fmt.Errorf("list %q needs nothing in its source: blockd only reads", l.Name)
		}
		if l.Source.FoundBy() != "log" {
			fmt.Fprintf(cmd.ErrOrStderr(), "%s: this is for changes = \"log\"; list %q has %q\n", cmd.CommandPath(), l.Name, l.Source.FoundBy())
		}
		ddl, err := printer.DDL()
		if err != nil {
			return fmt.Errorf("list %q: %w", l.Name, err)
		}
		_, err = io.WriteString(cmd.OutOrStdout(), ddl)
		return err
	})
}

func newSourceLua() *cobra.Command {
	return withSource(&cobra.Command{
		Use:   "lua [-c config.toml] LIST",
		Short: "print the script by which programs change a list in a Redis",
		Long: `Print the script that puts an entry into a list in a Redis, or takes one out, and notes it
in the stream from which blockd learns of it. Its head says how it is called. The Redis is
not asked.`,
		Example: `  blockd source lua abuse-desk > blockd.lua`,
	}, func(cmd *cobra.Command, _ config.Config, l config.List) error {
		source, err := daemon.OpenSource(l)
		if err != nil {
			return sourceError(l, err)
		}
		defer source.Close()
		printer, ok := source.(interface{ Lua() string })
		if !ok {
			return fmt.Errorf("list %q is in a source of kind %q; the script is for kind \"redis\"", l.Name, l.Source.Kind)
		}
		_, err = io.WriteString(cmd.OutOrStdout(), printer.Lua())
		return err
	})
}

package main

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"time"

	"github.com/spf13/cobra"

	"blockd/cmd/blockd/internal/config"
	"blockd/cmd/blockd/internal/control"
	"blockd/doors/httpapi"
	"blockd/index/kept"
	"blockd/index/live"
	"blockd/internal/term"
)

func newGenerations() *cobra.Command {
	var path string
	var asJSON bool
	cmd := &cobra.Command{
		Use:   "generations [-c config.toml] [--json]",
		Short: "show what was served, and what changed by list",
		Long: `Show the generations that served, the newest first: when and how each came, how many entries
each list had, and how many came and went. [index] keep and keep_bytes bound what is kept.

A running daemon is asked; else its files are read.`,
		Example: `  blockd generations
  blockd generations --json | jq -r '.lists[] | select(.added > 1000) | .name'`,
		Args: noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			c, err := config.Load(path)
			if err != nil {
				return err
			}
			found, err := control.Generations(cmd.Context(), c)
			if err != nil {
				return err
			}
			out := cmd.OutOrStdout()
			for _, g := range found.Generations {
				if asJSON {
					err = json.NewEncoder(out).Encode(g)
				} else {
					err = printGeneration(out, g)
				}
				if err != nil {
					return err
				}
			}
			if len(found.Generations) == 0 {
				fmt.Fprintf(cmd.ErrOrStderr(), "%s: nothing is kept yet\n", cmd.CommandPath())
			}
			return nil
		},
	}
	configFlag(cmd, &path)
	cmd.Flags().BoolVar(&asJSON, "json", false, "one JSON object a line")
	return cmd
}

func printGeneration(w io.Writer, g httpapi.ListGeneration) error {
	why := ""
	if g.By != "" {
		why += ", by " + term.Visible(g.By)
	}
	if g.Why != "" {
		why += ": " + term.Visible(g.Why)
	}
	fmt.Fprintf(w, "%s  %.12s  %s%s\n", term.Moment(g.Time), g.Generation, g.How, why)
	var t term.Table
	for _, l := range g.Lists {
		changed := ""
		switch {
		case l.Name == live.ListName: // what came and went is in the journal of changes
		case l.Added == nil || l.Removed == nil:
			changed = "not counted"
		case *l.Added > 0 || *l.Removed > 0:
			changed = fmt.Sprintf("+%s -%s", term.Grouped(*l.Added), term.Grouped(*l.Removed))
		}
		t.Add("  "+term.Visible(l.Name), term.Counted(l.Entries, "entry"), changed)
	}
	return t.Print(w)
}

func newDiff() *cobra.Command {
	var path, since string
	var asJSON, mail bool
	cmd := &cobra.Command{
		Use:   "diff [-c config.toml] [--since WHEN] [--json] [--mail] LIST",
		Short: "show which entries of a list came and went",
		Long: `Show which entries of a list came and went, a line "+ ENTRY" or "- ENTRY" each: since WHEN, which is a
time (RFC 3339), an age such as 7d or 12h, or a generation. Without --since: what serves against what
served before; if a proposal waits, the proposal against what serves.

With --mail it says instead which decisions of the last days would differ, as the history has them.`,
		Example: `  blockd diff bulk
  blockd diff bulk --since 7d
  blockd diff bulk --mail`,
		Args: oneList,
		RunE: func(cmd *cobra.Command, args []string) error {
			c, err := config.Load(path)
			if err != nil {
				return err
			}
			if since != "" {
				if err := checkWhen("--since", since); err != nil {
					return err
				}
			}
			if mail {
				return diffMail(cmd, c, path, args[0], since, asJSON)
			}
			return control.Diff(cmd.Context(), c, args[0], since, func(r io.Reader) error {
				if asJSON {
					_, err := io.Copy(cmd.OutOrStdout(), r)
					return err
				}
				return printDiff(cmd, r)
			})
		},
	}
	configFlag(cmd, &path)
	cmd.Flags().StringVar(&since, "since", "", "since `WHEN`: a time, an age such as 7d, or a generation")
	cmd.Flags().BoolVar(&asJSON, "json", false, "one JSON object")
	cmd.Flags().BoolVar(&mail, "mail", false, "which decisions of the last 7 days would differ")
	return cmd
}

// checkWhen says what is wrong with a time, an age or a generation.
func checkWhen(flag, text string) error {
	g := kept.Generation{ID: text}
	if _, err := kept.When(text, time.Now()); err != nil && !(g.Named(text) && isHex(text)) {
		return usagef("%s: %q: %v", flag, text, err)
	}
	return nil
}

func isHex(text string) bool {
	for _, c := range text {
		if !(c >= '0' && c <= '9' || c >= 'a' && c <= 'f') {
			return false
		}
	}
	return true
}

// printDiff shows a diff to people as it comes.
func printDiff(cmd *cobra.Command, r io.Reader) error {
	out := bufio.NewWriter(cmd.OutOrStdout())
	d := json.NewDecoder(r)
	if _, err := d.Token(); err != nil {
		return err
	}
	var head httpapi.ListDiff
	for d.More() {
		name, err := d.Token()
		if err != nil {
			return err
		}
		switch name {
		case "added", "removed":
			mark := "+ "
			if name == "removed" {
				mark = "- "
			}
			if _, err := d.Token(); err != nil {
				return err
			}
			for d.More() {
				var entry string
				if err := d.Decode(&entry); err != nil {
					return err
				}
				out.WriteString(mark + term.Visible(entry) + "\n")
			}
			if _, err := d.Token(); err != nil {
				return err
			}
		case "from":
			err = d.Decode(&head.From)
		case "waits":
			err = d.Decode(&head.Waits)
		case "content":
			err = d.Decode(&head.Content)
		case "findings":
			err = d.Decode(&head.Findings)
		case "weighed":
			err = d.Decode(&head.Weighed)
		case "counts":
			err = d.Decode(&head.Counts)
		default:
			var other any
			err = d.Decode(&other)
		}
		if err != nil {
			return err
		}
	}
	if err := out.Flush(); err != nil {
		return err
	}
	what := "what serves"
	if head.Waits {
		what = "what waits, content " + head.Content + ","
	}
	for _, text := range head.Findings {
		fmt.Fprintf(cmd.ErrOrStderr(), "%s: note: %s\n", cmd.CommandPath(), term.Visible(text))
	}
	if w := head.Weighed; w != nil && w.Mail != nil && !w.Mail.Differs() {
		fmt.Fprintf(cmd.ErrOrStderr(), "%s: %s\n", cmd.CommandPath(), w.Mail)
	}
	_, err := fmt.Fprintf(cmd.ErrOrStderr(), "%s: %s against what served from %s on: %s came, %s went\n", cmd.CommandPath(), what, term.Moment(head.From),
		term.Counted(head.Counts.Added, "entry"), term.Counted(head.Counts.Removed, "entry"))
	return err
}

func newRollback() *cobra.Command {
	var path string
	var q httpapi.UndoQuestion
	cmd := &cobra.Command{
		Use:   "rollback [-c config.toml] [--to WHEN] [--why TEXT] LIST",
		Short: "let a list serve what it had before",
		Long: `Let a list serve what it had then, and hold what its file has that is newer until "blockd adopt
LIST". WHEN is a time (RFC 3339), an age such as 7d or 12h, or a generation as "blockd generations" names
it; without --to it is what served before.

It acts at all doors when the command ends, outlasts restarts, and shows in /readyz, blockd lists and the
console. No size, age or share of the gate speaks against it, for it is meant; entries that would refuse
senders who wrote lately are held back as ever. Live entries stay as they are.`,
		Example: `  blockd rollback bulk
  blockd rollback bulk --to 12h --why "refuses our bank since tonight"`,
		Args: oneList,
		RunE: func(cmd *cobra.Command, args []string) error {
			if q.To != "" {
				if err := checkWhen("--to", q.To); err != nil {
					return err
				}
			}
			c, err := config.Load(path)
			if err != nil {
				return err
			}
			q.Author = userName()
			done, alone, err := control.Rollback(cmd.Context(), c, args[0], q)
			if err != nil {
				return err
			}
			noDaemon(cmd, alone)
			if !alone && !done.Serves {
				return fmt.Errorf("noted, but %s", done.Text)
			}
			_, err = fmt.Fprintf(cmd.OutOrStdout(), "rolled back: %s serves what it had at %s, until: blockd adopt %s\n", term.Visible(args[0]), term.Moment(done.Served), term.Word(args[0]))
			if err != nil {
				return err
			}
			return tellHeldBack(cmd.OutOrStdout(), args[0], done)
		},
	}
	configFlag(cmd, &path)
	cmd.Flags().StringVar(&q.To, "to", "", "what it had at `WHEN`: a time, an age such as 7d, or a generation")
	cmd.Flags().StringVar(&q.Why, "why", "", "a line that says why")
	return cmd
}

func newAdopt() *cobra.Command {
	var path string
	var q httpapi.UndoQuestion
	cmd := &cobra.Command{
		Use:   "adopt [-c config.toml] [--if CONTENT] [--why TEXT] LIST",
		Short: "let in what waits of a list",
		Long: `Let a list have what waits: the newer content of one that was rolled back, which then follows its file
again, or the proposal of one with adopt = "review". See it first by blockd diff LIST. With --if
nothing is adopted but the content that was looked at, as blockd diff names it.`,
		Example: `  blockd adopt bulk
  blockd adopt bulk --if 0123456789abcdef --why "seen, is fine"`,
		Args: oneList,
		RunE: func(cmd *cobra.Command, args []string) error {
			c, err := config.Load(path)
			if err != nil {
				return err
			}
			q.Author = userName()
			done, alone, err := control.Adopt(cmd.Context(), c, args[0], q)
			if err != nil {
				return err
			}
			noDaemon(cmd, alone)
			if !alone && !done.Serves {
				return fmt.Errorf("noted, but %s", done.Text)
			}
			if _, err := fmt.Fprintf(cmd.OutOrStdout(), "adopted: %s\n", term.Visible(args[0])); err != nil {
				return err
			}
			return tellHeldBack(cmd.OutOrStdout(), args[0], done)
		},
	}
	configFlag(cmd, &path)
	cmd.Flags().StringVar(&q.If, "if", "", "only if what waits is `CONTENT`")
	cmd.Flags().StringVar(&q.Why, "why", "", "a line that says why")
	return cmd
}

// tellHeldBack says which entries of a list that has just changed do not act.
func tellHeldBack(w io.Writer, list string, done httpapi.ListUndone) error {
	if done.HeldBack == 0 {
		return nil
	}
	text := ""
	for i, e := range done.HeldFirst[:min(len(done.HeldFirst), 3)] {
		if i > 0 {
			text += ", "
		}
		text += term.Visible(e.Entry)
	}
	if n := done.HeldBack - min(len(done.HeldFirst), 3); n > 0 {
		text += fmt.Sprintf(" and %s more", term.Grouped(n))
	}
	_, err := fmt.Fprintf(w, "held back, for they would refuse senders who wrote lately, or correspondents: %s; see blockd lint --held %s\n", text, term.Word(list))
	return err
}

var errNoHistory = errors.New(`history.folder is "none": no history is kept`)

func asideFolder() (string, func(), error) {
	dir, err := os.MkdirTemp("", "blockd-diff-")
	return dir, func() { os.RemoveAll(dir) }, err
}

package main

import (
	"fmt"
	"strconv"
	"time"

	"github.com/spf13/cobra"

	"blockd/cmd/blockd/internal/config"
	"blockd/cmd/blockd/internal/control"
	"blockd/doors/httpapi"
	"blockd/internal/term"
)

func newLive() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "live status|lost|offer|dismiss",
		Short: "live entries that the machines of a fleet share",
		Long: `See how the live entries are that machines share (live.shared): whether the database answers,
and what it has lost of what it had acknowledged. A Redis can lose changes in a failover;
blockd tells of them, and makes them again only when it is told to.`,
		Example: `  blockd live status
  blockd live lost
  blockd live offer --why "the failover of Tuesday"`,
		RunE: func(*cobra.Command, []string) error { return usagef("want status, lost, offer or dismiss") },
	}
	for _, sub := range []*cobra.Command{newLiveStatus(), newLiveLost(),
		newLiveAct("offer", "make the changes once more that the database has lost", "offered again", `Make the changes once more that the database has lost, all of them. An entry that
has changed since then is left as it is.`),
		newLiveAct("dismiss", "forget the changes that the database has lost", "dismissed", `Forget the changes that the database has lost: they stay lost, and are no problem
any more. It is about the list of this machine; each of the others has its own.`)} {
		sub.DisableFlagsInUseLine = true
		cmd.AddCommand(sub)
	}
	return cmd
}

// sharedOf gives a command -c, and runs it with what the daemon says of shared entries.
func sharedOf(cmd *cobra.Command, show func(cmd *cobra.Command, now httpapi.LiveShared) error) *cobra.Command {
	var path string
	configFlag(cmd, &path)
	cmd.Args = noArgs
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		c, err := config.Load(path)
		if err != nil {
			return err
		}
		now, err := control.SharedLive(cmd.Context(), c)
		if err != nil {
			return err
		}
		return show(cmd, now)
	}
	return cmd
}

func newLiveStatus() *cobra.Command {
	return sharedOf(&cobra.Command{
		Use:   "status [-c config.toml]",
		Short: "show whether the database answers, and what is the newest change here",
		Long:  "Show how the live entries are that machines share, by the daemon of this machine.",
	}, func(cmd *cobra.Command, now httpapi.LiveShared) error {
		p := term.NewPaint(cmd.OutOrStdout())
		var t term.Table
		add := func(name, value string) { t.Add(p.Faint(name), value) }
		add("store", term.Visible(now.Store))
		switch {
		case now.Up:
			add("answers", "yes")
		case now.Since != nil:
			add("answers", "not since "+term.Moment(*now.Since)+": "+term.Visible(now.Fault))
		default:
			add("answers", "it was not asked yet")
		}
		add("entries", strconv.FormatInt(now.Entries, 10))
		add("revision", strconv.FormatUint(now.Revision, 10))
		add("sum", now.Sum)
		add("clock", fmt.Sprintf("the database is ahead by %s", time.Duration(now.Offset*float64(time.Second)).Round(time.Millisecond)))
		if now.Pending > 0 {
			add("waiting", fmt.Sprintf("%d changes of this machine alone", now.Pending))
		}
		if now.Refused > 0 {
			add("refused", fmt.Sprintf("%d changes of this machine alone, which the database does not take: the log and the audit journal name them", now.Refused))
		}
		if now.LostAll > 0 {
			add("lost", fmt.Sprintf("%d changes: blockd live lost", now.LostAll))
		}
		return t.Print(cmd.OutOrStdout())
	})
}

func newLiveLost() *cobra.Command {
	return sharedOf(&cobra.Command{
		Use:   "lost [-c config.toml]",
		Short: "show what the database has lost",
		Long:  "Show the changes that the database had acknowledged, and no longer has.",
	}, func(cmd *cobra.Command, now httpapi.LiveShared) error {
		if len(now.Lost) == 0 {
			_, err := fmt.Fprintln(cmd.OutOrStdout(), "nothing was lost")
			return err
		}
		p := term.NewPaint(cmd.OutOrStdout())
		var t term.Table
		t.Add(p.Faint("change"), p.Faint("entry"), p.Faint("action"), p.Faint("owner"), p.Faint("author"), p.Faint("why"), p.Faint("found"))
		for _, l := range now.Lost {
			if l.Entry == nil {
				t.Add(l.Change, "token "+term.Visible(l.Token), "-", "-", "-", "-", term.Moment(l.Found))
				continue
			}
			owner := "-"
			if l.Entry.Owner != "" {
				owner = term.Visible(l.Entry.Owner)
			}
			t.Add(l.Change, term.Visible(l.Entry.Entry), l.Entry.Action, owner, term.Visible(l.Entry.Author), term.Clip(term.Visible(l.Entry.Why), 60), term.Moment(l.Found))
		}
		if err := t.Print(cmd.OutOrStdout()); err != nil || now.LostAll <= len(now.Lost) {
			return err
		}
		_, err := fmt.Fprintf(cmd.OutOrStdout(), "and %d more\n", now.LostAll-len(now.Lost))
		return err
	})
}

func newLiveAct(what, short, done, long string) *cobra.Command {
	var path string
	var q httpapi.LiveWho
	cmd := &cobra.Command{
		Use:   what + " [-c config.toml] [--why TEXT]",
		Short: short,
		Long:  long,
		Args:  noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			c, err := config.Load(path)
			if err != nil {
				return err
			}
			q.Author = userName()
			answer, err := control.LostLive(cmd.Context(), c, what, q)
			if err != nil {
				return err
			}
			_, err = fmt.Fprintf(cmd.OutOrStdout(), "%s: %s\n", done, term.Counted(answer.Changes, "change"))
			return err
		},
	}
	configFlag(cmd, &path)
	cmd.Flags().StringVar(&q.Why, "why", "", "a line that says why, for the audit journal")
	return cmd
}

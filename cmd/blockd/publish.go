package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"blockd/cmd/blockd/internal/config"
	"blockd/cmd/blockd/internal/daemon"
	"blockd/index"
	"blockd/internal/durable"
	"blockd/internal/minisign"
	"blockd/internal/term"
	"blockd/records/audit"
	"blockd/reload"
	"blockd/sources/snapshot"
)

func newPublish() *cobra.Command {
	var path, why string
	var now bool
	var again int64
	cmd := &cobra.Command{
		Use:   "publish [-c config.toml] [--now | --again N] [--why TEXT] | halt | keygen FILE",
		Short: "publish the lists as a signed snapshot for other machines",
		Long: `Read all lists, judge them as blockd compile does, and publish what comes of it as the next
sequence of the channel that [publish] names: signed, in the stages of [[publish.stage]].
What only lets more mail pass (blocks that go, exceptions that come) is for all nodes at once.
A daemon with [publish] does the same by itself whenever other lists serve.

With --now all nodes may take it at once. With --again the content of an earlier sequence is
published anew: numbers only grow. It stands until the next blockd publish; a daemon puts
nothing in its place by itself. A halt ends with the next sequence.`,
		Example: `  blockd publish -c /etc/blockd/config.toml
  blockd publish --now --why "a wrong entry is out"
  blockd publish halt --why "good mail refused"
  blockd publish --again 4709 --now
  blockd publish keygen secrets/publish.key`,
		Args: noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if again < 0 {
				return usagef("--again: want the number of a sequence")
			}
			c, err := config.Load(path)
			if err != nil {
				return err
			}
			ctx, stop := signal.NotifyContext(cmd.Context(), syscall.SIGINT, syscall.SIGTERM)
			defer stop()
			return publish(ctx, cmd, c, now, again, why)
		},
	}
	configFlag(cmd, &path)
	cmd.Flags().BoolVar(&now, "now", false, "for all nodes at once, in one stage")
	cmd.Flags().Int64Var(&again, "again", 0, "`N`, the sequence whose content is published anew")
	cmd.Flags().StringVar(&why, "why", "", "a line that says why")
	for _, sub := range []*cobra.Command{newPublishHalt(), newPublishKeygen()} {
		sub.DisableFlagsInUseLine = true
		cmd.AddCommand(sub)
	}
	return cmd
}

func publish(ctx context.Context, cmd *cobra.Command, c config.Config, now bool, again int64, why string) error {
	p, err := openPublisher(cmd, c)
	if err != nil {
		return err
	}
	defer p.Close()
	line := audit.Line{By: userName(), Action: audit.SnapshotPublish, Subject: c.Publish.Channel, Why: why}
	var told *snapshot.Published
	if again > 0 {
		line.Detail = fmt.Sprintf("what sequence %d had", again)
		if err := c.Journal().Add(line); err != nil {
			return err
		}
		told, err = p.Again(ctx, again, now)
	} else {
		content, failed := judged(ctx, cmd, c)
		if failed != nil {
			return failed
		}
		if err := c.Journal().Add(line); err != nil {
			return err
		}
		told, err = p.Publish(ctx, content, now)
	}
	if err != nil {
		return err
	}
	if err := daemon.HandOver(c.PublishFolder()); err != nil {
		return err
	}
	return printPublished(cmd.OutOrStdout(), c, told)
}

// judged compiles the lists, unless the index has them as they are, and returns what is to be published of them.
func judged(ctx context.Context, cmd *cobra.Command, c config.Config) (content snapshot.Content, err error) {
	j, err := jobOf(ctx, c, false, false)
	if err != nil {
		return content, err
	}
	if err := j.fetch(ctx, cmd.ErrOrStderr()); err != nil {
		return content, err
	}
	j.copies = nil // they are up to date
	ix := reload.Current(ctx, j.path, j.sources, j.hashes)
	if ix == nil {
		if _, err := j.run(ctx, cmd.ErrOrStderr()); err != nil {
			return content, err
		}
		if ix, err = index.Open(j.path); err != nil {
			return content, err
		}
	}
	held, err := reload.Held(c.Index.Path)
	if err != nil {
		return content, err
	}
	without := map[index.HeldEntry]bool{}
	for _, h := range held {
		without[h.HeldEntry] = true
	}
	ix.Withhold(without)
	content, err = daemon.SnapshotContent(c, ix)
	content.Gate.Recent = len(held)
	return content, err
}

func openPublisher(cmd *cobra.Command, c config.Config) (*snapshot.Publisher, error) {
	if err := daemon.MakeIndexFolder(c); err != nil {
		return nil, err
	}
	return daemon.OpenPublisher(c, slog.New(slog.NewTextHandler(cmd.ErrOrStderr(), &slog.HandlerOptions{Level: slog.LevelWarn})))
}

func printPublished(w io.Writer, c config.Config, told *snapshot.Published) error {
	var t term.Table
	t.Add("sequence", fmt.Sprintf("%d of the channel %s", told.Sequence, c.Publish.Channel))
	t.Add("entries", fmt.Sprintf("%s (%s added, %s removed, %s altered)", term.Grouped(int(told.Entries)), term.Grouped(int(told.Added)), term.Grouped(int(told.Removed)), term.Grouped(int(told.Altered))))
	t.Add("written", term.Octets(told.Written))
	if told.Took > 0 {
		t.Add("time", fmt.Sprintf("%.1f s", told.Took.Seconds()))
	}
	for i, s := range told.Stages {
		word := ""
		if i == 0 {
			word = "stages"
		}
		t.Add(word, fmt.Sprintf("%d %% from %s on", s.Share, term.Moment(time.Unix(s.From, 0))))
	}
	if told.Lifted {
		t.Add("halt", "ended")
	}
	return t.Print(w)
}

func newPublishHalt() *cobra.Command {
	var path, life, why string
	cmd := &cobra.Command{
		Use:   "halt [-c config.toml] [--for 7d] [--why TEXT]",
		Short: "stop the channel at the sequence before the newest",
		Long: `Stop the channel at the sequence before the newest: nodes that have not taken the newest do
not, and nodes that have go back, each at its next look. Nothing is published by itself until
then. The next blockd publish ends it, and so does its time: publish what is right before that.`,
		Example: `  blockd publish halt --why "good mail refused, ticket 4711"`,
		Args:    noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			d, err := config.ParseDuration(life)
			if err != nil || d < time.Minute || d > 31*24*time.Hour {
				return usagef("--for: want 1m to 31d, have %q", life)
			}
			c, err := config.Load(path)
			if err != nil {
				return err
			}
			p, err := openPublisher(cmd, c)
			if err != nil {
				return err
			}
			defer p.Close()
			if err := c.Journal().Add(audit.Line{By: userName(), Action: audit.SnapshotHalt, Subject: c.Publish.Channel, Why: why}); err != nil {
				return err
			}
			until := time.Now().Add(d)
			sequence, err := p.Halt(cmd.Context(), until)
			if err != nil {
				return err
			}
			if err := daemon.HandOver(c.PublishFolder()); err != nil {
				return err
			}
			_, err = fmt.Fprintf(cmd.OutOrStdout(), "halted: the channel %s stays at sequence %d until %s, or: blockd publish\n", c.Publish.Channel, sequence, term.Moment(until))
			return err
		},
	}
	configFlag(cmd, &path)
	cmd.Flags().StringVar(&life, "for", "7d", "for `how long`; 31d at most")
	cmd.Flags().StringVar(&why, "why", "", "a line that says why")
	return cmd
}

func newPublishKeygen() *cobra.Command {
	return &cobra.Command{
		Use:   "keygen FILE",
		Short: "make a pair of keys of minisign",
		Long: `Make a secret key in FILE, with mode 0600 and without a password, and its public key in FILE.pub.
Print the public key as fleet.keys takes it. A file that is there is not replaced.`,
		Example: `  blockd publish keygen secrets/publish.key`,
		Args: func(_ *cobra.Command, args []string) error {
			if len(args) != 1 {
				return usagef("want one FILE")
			}
			return nil
		},
		RunE: func(cmd *cobra.Command, args []string) error {
			file := args[0]
			for _, name := range []string{file, file + ".pub"} {
				if _, err := os.Lstat(name); !errors.Is(err, fs.ErrNotExist) {
					return fmt.Errorf("%s is there already", term.Path(name))
				}
			}
			key := minisign.NewSecretKey()
			secret, public := key.Files()
			if err := durable.WriteFile(file, secret, 0o600); err != nil {
				return err
			}
			if err := durable.WriteFile(file+".pub", public, 0o644); err != nil {
				return err
			}
			_, err := fmt.Fprintln(cmd.OutOrStdout(), key.Public())
			return err
		},
	}
}

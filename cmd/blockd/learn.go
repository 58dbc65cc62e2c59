package main

import (
	"bufio"
	"compress/gzip"
	"fmt"
	"io"
	"os"
	"time"

	"github.com/spf13/cobra"

	"blockd/cmd/blockd/internal/config"
	"blockd/cmd/blockd/internal/control"
	"blockd/doors/httpapi"
	"blockd/internal/term"
	"blockd/records/maillog"
)

func newLearn() *cobra.Command {
	var path, log string
	cmd := &cobra.Command{
		Use:   "learn [-c config.toml] --maillog FILE",
		Short: "learn from a mail log to whom your users write",
		Long: `Read the log of Postfix or Exim, plain or gzip, and learn to whom your users have written: the
recipients of delivered messages whose client has logged in, or is in a network of
smtp.trusted. FILE may be - for standard input. Kept are keyed hashes alone, each with the
last day (see [correspondents] in blockd.toml(5)).

It works with a daemon that runs and without. A log may be read twice.`,
		Example: `  blockd learn --maillog /var/log/mail.log
  zcat /var/log/mail.log.*.gz | blockd learn --maillog -`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if log == "" {
				return usagef("want --maillog FILE, or - for standard input")
			}
			c, err := config.Load(path)
			if err != nil {
				return err
			}
			in := cmd.InOrStdin()
			if log != "-" {
				f, err := os.Open(log)
				if err != nil {
					return err
				}
				defer f.Close()
				in = f
			}
			if in, err = unpacked(in); err != nil {
				return fmt.Errorf("%s: %w", log, err)
			}
			learner, err := control.NewLearner(cmd.Context(), c, userName())
			if err != nil {
				return err
			}
			defer learner.Close()
			r, err := maillog.Read(in, maillog.Settings{Trusted: config.Networks(c.SMTP.Trusted), Now: time.Now()}, func(s maillog.Sent) error {
				if err := cmd.Context().Err(); err != nil {
					return err
				}
				return learner.Add(cmd.Context(), httpapi.SentMessage{Sender: s.Sender, Recipient: s.Recipient, Time: s.Time})
			})
			if flushed := learner.Flush(cmd.Context()); err == nil {
				err = flushed
			}
			if err != nil {
				return fmt.Errorf("%s: %w", log, err)
			}
			_, err = fmt.Fprintf(cmd.OutOrStdout(), "learned from %s of users to %s; %s known; %s read, %s of no mail server\n",
				term.Counted(r.Messages, "message"), term.Counted(learner.Total.Recipients, "recipient"), term.Counted(learner.Total.Known, "correspondent"),
				term.Counted(r.Lines+r.Skipped, "line"), term.Grouped(r.Skipped))
			return err
		},
	}
	configFlag(cmd, &path)
	cmd.Flags().StringVar(&log, "maillog", "", "the `file` of the log, or - for standard input")
	return cmd
}

// unpacked reads what may be packed by gzip.
func unpacked(r io.Reader) (io.Reader, error) {
	in := bufio.NewReader(r)
	if head, _ := in.Peek(2); string(head) == "\x1f\x8b" {
		return gzip.NewReader(in)
	}
	return in, nil
}

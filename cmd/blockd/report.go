package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"blockd/cmd/blockd/internal/config"
	"blockd/cmd/blockd/internal/control"
	"blockd/cmd/blockd/internal/daemon"
	"blockd/doors/httpapi"
	"blockd/internal/term"
	"blockd/records/letter"
)

func newReport() *cobra.Command {
	var path, since string
	var asJSON, send bool
	cmd := &cobra.Command{
		Use:   "report [-c config.toml] [--since 7d] [--send] [--json]",
		Short: "show or send the letter of [report] now",
		Long: `Show the letter that [report] would send now: what was refused and by which list, what may have
been refused by mistake, how the lists were loaded, and what waits for a person. With --send it is
sent, also where nothing has happened; when the next one is due does not change.

The daemon is asked. Where none runs, the files are read, which do not tell how the lists were
loaded.`,
		Example: `  blockd report
  blockd report --since 24h
  blockd report --send
  blockd report --json | jq .suspects.rows`,
		Args: noArgs,
	}
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		c, err := config.Load(path)
		if err != nil {
			return err
		}
		now := time.Now()
		begin := now.Add(-time.Duration(c.Report.Every))
		if since != "" {
			if begin, err = parseSince(since, now); err != nil {
				return err
			}
		}
		if send {
			return sendReport(cmd, c, begin, asJSON)
		}
		answer, err := control.Report(cmd.Context(), c, begin)
		if errors.Is(err, control.ErrNoDaemon) {
			answer, err = reportOfFiles(cmd.Context(), c, begin, now)
		}
		if err != nil {
			return err
		}
		if asJSON {
			return term.JSON(cmd.OutOrStdout(), answer.Letter)
		}
		if _, err = fmt.Fprintf(cmd.OutOrStdout(), "Subject: %s\n\n%s", answer.Subject, answer.Text); err == nil && answer.Empty {
			fmt.Fprintf(cmd.ErrOrStderr(), "%s: nothing has happened, and no such letter would be sent by itself\n", cmd.CommandPath())
		}
		return err
	}
	configFlag(cmd, &path)
	cmd.Flags().StringVar(&since, "since", "", "begin at `TIME`: so long ago, such as 7d or 12h, or a date; report.every ago if it is not said")
	cmd.Flags().BoolVar(&send, "send", false, "send it to report.to")
	cmd.Flags().BoolVar(&asJSON, "json", false, "one JSON object")
	return cmd
}

// reportOfFiles is the letter where no daemon runs.
func reportOfFiles(ctx context.Context, c config.Config, since, until time.Time) (httpapi.ReportAnswer, error) {
	resolver, err := daemon.NewResolver(c.Auth, nil)
	if err != nil {
		return httpapi.ReportAnswer{}, err
	}
	l, err := letter.Gather(ctx, daemon.ReportFiles(c, resolver), since, until)
	if err != nil {
		return httpapi.ReportAnswer{}, control.HistoryError(c, err)
	}
	l.Notes = append(l.Notes, "no daemon runs, so that nothing is known of how the lists were loaded")
	return httpapi.NewReportAnswer(l), nil
}

func sendReport(cmd *cobra.Command, c config.Config, since time.Time, asJSON bool) error {
	if c.Report.To == "" {
		return daemon.ErrNoRecipient
	}
	sent, err := control.SendReport(cmd.Context(), c, since, userName())
	if errors.Is(err, control.ErrNoDaemon) {
		var answer httpapi.ReportAnswer
		if answer, err = reportOfFiles(cmd.Context(), c, since, time.Now()); err == nil {
			err = c.Journal().Add(httpapi.ReportLine(userName(), c.Report.To))
		}
		if err == nil {
			sent.Deliveries, err = daemon.NewPostman(c).Send(cmd.Context(), &answer.Letter, "")
		}
	}
	if err != nil {
		return err
	}
	if asJSON {
		return term.JSON(cmd.OutOrStdout(), sent)
	}
	refused := 0
	for _, d := range sent.Deliveries {
		word := "sent to"
		if !d.Accepted {
			word = "refused for"
			refused++
		}
		if _, err := fmt.Fprintf(cmd.OutOrStdout(), "%s %s: %s\n", word, term.Visible(d.Recipient), term.Visible(d.Reply)); err != nil {
			return err
		}
	}
	if refused > 0 {
		return answer(exitFault)
	}
	return nil
}

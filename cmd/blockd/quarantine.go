package main

import (
	"cmp"
	"fmt"
	"io"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"blockd/cmd/blockd/internal/config"
	"blockd/cmd/blockd/internal/control"
	"blockd/doors/httpapi"
	"blockd/index/live"
	"blockd/internal/term"
	"blockd/records/quarantine"
)

func newQuarantine() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "quarantine [-c config.toml] list|show|release|purge",
		Short: "look through mail that was set aside",
		Long: `Show, release and remove the mail that the SMTP filter has set aside: in the folder
smtp.quarantine, by lists with on_match = "quarantine". What the milter sets aside is
in the mail server's own queue (postqueue -p, postsuper -H).

The daemon is asked; where none runs, the folder is read. A message is named by its ID
or by a beginning of it that no other has.`,
		Example: `  blockd quarantine list --recipient boss@
  blockd quarantine show 1795629598.M123456
  blockd quarantine release 1795629598.M123456
  blockd quarantine purge --older 30d`,
		RunE: func(*cobra.Command, []string) error { return usagef("want list, show, release or purge") },
	}
	for _, sub := range []*cobra.Command{newQuarantineList(), newQuarantineShow(), newQuarantineRelease(), newQuarantinePurge()} {
		sub.DisableFlagsInUseLine = true
		cmd.AddCommand(sub)
	}
	return cmd
}

func newQuarantineList() *cobra.Command {
	var path string
	var since, older string
	var limit int
	var asJSON bool
	cmd := &cobra.Command{
		Use:   "list [-c config.toml] [--sender PART] [--recipient PART] [--list PART] [--since 7d] [--older 30d] [--limit N] [--json]",
		Short: "show what was set aside, the newest first",
		Long: `Show the messages in quarantine, the newest first, and how full it is. PART is any part
of the text, in any case; a sender is looked for in the envelope and in From.

Ends with 0 if something is found, 1 if nothing is, 2 on an error.`,
		Args: noArgs,
	}
	cmd.RunE = answering(func(cmd *cobra.Command, _ []string) error {
		c, err := config.Load(path)
		if err != nil {
			return err
		}
		ask := url.Values{"limit": {strconv.Itoa(limit)}}
		for _, name := range []string{"sender", "recipient", "list"} {
			if part := cmd.Flag(name).Value.String(); part != "" {
				ask.Set(name, part)
			}
		}
		if since != "" {
			from, err := parseSince(since, time.Now())
			if err != nil {
				return err
			}
			ask.Set("since", from.UTC().Format(time.RFC3339))
		}
		if older != "" {
			before, err := olderThan(older)
			if err != nil {
				return err
			}
			ask.Set("before", before.UTC().Format(time.RFC3339))
		}
		if limit < 1 || limit > quarantine.MaxFound {
			return usagef("--limit: want 1 to %d, have %d", quarantine.MaxFound, limit)
		}
		all, err := control.Quarantined(cmd.Context(), c, ask)
		if err != nil {
			return err
		}
		return printQuarantined(cmd, all, asJSON)
	})
	configFlag(cmd, &path)
	cmd.Flags().String("sender", "", "those with the sender `PART`")
	cmd.Flags().String("recipient", "", "those with the recipient `PART`")
	cmd.Flags().String("list", "", "those of the list `PART`")
	must(cmd.RegisterFlagCompletionFunc("list", completion(&path, listNames)))
	cmd.Flags().StringVar(&since, "since", "", "those since `TIME`: so long ago, such as 7d or 12h, or a date, such as 2027-01-31")
	cmd.Flags().StringVar(&older, "older", "", "those that were set aside longer than a `TIME` ago, such as 30d")
	cmd.Flags().IntVar(&limit, "limit", httpapi.DefaultQuarantined, "`N` at most, up to 1000")
	cmd.Flags().BoolVar(&asJSON, "json", false, "one JSON object a message")
	return cmd
}

// olderThan is the time before which something was, to be so old.
func olderThan(text string) (time.Time, error) {
	age, err := live.ParseLife(text)
	if err != nil {
		return time.Time{}, usagef("--older: want how long, such as 30d or 12h, have %q", text)
	}
	return time.Now().Add(-age), nil
}

func printQuarantined(cmd *cobra.Command, all httpapi.QuarantineList, asJSON bool) (err error) {
	out, notes := cmd.OutOrStdout(), cmd.ErrOrStderr()
	switch {
	case asJSON:
		err = term.JSONLines(out, all.Messages)
	case len(all.Messages) > 0:
		p := term.NewPaint(out)
		var t term.Table
		t.Add(p.Faint("id"), p.Faint("set aside"), p.Faint("sender"), p.Faint("recipient"), p.Faint("list"), p.Faint("size"), p.Faint("subject"))
		for _, m := range all.Messages {
			t.Add(term.Visible(shortID(m.ID, all.Messages)), term.Moment(m.Kept), shownSender(m), shownRecipients(m), term.Visible(strings.Join(m.Lists, " ")),
				term.Octets(m.Size), marked(p, m)+term.Visible(m.Subject))
		}
		err = t.Print(out, 5)
	}
	if all.Next != "" {
		fmt.Fprintf(notes, "%s: note: there are more; --limit shows up to %d, or narrow it by --since and others\n", cmd.CommandPath(), quarantine.MaxFound)
	}
	if all.MaxCount > 0 && !asJSON {
		near := ""
		if all.NearlyFull {
			near = "nearly full: "
		}
		fmt.Fprintf(notes, "%s: %s%s of at most %s, %s of %s\n", cmd.CommandPath(), near, term.Counted(all.Count, "message"), term.Grouped(all.MaxCount), term.Octets(all.Octets), term.Octets(all.MaxOctets))
	}
	if len(all.Messages) == 0 && err == nil {
		fmt.Fprintf(notes, "%s: nothing found\n", cmd.CommandPath())
		return answer(exitFault)
	}
	return err
}

// shortID is the beginning of an ID with its time, unless another of these begins so too.
func shortID(id string, among []quarantine.Message) string {
	seconds, rest, _ := strings.Cut(id, ".")
	digits := strings.TrimLeft(strings.TrimPrefix(rest, "M"), "0123456789")
	short := seconds + "." + strings.TrimSuffix(rest, digits)
	if digits == rest {
		return id
	}
	for _, m := range among {
		if m.ID != id && strings.HasPrefix(m.ID, short) {
			return id
		}
	}
	return short
}

func shownSender(m quarantine.Message) string {
	if m.Foreign {
		return "-"
	}
	return cmp.Or(term.Visible(m.Sender), "<>")
}

func shownRecipients(m quarantine.Message) string {
	switch n := len(m.Recipients); n {
	case 0:
		return "-"
	case 1:
		return term.Visible(m.Recipients[0])
	default:
		return fmt.Sprintf("%s and %d more", term.Visible(m.Recipients[0]), n-1)
	}
}

// marked says before the subject what is to be known before a release.
func marked(p term.Paint, m quarantine.Message) string {
	switch {
	case m.Foreign:
		return p.Yellow("(another program's file) ")
	case m.Unsure != nil:
		return p.Yellow("(perhaps released) ")
	}
	return ""
}

func newQuarantineShow() *cobra.Command {
	var path string
	var raw, asJSON bool
	cmd := &cobra.Command{
		Use:   "show [-c config.toml] [--raw | --json] ID",
		Short: "show what a message in quarantine says, as text",
		Long: `Show a message in quarantine: for whom it was, its header, and the first text in it.
Nothing in it is rendered, and nothing reaches the terminal that it would act on. With --raw
the file as it is, for another program.`,
		Args: oneID,
	}
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		c, err := config.Load(path)
		switch {
		case err != nil:
			return err
		case raw && asJSON:
			return usagef("want --raw or --json, not both")
		case raw:
			return control.CopyQuarantined(cmd.Context(), c, args[0], cmd.OutOrStdout())
		}
		text, err := control.QuarantinedText(cmd.Context(), c, args[0])
		if err != nil {
			return err
		}
		if asJSON {
			return term.JSON(cmd.OutOrStdout(), text)
		}
		return printQuarantinedText(cmd.OutOrStdout(), text)
	}
	configFlag(cmd, &path)
	cmd.Flags().BoolVar(&raw, "raw", false, "the file as it is; beware of terminals")
	cmd.Flags().BoolVar(&asJSON, "json", false, "print the answer of /v1/quarantine/message")
	return cmd
}

func oneID(_ *cobra.Command, args []string) error {
	if len(args) != 1 {
		return usagef("want one ID, which blockd quarantine list shows")
	}
	return nil
}

func printQuarantinedText(w io.Writer, m quarantine.Content) error {
	p := term.NewPaint(w)
	var b strings.Builder
	field := func(name, value string) { fmt.Fprintf(&b, "%s %s\n", p.Faint(fmt.Sprintf("%-10s", name)), value) }
	field("id", term.Visible(m.ID))
	field("set aside", fmt.Sprintf("%s, %s ago", term.Moment(m.Kept), term.Span(time.Since(m.Kept))))
	if m.Foreign {
		field("envelope", p.Yellow("not known: another program's file, which cannot be released"))
	} else {
		field("sender", shownSender(m.Message))
		for _, r := range m.Recipients {
			field("recipient", term.Visible(r))
		}
	}
	for _, list := range m.Lists {
		field("list", term.Visible(list))
	}
	if m.Ref != "" {
		field("decision", "blockd history --ref "+term.Word(m.Ref))
	}
	if m.Unsure != nil {
		field("released", p.Yellow("perhaps, at "+term.Moment(*m.Unsure)+": it was cut off when the next server may have had it"))
	}
	for _, part := range m.Parts {
		field("part", term.Visible(strings.TrimSpace(part.Type+" "+part.Name)))
	}
	b.WriteString("\n")
	writeLines(&b, m.Header)
	b.WriteString("\n")
	writeLines(&b, m.Body)
	if m.Cut {
		b.WriteString(p.Faint("(more is not shown; --raw writes all of it)") + "\n")
	}
	_, err := io.WriteString(w, b.String())
	return err
}

// writeLines writes a stranger's text, safe for a terminal.
func writeLines(b *strings.Builder, text string) {
	for line := range strings.Lines(text) {
		line = strings.TrimRight(line, "\r\n")
		for i, part := range strings.Split(line, "\t") {
			if i > 0 {
				b.WriteByte('\t')
			}
			b.WriteString(term.Visible(part))
		}
		b.WriteByte('\n')
	}
}

func newQuarantineRelease() *cobra.Command {
	var path string
	var again, asJSON bool
	cmd := &cobra.Command{
		Use:   "release [-c config.toml] [--again] [--json] ID...",
		Short: "send messages in quarantine on to their recipients",
		Long: `Send messages on to the next server, each from its own sender to the recipients it was
meant for, and remove what that has taken. For recipients that it refuses a message stays.

A release is never repeated by itself: if one is cut off when the next server may have had
the message, look there, and use --again if it has not.

To let the sender in from now on, add an exception: blockd add SENDER --action allow.

Ends with 1 if one of them was not released for all its recipients.`,
		Args: wantIDs,
	}
	cmd.RunE = func(cmd *cobra.Command, ids []string) error {
		c, err := config.Load(path)
		if err != nil {
			return err
		}
		left := false
		var all []quarantine.Released
		for _, id := range ids {
			done, err := control.Release(cmd.Context(), c, id, userName(), again)
			if err != nil {
				return err
			}
			left = left || done.Left
			if all = append(all, done); !asJSON {
				printReleased(cmd.OutOrStdout(), done)
			}
		}
		if asJSON {
			err = term.JSONLines(cmd.OutOrStdout(), all)
		}
		if left && err == nil {
			err = answer(exitFault)
		}
		return err
	}
	configFlag(cmd, &path)
	cmd.Flags().BoolVar(&again, "again", false, "also if the next server may have it already")
	cmd.Flags().BoolVar(&asJSON, "json", false, "one JSON object a message")
	return cmd
}

func wantIDs(_ *cobra.Command, args []string) error {
	if len(args) == 0 {
		return usagef("want an ID, which blockd quarantine list shows")
	}
	return nil
}

func printReleased(w io.Writer, done quarantine.Released) {
	for _, a := range done.Deliveries {
		word := "released"
		if !a.Accepted {
			word = "refused by the next server"
		}
		fmt.Fprintf(w, "%s: %s from %s: %s\n", word, term.Visible(a.Recipient), cmp.Or(term.Visible(done.Sender), "<>"), term.Visible(a.Reply))
	}
	if done.Left {
		fmt.Fprintf(w, "still in quarantine: %s\n", term.Visible(done.ID))
	}
}

func newQuarantinePurge() *cobra.Command {
	var path, older string
	var asJSON bool
	cmd := &cobra.Command{
		Use:   "purge [-c config.toml] [--json] --older 30d | ID...",
		Short: "remove mail from quarantine, for good",
		Long: `Remove all messages that were set aside longer ago than a time, or those that are named.
Nobody is told. A message that is being released is left.`,
		Example: `  blockd quarantine purge --older 30d`,
	}
	cmd.RunE = func(cmd *cobra.Command, ids []string) error {
		if (older == "") == (len(ids) == 0) {
			return usagef("want --older, such as 30d, or an ID, and not both")
		}
		c, err := config.Load(path)
		if err != nil {
			return err
		}
		sum := quarantine.Removed{}
		remove := func(id string, before time.Time) error {
			done, err := control.Purge(cmd.Context(), c, id, before, userName())
			sum.Messages, sum.Octets, sum.Busy = sum.Messages+done.Messages, sum.Octets+done.Octets, sum.Busy+done.Busy
			return err
		}
		if older != "" {
			before, err := olderThan(older)
			if err != nil {
				return err
			}
			if err := remove("", before); err != nil {
				return err
			}
		}
		for _, id := range ids {
			if err := remove(id, time.Time{}); err != nil {
				return err
			}
		}
		if asJSON {
			return term.JSON(cmd.OutOrStdout(), sum)
		}
		fmt.Fprintf(cmd.OutOrStdout(), "removed %s, %s\n", term.Counted(sum.Messages, "message"), term.Octets(sum.Octets))
		if sum.Busy > 0 {
			fmt.Fprintf(cmd.ErrOrStderr(), "%s: note: left %s that somebody is releasing\n", cmd.CommandPath(), term.Counted(sum.Busy, "message"))
		}
		return nil
	}
	configFlag(cmd, &path)
	cmd.Flags().StringVar(&older, "older", "", "those that were set aside longer than a `TIME` ago, such as 30d or 12h")
	cmd.Flags().BoolVar(&asJSON, "json", false, "print the answer of /v1/quarantine")
	return cmd
}

package main

import (
	"bytes"
	"cmp"
	"context"
	"net/netip"
	"runtime"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"blockd/index"
	"blockd/internal/term"
	"blockd/policy"
	"blockd/verdict"
)

func newCheck() *cobra.Command {
	var path, file, client, recipient string
	var mail mailQuestion
	var asJSON, explain bool
	cmd := &cobra.Command{
		Use:   "check [-c config.toml | -i FILE.bdx] [--json] [--explain] [--client IP] [--recipient ADDRESS] SENDER... | - | --message FILE",
		Short: "say whether senders are listed, where, and what would be answered",
		Long: `Look senders up in the compiled index, by the rules that the daemon refuses by.
With - one sender a line is read from standard input and answered in order; an
empty line is the null sender <>.

An IP address asks about a client, by the entries for client addresses. A name
such as bulk.test or @bulk.test asks what all senders at that domain have in
common: entries for the domain and those above it; entries for single addresses,
local-parts and patterns have no part in that. With --client each argument is a
sender, and the answer is about its mail from that client. With --recipient it is
about mail to that recipient: by the lists of its [[policy]], and a recipient that
everybody may write to gets all of it.

A line of output has five columns, separated by tabs: what was asked in canonical
form, blocked, allowed, clear or unknown, LIST:LINE, the entry, and the reason.
Clear senders have only the first two. A match of a list in shadow mode is shown
and does not count.

With --message the whole decision about a saved message is explained: what SPF says
of --client and --helo, which signatures hold, whose they are, and which exception
counts or why it does not. DNS is asked for that, by [auth]. SENDER is the one of
MAIL FROM; without it, what stands in the message's Return-Path.

The answers are those of the index file and of the live entries. Where a running
daemon answers by another generation, a note on standard error says so.

Ends with 0 if a sender is blocked, 1 if none is, 2 on an error.`,
		Example: `  blockd check someone@bad.example
  blockd check --explain someone@bad.example
  blockd check 192.0.2.1 bad.example
  blockd check --client 192.0.2.1 someone@bad.example
  blockd check --explain --recipient postmaster@here.example someone@bad.example
  blockd check --message letter.eml --client 192.0.2.1 --helo mx.bad.example
  blockd check -i bad.bdx --json - <senders.txt | jq -r 'select(.verdict == "blocked").input'`,
		Args: func(_ *cobra.Command, args []string) error {
			if len(args) == 0 && mail.file == "" {
				return usagef("want a SENDER, or - to read them from standard input")
			}
			return nil
		},
		ValidArgsFunction: cobra.NoFileCompletions,
		RunE: answering(func(cmd *cobra.Command, args []string) error {
			var from netip.Addr
			if client != "" {
				var err error
				if from, err = netip.ParseAddr(client); err != nil {
					return usagef("--client: want an IP address, have %q", client)
				}
			}
			if mail.file == "" && mail.helo == "" {
				return check(cmd, path, file, asker{client: from, to: recipient}, args, asJSON, explain)
			}
			if mail.client = from; mail.file == "" || len(args) > 1 || recipient != "" {
				return usagef("want --message FILE with --helo, at most one SENDER, and no --recipient")
			}
			return checkMessage(cmd, path, file, mail, args, asJSON)
		}),
	}
	configFlag(cmd, &path)
	indexFlag(cmd, &file, "ask")
	cmd.Flags().StringVar(&client, "client", "", "the `IP` address that the senders' mail comes from")
	cmd.Flags().StringVar(&recipient, "recipient", "", "the `ADDRESS` that the senders' mail goes to")
	cmd.Flags().StringVar(&mail.file, "message", "", "explain the decision about the message in `FILE`; needs DNS")
	must(cmd.MarkFlagFilename("message", "eml"))
	cmd.Flags().StringVar(&mail.helo, "helo", "", "the `NAME` that the client of --message gave in EHLO")
	cmd.Flags().BoolVar(&asJSON, "json", false, "one JSON object a line")
	cmd.Flags().BoolVar(&explain, "explain", false, "show people how the answer comes about")
	return cmd
}

func check(cmd *cobra.Command, path, file string, ask asker, senders []string, asJSON, explain bool) error {
	ctx, out := cmd.Context(), cmd.OutOrStdout()
	ix, checker, _, err := openToCheck(cmd, path, file)
	if err != nil {
		return err
	}
	// A Buffer takes everything.
	print := printPlain
	switch {
	case asJSON && explain:
		print = func(dst []byte, input string, v *verdict.Verdict, answers *policy.Batch) []byte {
			b := bytes.NewBuffer(dst)
			term.JSON(b, explained(input, *v, answers))
			return b.Bytes()
		}
	case asJSON:
		print = func(dst []byte, input string, v *verdict.Verdict, _ *policy.Batch) []byte {
			return append(v.AppendJSON(dst, input), '\n')
		}
	case explain:
		p := term.NewPaint(out)
		print = func(dst []byte, input string, v *verdict.Verdict, answers *policy.Batch) []byte {
			b := bytes.NewBuffer(dst)
			explanation{w: b, paint: p, ix: ix}.print(input, *v, answers)
			return b.Bytes()
		}
	}
	ask.checker = checker
	answers := func() *answerer { return &answerer{asker: ask, print: print} }
	lines := pipeline{
		newAnswerer: answers,
		promote:     func(ctx context.Context) { ix.Promote(ctx) }, // what is wrong with the filter, look-ups tell
		workers:     runtime.GOMAXPROCS(0),
	}
	found, one := error(noneBlocked), answers()
	for _, s := range senders {
		var text []byte
		var blocked bool
		var err error
		if s == "-" {
			blocked, err = lines.run(ctx, cmd.InOrStdin(), out)
		} else {
			text, blocked, err = one.ask(nil, []string{s})
			_, writeErr := out.Write(text)
			err = cmp.Or(err, writeErr)
		}
		if blocked {
			found = nil
		}
		if err := cmp.Or(err, ctx.Err()); err != nil {
			return err
		}
	}
	return found
}

// deciding returns the match to show for a verdict: the one that decided, or
// else the one that would have, had its list counted.
func deciding(v *verdict.Verdict) (m *index.Match, shadow, ok bool) {
	switch {
	case v.Decider >= 0:
		return &v.Matches[v.Decider], false, true
	case v.Shadow >= 0:
		return &v.Matches[v.Shadow], true, true
	}
	return nil, false, false
}

// exempts reports whether v blocks mail that its recipient has all the same.
func exempts(v *verdict.Verdict) bool {
	return v.Recipient != "" && v.Kind == verdict.Blocked && v.Outcome == policy.Accept.String()
}

// printPlain prints the five columns. Nothing in them has a tab or a line end.
func printPlain(dst []byte, input string, v *verdict.Verdict, _ *policy.Batch) []byte {
	dst = append(append(dst, shownSubject(input, v)...), '\t')
	dst = append(append(dst, v.Kind...), '\t')
	entry, reason := "", ""
	if m, shadow, ok := deciding(v); ok {
		dst = append(append(dst, v.Lists[m.Row].Source.List...), ':')
		dst = strconv.AppendInt(dst, int64(m.Line), 10)
		entry, reason = m.Name(), m.Reason
		if shadow {
			reason = strings.TrimSpace("shadow " + reason)
		}
	}
	switch {
	case v.Kind == verdict.Unknown:
		reason = v.Err.Error()
	case exempts(v):
		reason = "everybody may write to " + v.Recipient
	}
	dst = append(append(dst, '\t'), term.Visible(entry)...)
	dst = append(append(dst, '\t'), term.Visible(reason)...)
	return append(dst, '\n')
}

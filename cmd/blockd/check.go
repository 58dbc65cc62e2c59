package main

import (
	"cmp"
	"context"
	"net/netip"
	"runtime"

	"github.com/spf13/cobra"

	"blockd/internal/term"
	"blockd/policy/printout"
)

func newCheck() *cobra.Command {
	var path, file, client, recipient, message, helo string
	var asJSON, explain, alone bool
	cmd := &cobra.Command{
		Use:   "check [-c config.toml [--file] | -i FILE.bdx] [--json] [--explain] [--client IP] [--recipient ADDRESS] SENDER... | - | --message FILE",
		Short: "say whether senders are listed, where, and what would be answered",
		Long: `Look senders up in the lists in service, by the rules that the daemon refuses by.
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

Where a daemon of this configuration runs, it answers, over its Unix socket: with its
lists, live entries, policies and stores. Else, and with --file or -i, the answers are
those of the index file and of the live entries on disk. A note on standard error says
when a daemon was not asked and why, and when it serves otherwise than the files have it
now. What check asks is in no count of hits.

Ends with 0 if a sender is blocked, 1 if none is, 2 on an error.`,
		Example: `  blockd check someone@bad.example
  blockd check --explain someone@bad.example
  blockd check 192.0.2.1 bad.example
  blockd check --client 192.0.2.1 someone@bad.example
  blockd check --explain --recipient postmaster@here.example someone@bad.example
  blockd check --message letter.eml --client 192.0.2.1 --helo mx.bad.example
  blockd check -i bad.bdx --json - <senders.txt | jq -r 'select(.verdict == "blocked").input'`,
		Args: func(_ *cobra.Command, args []string) error {
			if len(args) == 0 && message == "" {
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
			flags := checked{path, file, alone || file != "", from, recipient, printout.Form{JSON: asJSON, Explain: explain, Paint: term.NewPaint(cmd.OutOrStdout())}}
			if message == "" && helo == "" {
				return check(cmd, flags, args)
			}
			if message == "" || len(args) > 1 || recipient != "" {
				return usagef("want --message FILE with --helo, at most one SENDER, and no --recipient")
			}
			mail := printout.Mail{File: message, Client: from, Helo: helo}
			if len(args) == 1 {
				mail.Sender = &args[0]
			}
			return checkMessage(cmd, flags, mail)
		}),
	}
	configFlag(cmd, &path)
	indexFlag(cmd, &file, "ask")
	cmd.Flags().StringVar(&client, "client", "", "the `IP` address that the senders' mail comes from")
	cmd.Flags().StringVar(&recipient, "recipient", "", "the `ADDRESS` that the senders' mail goes to")
	cmd.Flags().StringVar(&message, "message", "", "explain the decision about the message in `FILE`; needs DNS")
	must(cmd.MarkFlagFilename("message", "eml"))
	cmd.Flags().StringVar(&helo, "helo", "", "the `NAME` that the client of --message gave in EHLO")
	cmd.Flags().BoolVar(&asJSON, "json", false, "one JSON object a line")
	cmd.Flags().BoolVar(&explain, "explain", false, "show people how the answer comes about")
	cmd.Flags().BoolVar(&alone, "file", false, "ask the index file and the files of live entries, whatever a daemon answers")
	return cmd
}

// checked are the flags of check, but those of a message.
type checked struct {
	path, file string // of the configuration; of -i, "" without
	alone      bool   // the daemon is not asked
	client     netip.Addr
	recipient  string
	form       printout.Form
}

func check(cmd *cobra.Command, flags checked, senders []string) error {
	ctx, out := cmd.Context(), cmd.OutOrStdout()
	lines := pipeline{workers: runtime.GOMAXPROCS(0), promote: func(context.Context) {}}
	daemon, why, err := findToCheck(cmd, flags)
	switch {
	case err != nil:
		return err
	case daemon != nil:
		lines.newAnswerer = func() answerer { return daemonAsker{ctx, daemon, flags} }
	default:
		ix, checker, _, err := openToCheck(cmd, flags.path, flags.file, why)
		if err != nil {
			return err
		}
		lines.newAnswerer = func() answerer {
			return &printout.Asker{Checker: checker, Client: flags.client, Recipient: flags.recipient, Form: flags.form}
		}
		lines.promote = func(ctx context.Context) { ix.Promote(ctx) } // what is wrong with the filter, look-ups tell
	}
	found, one := error(noneBlocked), lines.newAnswerer()
	for _, s := range senders {
		var text []byte
		var blocked bool
		var err error
		if s == "-" {
			blocked, err = lines.run(ctx, cmd.InOrStdin(), out)
		} else {
			text, blocked, err = one.Ask(nil, []string{s})
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

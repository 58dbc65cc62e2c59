package main

import (
	"cmp"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"blockd/cmd/blockd/internal/config"
	"blockd/cmd/blockd/internal/control"
	"blockd/doors/httpapi"
	"blockd/index/live"
	"blockd/internal/access"
	"blockd/internal/term"
	"blockd/lists"
	"blockd/mail/addr"
	"blockd/records/audit"
)

func newAdd() *cobra.Command {
	var path, why, life, until, action, author, owner string
	var force, asJSON bool
	var require []string
	cmd := &cobra.Command{
		Use:   "add [-c config.toml] [--why TEXT] [--for 30d | --until TIME] [--action block|allow] [--require spf,dkim] [--owner OWNER] [--author NAME] [--force] [--json] ENTRY...",
		Short: "block or allow senders and clients at once",
		Long: `Add live entries: they act on every door before the command ends, without a list
file and without a build, and stay until they are removed or their time is over.
An ENTRY is what a line of a plain list may be, but no pattern: an address, a name
(with all names below it; =NAME is that name alone, .NAME those below it), a
local-part (offers@), an IP address or a network. One that is there already is
replaced.

What would cover a big mailbox provider, a public suffix or this server's own
domain is refused, unless --force says that it is meant. So are blocks of this machine,
of networks that the configuration names as its own (trusted, allow_from and others),
and of everybody's postmaster@ or abuse@; and exceptions for a network wider than
IPv4 /8 or IPv6 /19.

The daemon is asked at http.socket, or else at [http] listen with the token in the
environment variable BLOCKD_TOKEN. If no daemon runs, the entry is written to the
file, and acts when one starts.`,
		Example: `  blockd add spam@bulk.example --why "phishing, ticket 4711" --for 30d
  blockd add bulk.example 192.0.2.0/24
  blockd add partner.example --action allow --why "our bank"`,
		Args:              wantEntries,
		ValidArgsFunction: cobra.NoFileCompletions,
		RunE: func(cmd *cobra.Command, entries []string) error {
			expires, err := expiry(life, until)
			if err != nil {
				return err
			}
			changes := make([]httpapi.EntryChange, len(entries))
			for i, text := range entries {
				changes[i].LiveEntry = httpapi.LiveEntry{Owner: owner, Entry: text, Action: action, Why: why, Author: authorNamed(cmp.Or(author, os.Getenv("SUDO_USER"))), Expires: expires, Force: force, Require: require}
			}
			return changeEntries(cmd, path, changes, nil, owner, "", asJSON)
		},
	}
	configFlag(cmd, &path)
	cmd.Flags().StringVar(&why, "why", "", "the reason, one line of `TEXT` for the log and for who asks")
	cmd.Flags().StringVar(&life, "for", "", "how long it acts, a `TIME` such as 30d or 12h; without it, until it is removed")
	cmd.Flags().StringVar(&until, "until", "", "the `TIME` when it ends, as 2027-01-31 or 2027-01-31T12:00:00Z")
	cmd.Flags().StringVar(&action, "action", "block", "`A`, what is to be done: block or allow")
	cmd.Flags().StringVar(&owner, "owner", "", "`OWNER`, a mailbox or a domain, for whose mail alone it acts; without it, for all")
	cmd.Flags().StringVar(&author, "author", "", "`NAME` of who adds it; without it, this user's")
	cmd.Flags().StringSliceVar(&require, "require", nil, "an exception only for mail that SPF or DKIM proves to be of this domain: `spf,dkim`")
	cmd.Flags().BoolVar(&force, "force", false, "also what the gate protects")
	cmd.Flags().BoolVar(&asJSON, "json", false, "print the answer of /v1/entries")
	return cmd
}

func newRemove() *cobra.Command {
	var path, why, owner string
	var asJSON bool
	cmd := &cobra.Command{
		Use:   "remove [-c config.toml] [--owner OWNER] [--why TEXT] [--json] ENTRY...",
		Short: "take back what was added",
		Long: `Remove live entries, at once. An ENTRY is written as it was added, in any spelling.
What stands in a list file stays there: to except it, add it with --action allow.

Each removal prints the command that undoes it. Ends with 1 if one of them was no
live entry.`,
		Example: `  blockd remove spam@bulk.example
  blockd remove 192.0.2.0/24`,
		Args:              wantEntries,
		ValidArgsFunction: completion(&path, liveEntries),
		RunE: func(cmd *cobra.Command, entries []string) error {
			return changeEntries(cmd, path, nil, entries, owner, why, asJSON)
		},
	}
	configFlag(cmd, &path)
	cmd.Flags().StringVar(&owner, "owner", "", "`OWNER` whose entry it is; without it, everybody's")
	cmd.Flags().StringVar(&why, "why", "", "a line of `TEXT` for blockd audit")
	cmd.Flags().BoolVar(&asJSON, "json", false, "print the answer of /v1/entries")
	return cmd
}

func newEntryList() *cobra.Command {
	var path, owner string
	var asJSON bool
	cmd := &cobra.Command{
		Use:   "list [-c config.toml] [--owner OWNER] [--json]",
		Short: "show what was added and acts",
		Long: `Show the live entries, the newest first: what was added by blockd add or over HTTP,
why, by whom, and until when. They are read from their file if this user may, or
else asked for as blockd add does.

What each list file is worth, blockd lists shows.`,
		Example: `  blockd list
  blockd list --json | jq -r '.entries[] | select(.author == "helpdesk").entry'`,
		Args: noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			c, err := config.Load(path)
			if err != nil {
				return err
			}
			var all httpapi.EntryList
			if owner == "" {
				all, err = control.Entries(cmd.Context(), c)
			} else if key, bad := addr.ParseOwner(owner); bad != nil {
				return usagef("--owner: %v", bad)
			} else {
				all, err = control.OwnerEntries(cmd.Context(), c, key)
			}
			if err != nil {
				return err
			}
			if asJSON {
				return term.JSON(cmd.OutOrStdout(), all)
			}
			return printEntries(cmd.OutOrStdout(), all, time.Now())
		},
	}
	configFlag(cmd, &path)
	cmd.Flags().StringVar(&owner, "owner", "", "`OWNER` whose entries are shown; without it, everybody's")
	cmd.Flags().BoolVar(&asJSON, "json", false, "print the answer of /v1/entries")
	return cmd
}

func wantEntries(_ *cobra.Command, args []string) error {
	if len(args) == 0 {
		return usagef("want an ENTRY")
	}
	return nil
}

// expiry is when an entry ends by its flags; nil: never.
func expiry(life, until string) (*time.Time, error) {
	switch {
	case life != "" && until != "":
		return nil, usagef("want --for or --until, not both")
	case life != "":
		d, err := live.ParseLife(life)
		if err != nil {
			return nil, usagef("--for: want how long, such as 30d or 12h, have %q", life)
		}
		at := time.Now().Add(d)
		return &at, nil
	case until != "":
		for _, layout := range []string{time.RFC3339, time.DateOnly} {
			if at, err := time.ParseInLocation(layout, until, time.Local); err == nil {
				return &at, nil
			}
		}
		return nil, usagef("--until: want a time such as 2027-01-31 or 2027-01-31T12:00:00Z, have %q", until)
	}
	return nil, nil
}

// userName is who uses this program: behind sudo, who called it.
func userName() string { return authorNamed(os.Getenv("SUDO_USER")) }

// authorNamed is the author of a change by this process, who calls himself so; "" = by the user's name.
func authorNamed(says string) string {
	self := access.Self()
	return audit.Author(self.Number(), cmp.Or(says, self.String()))
}

// changeEntries adds, or else removes, by the daemon if it runs, and says what has
// become of it.
func changeEntries(cmd *cobra.Command, path string, add []httpapi.EntryChange, remove []string, owner, why string, asJSON bool) error {
	c, err := config.Load(path)
	if err != nil {
		return err
	}
	done, alone, err := control.ChangeEntries(cmd.Context(), c, add, remove, owner, why, userName())
	if err != nil {
		return err
	}
	if asJSON {
		err = term.JSON(cmd.OutOrStdout(), done)
	} else {
		config := "" // the default, unless -c names another file
		if cmd.Flags().Changed("config") {
			config = path
		}
		err = printChanges(cmd.OutOrStdout(), done, remove, config)
	}
	// What is not there was not removed from the file either.
	changed := slices.ContainsFunc(done.Results, func(r httpapi.ChangeResult) bool { return r.Result != "absent" })
	if alone && changed {
		fmt.Fprintf(cmd.ErrOrStderr(), "%s: note: no daemon runs; it is in the file, and acts when one starts\n", cmd.CommandPath())
	}
	for _, r := range done.Results {
		if r.Result == "absent" && err == nil {
			err = answer(exitFault)
		}
		if c.Auth.UnverifiedAllow == "ignore" && r.Entry != nil && r.Entry.Action == lists.Allow.String() && !aboutClient(r.Entry) && len(r.Entry.Require) == 0 {
			fmt.Fprintf(cmd.ErrOrStderr(), "%s: note: %s overrides nothing: auth.unverified_allow is \"ignore\"\n", cmd.CommandPath(), term.Visible(r.Entry.Entry))
		}
	}
	return err
}

func aboutClient(e *httpapi.LiveEntry) bool {
	return e.Kind == lists.IP.String() || e.Kind == lists.CIDR.String()
}

// printChanges says what became of each change, and how to undo it with a configuration;
// "" = the usual one.
func printChanges(w io.Writer, answer httpapi.ChangeResults, asked []string, config string) error {
	var b strings.Builder
	for i, r := range answer.Results {
		switch {
		case r.Entry != nil:
			fmt.Fprintf(&b, "%s: %s\n", r.Result, shownEntry(r.Entry))
		case r.Was != nil:
			fmt.Fprintf(&b, "%s: %s\n", r.Result, shownEntry(r.Was))
		case i < len(asked):
			fmt.Fprintf(&b, "no live entry: %s\n", term.Visible(asked[i]))
		}
		if r.Was != nil && r.Result != "unchanged" {
			fmt.Fprintf(&b, "  undo: %s\n", undo(r.Was, config))
		}
	}
	_, err := io.WriteString(w, b.String())
	return err
}

func shownEntry(e *httpapi.LiveEntry) string {
	text := e.Action + " " + term.Visible(e.Entry)
	if e.Owner != "" {
		text += " for " + term.Visible(e.Owner)
	}
	if len(e.Require) > 0 {
		text += " with " + strings.Join(e.Require, " or ")
	}
	if e.Expires != nil {
		text += " until " + e.Expires.UTC().Format(time.RFC3339)
	}
	if e.Why != "" {
		text += " (" + term.Visible(e.Why) + ")"
	}
	return text
}

// undo is the command that makes e again, for a shell.
func undo(e *httpapi.LiveEntry, config string) string {
	text, option := "blockd add", strings.HasPrefix(e.Entry, "-")
	if config != "" {
		text += " -c " + term.Word(config)
	}
	if !option {
		text += " " + term.Word(e.Entry)
	}
	if e.Action != lists.Block.String() {
		text += " --action " + e.Action
	}
	if e.Owner != "" {
		text += " --owner " + term.Word(e.Owner)
	}
	if len(e.Require) > 0 {
		text += " --require " + strings.Join(e.Require, ",")
	}
	if e.Why != "" {
		text += " --why " + term.Word(e.Why)
	}
	if e.Expires != nil {
		text += " --until " + e.Expires.UTC().Format(time.RFC3339)
	}
	if e.Author != "" {
		text += " --author " + term.Word(e.Author)
	}
	if e.Force {
		text += " --force"
	}
	if option { // it would be read as one
		text += " -- " + term.Word(e.Entry)
	}
	return text
}

// printEntries prints a table, or that it would be empty.
func printEntries(w io.Writer, all httpapi.EntryList, now time.Time) error {
	if len(all.Entries) == 0 {
		_, err := fmt.Fprintln(w, "no live entries")
		return err
	}
	p := term.NewPaint(w)
	var t term.Table
	t.Add(p.Faint("entry"), p.Faint("action"), p.Faint("scope"), p.Faint("left"), p.Faint("added"), p.Faint("by"), p.Faint("why"))
	for _, e := range all.Entries {
		left := "-"
		if e.Expires != nil {
			left = term.Span(e.Expires.Sub(now))
		}
		action := e.Action
		if action == lists.Allow.String() {
			action = p.Green(action)
		}
		if len(e.Require) > 0 {
			action += " with " + strings.Join(e.Require, " or ")
		}
		added := "-"
		if e.Added != nil {
			added = term.Moment(*e.Added)
		}
		t.Add(term.Visible(e.Entry), action, e.Scope, left, added, cmp.Or(term.Visible(e.Author), "-"), term.Visible(e.Why))
	}
	return t.Print(w, 3)
}

// completedEntries bounds the completions of an entry. The shell waits for them, and more
// are not readable.
const completedEntries = 1000

// liveEntries are the words of commands that take live entries, as far as this user may
// read them.
func liveEntries(c config.Config) (entries []string) {
	set, err := control.ReadLive(c)
	if err != nil || set == nil {
		return nil
	}
	for e := range set.All() {
		if len(entries) == completedEntries {
			break
		}
		entries = append(entries, e.Text)
	}
	return entries
}

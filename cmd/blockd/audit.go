package main

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/url"
	"regexp"
	"slices"
	"strconv"
	"time"

	"github.com/spf13/cobra"

	"blockd/cmd/blockd/internal/config"
	"blockd/cmd/blockd/internal/control"
	"blockd/doors/httpapi"
	"blockd/internal/term"
	"blockd/records/audit"
)

// auditHash is the form of a line's hash.
var auditHash = regexp.MustCompile(`^[0-9a-f]{64}$`)

func newAudit() *cobra.Command {
	var path, since, until, known string
	var asJSON, verify bool
	cmd := &cobra.Command{
		Use:   "audit [-c config.toml] [--by WHO] [--action A] [--text T] [--since 7d] [--until TIME] [--limit N] [--json]  |  audit --verify [--has HASH]",
		Short: "show who has changed what, and why",
		Long: `Show what people and tokens have changed, the newest first: live entries, pauses, requests,
tokens, quarantine, the configuration. A line is on disk before its change acts.

The daemon is asked; where none runs, its files are read. [audit] says how much and how long
it keeps. Ends with 0 if something is found, 1 if nothing is, 2 on an error.

With --verify the files are read, and each line must go on from the one before it: ends with 0
if the chain is whole, and with 1 and the line where it is not. It prints the hash of the last
line; noted elsewhere, it shows later by --has that no end was cut off and nothing written anew.`,
		Example: `  blockd audit --since 7d
  blockd audit --action entry --text bank.example
  blockd audit --verify
  blockd audit --json | jq -r 'select(.by == "anna") | .subject'`,
		Args: noArgs,
	}
	cmd.RunE = answering(func(cmd *cobra.Command, _ []string) error {
		switch {
		case known != "" && !verify:
			return usagef("--has is for --verify")
		case known != "" && !auditHash.MatchString(known):
			return usagef("--has: want the 64 digits of a hash, have %q", known)
		}
		c, err := config.Load(path)
		if err != nil {
			return err
		}
		if verify {
			return verifyAudit(cmd, c, known, asJSON)
		}
		ask := url.Values{}
		for flag, name := range map[string]string{"by": "by", "action": "action", "text": "q", "limit": "limit"} {
			if f := cmd.Flag(flag); f.Value.String() != "" {
				ask.Set(name, f.Value.String())
			}
		}
		for name, text := range map[string]string{"since": since, "until": until} {
			if text == "" {
				continue
			}
			at, err := parseSince(text, time.Now())
			if err != nil {
				return err
			}
			ask.Set(name, at.UTC().Format(time.RFC3339))
		}
		if n, err := strconv.Atoi(ask.Get("limit")); err != nil || n < 1 || n > audit.MaxFound {
			return usagef("--limit: want 1 to %d, have %q", audit.MaxFound, ask.Get("limit"))
		}
		found, err := control.Audit(cmd.Context(), c, ask)
		if err != nil {
			return err
		}
		return printAudit(cmd, found, asJSON)
	})
	configFlag(cmd, &path)
	flags := cmd.Flags()
	flags.String("by", "", "those by `WHO`, or with that in the name")
	flags.String("action", "", "those with the action `A`, such as entry.add, or entry for all of entries")
	flags.String("text", "", "those with `T` in what they are about, why, or by whom")
	flags.StringVar(&since, "since", "", "those since `TIME`: so long ago, such as 7d or 12h, or a date, such as 2027-01-31")
	flags.StringVar(&until, "until", "", "those before `TIME`")
	flags.Int("limit", httpapi.DefaultAudit, "`N` at most, up to 1000")
	flags.BoolVar(&asJSON, "json", false, "one JSON object a line")
	flags.BoolVar(&verify, "verify", false, "look through the whole chain")
	flags.StringVar(&known, "has", "", "the `HASH` of a line that --verify is to find")
	must(cmd.RegisterFlagCompletionFunc("action", cobra.FixedCompletions([]string{"entry", "list", "token", "request", "quarantine", "configuration", "start", "failed"}, cobra.ShellCompDirectiveNoFileComp)))
	return cmd
}

func printAudit(cmd *cobra.Command, found httpapi.AuditList, asJSON bool) (err error) {
	out, notes := cmd.OutOrStdout(), cmd.ErrOrStderr()
	switch {
	case asJSON:
		err = term.JSONLines(out, found.Lines)
	case len(found.Lines) > 0:
		p := term.NewPaint(out)
		var t term.Table
		t.Add(p.Faint("time"), p.Faint("by"), p.Faint("action"), p.Faint("subject"), p.Faint("why"), p.Faint("detail"))
		for i := range found.Lines {
			l := &found.Lines[i]
			t.Add(term.Moment(l.Time), cmp.Or(term.Visible(l.By), "-"), term.Visible(l.Action), term.Visible(l.Subject), cmp.Or(term.Visible(l.Why), "-"), term.Visible(l.Detail))
		}
		err = t.Print(out)
	}
	if found.Next != "" {
		fmt.Fprintf(notes, "%s: note: there are more; --limit shows up to %d, or narrow it by --until and others\n", cmd.CommandPath(), audit.MaxFound)
	}
	if found.Damaged > 0 {
		fmt.Fprintf(notes, "%s: note: left out %s; --verify says where\n", cmd.CommandPath(), term.Counted(found.Damaged, "damaged line"))
	}
	if len(found.Lines) == 0 && err == nil {
		fmt.Fprintf(notes, "%s: nothing found\n", cmd.CommandPath())
		return answer(exitFault)
	}
	return err
}

// verified is what audit --verify --json prints.
type verified struct {
	Whole  bool       `json:"whole"`
	Lines  int64      `json:"lines"`
	First  *time.Time `json:"first,omitempty"`
	Last   *time.Time `json:"last,omitempty"`
	Origin string     `json:"origin,omitempty"` // where older lines have been removed by [audit] max or keep
	Hash   string     `json:"hash,omitempty"`
	Fault  string     `json:"fault,omitempty"`

	Gone map[string]int64 `json:"gone,omitempty"` // lines that gave room to those of others, by who was authenticated
}

func verifyAudit(cmd *cobra.Command, c config.Config, known string, asJSON bool) error {
	out := cmd.OutOrStdout()
	chain, err := control.VerifyAudit(cmd.Context(), c, known)
	v := verified{Whole: true, Lines: chain.Lines, Origin: chain.Origin, Hash: chain.Hash, Gone: chain.Gone}
	if chain.Lines > 0 {
		v.First, v.Last = &chain.First, &chain.Last
	}
	switch broken, isBroken := errors.AsType[*audit.Broken](err); {
	case isBroken:
		v.Whole, v.Fault = false, broken.Error()
	case err != nil:
		return err
	case known != "" && !chain.Has:
		v.Whole, v.Fault = false, fmt.Sprintf("no line has the hash %s: an end was cut off, or the journal written anew, or the line is older than what is kept", known)
	}
	switch {
	case asJSON:
		err = term.JSON(out, v)
	case !v.Whole:
		_, err = fmt.Fprintln(out, v.Fault)
	case v.Lines == 0:
		_, err = fmt.Fprintln(out, "whole: there is no line yet")
	default:
		_, err = fmt.Fprintf(out, "whole: %s from %s to %s\nthe last line has the hash %s\n", term.Counted(int(v.Lines), "line"), term.Moment(chain.First), term.Moment(chain.Last), v.Hash)
		if v.Origin != "" && err == nil {
			_, err = io.WriteString(out, "older lines are gone by audit.max or audit.keep\n")
		}
		for _, who := range slices.Sorted(maps.Keys(v.Gone)) {
			if err == nil {
				_, err = fmt.Fprintf(out, "the oldest lines of %s are gone by audit.max: %s\n", term.Visible(who), term.Grouped(v.Gone[who]))
			}
		}
	}
	if chain.Unfinished && v.Whole {
		fmt.Fprintf(cmd.ErrOrStderr(), "%s: note: an unfinished line at the end, whose change was not made; the next one cuts it\n", cmd.CommandPath())
	}
	if err == nil && !v.Whole {
		return answer(exitFault)
	}
	return err
}

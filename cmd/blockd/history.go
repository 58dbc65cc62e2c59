package main

import (
	"fmt"
	"io"
	"net/url"
	"time"

	"github.com/spf13/cobra"

	"blockd/cmd/blockd/internal/config"
	"blockd/cmd/blockd/internal/control"
	"blockd/doors/httpapi"
	"blockd/internal/term"
	"blockd/policy"
	"blockd/records/history"
)

func newHistory() *cobra.Command {
	var path string
	var asJSON, fleet bool
	var flags *decisionFlags
	cmd := &cobra.Command{
		Use:   "history [-c config.toml] [--ref REF] [--sender WHO] [--recipient WHO] [--client NET] [--list NAME] [--verdict V] [--outcome O] [--since 7d] [--limit N] [--fleet] [--json]",
		Short: "show past decisions, and why a mail was refused",
		Long: `Show what was decided about past mail, the newest first. With the reference of a
refusal ("ref ...", in the bounce), everything about that one.

WHO is an address, or a domain for all addresses at it; <> is the null sender.
Verdicts are blocked, allowed, clear and unknown; outcomes are accept, refuse, defer,
quarantine, tag, discard and listed (what a program was told); mail is all but listed.

With --fleet all nodes of the fleet are asked, and those that do not answer are named.
Else the daemon is asked; where none runs, its files are read. [history] says how much and
how long it keeps. Ends with 0 if something is found, 1 if nothing is, 2 on an error.`,
		Example: `  blockd history --ref 3mg17kdgtb
  blockd history --sender bulk.example --since 7d
  blockd history --recipient boss@here.example --outcome refuse
  blockd history --list own --json | jq -r .sender | sort | uniq -c`,
		Args: noArgs,
		RunE: answering(func(cmd *cobra.Command, _ []string) error {
			if fleet {
				return showFleetHistory(cmd, path, flags, asJSON)
			}
			c, err := config.Load(path)
			if err != nil {
				return err
			}
			ask, err := flags.parameters()
			if err != nil {
				return err
			}
			found, err := control.Decisions(cmd.Context(), c, ask)
			if err != nil {
				return err
			}
			return printFound(cmd, found, ask.Has("ref"), asJSON)
		}),
	}
	configFlag(cmd, &path)
	flags = addDecisionFlags(cmd, &path)
	cmd.Flags().Int("limit", httpapi.DefaultDecisions, "`N` at most, up to 1000")
	cmd.Flags().BoolVar(&asJSON, "json", false, "one JSON object a decision")
	cmd.Flags().BoolVar(&fleet, "fleet", false, "ask all nodes of the fleet that say where (fleet.address)")
	top := newHistoryTop()
	top.DisableFlagsInUseLine = true
	cmd.AddCommand(top)
	return cmd
}

// decisionFlags are the flags that select decisions.
type decisionFlags struct {
	cmd   *cobra.Command
	since string
}

func addDecisionFlags(cmd *cobra.Command, path *string) *decisionFlags {
	f, flags := &decisionFlags{cmd: cmd}, cmd.Flags()
	flags.String("ref", "", "the decision with the reference `REF`")
	flags.String("sender", "", "those with the sender `WHO`")
	flags.String("recipient", "", "those with the recipient `WHO`")
	flags.String("client", "", "those about the client `NET`, an address or a network")
	flags.String("list", "", "those that the list `NAME` had the entry for")
	must(cmd.RegisterFlagCompletionFunc("list", completion(path, listNames)))
	flags.String("verdict", "", "those with the verdict `V`")
	flags.String("outcome", "", "those with the outcome `O`")
	flags.StringVar(&f.since, "since", "", "those since `TIME`: so long ago, such as 7d or 12h, or a date, such as 2027-01-31")
	return f
}

// parameters are those of /v1/decisions that the flags mean.
func (f *decisionFlags) parameters() (url.Values, error) {
	ask := url.Values{}
	for _, name := range []string{"ref", "sender", "recipient", "client", "list", "verdict", "outcome", "limit"} {
		if flag := f.cmd.Flag(name); flag != nil && flag.Value.String() != "" {
			ask.Set(name, flag.Value.String())
		}
	}
	if f.since != "" {
		from, err := parseSince(f.since, time.Now())
		if err != nil {
			return nil, err
		}
		ask.Set("since", from.UTC().Format(time.RFC3339))
	}
	if _, err := httpapi.ParseDecisionQuery(ask); err != nil {
		return nil, usagef("--%v", err)
	}
	return ask, nil
}

func printFound(cmd *cobra.Command, found httpapi.DecisionList, whole, asJSON bool) (err error) {
	out, notes := cmd.OutOrStdout(), cmd.ErrOrStderr()
	switch {
	case asJSON:
		err = term.JSONLines(out, found.Decisions)
	case whole:
		err = explainDecisions(out, found)
	case len(found.Decisions) > 0:
		err = printDecisions(out, found.Decisions)
	}
	if found.More {
		fmt.Fprintf(notes, "%s: note: there are more; --limit shows up to %d, or narrow it by --since and others\n", cmd.CommandPath(), history.MaxFound)
	}
	noteDamaged(cmd, found.Damaged)
	if len(found.Decisions) == 0 && err == nil {
		fmt.Fprintf(notes, "%s: nothing found\n", cmd.CommandPath())
		return answer(exitFault)
	}
	return err
}

func noteDamaged(cmd *cobra.Command, lines int) {
	if lines > 0 {
		fmt.Fprintf(cmd.ErrOrStderr(), "%s: note: left out %s of the files\n", cmd.CommandPath(), term.Counted(lines, "damaged line"))
	}
}

// printDecisions prints a line for each.
func printDecisions(w io.Writer, all []history.Record) error { return printDecisionsOf(w, all, nil) }

// printDecisionsOf prints a line for each, with the node that has made it, if nodes has them.
func printDecisionsOf(w io.Writer, all []history.Record, nodes []string) error {
	p := term.NewPaint(w)
	var t term.Table
	head := []string{"time", "outcome", "sender", "recipient", "client", "by", "ref"}
	if nodes != nil {
		head = append(head, "node")
	}
	t.Add(head...)
	for i := range all {
		r := &all[i]
		by := "-"
		switch {
		case r.FirstSeen:
			by = "first seen"
		case r.List != "":
			by = fmt.Sprintf("%s:%d %s", term.Visible(r.List), r.Line, term.Visible(r.Entry))
		}
		outcome := r.Outcome
		switch {
		case outcome != "accept":
			outcome = p.Red(outcome)
		case r.Exempt:
			outcome += " (exempt)"
		case r.Shadow:
			outcome += " (shadow)"
		case r.Excused():
			outcome += " (policy)"
		}
		if r.Repeated > 0 {
			outcome += fmt.Sprintf(" (%d times)", r.Repeated)
		}
		row := []string{r.Time.Local().Format("2006-01-02 15:04:05"), outcome, shownAddress(r.Sender), orDash(r.Recipient), shownClient(r), by, orDash(r.Ref)}
		if nodes != nil {
			row = append(row, term.Visible(nodes[i]))
		}
		t.Add(row...)
	}
	return t.Print(w)
}

// explainDecisions says everything about each.
func explainDecisions(w io.Writer, found httpapi.DecisionList) error {
	for i := range found.Decisions {
		if i > 0 {
			fmt.Fprintln(w)
		}
		if err := explainDecision(w, &found.Decisions[i], found.Lists); err != nil {
			return err
		}
	}
	return nil
}

func explainDecision(w io.Writer, r *history.Record, origins []policy.ListOrigin) error {
	p := term.NewPaint(w)
	var t term.Table
	say := func(name, text string) {
		if text != "" {
			t.Add(p.Faint(name), text)
		}
	}
	say("ref", term.Visible(r.Ref))
	say("time", r.Time.Local().Format("2006-01-02 15:04:05.000 -07:00"))
	say("outcome", outcomeText(r))
	say("door", term.Visible(r.Door))
	say("client", shownClient(r))
	say("helo", term.Visible(r.Helo))
	sender := shownAddress(r.Sender)
	if r.Source != "" {
		sender += " (in the header field " + term.Visible(r.Source) + ")"
	}
	if r.Correspondent {
		sender += ", to whom your users write"
	}
	say("sender", sender)
	say("recipient", term.Visible(r.Recipient))
	say("verdict", term.Visible(r.Verdict))
	if r.List != "" {
		say("list", term.Visible(r.List))
		say("entry", fmt.Sprintf("%s (%s, %s)", term.Visible(r.Entry), term.Visible(r.Action), term.Visible(r.Scope)))
		say("stands in", fmt.Sprintf("%s:%d", term.Path(r.File), r.Line))
		say("reason", term.Visible(r.Reason))
	}
	for _, o := range origins {
		if o.List == r.List {
			say("from", term.Visible(o.About().String()))
		}
	}
	say("generation", term.Visible(r.Generation))
	return t.Print(w)
}

// outcomeText says in words what became of it.
func outcomeText(r *history.Record) string {
	text := map[string]string{"accept": "accepted", "refuse": "refused", "defer": "deferred: it may come again",
		"quarantine": "taken, and set aside", "tag": "accepted, with a mark in its header", "discard": "taken, and dropped",
		"listed": "a program was told that a list has it; what it did is not known here"}[r.Outcome]
	switch {
	case text == "":
		text = term.Visible(r.Outcome)
	case r.Pardoned:
		text += ": a list has it, and it passed as a correspondent with proof (correspondents.excuse)"
	case r.FirstSeen:
		text += ": the sender's domain had not sent mail here before ([first_seen])"
	case r.Outcome == "refuse" && r.List == "":
		text += ": no list is the reason but a rule of [smtp], which the log has with this reference"
	case r.Exempt:
		text += ": everybody may write to this recipient"
	case r.Shadow:
		text += ": the list does not count, and would have refused it"
	case r.Unasked && r.Outcome == "accept":
		text += ": the store of a list could not be asked about the sender"
	case r.Unasked && r.Outcome == "defer":
		text += ", since the store of a list could not be asked about the sender"
	case r.Excused():
		text += ": the list is not one of this recipient's [[policy]], and would have refused it"
	case r.Authenticated:
		text += ": the client had logged in, so that only its address was asked about"
	}
	if r.Repeated > 0 {
		text += fmt.Sprintf("; repeated %d times within a minute, with this reference, and this was the last", r.Repeated)
	}
	if r.Several {
		text += ", of several recipients"
	}
	return text
}

func shownAddress(address string) string {
	if address == "" {
		return "<>"
	}
	return term.Visible(address)
}

func shownClient(r *history.Record) string {
	if !r.Client.IsValid() {
		return "-"
	}
	return r.Client.String()
}

func orDash(text string) string {
	if text == "" {
		return "-"
	}
	return term.Visible(text)
}

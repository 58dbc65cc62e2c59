package main

import (
	"cmp"
	"fmt"
	"io"
	"strings"
	"time"

	"blockd/httpapi"
	"blockd/internal/term"
	"blockd/lists"
)

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
		text += " -c " + quoted(config)
	}
	if !option {
		text += " " + quoted(e.Entry)
	}
	if e.Action != lists.Block.String() {
		text += " --action " + e.Action
	}
	if e.Why != "" {
		text += " --why " + quoted(e.Why)
	}
	if e.Expires != nil {
		text += " --until " + e.Expires.UTC().Format(time.RFC3339)
	}
	if e.Author != "" {
		text += " --author " + quoted(e.Author)
	}
	if e.Force {
		text += " --force"
	}
	if option { // it would be read as one
		text += " -- " + quoted(e.Entry)
	}
	return text
}

// quoted is a text as one word of a shell.
func quoted(s string) string {
	if s != "" && plainName(s) {
		return s
	}
	return "'" + strings.ReplaceAll(term.Visible(s), "'", `'\''`) + "'"
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
		added := "-"
		if e.Added != nil {
			added = term.Moment(*e.Added)
		}
		t.Add(term.Visible(e.Entry), action, e.Scope, left, added, cmp.Or(term.Visible(e.Author), "-"), term.Visible(e.Why))
	}
	return t.Print(w, 3)
}

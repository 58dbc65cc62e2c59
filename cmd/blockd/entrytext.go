package main

import (
	"cmp"
	"fmt"
	"io"
	"strings"
	"time"

	"blockd/httpapi"
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
			fmt.Fprintf(&b, "no live entry: %s\n", visible(asked[i]))
		}
		if r.Was != nil && r.Result != "unchanged" {
			fmt.Fprintf(&b, "  undo: %s\n", undo(r.Was, config))
		}
	}
	_, err := io.WriteString(w, b.String())
	return err
}

func shownEntry(e *httpapi.LiveEntry) string {
	text := e.Action + " " + visible(e.Entry)
	if e.Expires != nil {
		text += " until " + e.Expires.UTC().Format(time.RFC3339)
	}
	if e.Why != "" {
		text += " (" + visible(e.Why) + ")"
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
	return "'" + strings.ReplaceAll(visible(s), "'", `'\''`) + "'"
}

// printEntries prints a table, or that it would be empty.
func printEntries(w io.Writer, all httpapi.EntryList, now time.Time) error {
	if len(all.Entries) == 0 {
		_, err := fmt.Fprintln(w, "no live entries")
		return err
	}
	p := newPaint(w)
	t := table{}
	t.add(p.faint("entry"), p.faint("action"), p.faint("scope"), p.faint("left"), p.faint("added"), p.faint("by"), p.faint("why"))
	for _, e := range all.Entries {
		left := "-"
		if e.Expires != nil {
			left = span(e.Expires.Sub(now))
		}
		action := e.Action
		if action == lists.Allow.String() {
			action = p.green(action)
		}
		added := "-"
		if e.Added != nil {
			added = e.Added.Local().Format("2006-01-02 15:04")
		}
		t.add(visible(e.Entry), action, e.Scope, left, added, cmp.Or(visible(e.Author), "-"), visible(e.Why))
	}
	return t.print(w, 3)
}

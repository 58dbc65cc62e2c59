package live

import (
	"cmp"
	"fmt"
	"strings"
	"time"

	"blockd/records/audit"
)

// linesOf are the lines of the journal about what requests change: with an action, that it has not been made, and why.
func linesOf(group []*request, action string, failed error) (lines []audit.Line) {
	for _, m := range group {
		if m.err != nil || m.noted {
			continue
		}
		for i, o := range m.outcomes {
			if !o.Changed() {
				continue
			}
			line := lineOf(&m.changes[i], o)
			line.Time = m.now
			if action != "" {
				line.Action, line.Detail = action, fmt.Sprintf("%s: %v", line.Action, failed)
			}
			lines = append(lines, line)
		}
	}
	return lines
}

// lineOf is the line about a change with the outcome o. What was before stays readable, since the entry itself is gone.
func lineOf(c *Change, o Outcome) audit.Line {
	line := audit.Line{By: c.Author, Why: c.Why, Action: audit.EntryAdd}
	var detail []string
	if e := o.Entry; e != nil {
		if !e.Expires.IsZero() {
			detail = append(detail, "until "+e.Expires.Format(time.RFC3339))
		}
		if e.NeedsProof {
			detail = append(detail, "with SPF or DKIM")
		}
		if e.Forced {
			detail = append(detail, "forced")
		}
	}
	if was := o.Was; was != nil {
		line.Action = audit.EntryChange
		text := fmt.Sprintf("was %s, added %s", was.Item.Action, was.Added.Format(time.RFC3339))
		if was.NeedsProof {
			text += " with SPF or DKIM"
		}
		if was.Author != "" {
			text += " by " + was.Author
		}
		if !was.Expires.IsZero() {
			text += " until " + was.Expires.Format(time.RFC3339)
		}
		if was.Why != "" {
			text += ": " + was.Why
		}
		detail = append(detail, text)
	}
	if o.Entry == nil {
		line.Action = audit.EntryRemove
	}
	if c.Journal != "" && o.Entry == nil {
		line.Subject = c.Journal
		return line
	}
	e := cmp.Or(o.Entry, o.Was)
	subject := e.Item.Action.String() + " " + e.Text
	if owner := e.Item.Owner.Text; owner != "" {
		subject += " for " + owner
	}
	line.Subject, line.Detail = subject, strings.Join(detail, "; ")
	return line
}

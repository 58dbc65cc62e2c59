package kept

import (
	"fmt"
	"strings"
	"time"
)

// Weighed is what becomes of a proposal that is adopted, as it was when it was proposed: by those who wrote lately, by
// correspondents, and by the mail of the last days. It names entries of the list and no sender.
type Weighed struct {
	Time   time.Time  `json:"time"`
	Refuse []string   `json:"refused" doc:"why the list would be refused whole, were an adoption not an operator's will"`
	Held   int        `json:"held_back" doc:"entries that an adoption holds back: they would refuse senders who wrote lately, or correspondents"`
	First  []HeldBack `json:"held" doc:"the first of them, those that refuse most first"`
	Mail   *MailDiff  `json:"mail" doc:"which decisions of the last 7 days would differ; null: no history is kept"`
	Failed string     `json:"failed,omitempty" doc:"why it could not be weighed"`
}

// HeldBack is an entry that is held back.
type HeldBack struct {
	Entry          string `json:"entry"`
	Senders        int    `json:"senders" doc:"that it would refuse"`
	Correspondents bool   `json:"correspondents" doc:"they are whom users of this server write to"`
}

// MailDiff counts decisions of the past that would differ, by all lists together.
type MailDiff struct {
	Since     time.Time     `json:"since" doc:"of the oldest decision that was looked at"`
	Decisions int           `json:"decisions"`
	Refused   int           `json:"refused" doc:"of them: that would be refused, and were not"`
	Passed    int           `json:"passed" doc:"of them: that would not be refused any more"`
	Refuses   []MailByEntry `json:"refuses" doc:"by which entries, those with most first"`
	Passes    []MailByEntry `json:"passes"`
}

// MailByEntry is one entry with the decisions that differ by it.
type MailByEntry struct {
	Entry     string `json:"entry"`
	Line      int    `json:"line"`
	Decisions int    `json:"decisions"`
}

// Differs reports whether any decision does.
func (m *MailDiff) Differs() bool { return m != nil && m.Refused+m.Passed > 0 }

// String is the whole in a sentence for people.
func (m *MailDiff) String() string {
	head := fmt.Sprintf("of %d decisions since %s", m.Decisions, m.Since.UTC().Format("2006-01-02 15:04"))
	if !m.Differs() {
		return head + " none would differ"
	}
	var parts []string
	for _, side := range []struct {
		n    int
		says string
		by   []MailByEntry
	}{{m.Refused, "would be refused that were not", m.Refuses}, {m.Passed, "would not be refused any more", m.Passes}} {
		if side.n == 0 {
			continue
		}
		text := fmt.Sprintf("%d %s", side.n, side.says)
		if len(side.by) > 0 {
			text += fmt.Sprintf(", most by %s (line %d)", side.by[0].Entry, side.by[0].Line)
		}
		parts = append(parts, text)
	}
	return head + " " + strings.Join(parts, "; ")
}

// Against are the sentences that speak against an adoption; they name entries that mail came by, which is not for everybody.
func (w *Weighed) Against() (lines []string) {
	if w == nil {
		return nil
	}
	lines = append(lines, w.Refuse...)
	if w.Failed != "" {
		lines = append(lines, "it could not be tried: "+w.Failed)
	}
	if w.Held > 0 {
		var names []string
		for _, e := range w.First[:min(len(w.First), 3)] {
			names = append(names, e.Entry)
		}
		more := ""
		if n := w.Held - len(names); n > 0 {
			more = fmt.Sprintf(" and %d more", n)
		}
		lines = append(lines, fmt.Sprintf("held back when it is adopted, for they would refuse senders who wrote lately, or correspondents: %s%s", strings.Join(names, ", "), more))
	}
	if w.Mail.Differs() {
		lines = append(lines, w.Mail.String())
	}
	return lines
}

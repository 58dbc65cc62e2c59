package main

import (
	"cmp"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"time"

	"blockd/internal/term"
)

// replayReport is what `blockd replay --json` prints.
type replayReport struct {
	List    string    `json:"list"`
	File    string    `json:"file"`
	Entries int       `json:"entries"`
	Since   time.Time `json:"since"`
	replayCounts
	AcceptedSenders int        `json:"accepted_senders"` // distinct, whom no list had anything on
	RefusedSenders  int        `json:"refused_senders"`  // distinct
	Gate            replayGate `json:"gate"`
	Senders         []replayed `json:"senders"` // that most mail is of, as the next two
	Domains         []replayed `json:"domains"`
	ByEntry         []replayed `json:"by_entry"`
}

// replayGate is what the gate would say of the list, by the senders that it remembers.
type replayGate struct {
	Senders int     `json:"senders"` // of late
	Refused int     `json:"refused"` // of them
	Share   float64 `json:"share"`
	Bound   float64 `json:"max_recent_blocked"`
	Passes  bool    `json:"passes"` // with fewer than 100 senders, always
}

// shownReplayed is how many senders, domains and entries are shown, and reportedReplayed
// how many a program gets.
const (
	shownReplayed    = 10
	reportedReplayed = 1000

	// gateFrom is from how many senders on the gate judges (docs/operation.md).
	gateFrom = 100
)

func (r *replay) report() replayReport {
	g := replayGate{Senders: r.recent, Refused: r.stopped.recent, Bound: r.bound, Share: term.Share(uint64(r.stopped.recent), uint64(r.recent))}
	g.Passes = g.Senders < gateFrom || float64(g.Refused) <= g.Bound*float64(g.Senders)
	return replayReport{List: r.name, File: r.source.Path, Entries: r.entries, Since: r.since.UTC().Truncate(time.Second), replayCounts: r.counts,
		AcceptedSenders: len(r.senders), RefusedSenders: len(r.stopped.senders), Gate: g,
		Senders: most(r.stopped.senders), Domains: most(r.stopped.domains), ByEntry: most(r.stopped.entriesOf)}
}

// most are those with the most mail.
func most(all map[string]*replayed) []replayed {
	list := make([]replayed, 0, len(all))
	for _, r := range slices.Collect(maps.Values(all)) {
		r.Senders = len(r.senders)
		list = append(list, *r)
	}
	slices.SortFunc(list, func(a, b replayed) int { return cmp.Or(b.Mails-a.Mails, strings.Compare(a.Name, b.Name)) })
	return list[:min(len(list), reportedReplayed)]
}

// print shows the report to people.
func (r replayReport) print(w io.Writer) error {
	p := term.NewPaint(w)
	n := func(n int) string { return term.Grouped(n) }
	fmt.Fprintf(w, "%s: %s, held against the mail since %s\n\n", term.Path(r.File), term.Counted(r.Entries, "entry"), term.Moment(r.Since))
	var t term.Table
	t.Add("accepted then", n(r.Accepted), "of "+term.Counted(r.AcceptedSenders, "unlisted sender"))
	refused := n(r.Refused)
	if r.Refused > 0 {
		refused = p.Red(refused)
	}
	t.Add("newly refused", refused, "of "+term.Counted(r.RefusedSenders, "sender"))
	for _, line := range []struct {
		name  string
		count int
		about string
	}{
		{"newly marked", r.OnMessage, "tagged or set aside, as on_match says"},
		{"refused by now", r.AlreadyListed, "today's lists have them too"},
		{"kept: exempt", r.Exempt, "everybody may write to the recipient"},
		{"kept: allowed", r.Allowed, "an allow entry goes before the list"},
		{"open: proof", r.WantsProof, "an allow entry would, with a proof that the history does not have"},
		{"not checked", r.Unchecked, "the index could not be read"},
	} {
		if line.count > 0 {
			t.Add(line.name, n(line.count), line.about)
		}
	}
	if err := t.Print(w, 1); err != nil {
		return err
	}
	if r.AllRecipients > 0 {
		fmt.Fprintf(w, "of the newly refused, %s at a door that did not know the recipients: some may be exempt\n", n(r.AllRecipients))
	}
	if r.Damaged > 0 {
		fmt.Fprintf(w, "left out %s of the history\n", term.Counted(r.Damaged, "damaged line"))
	}
	r.printMost(w, p)
	verdict := p.Green("lets it pass")
	switch {
	case r.Gate.Senders < gateFrom:
		verdict += fmt.Sprintf(" (it judges from %d senders on)", gateFrom)
	case !r.Gate.Passes:
		verdict = p.Red("refuses it")
	}
	_, err := fmt.Fprintf(w, "\nthe gate %s: %s of the last %s (%s), max_recent_blocked = %v\n", verdict,
		n(r.Gate.Refused), term.Counted(r.Gate.Senders, "sender"), finePercent(r.Gate.Share), r.Gate.Bound)
	return err
}

// printMost shows what is hit most.
func (r replayReport) printMost(w io.Writer, p term.Paint) {
	for _, part := range []struct {
		name string
		all  []replayed
	}{{"sender", r.Senders}, {"domain", r.Domains}, {"entry", r.ByEntry}} {
		if len(part.all) == 0 {
			continue
		}
		fmt.Fprintln(w)
		var t term.Table
		t.Add(p.Faint(part.name), p.Faint("mails"), p.Faint("senders"), p.Faint("last"), p.Faint("by"))
		for _, one := range part.all[:min(len(part.all), shownReplayed)] {
			by := term.Visible(one.Entry)
			if part.name == "entry" {
				by = term.Visible(one.Reply)
			}
			t.Add(term.Visible(one.Name), term.Grouped(one.Mails), term.Grouped(one.Senders), term.Moment(one.Last), by)
		}
		t.Print(w, 1, 2)
		if more := len(part.all) - shownReplayed; more > 0 {
			fmt.Fprintf(w, "%s more: --json\n", term.Grouped(more))
		}
	}
}

// finePercent is a share with what a bound of 1 % needs.
func finePercent(share float64) string { return fmt.Sprintf("%.2g %%", 100*share) }

package letter

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	"blockd/internal/term"
)

// columns is how wide a letter is, as mail has been since teletypes.
const columns = 72

// How much of strangers' texts is shown, in columns.
const (
	senderColumns = 38
	listColumns   = 24
	noteColumns   = 200
	mostLines     = 40 // of the table of lists, of loads, and of lists that wait
	mostAgainst   = 5  // of what speaks against one that waits
)

// Subject is what the letter is about, in ASCII.
func (l *Letter) Subject() string {
	text := "blockd on " + printable(l.Host) + ": " + term.Grouped(l.Mail.Refused) + " refused"
	if n := len(l.Suspects.Rows); n > 0 {
		text += fmt.Sprintf(", %d perhaps by mistake", n)
	}
	if l.Open > 0 {
		text += ", " + term.Counted(l.Open, "open request")
	}
	if l.Waiting > 0 {
		text += ", " + term.Counted(l.Waiting, "proposal")
	}
	if n := len(l.Pending); n > 0 {
		text += ", " + term.Counted(n, "list") + " to adopt"
	}
	if len(l.Problems) > 0 {
		text += ", degraded"
	}
	return text
}

// Text is the letter for people: lines of 72 columns, with times where zone is. Texts of strangers are clipped, and nothing in
// them acts on what shows it.
func (l *Letter) Text(zone *time.Location) string {
	p := page{zone: zone}
	p.line("%s", clip("blockd on "+l.Host, columns))
	p.line("from %s to %s (%s)", p.moment(l.Since), p.moment(l.Until), l.Until.In(zone).Format("-07:00"))
	p.problems(l)
	p.mail(l)
	p.lists(l)
	p.suspects(l)
	p.requests(l)
	p.proposals(l)
	p.pending(l)
	p.loads(l)
	p.changes(l)
	if len(l.Notes) > 0 {
		p.title("What this letter lacks")
		for _, text := range l.Notes {
			p.item(text)
		}
	}
	p.line("")
	p.line("-- ")
	p.fold("blockd " + l.Version + " writes this by [report] of its configuration. The numbers are of decisions, one for each recipient of a message.")
	return strings.Join(p.out, "\n") + "\n"
}

// page is a letter that is being written.
type page struct {
	zone *time.Location
	out  []string
}

func (p *page) line(format string, args ...any) {
	p.out = append(p.out, strings.TrimRight(fmt.Sprintf(format, args...), " "))
	if format == "-- " {
		p.out[len(p.out)-1] = format // the mark of a signature has its blank
	}
}

// fold adds a text of ours, or of the configuration, as a paragraph.
func (p *page) fold(text string) {
	if n := len(p.out); p.out[n-1] != "" && p.out[n-1] != "-- " {
		p.line("")
	}
	p.out = append(p.out, p.folded(text, columns)...)
}

// item adds a text as one of several, whose further lines stand in.
func (p *page) item(text string) {
	for i, line := range p.folded(text, columns-2) {
		p.line("%s%s", [...]string{"* ", "  "}[min(i, 1)], line)
	}
}

// folded are the lines of a text; a longer word is clipped.
func (p *page) folded(text string, width int) []string {
	lines := term.Fold(printable(text), width)
	for i := range lines {
		lines[i] = term.Clip(lines[i], width)
	}
	return lines
}

func (p *page) title(text string) {
	p.line("")
	p.line("%s", text)
	p.line("%s", strings.Repeat("-", len(text)))
	p.line("")
}

func (p *page) table(t *term.Table, right ...int) {
	t.Width = columns
	p.out = append(p.out, t.Lines(right...)...)
}

func (p *page) moment(t time.Time) string { return t.In(p.zone).Format("2006-01-02 15:04") }

func (p *page) problems(l *Letter) {
	if len(l.Problems) == 0 {
		return
	}
	p.title("What is wrong now")
	for i, text := range l.Problems {
		if i == MostRows {
			p.line("and %d more: see /readyz", len(l.Problems)-i)
			break
		}
		p.item(term.Clip(printable(text), 4*columns))
	}
}

func (p *page) mail(l *Letter) {
	p.title("Mail")
	m := l.Mail
	var t term.Table
	row := func(n uint64, what string) {
		if n > 0 {
			t.Add(term.Grouped(n), what)
		}
	}
	t.Add(term.Grouped(m.Decisions), "decisions")
	row(m.Refused, "refused")
	row(m.Deferred, "deferred")
	row(m.Quarantined, "set aside in quarantine")
	row(m.Tagged, "tagged")
	row(m.Discarded, "discarded")
	row(m.Rules, "of these by a rule or a new domain, and no list")
	row(m.Shadow, "accepted, which a list in shadow mode would refuse")
	p.table(&t, 0)
}

func (p *page) lists(l *Letter) {
	if len(l.Lists) == 0 {
		return
	}
	p.title("What each list did")
	var t term.Table
	head := []string{"list", "refused", "deferred", "aside", "tagged", "senders", "only here"}
	value := func(x List) []string {
		return []string{term.Grouped(x.Refused + x.Discarded), term.Grouped(x.Deferred), term.Grouped(x.Quarantined), term.Grouped(x.Tagged), term.Grouped(x.Senders),
			term.Grouped(x.Sole)}
	}
	some := func(of func(List) uint64) bool {
		return slices.ContainsFunc(l.Lists, func(x List) bool { return of(x) > 0 })
	}
	keep := []int{0} // columns of values
	for i, of := range []func(List) uint64{func(x List) uint64 { return x.Deferred }, func(x List) uint64 { return x.Quarantined }, func(x List) uint64 { return x.Tagged }} {
		if some(of) {
			keep = append(keep, i+1)
		}
	}
	keep = append(keep, 4, 5)
	pick := func(first string, cells []string) []string {
		row := []string{first}
		for _, i := range keep {
			row = append(row, cells[i])
		}
		return row
	}
	t.Add(pick(head[0], head[1:])...)
	shown, left := 0, 0
	for _, x := range l.Lists {
		switch {
		case x.against() == 0:
		case shown == mostLines:
			left++
		default:
			shown++
			t.Add(pick(name(x.Name), value(x))...)
		}
	}
	if shown > 0 {
		right := make([]int, len(keep))
		for i := range right {
			right[i] = i + 1
		}
		p.table(&t, right...)
		if left > 0 {
			p.line("and %s more", term.Counted(left, "list"))
		}
		p.fold(`"only here" are those for which no other list had an entry: without the list that mail would have passed.`)
	}
	for _, x := range l.Lists {
		if x.Shadow > 0 {
			p.fold(fmt.Sprintf("%s is in shadow mode: it would have refused %s, of %s.", name(x.Name), term.Grouped(x.Shadow), term.Counted(int(x.ShadowSenders), "sender")))
		}
	}
	for _, x := range l.Lists {
		if x.Answers > 0 {
			p.fold(fmt.Sprintf("%s: %s to programs that asked by DNS or RESP.", name(x.Name), term.Counted(int(x.Answers), "answer")))
		}
	}
}

// why says what a sign means.
func why(sign string) string {
	return map[string]string{Correspondent: "written to from here", Allowed: "let in since", Asked: "asks to be let in", Aligned: "SPF and DMARC"}[sign]
}

func (p *page) suspects(l *Letter) {
	s := l.Suspects
	if len(s.Rows) == 0 {
		return
	}
	p.title("Perhaps refused by mistake")
	var t term.Table
	t.Add("sender", "times", "why", "list", "reference")
	for _, x := range s.Rows {
		words := make([]string, len(x.Signs))
		for i, sign := range x.Signs {
			words[i] = why(sign)
		}
		t.Add(clip(x.Sender, senderColumns), term.Grouped(x.Times), strings.Join(words, ", "), name(x.List), clip(x.Ref, listColumns))
	}
	p.table(&t, 1)
	if n := s.Correspondents + s.Allowed + s.Asked + s.Aligned; n > uint64(len(s.Rows)) {
		p.fold(fmt.Sprintf("In all %d of people that users here write to, %d that an exception lets in since, %d that ask to be let in, %d with SPF and DMARC.",
			s.Correspondents, s.Allowed, s.Asked, s.Aligned))
	}
	p.fold("blockd check SENDER says what holds now; blockd history --ref REFERENCE shows the message; blockd add --action allow --for 30d SENDER lets the sender in.")
	if s.Aligned > 0 {
		p.fold(fmt.Sprintf(`"SPF and DMARC": the mail really came from the sender's domain, and one list alone had it. Of the %s refused most, %d.`,
			term.Counted(int(s.Looked), "such sender"), s.Aligned))
	}
}

func (p *page) requests(l *Letter) {
	if l.Open == 0 {
		return
	}
	p.title("Who asks to be let in")
	var t term.Table
	t.Add("asked", "sender", "list", "reference")
	for _, r := range l.Requests {
		t.Add(p.moment(r.Time), cmp.Or(clip(r.Sender, senderColumns), "<>"), cmp.Or(name(r.List), "-"), clip(r.Ref, listColumns))
	}
	p.table(&t)
	if slices.ContainsFunc(l.Requests, func(r OpenRequest) bool { return r.Note != "" }) {
		p.line("")
	}
	for _, r := range l.Requests {
		if r.Note != "" {
			p.item(clip(r.Ref, listColumns) + ": " + clip(r.Note, noteColumns))
		}
	}
	if more := l.Open - len(l.Requests); more > 0 {
		p.line("and %d more", more)
	}
	p.fold("They were told that a person reads it: blockd requests grant REFERENCE, or decline REFERENCE.")
}

func (p *page) proposals(l *Letter) {
	if l.Waiting == 0 {
		return
	}
	p.title("Whom several users do not want")
	var t term.Table
	t.Add("sender", "users", "domains", "complaints", "last")
	for _, r := range l.Proposed {
		t.Add(clip(r.Entry, senderColumns), term.Grouped(r.Users), term.Grouped(r.Domains), term.Grouped(r.Complaints), p.moment(r.Last))
	}
	p.table(&t, 1, 2, 3)
	if more := l.Waiting - len(l.Proposed); more > 0 {
		p.line("and %d more", more)
	}
	p.fold("Nobody is blocked for all by this alone: blockd proposals adopt SENDER, or decline SENDER.")
}

func (p *page) pending(l *Letter) {
	if len(l.Pending) == 0 {
		return
	}
	p.title("Lists that wait to be adopted")
	for i, x := range l.Pending {
		if i == mostLines {
			p.line("and %s more", term.Counted(len(l.Pending)-i, "list"))
			break
		}
		p.item(fmt.Sprintf("%s: a change waits since %s (%s)", name(x.List), p.moment(x.Since), x.Changes))
		for _, text := range x.Against[:min(len(x.Against), mostAgainst)] {
			for _, line := range p.folded(term.Clip(printable(text), 2*columns), columns-4) {
				p.line("    %s", line)
			}
		}
		if more := len(x.Against) - mostAgainst; more > 0 {
			p.line("    and %d more", more)
		}
	}
	p.fold("They serve what they had before. blockd diff LIST shows what waits; blockd adopt LIST lets it in.")
}

func (p *page) loads(l *Letter) {
	if len(l.Loads) == 0 {
		return
	}
	p.title("How the lists were loaded")
	var t term.Table
	t.Add("list", "new loads", "entries", "refused", "")
	for i, x := range l.Loads {
		if i == mostLines {
			p.line("and %s more", term.Counted(len(l.Loads)-i, "list"))
			break
		}
		entries := term.Grouped(x.Entries)
		if x.Loads > 0 && !x.New && x.Before != x.Entries {
			entries = term.Grouped(x.Before) + " > " + entries
		}
		var words []string
		for _, w := range []struct {
			is   bool
			word string
		}{{x.New, "new"}, {x.Stale, "old"}, {x.Held > 0, term.Grouped(x.Held) + " held back"}} {
			if w.is {
				words = append(words, w.word)
			}
		}
		t.Add(name(x.List), term.Grouped(x.Loads), entries, term.Grouped(x.Refused), strings.Join(words, ", "))
	}
	p.table(&t, 1, 2, 3)
	if slices.ContainsFunc(l.Loads, func(x Load) bool { return x.Why != "" }) {
		p.fold("The last that was refused:")
	}
	for _, x := range l.Loads {
		if x.Why != "" {
			p.item(term.Clip(printable(x.Why), 3*columns))
		}
	}
	if slices.ContainsFunc(l.Loads, func(x Load) bool { return x.Stale }) {
		p.fold(`"old" is older than the list's max_age: see why nobody writes it any more. It serves on.`)
	}
	if slices.ContainsFunc(l.Loads, func(x Load) bool { return x.Held > 0 }) {
		p.fold(`"held back" are entries that would refuse senders who wrote lately, or people that users here write to: blockd lint --held LIST shows them.`)
	}
}

func (p *page) changes(l *Letter) {
	if len(l.Changes) == 0 {
		return
	}
	p.title("What people have changed")
	var t term.Table
	for _, c := range l.Changes {
		by := make([]string, len(c.By))
		for i, who := range c.By {
			by[i] = clip(who, 20)
		}
		t.Add(term.Grouped(c.Count), clip(c.Action, listColumns), clip(strings.Join(by, ", "), 36))
	}
	p.table(&t, 0)
	p.fold("blockd audit shows each of them, and why.")
}

// printable is a text without what a mail program would act on, or what nobody can see; so bidirectional marks too.
func printable(text string) string { return term.Visible(text) }

// clip is a stranger's text in a table.
func clip(text string, width int) string { return term.Clip(printable(text), width) }

func name(list string) string { return clip(list, listColumns) }

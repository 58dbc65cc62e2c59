package letter

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"time"

	"blockd/records/history"
)

// Sources are where a letter's contents come from. Each may be nil or empty: then there is nothing of it.
type Sources struct {
	Host    string
	Version string
	History string // the folder of the history
	Memory  int64  // octets for counting senders; 0 = 8 MiB. What does not fit goes to temporary files

	// Exceptions are entries that a person has added since a time to let senders in: addresses, and domains.
	Exceptions func(since time.Time) []string
	// Allowed reports whether a sender is let in by an exception now.
	Allowed func(sender string) bool
	// Aligned reports whether a client may send for a sender by SPF, and the sender's domain has a DMARC policy. It waits for DNS.
	Aligned func(ctx context.Context, client netip.Addr, helo, sender string) bool

	Requests  func() ([]OpenRequest, error) // that are open, in any order
	Proposals func() ([]Unwanted, error)    // that wait for a person, the most urgent first
	Changes   func(ctx context.Context, since, until time.Time) ([]Change, error)
	Pending   func() ([]Pending, error) // by name
	Loads     func() []Load
	Problems  func() []string
}

// MostLooked bounds the senders that DNS is asked about. lookTime is what all of these questions may take together, and
// lookAt how many are asked at a time.
const (
	MostLooked = 20
	lookTime   = 20 * time.Second
	lookAt     = 4
)

const (
	usualMemory        = 8 << 20
	mostCandidates     = 200    // senders with a sign that are looked at more closely, those with the most refusals
	mostCorrespondents = 10_000 // in memory; a person writes to fewer
	mostLists          = 2000   // by which is counted: a configuration has had fewer names in a period
)

// Gather makes the letter of a period. What cannot be found out is in its Notes. The error is that of ctx, or of a disk.
func Gather(ctx context.Context, s Sources, since, until time.Time) (Letter, error) {
	l := Letter{Host: s.Host, Version: s.Version, Since: since, Until: until, Lists: []List{}, Loads: []Load{}, Requests: []OpenRequest{}, Proposed: []Unwanted{}, Pending: []Pending{}, Changes: []Change{},
		Problems: []string{}, Notes: []string{}}
	l.Suspects.Rows = []Suspect{}
	asked := map[string]bool{}
	if s.Requests != nil {
		open, err := s.Requests()
		if err != nil {
			l.note("requests cannot be read: %v", err)
		}
		for _, r := range open {
			asked[history.Lower(r.Sender)] = r.Sender != ""
		}
		slices.SortFunc(open, func(a, b OpenRequest) int { return cmp.Or(a.Time.Compare(b.Time), cmp.Compare(a.Ref, b.Ref)) })
		l.Open, l.Requests = len(open), append(l.Requests, open[:min(len(open), MostRows)]...)
	}
	if s.Proposals != nil {
		waiting, err := s.Proposals()
		if err != nil {
			l.note("proposals cannot be read: %v", err)
		}
		l.Waiting, l.Proposed = len(waiting), append(l.Proposed, waiting[:min(len(waiting), MostRows)]...)
	}
	if s.Pending != nil {
		pending, err := s.Pending()
		if err != nil {
			l.note("what lists wait with cannot be read: %v", err)
		}
		l.Pending = append(l.Pending, pending...)
	}
	if s.Changes != nil {
		changes, err := s.Changes(ctx, since, until)
		if err != nil {
			l.note("the audit journal cannot be read: %v", err)
		}
		l.Changes = append(l.Changes, changes...)
	}
	if s.Loads != nil {
		l.Loads = append(l.Loads, s.Loads()...)
	}
	if s.Problems != nil {
		l.Problems = append(l.Problems, s.Problems()...)
	}
	if s.History == "" {
		l.note(`no history is kept (history.folder = "none"), so that nothing is known of mail`)
		return l, ctx.Err()
	}
	g := gathering{Sources: s, letter: &l, asked: asked, lists: map[string]*List{}, correspondents: map[string]bool{}}
	if s.Exceptions != nil {
		g.exceptions = map[string]bool{}
		for _, text := range s.Exceptions(since) {
			g.exceptions[strings.TrimLeft(history.Lower(text), ".@")] = true
		}
	}
	if err := g.count(ctx); err != nil {
		return l, err
	}
	return l, g.suspect(ctx)
}

func (l *Letter) note(format string, args ...any) {
	l.Notes = append(l.Notes, fmt.Sprintf(format, args...))
}

// gathering is one Gather, as far as the history goes.
type gathering struct {
	Sources
	letter         *Letter
	asked          map[string]bool // senders that ask to be let in
	exceptions     map[string]bool
	lists          map[string]*List
	nobody         List // of decisions that are of none of them
	correspondents map[string]bool
	strong, most   candidates
}

// The names by which is counted are a mark, a list, NUL, and a sender.
const (
	markAgainst = "-"
	markShadow  = "+"
)

// count reads the period once.
func (g *gathering) count(ctx context.Context) error {
	l := g.letter
	damaged, err := history.Counts(ctx, g.History, l.Since, cmp.Or(g.Memory, usualMemory), func(r *history.Record) string {
		if !r.Time.Before(l.Until) {
			return ""
		}
		return g.add(r)
	}, g.counted)
	if errors.Is(err, fs.ErrNotExist) {
		err = nil // nothing was decided yet
	}
	if damaged > 0 {
		l.note("%d damaged lines of the history are left out", damaged)
	}
	for _, one := range g.lists {
		l.Lists = append(l.Lists, *one)
	}
	slices.SortFunc(l.Lists, func(a, b List) int {
		return cmp.Or(cmp.Compare(b.against(), a.against()), cmp.Compare(b.Shadow, a.Shadow), cmp.Compare(b.Answers, a.Answers), cmp.Compare(a.Name, b.Name))
	})
	return err
}

// add counts a decision, and returns the name that its sender is counted by.
func (g *gathering) add(r *history.Record) string {
	n, m := r.Times(), &g.letter.Mail
	list := &g.nobody
	if r.List != "" && (against(r) || r.Shadow || r.Outcome == history.Listed) {
		if known := g.lists[r.List]; known != nil {
			list = known
		} else if len(g.lists) < mostLists {
			list = &List{Name: strings.Clone(r.List)}
			g.lists[list.Name] = list
		}
	}
	if r.Outcome == history.Listed {
		list.Answers += n
		return ""
	}
	m.Decisions += n
	switch r.Outcome {
	case "refuse":
		m.Refused += n
		list.Refused += n
	case "defer":
		m.Deferred += n
		list.Deferred += n
	case "quarantine":
		m.Quarantined += n
		list.Quarantined += n
	case "tag":
		m.Tagged += n
		list.Tagged += n
	case "discard":
		m.Discarded += n
		list.Discarded += n
	default:
		if !r.Shadow || r.List == "" {
			return ""
		}
		m.Shadow += n
		list.Shadow += n
		return markShadow + r.List + "\x00" + history.Lower(r.Sender)
	}
	if r.List == "" {
		m.Rules += n
		return ""
	}
	if r.Sole {
		list.Sole += n
	}
	sender := history.Lower(r.Sender)
	if r.Correspondent && len(g.correspondents) < mostCorrespondents {
		g.correspondents[strings.Clone(sender)] = true
	}
	return markAgainst + r.List + "\x00" + sender
}

// counted takes up how often a list had a sender.
func (g *gathering) counted(name string, n uint64) {
	name, sender, _ := strings.Cut(name, "\x00")
	list := g.lists[name[1:]]
	if list == nil {
		return // one of too many
	}
	if name[:1] == markShadow {
		list.ShadowSenders++
		return
	}
	list.Senders++
	if at := strings.LastIndexByte(sender, '@'); at <= 0 || at == len(sender)-1 {
		return // the null sender, or no address
	}
	c := candidate{sender: sender, times: n}
	if g.asked[sender] || g.excepted(sender) || g.correspondents[sender] {
		g.strong.offer(c)
	} else {
		g.most.offer(c)
	}
}

// excepted reports whether an exception may be about a sender. Allowed says whether it is.
func (g *gathering) excepted(sender string) bool {
	if len(g.exceptions) == 0 {
		return false
	}
	if g.exceptions[sender] {
		return true
	}
	for domain := sender[strings.LastIndexByte(sender, '@')+1:]; domain != ""; {
		if g.exceptions[domain] {
			return true
		}
		_, domain, _ = strings.Cut(domain, ".")
	}
	return false
}

// candidate is a sender that is looked at more closely.
type candidate struct {
	sender string
	times  uint64 // by one list, in the first pass; by all, in the second
	last   history.Record
	sole   bool
	signs  []string
}

// candidates keeps those that had the most refusals.
type candidates struct {
	all   []candidate
	count uint64 // of all that were offered
}

func (c *candidates) offer(one candidate) {
	c.count++
	if one.sender = strings.Clone(one.sender); len(c.all) < 2*mostCandidates {
		c.all = append(c.all, one)
		return
	}
	c.all = append(c.all, one)
	c.cut()
}

func (c *candidates) cut() {
	slices.SortFunc(c.all, byTimes)
	c.all = c.all[:min(len(c.all), mostCandidates)]
}

func byTimes(a, b candidate) int {
	return cmp.Or(cmp.Compare(b.times, a.times), cmp.Compare(a.sender, b.sender))
}

// suspect reads the period once more, for those senders that may have been refused by mistake.
func (g *gathering) suspect(ctx context.Context) error {
	g.strong.cut()
	g.most.cut()
	if g.Aligned == nil {
		g.most.all = nil
	}
	bySender := map[string]*candidate{}
	for _, of := range []candidates{g.strong, g.most} {
		for i := range of.all {
			c := of.all[i] // of several lists, once
			bySender[c.sender] = &candidate{sender: c.sender, sole: true}
		}
	}
	if len(bySender) == 0 {
		return ctx.Err()
	}
	_, err := history.Walk(ctx, g.History, g.letter.Since, func(r *history.Record) bool {
		if r.List == "" || r.Owner != "" || !against(r) || !r.Time.Before(g.letter.Until) {
			return true
		}
		c := bySender[history.Lower(r.Sender)]
		if c == nil {
			return true
		}
		if c.times == 0 {
			c.last = history.Record{Time: r.Time, Client: r.Client, Helo: strings.Clone(r.Helo), List: strings.Clone(r.List), Entry: strings.Clone(r.Entry),
				Ref: strings.Clone(r.Ref), Sender: strings.Clone(r.Sender)}
		}
		c.times += r.Times()
		c.sole = c.sole && r.Sole
		return true
	})
	if err != nil {
		return err
	}
	g.judge(ctx, bySender)
	return ctx.Err()
}

// judge looks for the signs of candidates, and makes those that have one rows.
func (g *gathering) judge(ctx context.Context, bySender map[string]*candidate) {
	s := &g.letter.Suspects
	var all, ask []*candidate
	for _, c := range bySender {
		if c.times == 0 {
			continue // its decisions are gone meanwhile
		}
		all = append(all, c)
		sign := func(has bool, name string, count *uint64) {
			if has {
				c.signs = append(c.signs, name)
				*count++
			}
		}
		sign(g.correspondents[c.sender], Correspondent, &s.Correspondents)
		sign(g.excepted(c.sender) && (g.Allowed == nil || g.Allowed(c.last.Sender)), Allowed, &s.Allowed)
		sign(g.asked[c.sender], Asked, &s.Asked)
		if c.sole && c.last.Client.IsValid() {
			ask = append(ask, c)
		}
	}
	if g.Aligned != nil {
		slices.SortFunc(ask, func(a, b *candidate) int { return byTimes(*a, *b) })
		g.look(ctx, ask[:min(len(ask), MostLooked)])
	}
	for _, c := range all {
		if len(c.signs) == 0 {
			continue
		}
		row := Suspect{Sender: c.last.Sender, Signs: c.signs, Times: c.times, Last: c.last.Time, List: c.last.List, Entry: c.last.Entry, Ref: c.last.Ref}
		if c.last.Client.IsValid() {
			row.Client = c.last.Client.String()
		}
		s.Rows = append(s.Rows, row)
	}
	slices.SortFunc(s.Rows, func(a, b Suspect) int {
		return cmp.Or(cmp.Compare(strength(b.Signs), strength(a.Signs)), cmp.Compare(b.Times, a.Times), cmp.Compare(a.Sender, b.Sender))
	})
	s.Rows = s.Rows[:min(len(s.Rows), MostRows)]
}

// strength ranks signs: one outweighs all weaker ones together.
func strength(signs []string) (n int) {
	for i, sign := range [...]string{Aligned, Asked, Allowed, Correspondent} {
		if slices.Contains(signs, sign) {
			n |= 1 << i
		}
	}
	return n
}

// look asks DNS about senders, a few at a time.
func (g *gathering) look(ctx context.Context, all []*candidate) {
	ctx, cancel := context.WithTimeout(ctx, lookTime)
	defer cancel()
	aligned := make([]bool, len(all))
	var wait sync.WaitGroup
	slots := make(chan struct{}, lookAt)
	for i, c := range all {
		slots <- struct{}{}
		wait.Go(func() {
			defer func() { <-slots }()
			aligned[i] = ctx.Err() == nil && g.Aligned(ctx, c.last.Client, c.last.Helo, c.last.Sender)
		})
	}
	wait.Wait()
	g.letter.Suspects.Looked = uint64(len(all))
	if ctx.Err() != nil {
		g.letter.note("DNS did not answer in %v, so that some senders were not looked at", lookTime)
	}
	for i, c := range all {
		if aligned[i] {
			c.signs = append(c.signs, Aligned)
			g.letter.Suspects.Aligned++
		}
	}
}

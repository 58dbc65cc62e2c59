package junk

import (
	"cmp"
	"errors"
	"fmt"
	"iter"
	"slices"
	"strings"
	"time"

	"blockd/internal/durable"
)

// The bounds of a Box. With all of them its file has some 20 MB, and so much memory is taken.
const (
	mostVoices = 100_000
	mostLine   = 4 << 10
	mostFile   = 64 << 20
	mostBy     = 200
	keptFor    = 90 * 24 * time.Hour // a decision, in which nothing new was said
	patience   = 5 * time.Second     // with another process that writes
	tidyFrom   = 1000                // lines of which most say nothing any more
)

// ErrBusy is wrapped by the error of a change for which another process has held the file for too long.
var ErrBusy = errors.New("another process holds the proposals")

// Settings of a Box.
type Settings struct {
	Path    string        // of its file; beside it is one for the lock
	Agree   int           // so many users make a proposal, 1 or more
	Domains int           // of so many domains
	Keep    time.Duration // how long a voice counts
}

// Box has what users say of senders, in a file of a line for each word. Several processes may share it: a daemon, the one that takes over
// from it, and commands. All methods may be used from any goroutine.
type Box struct {
	settings Settings

	log    *durable.Log[record]
	voices int                 // as what follows, under the log's lock
	all    map[string]*opinion // by entry
}

// record is a line.
type record struct {
	Time  time.Time `json:"time"`
	Entry string    `json:"entry"`

	User string `json:"user,omitempty"`
	Kind Kind   `json:"kind,omitempty"`
	Gone bool   `json:"gone,omitempty"` // the user has taken it back

	State State      `json:"state,omitempty"`
	By    string     `json:"by,omitempty"`
	Until *time.Time `json:"until,omitempty"`
}

// NewBox returns what is in a file, which need not be there.
func NewBox(s Settings) *Box {
	b := &Box{settings: s, all: map[string]*opinion{}}
	b.log = durable.NewLog(durable.LogSettings[record]{Path: s.Path, Mode: 0o600, MaxLine: mostLine, Max: mostFile, Wait: patience, Busy: ErrBusy,
		Begin: func() { b.voices, b.all = 0, map[string]*opinion{} }, Take: b.take})
	return b
}

// Say notes that a user, a mailbox, does not want a sender. What he has said before gives way: nobody counts twice.
func (b *Box) Say(entry, user string, kind Kind, now time.Time) error {
	return b.change(func() ([]record, error) {
		return []record{{Time: now.UTC().Truncate(time.Second), Entry: entry, User: user, Kind: kind}}, nil
	})
}

// Said returns when, and how, a user has called a sender unwanted; the zero time if never.
func (b *Box) Said(entry, user string) (at time.Time, kind Kind, err error) {
	err = b.log.View(func() {
		if o := b.all[entry]; o != nil {
			at, kind = o.voices[user].at, o.voices[user].kind
		}
	})
	return at, kind, err
}

// Unsay takes back what a user has said of a sender.
func (b *Box) Unsay(entry, user string, now time.Time) error {
	return b.change(func() ([]record, error) {
		if o := b.all[entry]; o == nil || o.voices[user].kind == "" {
			return nil, nil
		}
		return []record{{Time: now.UTC().Truncate(time.Second), Entry: entry, User: user, Gone: true}}, nil
	})
}

// Get returns the proposal about a sender that waits. The error is ErrNoProposal, or wraps ErrDecided.
func (b *Box) Get(entry string, now time.Time) (p Proposal, err error) {
	var none error
	err = b.log.View(func() { p, none = b.open(entry, now) })
	return p, cmp.Or(err, none)
}

func (b *Box) open(entry string, now time.Time) (p Proposal, err error) {
	o, ok := b.all[entry]
	if ok {
		p, ok = o.proposal(entry, now.Add(-b.settings.Keep), b.settings.Agree, b.settings.Domains)
	}
	switch {
	case !ok:
		return p, ErrNoProposal
	case p.State != Open:
		return p, fmt.Errorf("%w: %s on %s", ErrDecided, p.State, p.Decided.Format(time.DateOnly))
	}
	return p, nil
}

// Decide notes what a person has decided about a proposal that waits. until is the end of the entry that was made; zero: it has none.
// It counts afresh from then on.
func (b *Box) Decide(entry string, to State, by string, until, now time.Time) (p Proposal, err error) {
	now = now.UTC()
	err = b.change(func() ([]record, error) {
		if p, err = b.open(entry, now); err != nil {
			return nil, err
		}
		r := record{Time: now, Entry: entry, State: to, By: strings.ToValidUTF8(by[:min(len(by), mostBy)], "")}
		p.State, p.By, p.Decided = to, r.By, &now
		if !until.IsZero() {
			end := until.UTC().Truncate(time.Second)
			r.Until, p.Until = &end, &end
		}
		return []record{r}, nil
	})
	return p, err
}

// All returns the proposals of a state, of all for "": those that wait first. damaged counts lines that cannot be read.
func (b *Box) All(state State, now time.Time) (all []Proposal, damaged int, err error) {
	err = b.log.View(func() {
		for entry, o := range b.all {
			if p, ok := o.proposal(entry, now.Add(-b.settings.Keep), b.settings.Agree, b.settings.Domains); ok && (state == "" || p.State == state) {
				all = append(all, p)
			}
		}
	})
	newestFirst(all)
	return all, b.log.Damaged(), err
}

// CountOpen is how many proposals wait for a person; 0 if they cannot be read.
func (b *Box) CountOpen() int {
	all, _, _ := b.All(Open, time.Now())
	return len(all)
}

// Damaged is how many lines of the file could not be read when it was read last.
func (b *Box) Damaged() int {
	b.log.View(func() {}) // what cannot be read at all, All says
	return b.log.Damaged()
}

// Forget removes the senders and the users that are accepted, and returns how many words of them and about them it has removed.
func (b *Box) Forget(sender, user func(address string) bool) (gone int, err error) {
	none := func() ([]record, error) { return nil, nil }
	err = b.log.Change(none, func(has durable.Extent) iter.Seq[record] {
		for entry, o := range b.all {
			if sender(entry) {
				gone += max(len(o.voices), 1)
				delete(b.all, entry)
				continue
			}
			for name := range o.voices {
				if user(name) {
					delete(o.voices, name)
					gone++
				}
			}
		}
		if has.Lines == 0 && has.Torn == 0 {
			return nil
		}
		return b.counting(time.Now()) // without what he has taken back, too
	})
	return gone, err
}

// change adds the records that make returns, and tidies the file where most of it says nothing any more, or it has too much.
func (b *Box) change(make func() ([]record, error)) error {
	return b.log.Change(make, func(has durable.Extent) iter.Seq[record] {
		if has.Lines > tidyFrom && has.Lines > 2*(b.voices+len(b.all)) || b.voices > mostVoices || has.Bytes > mostFile/2 {
			return b.counting(time.Now())
		}
		return nil
	})
}

// take takes up a line.
func (b *Box) take(r record) bool {
	if r.Entry == "" || (r.User == "") == (r.State == "") {
		return false
	}
	o := b.all[r.Entry]
	if o == nil {
		o = &opinion{voices: map[string]voice{}}
		b.all[r.Entry] = o
	}
	before := len(o.voices)
	switch {
	case r.State != "":
		o.decided = decision{state: r.State, at: r.Time, by: r.By}
		if r.Until != nil {
			o.decided.until = *r.Until
		}
	case r.Gone:
		delete(o.voices, r.User)
	default:
		o.voices[r.User] = voice{r.Time, r.Kind}
	}
	b.voices += len(o.voices) - before
	if len(o.voices) == 0 && o.decided.state == "" {
		delete(b.all, r.Entry)
	}
	return true
}

// counting are the records that still count; of too many voices, without the oldest tenth.
func (b *Box) counting(now time.Time) iter.Seq[record] {
	var all []record
	for entry, o := range b.all {
		if o.decided.state != "" && now.Sub(o.decided.at) < max(keptFor, b.settings.Keep) { // as long as words from before it
			r := record{Time: o.decided.at, Entry: entry, State: o.decided.state, By: o.decided.by}
			if !o.decided.until.IsZero() {
				r.Until = &o.decided.until
			}
			all = append(all, r)
		}
		for user, v := range o.voices {
			if now.Sub(v.at) < b.settings.Keep && v.at.After(o.decided.at) {
				all = append(all, record{Time: v.at, Entry: entry, User: user, Kind: v.kind})
			}
		}
	}
	slices.SortFunc(all, func(x, y record) int {
		return cmp.Or(x.Time.Compare(y.Time), cmp.Compare(x.Entry, y.Entry), cmp.Compare(x.User, y.User))
	})
	if len(all) > mostVoices {
		all = all[len(all)-mostVoices*9/10:]
	}
	return slices.Values(all)
}

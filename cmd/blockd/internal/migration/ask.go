package migration

import (
	"cmp"
	"context"
	"iter"
	"net/netip"
	"slices"
)

// Mail is what both programs are asked about. The client is known by no name where Name is empty.
type Mail struct {
	Sender, Recipient string // "" of Sender is the null sender
	Author            string // of From:; "" = somebody whom no table has
	Field             string // that has the author in place of From:; "" = that
	Client            netip.Addr
	Name              string // of the client, which blockd does not look up

	About *Finding // the entry whose key it has
	from  *table   // of Postfix, that the entry is in
	pair  bool     // entries of two tables match it: whose words a client reads is not compared
}

// The sender, recipient and name of questions that only an entry for everybody matches. 192.88.99.0/24, the client's
// network, is for an anycast service that is no longer in use.
const (
	nobody  = "someone@blockd-import.example"
	inbox   = "inbox@blockd-import.example"
	nowhere = "blockd-import"
)

var aClient = netip.MustParseAddr("192.88.99.7")

// complete fills in what an entry says nothing of.
func (m Mail) complete() Mail {
	m.Recipient, m.Author, m.Field = cmp.Or(m.Recipient, inbox), cmp.Or(m.Author, nobody), cmp.Or(m.Field, "From")
	if !m.Client.IsValid() {
		m.Client = aClient
	}
	return m
}

// String says what it is that both were asked, as far as it is not the same of all mails.
func (m Mail) String() string {
	text := cmp.Or(m.Sender, "<>")
	if m.Author != nobody && m.Author != m.Sender {
		text += ", " + m.Field + ": " + m.Author
	}
	if m.Recipient != inbox {
		text += " to " + m.Recipient
	}
	switch {
	case m.Name != "":
		text += " by " + m.Name
	case m.Client != aClient:
		text += " by " + m.Client.String()
	}
	return text
}

// Fate is what becomes of a mail.
type Fate uint8

// The fates.
const (
	Unknown Fate = iota // it could not be asked
	Passes
	Refused
	Deferred
	Held
	Dropped
	Tagged
)

// String is the fate in words.
func (f Fate) String() string {
	return [...]string{Unknown: "no answer", Passes: "let pass", Refused: "refused", Deferred: "deferred", Held: "held", Dropped: "dropped", Tagged: "tagged"}[f]
}

// Answer is what a program does with a mail.
type Answer struct {
	Fate  Fate
	Words string // codes and text of the reply, or what else is done; compared where the other program has words
}

// String is the answer for people.
func (a Answer) String() string {
	if a.Words == "" {
		return a.Fate.String()
	}
	return a.Fate.String() + ": " + a.Words
}

// Answerer says what becomes of mails, one answer a mail.
type Answerer func(ctx context.Context, mails []Mail) ([]Answer, error)

// Difference is a mail that two programs answer differently.
type Difference struct {
	Place
	Entry string `json:"text"`
	Mail  string `json:"mail"`
	There string `json:"there"`
	Here  string `json:"here"`

	weight int // 0: let pass there, and not here; 1: something else becomes of it; 2: other words
}

// maxDifferences bounds the differences that are kept, of some 300 octets each. The others are counted.
const maxDifferences = 100_000

// Ask asks there and here about all mails, a batch at a time, and settles the outcome of every entry. progress is
// told of how many entries. An error of the other program ends the asking, and is said in Unasked; one of here is
// returned. What was started for it has ended then.
func (r *Result) Ask(ctx context.Context, here Answerer, progress func(entries int)) error {
	if r.There == nil || r.Mails == nil {
		r.Unasked = cmp.Or(r.Unasked, "there is nobody to ask")
		return nil
	}
	defer r.Close()
	size := cmp.Or(r.batch, 4000)
	worst := map[*Finding]Outcome{} // of those that are not the same
	var mails []Mail
	entries, last := 0, (*Finding)(nil)
	flush := func() error {
		was, err := r.There(ctx, mails)
		switch {
		case ctx.Err() != nil:
			return ctx.Err()
		case err != nil:
			r.Unasked = err.Error()
			return nil
		}
		is, err := here(ctx, mails)
		if err != nil {
			return err
		}
		for i, m := range mails {
			r.weigh(m, was[i], is[i], worst)
		}
		progress(entries)
		mails = mails[:0]
		return nil
	}
	for m := range r.Mails {
		if m.About != last {
			entries, last = entries+1, m.About
		}
		if mails = append(mails, m.complete()); len(mails) == size {
			if err := flush(); err != nil {
				return err
			}
			if r.Unasked != "" {
				break
			}
		}
	}
	if len(mails) > 0 && r.Unasked == "" {
		if err := flush(); err != nil {
			return err
		}
	}
	slices.SortStableFunc(r.Differences, func(a, b Difference) int { return a.weight - b.weight })
	for _, f := range r.Findings {
		outcome, odd := worst[f]
		switch {
		case f.Outcome == Stays || f.Mails == 0 && !odd || r.Unasked != "": // as it is
		case !odd:
			f.Outcome = Same
		case f.Outcome != Lost:
			f.Outcome = outcome
		}
	}
	return nil
}

// weigh compares two answers.
func (r *Result) weigh(m Mail, was, is Answer, worst map[*Finding]Outcome) {
	if was.Fate == Unknown {
		if _, known := worst[m.About]; !known {
			worst[m.About] = NotAsked
			m.About.Remark(was.Words)
		}
		return
	}
	r.Asked++
	m.About.Mails++
	d := Difference{m.About.Place, m.About.Text, m.String(), was.String(), is.String(), 2}
	switch turned := was.Fate == Refused || was.Fate == Deferred; {
	case was.Fate == is.Fate && (was.Words == is.Words || turned && (m.pair || was.Words == "")):
		r.Alike++
		return
	case was.Fate == is.Fate && turned:
		worst[m.About] = max(worst[m.About], Reworded)
	default:
		worst[m.About] = Differs
		if d.weight = 1; was.Fate == Passes && is.Fate != Tagged {
			d.weight = 0
			r.Wronged++
		}
	}
	if len(r.Differences) < maxDifferences {
		r.Differences = append(r.Differences, d)
	}
}

// Whole reports whether every entry was asked, and no answer differs.
func (r *Result) Whole() bool {
	return r.Unasked == "" && r.Asked == r.Alike && !slices.ContainsFunc(r.Findings, func(f *Finding) bool { return f.Outcome != Same && f.Outcome != Stays })
}

// maxPartners bounds the senders and clients that each key is asked together with.
const maxPartners = 3

// sampled is an entry with the mails about it.
type sampled struct {
	*Finding
	of      any // what the entry is in: one entry of each is a partner of others
	about   about
	refuses bool
	mails   func() (all []Mail, key int) // key: which of them has the entry's own key
}

// together yields the mails about entries: of each its own, and one that joins it with a sender or client of
// another one, or with one of more, because that may decide first. Those about authors are asked alone.
func together(entries iter.Seq[sampled], more []Mail, yield func(Mail) bool) {
	partners, seen := map[about][]Mail{}, map[any]bool{}
	for e := range entries {
		if !e.refuses || seen[e.of] || len(partners[e.about]) == maxPartners {
			continue
		}
		if mails, key := e.mails(); len(mails) > 0 && mails[0].Name == "" {
			partners[e.about], seen[e.of] = append(partners[e.about], mails[key]), true
		}
	}
	partners[clients] = append(partners[clients], more...)
	for e := range entries {
		mails, key := e.mails()
		for _, axis := range [...]about{senders, clients} {
			for _, p := range partners[axis] {
				if axis == e.about || e.about == authors || len(mails) == 0 {
					break
				}
				m := mails[key]
				if m.pair = true; axis == senders {
					m.Sender = p.Sender
				} else {
					m.Client = p.Client
				}
				mails = append(mails, m)
			}
		}
		for _, m := range mails {
			if m.About = e.Finding; !yield(m) {
				return
			}
		}
	}
}

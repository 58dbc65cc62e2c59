package live

import (
	"cmp"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"strings"
	"time"

	"blockd/records/audit"
)

// Entries may be shared by the machines of a fleet. An engine, a database that all of them reach, gives each change its
// revision. A machine takes the changes in the order of their revisions into its own journal, and acts by that alone.

// Cursor says which changes of an engine a Set has: all up to a revision. It is in the journal, so it says no more than the
// entries do.
type Cursor struct {
	Origin   string // whose revisions they are; "" = the Set has never had any. At most maxOrigin octets
	Revision uint64
	Reading  bool // everything is being read anew, and has not been read to its end
}

// maxOrigin bounds the origin of a Cursor, which has a place in the head of the snapshot.
const maxOrigin = 160

// reading begins the origin of a Cursor that says Reading.
const reading = "?"

func cursorOf(r *record) Cursor {
	origin, partly := strings.CutPrefix(r.From, reading)
	return Cursor{Origin: origin, Revision: r.Rev, Reading: partly}
}

func (c Cursor) record(number uint64) record {
	r := record{N: number, Op: opRev, Rev: c.Revision, From: c.Origin}
	if c.Reading {
		r.From = reading + r.From
	}
	return r
}

// advance takes a change of a revision.
func (c *Cursor) advance(rev uint64) {
	if c.Origin != "" && !c.Reading {
		c.Revision = max(c.Revision, rev)
	}
}

// append appends a cursor as the head of a snapshot has it.
func (c Cursor) append(b []byte) []byte {
	r := c.record(0)
	b = binary.LittleEndian.AppendUint64(b, r.Rev)
	return append(append(b, byte(len(r.From))), r.From...)
}

func (c *Cursor) decode(b []byte) bool {
	if len(b) < 9 || int(b[8]) > min(maxOrigin+1, len(b)-9) {
		return false
	}
	*c = cursorOf(&record{Rev: binary.LittleEndian.Uint64(b), From: string(b[9 : 9+int(b[8])])})
	return true
}

// Revision is what names this state of the entry: its revision in the fleet, or its number on a machine of its own. It is 0
// for nil.
func (e *Entry) Revision() uint64 {
	if e == nil {
		return 0
	}
	return cmp.Or(e.Rev, e.Number)
}

// RevisionError is the error of a change whose IfRev is not the revision of the entry.
type RevisionError struct {
	Entry string
	Was   *Entry // what is there; nil = nothing
}

func (e *RevisionError) Error() string {
	if e.Was == nil {
		return fmt.Sprintf("%s: there is no such entry any more", e.Entry)
	}
	return fmt.Sprintf("%s: it has changed meanwhile, and has the revision %d", e.Entry, e.Was.Revision())
}

var (
	// ErrAway is wrapped by the error of a change that was not made because the engine does not answer.
	ErrAway = errors.New("the store that the fleet's live entries are in does not answer")
	// ErrAlone is the error of a Share that wants the change to be made on this machine alone.
	ErrAlone = errors.New("made on this machine alone")
)

// Want is a change as an engine is asked for it.
type Want struct {
	Row   Row     // a removal has Gone
	IfRev *uint64 // the revision that the row must have, 0 = it must be missing or gone; nil = any
}

// Given is what an engine has made of a Want.
type Given struct {
	Was      *Row   // in force before; nil = nothing
	Rev      uint64 // of the change; 0 = nothing has changed
	Replicas int    // of the engine that have it too; -1 = the engine does not say
	Conflict bool   // IfRev is another revision than that of Was: nothing of the call was done
}

// Terms are what has to hold where changes are made, or none of them is made.
type Terms struct {
	MostOfOwner int      // the greatest number of entries of one owner; 0 = any
	Holding     *Holding // what an owner has before the changes; nil = anything
}

// Holding says which entries in force an owner has: how many, and the sum of their revisions. A change gives an entry a higher revision than
// all before, so other entries of the same number come to a higher sum.
type Holding struct {
	Owner string
	Count int
	Sum   uint64
}

// Share makes changes where other machines see them. It returns when the Set has Taken them, or ErrAlone if this machine is
// to make them by itself, or an error that wraps ErrAway, ErrOwnerFull or ErrChanged.
type Share func(ctx context.Context, wants []Want, terms Terms) ([]Given, error)

// SetShare has changes made by share from now on; nil = by this machine alone.
func (s *Set) SetShare(share Share) {
	if share == nil {
		s.share.Store(nil)
		return
	}
	s.share.Store(&share)
}

// Shared reports whether the entries are shared with other machines. A nil Set's are not.
func (s *Set) Shared() bool { return s != nil && s.share.Load() != nil }

// applyShared has the changes of a request made by share.
func (s *Set) applyShared(share *Share, r *request) error {
	terms := Terms{MostOfOwner: s.most}
	expected, err := s.preview(r, &terms)
	if err != nil {
		return err
	}
	wants := make([]Want, len(r.changes))
	for i, c := range r.changes {
		wants[i] = Want{Row: RowOf(r.wanted[i]), IfRev: c.IfRev}
		if c.Remove {
			wants[i].Row.Gone = r.now.Unix()
		}
	}
	m := request{changes: r.changes, outcomes: expected, now: r.now}
	if err := s.audit.Add(linesOf([]*request{&m}, "", nil)...); err != nil {
		return err
	}
	given, err := (*share)(context.Background(), wants, terms)
	if errors.Is(err, ErrAlone) {
		r.noted = true
		s.join(r)
		r.noted, err = false, r.err
	} else if err == nil {
		r.outcomes, err = s.outcomesOf(r, given)
	}
	if err != nil {
		s.audit.Add(linesOf([]*request{&m}, audit.Failed, err)...) // if not even that is written, Problem says so
	}
	return err
}

// Fits reports whether the entry in force here has the revision that a change wants.
func (s *Set) Fits(w *Want) bool {
	if w.IfRev == nil {
		return true
	}
	e := s.Get(&w.Row)
	if e != nil && e.expired(s.Now().Unix()) {
		e = nil
	}
	return e.Revision() == *w.IfRev
}

// preview returns what the changes of a request would come to here, and why they cannot be made. With a tag of the owner's entries, the
// terms get what of these is shared.
func (s *Set) preview(r *request, terms *Terms) ([]Outcome, error) {
	s.writing.Lock()
	defer s.writing.Unlock()
	if s.yielded {
		return nil, ErrYielded
	}
	if s.journal == nil {
		return nil, fmt.Errorf("%w: they were opened to be read, or are closed", ErrUnwritable)
	}
	st := s.stage()
	if r.tag != "" {
		if !st.unchanged(r.owner, r.tag, r.now) {
			return nil, ErrChanged
		}
		terms.Holding = &Holding{Owner: r.owner}
		for _, e := range s.view.Load().of(r.owner, r.now) {
			if e.Rev > 0 {
				terms.Holding.Count++
				terms.Holding.Sum += e.Rev
			}
		}
	}
	changes := make([]Change, len(r.changes))
	for i, c := range r.changes {
		c.IfRev = nil // the engine judges it
		changes[i] = c
	}
	return st.add(changes, r.wanted, r.now)
}

// outcomesOf says what was made of the changes of a request.
func (s *Set) outcomesOf(r *request, given []Given) ([]Outcome, error) {
	v := s.view.Load()
	outcomes := make([]Outcome, len(given))
	for i, g := range given {
		var was *Entry
		if g.Was != nil {
			var err error
			if was, err = g.Was.Parse(); err != nil {
				return nil, err
			}
			if here := v.get(was.identity()); here != nil && here.Rev == was.Rev {
				was = here
			}
		}
		if g.Conflict {
			return nil, &RevisionError{Entry: r.wanted[i].Text, Was: was}
		}
		o := Outcome{Was: was, Rev: g.Rev, Replicas: g.Replicas}
		switch {
		case g.Rev == 0 && !r.changes[i].Remove:
			o.Entry = was
		case r.changes[i].Remove:
		default:
			e := *r.wanted[i]
			e.Rev = g.Rev
			if o.Entry = &e; v.get(e.identity()) != nil && v.get(e.identity()).Rev == e.Rev {
				o.Entry = v.get(e.identity())
			}
		}
		outcomes[i] = o
	}
	return outcomes, nil
}

// Now is the time by which entries end: the engine's, if its clock and this machine's differ.
func (s *Set) Now() time.Time { return time.Now().Add(time.Duration(s.offset.Load())) }

// SetOffset says how far the engine's clock is before this machine's.
func (s *Set) SetOffset(d time.Duration) { s.offset.Store(int64(d)) }

// seconds is a time of this machine's clock by that of the engine.
func (s *Set) seconds(now time.Time) int64 { return now.Add(time.Duration(s.offset.Load())).Unix() }

package live

import (
	"fmt"
	"iter"
	"runtime"
)

// Taken is what Take has made of rows.
type Taken struct {
	Outcomes []Outcome // what has changed
	Left     []Left    // rows that are left out
}

// Left is a row that Take has left out, and why: this program cannot read it, or, with ErrFull, there is no room.
type Left struct {
	Row int // its place among the rows
	Err error
}

// Cursor returns which changes of an engine the Set has.
func (s *Set) Cursor() Cursor {
	s.writing.Lock()
	defer s.writing.Unlock()
	return s.cursor
}

// Take makes the changes of an engine, in the order of rows: those whose revision is higher than that of the entry here, or,
// with always, all of them. The Set has the changes up to the cursor then. Nobody else decides about these rows: neither the gate nor the bound of an owner
// leaves one out, only MaxEntries does. The error wraps ErrUnwritable or is ErrYielded; then nothing was made.
func (s *Set) Take(rows []Row, to Cursor, always bool) (taken Taken, err error) {
	s.writing.Lock()
	defer s.writing.Unlock()
	if s.yielded {
		return taken, ErrYielded
	}
	if len(to.Origin) > maxOrigin {
		return taken, fmt.Errorf("%w: an origin of more than %d octets", ErrUnwritable, maxOrigin)
	}
	st := s.stage()
	for i := range rows {
		row := &rows[i]
		e, err := row.Parse()
		if err != nil {
			taken.Left = append(taken.Left, Left{i, err})
			continue
		}
		id := e.identity()
		was, changed := st.after[id]
		if !changed {
			was = s.view.Load().get(id)
		} else if was.gone {
			was = nil
		}
		if was != nil && was.Rev >= row.Rev && !always || row.Gone != 0 && was == nil {
			continue
		}
		switch {
		case row.Gone != 0:
			st.held--
		case was == nil && st.held >= MaxEntries:
			taken.Left = append(taken.Left, Left{i, fmt.Errorf("row %s: %w", row, ErrFull)})
			continue
		case was == nil:
			st.held++
		}
		st.last++
		e.Number = st.last
		r := recordOf(e)
		o := Outcome{Entry: e, Was: was, Rev: row.Rev, Replicas: -1}
		if row.Gone != 0 {
			r = record{N: st.last, Op: opRemove, Owner: row.Owner, Entry: row.Entry, Author: row.By, Rev: row.Rev}
			e.gone, o.Entry = true, nil
		}
		st.records = append(st.records, r)
		st.after[id] = e
		taken.Outcomes = append(taken.Outcomes, o)
	}
	cursor := s.cursor
	for _, r := range st.records {
		cursor.advance(r.Rev)
	}
	if cursor != to {
		st.last++
		st.records = append(st.records, to.record(st.last))
	}
	if len(st.records) == 0 {
		return taken, nil
	}
	if err := s.commit(st); err != nil {
		return Taken{}, err
	}
	s.cursor = to
	for _, o := range taken.Outcomes {
		s.counts.count(o)
	}
	return taken, nil
}

// Sum returns what the entries with revisions come to. The first call reads all of them.
func (s *Set) Sum() Sum {
	sum, _ := s.SumAt()
	return sum
}

// SumAt is Sum, with the cursor of the same moment.
func (s *Set) SumAt() (Sum, Cursor) {
	s.writing.Lock()
	defer s.writing.Unlock()
	if s.sum == nil {
		var sum Sum
		for e := range s.view.Load().every() {
			sum.replace(nil, e)
		}
		s.sum = &sum
	}
	return *s.sum, s.cursor
}

// Every returns all entries, those of owners and those that have ended too, as they are when the iteration begins.
func (s *Set) Every() iter.Seq[*Entry] { return s.view.Load().every() }

func (v *view) every() iter.Seq[*Entry] {
	return func(yield func(*Entry) bool) {
		defer runtime.KeepAlive(v)
		changes := v.sorted()
		for _, e := range changes {
			if !e.gone && !yield(e) {
				return
			}
		}
		if v.base == nil {
			return
		}
		changed := v.base.changedBy(changes)
		for i := range v.base.count {
			if !changed.has(i) && !yield(v.base.entry(i)) {
				return
			}
		}
	}
}

// Get returns the entry that is about the same as a row, or nil.
func (s *Set) Get(row *Row) *Entry {
	e, err := row.Parse()
	if err != nil {
		return nil
	}
	return s.view.Load().get(e.identity())
}

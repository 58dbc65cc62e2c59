package live

import (
	"errors"
	"fmt"
	"maps"
	"runtime"
	"sync"
	"time"

	"blockd/records/audit"
)

// request is one call of Apply that waits for its group.
type request struct {
	changes  []Change
	wanted   []*Entry
	now      time.Time
	owner    string // of all changes, if tag is to be compared
	tag      string // of ApplyIf; "" = none
	noted    bool   // the audit journal has its lines
	outcomes []Outcome
	err      error
	turn     chan bool // true: lead the next group; false: outcomes and err are final
}

// requests are the calls of Apply that wait while a group is being written. The first call
// leads: it writes all that wait with one sync. When a group ends, the first that has arrived
// meanwhile leads the next one.
type requests struct {
	mu      sync.Mutex
	waiting []*request
	led     bool // a group has a leader
	crowded bool // the last group had several calls
}

// errAbandoned is the error of a group whose leader has panicked.
var errAbandoned = errors.New("internal error while they were written")

// join waits until r has been part of a group.
func (s *Set) join(r *request) {
	q := &s.requests
	q.mu.Lock()
	q.waiting = append(q.waiting, r)
	lead := !q.led
	q.led = true
	q.mu.Unlock()
	if lead || <-r.turn {
		s.lead(r)
	}
}

// lead writes one group, of which r is part.
func (s *Set) lead(r *request) {
	q := &s.requests
	q.mu.Lock()
	crowded := q.crowded
	q.mu.Unlock()
	if crowded {
		// The members of the last group have just been woken. Those that have more to write come
		// into this group, and not into the next. A lone writer would lose time by it: it would
		// go on in another thread.
		runtime.Gosched()
	}
	s.writing.Lock()
	q.mu.Lock()
	group := q.waiting
	q.waiting, q.crowded = nil, len(group) > 1
	q.mu.Unlock()
	for _, m := range group {
		m.err = fmt.Errorf("%w: %w", ErrUnwritable, errAbandoned)
	}
	defer func() {
		s.writing.Unlock()
		for _, m := range group {
			if m != r {
				m.turn <- false
			}
		}
		q.mu.Lock()
		defer q.mu.Unlock()
		if q.led = len(q.waiting) > 0; q.led {
			q.waiting[0].turn <- true
		}
	}()
	s.applyGroup(group)
}

// applyGroup makes the changes of all requests, in order, with one sync. A request that cannot
// be made fails alone. If the group cannot be written, all of it fails: a request that changes
// nothing may have met a change of another one. The caller holds writing.
func (s *Set) applyGroup(group []*request) {
	st := s.stage()
	for _, m := range group {
		if s.yielded {
			m.err = ErrYielded
			continue
		}
		if s.journal == nil {
			m.err = fmt.Errorf("%w: they were opened to be read", ErrUnwritable)
			continue
		}
		if m.tag != "" && !st.unchanged(m.owner, m.tag, m.now) {
			m.err = ErrChanged
			continue
		}
		m.outcomes, m.err = st.add(m.changes, m.wanted, m.now)
	}
	err := s.audit.Add(linesOf(group, "", nil)...)
	if err == nil {
		if err = s.commit(st); err != nil {
			s.audit.Add(linesOf(group, audit.Failed, err)...) // if not even that is written, Problem says so
		}
	}
	for _, m := range group {
		if m.err == nil && err != nil {
			m.outcomes, m.err = nil, err
		}
		for _, o := range m.outcomes {
			s.counts.count(o)
		}
	}
}

// stage is what changes come to that are not yet written.
type stage struct {
	set     *Set
	after   map[identity]*Entry // the changed entries; one that is gone = removed
	last    uint64              // the highest number in use
	held    int                 // number of entries
	owners  map[string]int      // so many entries more of an owner
	records []record
}

func (s *Set) stage() *stage {
	return &stage{set: s, after: map[identity]*Entry{}, owners: map[string]int{}, last: s.last, held: s.Len()}
}

// add adds all changes, in order, or none.
func (st *stage) add(changes []Change, wanted []*Entry, now time.Time) ([]Outcome, error) {
	outcomes, records, last := make([]Outcome, len(changes)), []record(nil), st.last
	after := make(map[identity]*Entry, len(changes))
	added, owners := 0, map[string]int{}
	for i, e := range wanted {
		was, changed := after[e.identity()]
		if !changed {
			was, changed = st.after[e.identity()]
		}
		if !changed {
			was = st.set.view.Load().get(e.identity())
		} else if was.gone {
			was = nil
		}
		owner := e.Item.Owner.Text
		count := func(n int) {
			added += n
			if owner != "" {
				owners[owner] += n
			}
		}
		if was != nil && was.expired(now.Unix()) && !changes[i].Remove {
			was = nil // an expired entry no longer counts, but the new one replaces it
			count(-1)
		}
		if want := changes[i].IfRev; want != nil && was.Revision() != *want {
			return nil, &RevisionError{Entry: e.Text, Was: was}
		}
		outcomes[i] = Outcome{Entry: e, Was: was, Replicas: -1}
		switch {
		case changes[i].Remove && was == nil:
			outcomes[i].Entry = nil
			continue
		case changes[i].Remove:
			outcomes[i].Entry = nil
			count(-1)
			last++
			records = append(records, record{N: last, Op: opRemove, Owner: was.Item.Owner.Text, Entry: was.Text, Author: changes[i].Author, At: now.UTC().Truncate(time.Second)})
			after[e.identity()] = &Entry{Number: last, Item: was.Item, key: was.key, gone: true}
			continue
		case was != nil && was.same(e):
			outcomes[i].Entry = was
			continue
		case was == nil:
			count(1)
		}
		last++
		e.Number = last
		records = append(records, recordOf(e))
		after[e.identity()] = e
	}
	if st.held+added > MaxEntries && added > 0 {
		return nil, ErrFull
	}
	for owner, n := range owners {
		if has := st.owners[owner] + st.set.view.Load().countOf(owner); n > 0 && st.set.most > 0 && has+n > st.set.most {
			return nil, fmt.Errorf("%w: %s has %d, and may have %d (max_entries_per_owner)", ErrOwnerFull, owner, has, st.set.most)
		}
	}
	for owner, n := range owners {
		st.owners[owner] += n
	}
	st.last, st.held, st.records = last, st.held+added, append(st.records, records...)
	maps.Copy(st.after, after)
	return outcomes, nil
}

// commit writes what is staged, and makes it act. The caller holds writing.
func (s *Set) commit(st *stage) error {
	if len(st.records) == 0 {
		return nil
	}
	if err := s.write(st.records); err != nil {
		return err
	}
	s.last = st.last
	s.act(st.after)
	return nil
}

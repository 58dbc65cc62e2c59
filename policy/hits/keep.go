package hits

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"maps"
	"slices"
	"time"

	"blockd/internal/durable"
)

// state is what a Table was told and has counted, for a process after it.
type state struct {
	Version int     `json:"hits_version"`
	Lists   []List  `json:"lists"`
	Entries []Entry `json:"entries"`
	Floor   uint64  `json:"floor"` // of entries that are not there, see topEntries
}

const stateVersion = 1

// maxState bounds a file of state, in octets. A whole one has some 2 MB.
const maxState = 64 << 20

// State returns what Restore of another process's Table takes: all that was counted here and before.
func (t *Table) State() []byte {
	entries, floor := t.top.merged(2 * maxTopEntries)
	text, _ := json.Marshal(state{stateVersion, t.Lists(), entries, floor}) // texts, numbers and times of now: it cannot fail
	return text
}

// Restore makes a State what Lists and Top count on from, in place of an earlier one. The metrics count from the start of the
// process, as all metrics do. After an error everything is as it was.
func (t *Table) Restore(text []byte) error {
	var s state
	if err := json.Unmarshal(text, &s); err != nil {
		return fmt.Errorf("counts of hits: %w", err)
	}
	if s.Version != stateVersion || len(s.Entries) > 2*maxTopEntries {
		return errors.New("counts of hits: of another version, or of another program")
	}
	t.mu.Lock()
	t.before = map[string]List{}
	for _, l := range s.Lists {
		t.before[l.Name] = l
	}
	t.mu.Unlock()
	t.top.mu.Lock()
	t.top.before, t.top.beforeFloor = s.Entries, s.Floor
	t.top.mu.Unlock()
	t.changes.Add(1)
	return nil
}

// Load restores the state in the file at path; nil if there is none.
func (t *Table) Load(path string) error {
	text, err := durable.Read(path, maxState)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err == nil {
		if err = t.Restore(text); err != nil {
			err = fmt.Errorf("%s: %w", path, err)
		}
	}
	return err
}

// saveEvery is how much of the counts a crash costs at most.
const saveEvery = time.Minute

// Forget takes the counts of entries out of which is accepts the text, here and in the file at path, and returns how many
// they were.
func (t *Table) Forget(is func(entry string) bool, path string) (gone int, err error) {
	t.top.mu.Lock()
	seen := map[entryKey]bool{}
	drop := func(e Entry) bool {
		if !is(e.Text) {
			return false
		}
		seen[entryKey{e.List, e.Text}] = true
		return true
	}
	t.top.before = slices.DeleteFunc(slices.Clone(t.top.before), drop) // others may read it
	t.top.entries = slices.DeleteFunc(t.top.entries, drop)
	clear(t.top.places)
	for i, e := range t.top.entries {
		t.top.places[entryKey{e.List, e.Text}] = int32(i)
	}
	t.top.mu.Unlock()
	if len(seen) == 0 {
		return 0, nil
	}
	t.changes.Add(1) // so that Keep writes it too, which may be writing an earlier state now
	return len(seen), durable.WriteFile(path, t.State(), 0o600)
}

// Keep saves the state to the file at path once a minute, and when ctx ends, if it has changed: also by Restore, which may be
// the last that a process that was taken over from has to tell.
func (t *Table) Keep(ctx context.Context, path string, log *slog.Logger) error {
	saved := uint64(0)
	return durable.Keep(ctx, saveEvery, func() error {
		now := t.changes.Load()
		if now == saved {
			return nil
		}
		err := durable.WriteFile(path, t.State(), 0o600)
		if err == nil {
			saved = now
		}
		return err
	}, log, "hits are not kept for the next start")
}

// plus is a list's counts with those of before.
func (l List) plus(before List) List {
	l.Hits += before.Hits
	l.Sole += before.Sole
	l.Overridden += before.Overridden
	if before.Last.After(l.Last) {
		l.Last = before.Last
	}
	return l
}

// merged returns the n entries with the most hits, here and before, the most first, and what one that is not among them may
// have had at most.
func (t *topEntries) merged(n int) (all []Entry, floor uint64) {
	t.mu.Lock()
	own, before, ownFloor, beforeFloor := slices.Clone(t.entries), t.before, t.floor, t.beforeFloor
	t.mu.Unlock()
	byKey := make(map[entryKey]Entry, len(own)+len(before))
	for _, e := range own {
		byKey[entryKey{e.List, e.Text}] = e
	}
	for _, b := range before {
		key := entryKey{b.List, b.Text}
		e, has := byKey[key]
		if !has { // it may have had as many here as one that has no place
			e = Entry{List: b.List, Text: b.Text, Line: b.Line, Hits: ownFloor, Over: ownFloor}
		}
		e.Hits += b.Hits
		e.Over += b.Over
		e.Sole += b.Sole
		e.Overridden += b.Overridden
		if b.Last.After(e.Last) {
			e.Last, e.Line = b.Last, b.Line
		}
		byKey[key] = e
	}
	if beforeFloor > 0 {
		known := make(map[entryKey]bool, len(before))
		for _, b := range before {
			known[entryKey{b.List, b.Text}] = true
		}
		for _, e := range own {
			if key := (entryKey{e.List, e.Text}); !known[key] {
				e.Hits += beforeFloor
				e.Over += beforeFloor
				byKey[key] = e
			}
		}
	}
	all = slices.SortedFunc(maps.Values(byKey), func(a, b Entry) int {
		return cmp.Or(cmp.Compare(b.Hits, a.Hits), cmp.Compare(a.Over, b.Over), cmp.Compare(a.List, b.List), cmp.Compare(a.Text, b.Text))
	})
	floor = ownFloor + beforeFloor
	if n = max(n, 0); len(all) > n {
		if n > 0 {
			floor = max(floor, all[n].Hits)
		}
		all = all[:n]
	}
	return all, floor
}

package letter

import (
	"maps"
	"slices"
	"strings"
	"sync"
)

// Diary notes how lists are loaded in a period. It is safe for concurrent use. A nil Diary notes nothing.
type Diary struct {
	mu      sync.Mutex
	lists   map[string]*Load
	content map[string]Content // that serves, by list; nil: nothing is known yet
	changed bool
}

// NewDiary returns an empty one.
func NewDiary() *Diary { return &Diary{lists: map[string]*Load{}} }

// Content is what serves of one list.
type Content struct {
	Entries int
	Hash    uint64 // of what the files hold: another content has another one
}

// mostNoted bounds the lists of a Diary, and maxWhy a text in it, in octets.
const (
	mostNoted = 2000
	maxWhy    = 400
)

func (d *Diary) of(list string) *Load {
	one := d.lists[list]
	if one == nil {
		if len(d.lists) >= mostNoted {
			return &Load{} // for nobody
		}
		one = &Load{List: list}
		d.lists[list] = one
	}
	return one
}

// Served notes which contents serve now. The first call is where the diary begins.
func (d *Diary) Served(now map[string]Content) {
	if d == nil {
		return
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	before := d.content
	d.content = now
	if before == nil {
		return
	}
	for list, is := range now {
		was, known := before[list]
		if known && was.Hash == is.Hash {
			continue
		}
		one := d.of(list)
		if one.Loads == 0 {
			one.Before, one.New = was.Entries, !known
		}
		one.Loads++
		d.changed = true
	}
}

// Refused notes that a content of a list was refused.
func (d *Diary) Refused(list, why string) {
	if d == nil {
		return
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	one := d.of(list)
	one.Refused++
	if one.Why = why; len(why) > maxWhy {
		one.Why = strings.ToValidUTF8(why[:maxWhy], "") + "…"
	}
	d.changed = true
}

// forgotten is in place of a text that has named a person.
const forgotten = "for a reason that named a person who was forgotten"

// Forget takes out the texts that names accepts, and returns how many they were.
func (d *Diary) Forget(names func(text string) bool) (gone int) {
	if d == nil {
		return 0
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	for _, one := range d.lists {
		if names(one.Why) {
			one.Why = forgotten
			d.changed = true
			gone++
		}
	}
	return gone
}

// Loads are the notes of the period, with what is known of now: stale lists, and how many entries are held back. Lists without
// anything to tell are left out.
func (d *Diary) Loads(stale []string, held map[string]int) []Load {
	if d == nil {
		return nil
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	all := map[string]Load{}
	for list, one := range d.lists {
		all[list] = *one
	}
	for _, list := range stale {
		one := all[list]
		one.List, one.Stale = list, true
		all[list] = one
	}
	for list, n := range held {
		if n > 0 {
			one := all[list]
			one.List, one.Held = list, n
			all[list] = one
		}
	}
	var loads []Load
	for _, list := range slices.Sorted(maps.Keys(all)) {
		one := all[list]
		one.Entries = d.content[list].Entries
		loads = append(loads, one)
	}
	return loads
}

// Changed reports whether something was noted since State was last called.
func (d *Diary) Changed() bool {
	if d == nil {
		return false
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.changed
}

// State is what Restore of another process's Diary takes.
func (d *Diary) State() map[string]Load {
	if d == nil {
		return nil
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	d.changed = false
	all := map[string]Load{}
	for list, one := range d.lists {
		now := *one
		now.Entries = d.content[list].Entries
		all[list] = now
	}
	return all
}

// Restore adds the notes of a process before to those that were made here meanwhile.
func (d *Diary) Restore(before map[string]Load) {
	if d == nil {
		return
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	for list, was := range before {
		one := d.of(list)
		if was.Loads > 0 {
			one.Before, one.New = was.Before, was.New
		}
		if one.Refused == 0 {
			one.Why = was.Why
		}
		one.Loads += was.Loads
		one.Refused += was.Refused
		d.changed = true
	}
}

// Told forgets a State that a letter was about. What was noted since is of the next one.
func (d *Diary) Told(what map[string]Load) {
	if d == nil {
		return
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	for list, was := range what {
		one := d.lists[list]
		if one == nil {
			continue
		}
		one.Loads, one.Refused, one.New = one.Loads-was.Loads, one.Refused-was.Refused, false
		if one.Before = was.Entries; one.Loads == 0 && one.Refused == 0 {
			delete(d.lists, list)
		} else if one.Refused == 0 {
			one.Why = ""
		}
	}
	d.changed = true
}

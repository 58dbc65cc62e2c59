package index

import "maps"

// tally keeps account of what an update changes in the counts of an index.
type tally struct {
	base          *Index
	was, now      *worthCounter // of the keys that have changed
	keys, entries int64
	kinds         uint64
	nets          netCounts
	entriesOf     []entry // reused
}

func newTally(base *Index) *tally {
	return &tally{base: base, was: newWorthCounter(base.file.lists), now: newWorthCounter(base.file.lists), nets: maps.Clone(base.file.networks.counts)}
}

// count counts a key of which other entries tell now.
func (t *tally) count(key string, was, now []said) {
	t.entries += int64(len(now)) - int64(len(was))
	t.keys += int64(min(len(now), 1)) - int64(min(len(was), 1))
	t.worth(t.was, was)
	t.worth(t.now, now)
	net, isNet := netOf(key)
	switch {
	case isNet && len(was) == 0 && len(now) > 0:
		t.nets.note(appendNetKey(nil, net))
	case isNet && len(was) > 0 && len(now) == 0:
		l := netLength{key[0], key[1]}
		if t.nets[l]--; t.nets[l] == 0 {
			delete(t.nets, l)
		}
	case !isNet && len(now) > 0:
		t.kinds |= kindBit(keyOf(key))
	}
}

func (t *tally) worth(w *worthCounter, all []said) {
	if len(all) == 0 {
		return
	}
	t.entriesOf = t.entriesOf[:0]
	for _, s := range all {
		t.entriesOf = append(t.entriesOf, s.entry)
	}
	w.count(t.entriesOf)
}

// apply makes the counts those of ix.
func (t *tally) apply(ix *Index) (err error) {
	h := ix.file.header
	h.keys, h.entries = h.keys+uint64(t.keys), h.entries+uint64(t.entries)
	h.kinds |= t.kinds
	if ix.file.networks, err = decodeNetLengths(t.nets.append(nil), h.keys); err != nil {
		return err
	}
	if len(t.base.file.worth.lists) == 0 {
		return nil // an older file says nothing of it
	}
	t.now.amend(t.base.file.worth, t.was)
	ix.file.worth, err = decodeWorth(t.now.append(nil), uint64(len(t.now.lists)), ix.file.lists, h.keys)
	return err
}

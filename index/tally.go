package index

import (
	"maps"

	"blockd/index/internal/format"
	"blockd/index/internal/segment"
)

// tally keeps account of what an update changes in the counts of an index.
type tally struct {
	base          *Index
	was, now      *format.WorthCounter // of the keys that have changed
	keys, entries int64
	owners        int64
	kinds         uint64
	mask          format.OwnerMask
	nets          format.NetCounts
	digests       format.DigestCounts
	entriesOf     []format.Entry // reused
}

func newTally(base *Index) *tally {
	return &tally{base: base, was: format.NewWorthCounter(base.file.Lists), now: format.NewWorthCounter(base.file.Lists), nets: maps.Clone(base.file.Networks.Counts),
		digests: maps.Clone(base.file.Digests)}
}

// count counts a key of which other entries tell now.
func (t *tally) count(key string, was, now []segment.Said) {
	t.entries += int64(len(now)) - int64(len(was))
	keys := min(len(now), 1) - min(len(was), 1)
	t.keys += int64(keys)
	if format.IsOwner(key) {
		t.owners += int64(keys)
		t.mask |= format.MaskOf(key)
		return
	}
	if format.IsDigest(key) {
		t.digests.Change([]byte(key), keys, len(now)-len(was))
		return
	}
	t.worth(t.was, was)
	t.worth(t.now, now)
	_, isNet := format.NetOf(key)
	switch {
	case format.IsPersonal(key):
		t.mask |= format.MaskOf(key)
	case isNet && len(was) == 0 && len(now) > 0:
		t.nets.Note([]byte(key))
	case isNet && len(was) > 0 && len(now) == 0:
		t.nets.Drop(key)
	case !isNet && len(now) > 0:
		t.kinds |= format.KeyOf(key).KindBit()
	}
}

func (t *tally) worth(w *format.WorthCounter, all []segment.Said) {
	if len(all) == 0 {
		return
	}
	t.entriesOf = t.entriesOf[:0]
	for _, s := range all {
		t.entriesOf = append(t.entriesOf, s.Entry)
	}
	w.Count(t.entriesOf)
}

// apply makes the counts those of ix.
func (t *tally) apply(ix *Index) (err error) {
	h := ix.file.Header
	h.Keys, h.Entries = h.Keys+uint64(t.keys), h.Entries+uint64(t.entries)
	h.Kinds |= t.kinds
	h.OwnerMask |= t.mask
	h.Owners += uint32(t.owners)
	if ix.file.Networks, err = format.DecodeNetLengths(t.nets.Append(nil), h.Keys); err != nil {
		return err
	}
	ix.file.Digests = t.digests
	if len(t.base.file.Worth.Lists) == 0 {
		return nil // an older file says nothing of it
	}
	t.now.Amend(t.base.file.Worth, t.was)
	ix.file.Worth, err = format.DecodeWorth(t.now.Append(nil), uint64(len(t.now.Lists)), ix.file.Lists, h.Keys)
	return err
}

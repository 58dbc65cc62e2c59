package snapshot

import (
	"context"

	"github.com/klauspost/compress/zstd"
)

func (w *preparing) note(d difference) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.eases = w.eases && d.eases
	w.told.Added += d.added
	w.told.Removed += d.removed
	w.told.Altered += d.altered
}

// older adds deltas against sequences before the last: what the last one's delta does after theirs. The nearest ones come first, for
// all shards.
func (w *preparing) older(ctx context.Context, m *Manifest) error {
	if w.last == nil {
		return nil
	}
	small, err := newPacker(zstd.SpeedBetterCompression)
	if err != nil {
		return err
	}
	worker := &shardWriter{preparing: w, small: small}
	room := moreReferences
	for _, l := range m.Lists {
		for _, s := range l.Shards {
			if s.Base != nil {
				room -= reference
			}
		}
	}
	for back := 0; back < maxDeltas-1 && room > 0; back++ {
		for k := range m.Lists {
			l := &m.Lists[k]
			for i := range l.Shards {
				s := &l.Shards[i]
				change, changed := w.changes[k*shardCount+i]
				if !changed {
					continue
				}
				before := w.last.shard(l.Name, i)
				if before == nil || back >= len(before.Deltas) || room < reference || before.Deltas[back].From == s.Plain || s.Base != nil && before.Deltas[back].From == s.Base.Plain {
					continue
				}
				d, ok, err := worker.composed(ctx, before.Deltas[back], change, s)
				if err != nil {
					return err
				}
				if ok {
					s.Deltas = append(s.Deltas, d)
					room -= reference
				}
			}
		}
	}
	return nil
}

// composed is the delta that does what two do; false if it is not worth its place.
func (w *shardWriter) composed(ctx context.Context, first Delta, second string, s *Shard) (d Delta, ok bool, err error) {
	one, endOne, err := unpackFile(w.path(objectsName, first.Object), maxShard)
	if err != nil {
		return d, false, nil // it is lost: nodes find another way
	}
	defer endOne()
	two, endTwo, err := unpackFile(w.path(objectsName, second), maxShard)
	if err != nil {
		return d, false, err
	}
	defer endTwo()
	w.both.Reset()
	if err := compose(&w.both, one, two); err != nil {
		return d, false, err
	}
	return w.packDelta(ctx, first.From, w.both.Bytes(), s)
}

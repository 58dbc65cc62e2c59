package snapshot

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"

	"github.com/klauspost/compress/zstd"
)

// delta notes what differs from the last sequence, and makes a delta of it if that is worth its place.
func (w *shardWriter) delta(ctx context.Context, list string, i int, s *Shard, before *Shard) error {
	d, lines, err := w.difference(ctx, before)
	if errors.Is(err, errLost) {
		w.Log.Warn("a shard of the last snapshot is lost: nodes fetch this one whole", "error", err)
		w.note(difference{})
		return nil
	}
	if err != nil {
		return err
	}
	w.note(d)
	if before == nil {
		return nil
	}
	made, ok, err := w.packDelta(ctx, before.Plain, lines, s)
	if err != nil || !ok {
		return err
	}
	s.Deltas = append(s.Deltas, made)
	w.mu.Lock()
	w.changes[place{list, i}] = made.Object
	w.mu.Unlock()
	return nil
}

// errLost says that a shard of the last sequence cannot be had.
var errLost = errors.New("not in the folder of the publisher, nor in the store")

// difference compares the shard in hand with one of the last sequence; nil is an empty one.
func (w *shardWriter) difference(ctx context.Context, before *Shard) (d difference, delta []byte, err error) {
	var out bytes.Buffer
	if before == nil {
		d, err = diff(&out, strings.NewReader(head), bytes.NewReader(w.plain.Bytes()))
		return d, out.Bytes(), err
	}
	for _, path := range []func(context.Context, *Shard) (string, error){w.kept, w.former} {
		path, lost := path(ctx, before)
		if lost != nil {
			err = fmt.Errorf("%w: %w", errLost, lost)
			continue
		}
		f, lost := os.Open(path)
		if lost != nil {
			err = fmt.Errorf("%w: %w", errLost, lost)
			continue
		}
		out.Reset()
		sum := newSummed(io.Discard)
		d, err = diff(&out, io.TeeReader(f, sum), bytes.NewReader(w.plain.Bytes()))
		f.Close()
		if err == nil && sum.sum() == before.Plain {
			return d, out.Bytes(), nil
		}
		err = fmt.Errorf("%w: it is damaged: %v", errLost, err)
	}
	return d, nil, err
}

func (w *preparing) note(d difference) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.eases = w.eases && d.eases
	w.told.Added += d.added
	w.told.Removed += d.removed
	w.told.Altered += d.altered
}

// kept is the file of a shard of the last sequence in the folder.
func (w *preparing) kept(_ context.Context, s *Shard) (string, error) {
	return w.path(filesName, s.Plain), nil
}

// former is that file after it was fetched from the store.
func (w *preparing) former(ctx context.Context, s *Shard) (string, error) {
	path := w.path(filesName, s.Plain)
	packed, err := get(ctx, w.To, objectName(s.Object), s.Size)
	if err != nil {
		return "", err
	}
	u, err := newUnpacker()
	if err != nil {
		return "", err
	}
	defer u.close()
	in, err := u.read(bytes.NewReader(packed), s.Octets)
	if err != nil {
		return "", err
	}
	text, err := io.ReadAll(in)
	if err != nil {
		return "", err
	}
	return path, w.cache(filesName, s.Plain, text)
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
	for back := 0; back < maxDeltas-1 && room > 0; back++ {
		for k := range m.Lists {
			l := &m.Lists[k]
			for i := range l.Shards {
				s := &l.Shards[i]
				change, changed := w.changes[place{l.Name, i}]
				if !changed {
					continue
				}
				before := w.last.shard(l.Name, i)
				if before == nil || back >= len(before.Deltas) || room < reference || before.Deltas[back].From == s.Plain {
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
	w.plain.Reset()
	if err := compose(&w.plain, one, two); err != nil {
		return d, false, err
	}
	return w.packDelta(ctx, first.From, w.plain.Bytes(), s)
}

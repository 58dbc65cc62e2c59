package snapshot

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"

	"github.com/klauspost/compress/zstd"
	"golang.org/x/sync/errgroup"

	"blockd/internal/runs"
	"blockd/lists"
)

const (
	// partsMemory is for lines that wait for their shard, in octets; sortMemory is for those that one worker sorts: a shard of a list of ten
	// million.
	partsMemory = 32 << 20
	sortMemory  = 12 << 20

	// moreReferences bounds what a manifest says of deltas against other than the last sequence, in octets: a manifest is fetched by
	// every node, and most of them have the last one. Nodes that have an older one go from manifest to manifest.
	moreReferences = 12 << 10
	reference      = 190 // octets of a Delta in a manifest

	// An object is packed anew if what differs from it takes more than one part of worthBase of its own size, and for one shard of each
	// baseTurns in a sequence anyway: so that this work is not to be done for all of them at once. One of less than leastBase octets is
	// packed anew always: to say of what it is costs 300 octets of manifest, which each node fetches.
	worthBase = 8
	baseTurns = 64
	leastBase = 64 << 10

	// A delta is worth its place if it is smaller than a third of the shard.
	worthwhile = 3
)

// preparing makes the objects of one sequence. The place of a shard is the number of its list times shardCount, and its own.
type preparing struct {
	*Publisher
	told *Published

	mu      sync.Mutex
	eases   bool
	differ  *buckets
	lost    []bool          // by place: the shard of the last sequence cannot be had
	fresh   map[string]bool // objects that are not in the store yet
	changes map[int]string  // by place: objects of deltas against the last sequence
	written atomic.Int64
	uploads errgroup.Group
	sending context.Context // of uploads, which go on when the shards are made
}

// prepare finds out which entries differ from the last sequence, sorts their lines into shards, and writes what is new into the store.
func (p *Publisher) prepare(ctx context.Context, c Content) (*Manifest, *Published, error) {
	if p.elsewhere {
		p.last, p.after, p.elsewhere = nil, max(p.after, p.last.Sequence), false
	}
	told := &Published{Eases: true}
	m := &Manifest{Lists: slices.Clone(c.Lists), Ask: []Asked{}, Publisher: Maker{Gate: c.Gate}}
	if m.Lists == nil {
		m.Lists = []List{}
	}
	places := len(m.Lists) * shardCount
	w := &preparing{Publisher: p, told: told, eases: p.last != nil, fresh: map[string]bool{}, changes: map[int]string{}, sending: ctx, lost: make([]bool, places)}
	differs, err := w.compare(ctx, c)
	if err != nil {
		return nil, nil, err
	}
	parts := runs.NewParts(p.Folder, max(1, places), max(partsMemory/max(1, places), 1<<10))
	defer parts.Close()
	if differs {
		if err := w.collect(ctx, c, parts); err != nil {
			return nil, nil, err
		}
	}
	for i := range m.Lists {
		m.Lists[i].Format, m.Lists[i].Shards = formatEntries, make([]Shard, shardCount)
	}
	w.uploads.SetLimit(atOnce)
	if err := w.sort(ctx, parts, m); err != nil {
		w.uploads.Wait()
		return nil, nil, err
	}
	for i := range m.Lists {
		l := &m.Lists[i]
		for _, s := range l.Shards {
			l.Entries += s.Entries
		}
		told.Entries += l.Entries
	}
	if err := errors.Join(w.older(ctx, m), w.uploads.Wait()); err != nil {
		return nil, nil, err
	}
	for _, a := range c.Ask {
		asked, err := w.filter(ctx, a)
		if err != nil {
			return nil, nil, fmt.Errorf("filter of list %s: %w", a.Name, err)
		}
		m.Ask = append(m.Ask, asked)
	}
	told.Eases, told.Written = w.eases && w.settingsEase(m), w.written.Load()
	return m, told, nil
}

func (w *preparing) workers() int { return cmp.Or(w.Workers, min(runtime.GOMAXPROCS(0), 4)) }

// sort writes the shards of all lists.
func (w *preparing) sort(ctx context.Context, parts *runs.Parts, m *Manifest) error {
	var next atomic.Int32
	group, ctx := errgroup.WithContext(ctx)
	for range w.workers() {
		group.Go(func() error {
			sorter := runs.New(w.Folder, sortMemory)
			defer sorter.Close()
			whole, err := newPacker(zstd.SpeedFastest)
			if err != nil {
				return err
			}
			small, err := newPacker(zstd.SpeedBetterCompression)
			if err != nil {
				return err
			}
			worker := shardWriter{preparing: w, whole: whole, small: small}
			for {
				n := int(next.Add(1)) - 1
				if n >= len(m.Lists)*shardCount {
					return nil
				}
				if err := parts.Sort(n, sorter); err != nil {
					return err
				}
				l := &m.Lists[n/shardCount]
				if l.Shards[n%shardCount], err = worker.shard(ctx, l.Name, n, sorter); err != nil {
					return fmt.Errorf("list %s: %w", l.Name, err)
				}
				sorter.Reset()
				if ctx.Err() != nil {
					return ctx.Err()
				}
			}
		})
	}
	return group.Wait()
}

// shardWriter is one worker.
type shardWriter struct {
	*preparing
	whole, small *packer
	made         renewal
	both         bytes.Buffer // the delta that does what two do
	text         bytes.Buffer // what is packed
	old          []byte
}

// shard writes one shard, its object, and its delta against the last sequence.
func (w *shardWriter) shard(ctx context.Context, list string, place int, sorter *runs.Sorter) (s Shard, err error) {
	before := w.lastShard(list, place)
	if before != nil && !w.lost[place] && !w.differ.any(place) {
		return *before, nil
	}
	if err := w.renew(before, place, sorter); err != nil {
		return s, err
	}
	plain := w.made.plain.Bytes()
	s = Shard{Plain: sumOf(plain), Octets: int64(len(plain)), Entries: w.made.entries, Deltas: []Delta{}}
	if before != nil && !w.lost[place] && before.Plain == s.Plain {
		return *before, nil
	}
	if w.lost[place] {
		w.made.differs = difference{} // which is not known
	}
	w.note(w.made.differs)
	if err := w.cache(filesName, s.Plain, plain); err != nil {
		return s, err
	}
	if before != nil && !w.lost[place] {
		s.Object, s.Size = before.Object, before.Size // of about the size that this one will have
		made, ok, err := w.packDelta(ctx, before.Plain, w.made.delta.Bytes(), &s)
		if err != nil {
			return s, err
		}
		if ok {
			s.Deltas = append(s.Deltas, made)
			w.mu.Lock()
			w.changes[place] = made.Object
			w.mu.Unlock()
			if ok, err := w.onBase(ctx, place, &s, before, made); err != nil || ok {
				return s, err
			}
		}
	}
	object, packed, err := w.pack(w.whole, plain)
	if err != nil {
		return s, err
	}
	s.Object, s.Size = object, int64(len(packed))
	return s, w.put(object, packed)
}

// onBase lets a shard have the object that the last one has, and a delta from there; false if it is to have an object of its own. To pack
// and store all objects anew for each change takes longer than everything else.
func (w *shardWriter) onBase(ctx context.Context, place int, s, before *Shard, last Delta) (ok bool, err error) {
	if before.Size < w.leastBase || (w.last.Sequence+int64(place))%baseTurns == 0 {
		return false, nil
	}
	base, change := before.Base, last
	if base == nil {
		base = &Base{before.Plain, before.Octets}
	} else if base.Plain == s.Plain {
		s.Object, s.Size = before.Object, before.Size
		return true, nil // it is what it was once
	} else if change, ok, err = w.composed(ctx, before.fromBase(), last.Object, s); err != nil || !ok {
		return false, err
	}
	if change.Size*worthBase > before.Size {
		return false, nil
	}
	if change.From != last.From {
		s.Deltas = append(s.Deltas, change)
	}
	s.Base = base
	return true, nil
}

// renew makes the shard of the last one and of the lines that differ.
func (w *shardWriter) renew(before *Shard, place int, sorter *runs.Sorter) (err error) {
	old := []byte(head)
	if before != nil && !w.lost[place] {
		if w.old, err = w.kept(before, w.old); err != nil {
			return err // it was there a moment ago
		}
		old = w.old
	}
	if err := w.made.begin(old, func(key []byte) bool {
		_, sum := lists.EntryPlace(key)
		return w.differ.has(w.differ.of(place, sum))
	}); err != nil {
		return err
	}
	for line, err := range lists.OneOfEach(sorter.Lines()) {
		if err != nil {
			return err
		}
		if err := w.made.put(line); err != nil {
			return err
		}
	}
	return w.made.end()
}

// pack packs octets. What it returns holds until the next call.
func (w *shardWriter) pack(by *packer, plain []byte) (object string, packed []byte, err error) {
	w.text.Reset()
	by.begin(&w.text)
	if _, err := by.encoder.Write(plain); err != nil {
		return "", nil, err
	}
	object, _, err = by.end()
	return object, w.text.Bytes(), err
}

// packDelta packs a delta, and puts it into the store and the folder; false if it is not worth its place.
func (w *shardWriter) packDelta(ctx context.Context, from string, lines []byte, s *Shard) (d Delta, ok bool, err error) {
	if int64(len(lines)) > s.Octets {
		return d, false, nil
	}
	object, packed, err := w.pack(w.small, lines)
	if err != nil || int64(len(packed))*worthwhile >= s.Size {
		return d, false, err
	}
	if err := w.cache(objectsName, object, packed); err != nil {
		return d, false, err
	}
	return Delta{from, object, int64(len(packed))}, true, w.put(object, packed)
}

// put puts an object into the store, unless the last sequence has it there already.
func (w *preparing) put(object string, packed []byte) error {
	w.mu.Lock()
	known := w.fresh[object]
	w.fresh[object] = true
	w.mu.Unlock()
	if known {
		return nil
	}
	w.written.Add(int64(len(packed)))
	packed = bytes.Clone(packed)
	w.uploads.Go(func() error { // which waits if many are under way
		return w.To.Put(w.sending, objectName(object), bytes.NewReader(packed), int64(len(packed)), false)
	})
	return nil
}

// cache writes a file into the folder. It need not outlast a crash: its name is the SHA-256 of what is in it, which is looked at when it is
// read, and what is lost is fetched from the store.
func (w *preparing) cache(folder, name string, text []byte) error {
	f, err := os.CreateTemp(w.path(folder), ".new.*")
	if err != nil {
		return err
	}
	defer os.Remove(f.Name())
	_, err = f.Write(text)
	if err := errors.Join(err, f.Close()); err != nil {
		return err
	}
	return os.Rename(f.Name(), w.path(folder, name))
}

// filter writes the filter of a list that is asked.
func (w *preparing) filter(ctx context.Context, a AskedContent) (asked Asked, err error) {
	sum, octets, err := sumOfFile(a.Path)
	if err != nil {
		return asked, err
	}
	if w.last != nil {
		for _, before := range w.last.Ask {
			if before.Name == a.Name && before.Filter.Key == sum {
				return before, nil
			}
		}
	}
	w.mu.Lock()
	w.eases = false
	w.mu.Unlock()
	by, err := newPacker(zstd.SpeedFastest)
	if err != nil {
		return asked, err
	}
	in, err := os.Open(a.Path)
	if err != nil {
		return asked, err
	}
	defer in.Close()
	out, err := os.CreateTemp(w.path(objectsName), ".pack.*")
	if err != nil {
		return asked, err
	}
	defer os.Remove(out.Name())
	defer out.Close()
	by.begin(out)
	again := newSummed(by.encoder)
	if _, err := io.Copy(again, in); err != nil {
		return asked, err
	}
	object, size, err := by.end()
	if err != nil {
		return asked, err
	}
	if again.sum() != sum {
		return asked, errors.New("it was replaced while it was read; try again")
	}
	if _, err := out.Seek(0, io.SeekStart); err != nil {
		return asked, err
	}
	w.written.Add(size)
	return Asked{a.Name, Filter{object, sum, octets, size}}, w.To.Put(ctx, objectName(object), out, size, false)
}

// settingsEase reports whether lists that came, went or changed their settings refuse nobody who was not refused before.
func (w *preparing) settingsEase(m *Manifest) bool {
	if w.last == nil || len(w.last.Ask) != len(m.Ask) {
		return false
	}
	was := map[string]List{}
	for _, l := range w.last.Lists {
		was[l.Name] = l
	}
	for _, l := range m.Lists {
		before, known := was[l.Name]
		if known && before.settings() != l.settings() || !known && l.Action != "allow" {
			return false
		}
		delete(was, l.Name)
	}
	for _, gone := range was {
		if gone.Action != "block" {
			return false
		}
		for _, s := range gone.Shards { // its exceptions go too
			w.told.Removed += s.Entries
		}
		if gone.Exceptions == "all" {
			return false
		}
	}
	return true
}

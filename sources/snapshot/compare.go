package snapshot

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"os"
	"slices"
	"sync"
	"sync/atomic"

	"golang.org/x/sync/errgroup"

	"blockd/internal/runs"
	"blockd/lists"
)

// compare finds out which buckets differ from the last sequence, by all lines of both; and whether any does.
func (w *preparing) compare(ctx context.Context, c Content) (differs bool, err error) {
	before := make([]*Shard, len(c.Lists)*shardCount)
	entries := make([]int64, len(before))
	none := true
	for n := range before {
		if before[n] = w.lastShard(c.Lists[n/shardCount].Name, n); before[n] != nil {
			entries[n], none = before[n].Entries, false
		}
	}
	w.differ = newBuckets(entries)
	if none {
		w.differ.all()
		return true, nil
	}
	// Each worker reads a part of what is to be published, and then shards of the last sequence, one after the other.
	var next atomic.Int32
	all := make([]*sums, w.workers())
	group, ctx := errgroup.WithContext(ctx)
	for part := range all {
		all[part] = w.differ.sums()
		group.Go(func() error {
			if err := all[part].lines(ctx, c, part, len(all)); err != nil {
				return err
			}
			var room []byte
			for n := int(next.Add(1)) - 1; n < len(before); n = int(next.Add(1)) - 1 {
				if before[n] == nil {
					continue
				}
				var err error
				if room, err = w.had(ctx, all[part], n, before[n], room); err != nil {
					return err
				}
			}
			return nil
		})
	}
	if err := group.Wait(); err != nil {
		return false, err
	}
	differs = w.differ.settle(all)
	return differs || slices.Contains(w.lost, true), nil
}

// lines notes the lines of a part of what is to be published.
func (s *sums) lines(ctx context.Context, c Content, part, parts int) error {
	var bucket int
	lines := oneOfEach{sums: s}
	err := c.Lines(ctx, part, parts, func(list int, key []byte) bool {
		shard, sum := lists.EntryPlace(key)
		bucket = s.of(list*shardCount+shard, sum)
		return true
	}, func(list int, line []byte) error {
		lines.add(list, bucket, keyOf(line), line)
		return nil
	})
	lines.end()
	return err
}

// had notes the lines of a shard of the last sequence, with room for its octets. It returns the room.
func (w *preparing) had(ctx context.Context, all *sums, place int, s *Shard, room []byte) ([]byte, error) {
	text, err := w.kept(s, room)
	if err != nil {
		if err = w.former(ctx, s); err == nil {
			text, err = w.kept(s, room)
		}
	}
	if ctx.Err() != nil {
		return text, ctx.Err()
	}
	if err != nil {
		w.Log.Warn("a shard of the last snapshot is lost: nodes fetch this one whole", "error", err)
		w.lost[place] = true
		return text, nil
	}
	for rest := text[len(head):]; len(rest) > 0; {
		line := rest[:bytes.IndexByte(rest, '\n')+1]
		_, sum := lists.EntryPlace(keyOf(line))
		all.went(all.of(place, sum), line)
		rest = rest[len(line):]
	}
	return text, nil
}

// collect puts the lines of all changed buckets into the parts of their shards.
func (w *preparing) collect(ctx context.Context, c Content, parts *runs.Parts) error {
	var mu sync.Mutex // guards parts
	group, ctx := errgroup.WithContext(ctx)
	for part := range w.workers() {
		group.Go(func() error {
			var n int
			return c.Lines(ctx, part, w.workers(), func(list int, key []byte) bool {
				shard, sum := lists.EntryPlace(key)
				n = list*shardCount + shard
				return w.lost[n] || w.differ.has(w.differ.of(n, sum))
			}, func(_ int, line []byte) error {
				mu.Lock()
				defer mu.Unlock()
				return parts.Add(n, line)
			})
		})
	}
	return group.Wait()
}

// lastShard is the shard of a list in the last sequence, by its place in the one that is made.
func (w *preparing) lastShard(list string, place int) *Shard {
	if w.last == nil {
		return nil
	}
	return w.last.shard(list, place%shardCount)
}

// kept reads a shard of the last sequence from the folder, into room if it has enough.
func (p *Publisher) kept(s *Shard, room []byte) ([]byte, error) {
	f, err := os.Open(p.path(filesName, s.Plain))
	if err != nil {
		return room, err
	}
	defer f.Close()
	text := slices.Grow(room[:0], int(s.Octets))[:s.Octets]
	if _, err := io.ReadFull(f, text); err != nil {
		return text, err
	}
	if sumOf(text) != s.Plain || !bytes.HasPrefix(text, []byte(head)) || text[len(text)-1] != '\n' {
		return text, fmt.Errorf("%s is damaged", f.Name())
	}
	return text, nil
}

// former fetches a shard of the last sequence from the store.
func (w *preparing) former(ctx context.Context, s *Shard) error {
	if s.Base == nil {
		text, err := w.unpacked(ctx, s.Object, s.Size, s.Octets)
		if err != nil {
			return err
		}
		return w.cache(filesName, s.Plain, text)
	}
	base, err := w.unpacked(ctx, s.Object, s.Size, s.Base.Octets)
	if err != nil {
		return err
	}
	change := s.fromBase()
	delta, err := w.unpacked(ctx, change.Object, change.Size, s.Base.Octets+s.Octets)
	if err != nil {
		return err
	}
	var text bytes.Buffer
	if _, err := apply(&text, bytes.NewReader(base), bytes.NewReader(delta)); err != nil {
		return err
	}
	return w.cache(filesName, s.Plain, text.Bytes())
}

// unpacked fetches an object of the store that has at most so many plain octets.
func (w *preparing) unpacked(ctx context.Context, object string, size, most int64) ([]byte, error) {
	packed, err := get(ctx, w.To, objectName(object), size)
	if err != nil {
		return nil, err
	}
	u, err := newUnpacker()
	if err != nil {
		return nil, err
	}
	defer u.close()
	in, err := u.read(bytes.NewReader(packed), most)
	if err != nil {
		return nil, err
	}
	return io.ReadAll(in)
}

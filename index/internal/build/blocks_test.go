package build

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"math/rand/v2"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"golang.org/x/sync/errgroup"

	"blockd/bloom"
	"blockd/index/internal/format"
	"blockd/internal/testkit"
)

// Blocks are taken and freed at random. None is ever in two hands, all of them can
// be had by any group, and what is dropped is nowhere left.
func TestBlocksAreInOneHandEach(t *testing.T) {
	const block, memory, spare = 4096, 1 << 20, 37
	p := testkit.Value(newBlockPool(block, memory, memory, spare))(t)
	defer p.close()
	if len(p.groups) < 4 {
		t.Fatalf("%d groups: this test proves too little", len(p.groups))
	}
	rng := rand.New(rand.NewPCG(1, 1))
	held := map[uint32]byte{}
	check := func() {
		for number, mark := range held {
			if !bytes.Equal(p.at(number), bytes.Repeat([]byte{mark}, block)) {
				t.Fatalf("block %d was written by somebody else", number)
			}
		}
	}
	take := func(must bool) bool {
		number, _ := p.take(rng.IntN(len(p.groups)), must)
		if number == none {
			return false
		}
		if _, twice := held[number]; twice {
			t.Fatalf("block %d is given out twice", number)
		}
		held[number] = byte(rng.Uint32()) | 1
		copy(p.at(number), bytes.Repeat([]byte{held[number]}, block))
		return true
	}
	for range 20 {
		for take(false) {
		}
		if len(held) < memory/block {
			t.Fatalf("%d blocks of %d can be had", len(held), memory/block)
		}
		check()
		first := uint32(none)
		for number := range held { // in random order
			if rng.IntN(3) > 0 {
				p.next[number], first = first, number
				delete(held, number)
			}
		}
		p.free(first)
	}
	for take(false) {
	}
	for range spare {
		if !take(true) {
			t.Fatal("a spare block is missing")
		}
	}
	if take(false) {
		t.Error("a block beyond the limit")
	}
	check()
	first := uint32(none)
	for number := range held {
		p.next[number], first = first, number
	}
	p.drop(first)
	for i, chunk := range p.chunks {
		testkit.Equal(t, fmt.Sprintf("chunk %d: blocks in use", i), chunk.used, 0)
	}
}

func TestDroppedPartIsNotLoaded(t *testing.T) {
	file := newSpillFile(filepath.Join(t.TempDir(), "x.bdx"), Hooks{})
	defer file.close()
	s := testkit.Value(newScatter(1, 1, MinMemory, 0, file))(t)
	defer s.close()
	b := testkit.Value(s.lanes[0].add(1, 3))(t)
	copy(b, "abc")
	testkit.Must(t, s.finish())
	for _, part := range []int{0, 1} {
		testkit.Value(loadPart(s, part))(t)
		s.drop(part)
		testkit.Fails(loadPart(s, part))(t, fmt.Sprintf("part %d, dropped", part), errDropped)
	}
}

// A filter that was filled from kept hashes is the one that was filled at once, by
// however many goroutines, and is asked for every one of them: also where lists say
// the same so often that it is much smaller than it was planned.
func TestKeptHashesAreTheFilter(t *testing.T) {
	for _, keys := range []int{0, 1, 1000, 300_000} {
		for _, planned := range []uint64{1, 7, 400} { // times the size
			for _, workers := range []int{1, 4} {
				name := fmt.Sprintf("%d keys, planned %d times, %d workers", keys, planned, workers)
				file := newSpillFile(filepath.Join(t.TempDir(), "x.bdx"), Hooks{})
				defer file.close()
				blocks := bloom.Blocks(uint64(keys), 12)
				k := testkit.Value(newKeyHashes(workers, planned*blocks, int64(keys), 4<<20, file))(t)
				defer k.close()
				rng := rand.New(rand.NewPCG(uint64(keys), 1))
				want := bloom.NewBuilder(uint64(keys), 12)
				batch := make([]bloom.Hash, 10)
				added := uint64(0)
				for i := range keys / len(batch) {
					for j := range batch {
						batch[j].Lo = rng.Uint64()
					}
					want.AddBatch(batch)
					testkit.Must(t, k.adder(i%workers)(batch))
					added += uint64(len(batch))
				}
				testkit.Must(t, k.finish())
				got := bloom.NewBuilder(uint64(keys), 12)
				testkit.Must(t, k.fill(t.Context(), workers, got, blocks))
				var a, b strings.Builder
				full, empty := got.Filter(), bloom.NewBuilder(uint64(keys), 12).Filter()
				want.Filter().WriteTo(&a)
				full.WriteTo(&b)
				testkit.Equal(t, fmt.Sprintf("%s: another filter", name), a.String(), b.String())
				if err := k.ask(t.Context(), workers, full, 0, added); err != nil {
					t.Errorf("%s: %v", name, err)
				}
				if err := k.ask(t.Context(), workers, full, 0, added+1); !errors.Is(err, errLost) {
					t.Errorf("%s: one that was lost is not missed: %v", name, err)
				}
				if err := k.ask(t.Context(), workers, empty, 4096, added); added > 0 && !errors.Is(err, format.ErrCorrupt) {
					t.Errorf("%s: an empty filter has all of them: %v", name, err)
				}
			}
		}
	}
}

// loadPart loads one part of a scatter that is finished.
func loadPart(s *scatter, number int) ([]byte, error) {
	r := s.reader(context.Background())
	defer r.end()
	return r.load(nil, number)
}

// spilledScatter has records of 512 octets, numbered from 0 on, record i in part i
// modulo 2^bits, of which most are in the file.
func spilledScatter(t *testing.T, bits uint, records int) *scatter {
	t.Helper()
	file := newSpillFile(filepath.Join(t.TempDir(), "x.bdx"), Hooks{})
	t.Cleanup(file.close)
	s := testkit.Value(newScatter(2, bits, MinMemory, MinMemory, file))(t)
	t.Cleanup(s.close)
	for i := range records {
		b := testkit.Value(s.lanes[i>>bits%2].add(i%(1<<bits), 512))(t)
		clear(b)
		binary.LittleEndian.PutUint32(b, uint32(i))
	}
	testkit.Must(t, s.finish())
	if file.written() == 0 {
		t.Fatal("nothing was spilled")
	}
	return s
}

// Goroutines that take parts in turn get every record once, those of a lane in order,
// however few groups are in memory at a time.
func TestReadAheadGivesEveryRecord(t *testing.T) {
	for _, bits := range []uint{0, 3, 7} {
		const records = 90_000 // 45 MB: groups of 4 MiB
		s := spilledScatter(t, bits, records)
		r := s.reader(t.Context())
		if bits == 7 && len(r.groups) <= aheadGroups {
			t.Fatalf("%d groups: none waits for room", len(r.groups))
		}
		seen := make([]bool, records)
		var mu sync.Mutex // guards next and seen
		next := 0
		var group errgroup.Group
		for range 3 {
			group.Go(func() error {
				for {
					mu.Lock()
					part := next
					next++
					mu.Unlock()
					if part >= 1<<bits {
						return nil
					}
					b, err := r.load(nil, part)
					if err != nil {
						return err
					}
					mu.Lock()
					last := [2]int{-1, -1}
					for ; len(b) > 0; b = b[s.block:] {
						for at := scatterHead; at < blockEnd(b); at += 512 {
							i := int(binary.LittleEndian.Uint32(b[at:]))
							lane := i >> bits % 2
							if i%(1<<bits) != part || seen[i] || i <= last[lane] {
								t.Errorf("record %d in part %d, behind %d", i, part, last[lane])
							}
							seen[i], last[lane] = true, i
						}
					}
					mu.Unlock()
				}
			})
		}
		testkit.Must(t, group.Wait())
		r.end()
		for i, ok := range seen {
			if !ok {
				t.Fatalf("%d bits: record %d is lost", bits, i)
			}
		}
	}
}

// Who gives up in the middle leaves no goroutine that waits for room, and who waits
// for a part learns of it.
func TestReadAheadEnds(t *testing.T) {
	s := spilledScatter(t, 7, 90_000)
	ctx, cancel := context.WithCancel(t.Context())
	r := s.reader(ctx)
	testkit.Value(r.load(nil, 0))(t)
	cancel()
	testkit.Fails(r.load(nil, 127))(t, "load of a part that was never read", context.Canceled)
	r.end() // returns only when they have ended
}

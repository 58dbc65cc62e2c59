package build

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"golang.org/x/sync/errgroup"
	"golang.org/x/sys/unix"

	"blockd/bloom"
	"blockd/index/internal/format"
	"blockd/internal/testkit"
	"blockd/lists"
	"blockd/mail/addr"
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
				testkit.IsError(t, name, k.ask(t.Context(), workers, full, 0, added), nil)
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

// The same two sources of keys under equal hashes are merged by comparing keys.
func TestEqualHashesAreNotEqualKeys(t *testing.T) {
	same := func([]byte) bloom.Hash { return bloom.Hash{Hi: 7, Lo: 7} }
	names := []string{"b.test", "a.test", "b.test", "c.test", "a.test"}
	sources := make([]format.Source, len(names))
	for i, name := range names {
		sources[i].List = name
	}
	b := testkit.Value(New(filepath.Join(t.TempDir(), "x.bdx"), sources, Options{Workers: 1}, Hooks{Weak: same}))(t)
	b.Rows = make([]format.ListInfo, len(names))
	testkit.Must(t, b.open())
	defer b.Close()
	for i, name := range names {
		key := testkit.Value(addr.DomainKey(name))(t)
		b.in.Begin(i)
		testkit.Must(t, b.in.Workers[0].Take(&lists.Item{Kind: lists.Domain, Key: key}, 0))
		b.in.End(i, true)
	}
	testkit.Must(t, b.in.records.finish())
	testkit.Value(b.in.numberReasons())(t)
	parts := b.in.records.reader(t.Context())
	defer parts.end()
	m := merger{in: b.in, parts: parts, rows: b.Rows, worth: format.NewWorthCounter(b.Rows)}
	testkit.Must(t, m.merge(0, 1<<b.in.records.bits))
	var got []string
	for _, p := range m.records {
		c := format.Cursor{Rest: m.buf[p.At : p.At+p.N]}
		text := string(c.Key())
		count, _ := c.Sources()
		for range count {
			text += fmt.Sprint(" ", c.Entry().Row)
		}
		got = append(got, text)
	}
	n := m.counts
	if want := "[a.test 1 4 b.test 0 2 c.test 3]"; fmt.Sprint(got) != want || n.Keys != 3 || n.Entries != 5 {
		t.Errorf("merged %v with %d keys, %d entries, want %s", got, n.Keys, n.Entries, want)
	}
}

// What comes back is not what was written.
func TestDamagedSpillFile(t *testing.T) {
	file := newSpillFile(filepath.Join(t.TempDir(), "x.bdx"), Hooks{})
	defer file.close()
	s := testkit.Value(newScatter(1, 2, MinMemory, MinMemory, file))(t)
	defer s.close()
	for range 3 * MinMemory / 512 {
		b := testkit.Value(s.lanes[0].add(1, 512))(t)
		b[0] = 7
	}
	testkit.Must(t, s.finish())
	if file.written() == 0 {
		t.Fatal("nothing was spilled")
	}
	testkit.Value(loadPart(s, 1))(t)
	// Memory that does not begin at a page is for the system's cache.
	first, odd := make([]byte, s.block), make([]byte, s.block+1)[1:]
	for _, b := range [][]byte{first, odd} {
		if err := file.read(b, 0); err != nil || !whole(b, s.block) {
			t.Fatalf("a block that was written: %v", err)
		}
	}
	testkit.Value(unix.Pwrite(file.fd, []byte{1}, file.written()/2+100))(t)
	testkit.Fails(loadPart(s, 1))(t, "load of a damaged file", errSpill)
	testkit.Must(t, unix.Ftruncate(file.fd, 1000))
	testkit.Fails(loadPart(s, 1))(t, "load of a file that was cut off", errSpill)
}

// Counts of parts and places of records are 64 bits wide wherever they are added up.
func TestSpillFileOver4GiB(t *testing.T) {
	file := newSpillFile(filepath.Join(t.TempDir(), "x.bdx"), Hooks{})
	defer file.close()
	file.reserve(5 << 30) // a hole
	s := testkit.Value(newScatter(1, 2, MinMemory, MinMemory, file))(t)
	defer s.close()
	const records = 3 * MinMemory / 512
	for i := range records {
		b := testkit.Value(s.lanes[0].add(i%4, 512))(t)
		clear(b)
		b[0] = byte(i)
	}
	testkit.Must(t, s.finish())
	seen := 0
	for part := range 4 {
		b := testkit.Value(loadPart(s, part))(t)
		for ; len(b) > 0; b = b[s.block:] {
			for at := scatterHead; at < blockEnd(b); at += 512 {
				if int(b[at])%4 != part {
					t.Fatalf("part %d has a record of part %d", part, b[at]%4)
				}
				seen++
			}
		}
	}
	if seen != records || file.written() < 5<<30 {
		t.Errorf("%d records of %d came back, %d octets written", seen, records, file.written())
	}
}

// A file system without files that have no name.
func TestSpillFileWithAName(t *testing.T) {
	folder := t.TempDir()
	fd := testkit.Value(unlinkedFile(filepath.Join(folder, "x.bdx")))(t)
	defer unix.Close(fd)
	testkit.Value(unix.Pwrite(fd, []byte("x"), 10))(t)
	testkit.Equal(t, "is left", len(testkit.Value(os.ReadDir(folder))(t)), 0)
}

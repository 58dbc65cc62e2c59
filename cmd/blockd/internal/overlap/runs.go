package overlap

import (
	"bufio"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"sync"
)

// store takes prints from several goroutines, and gives them back in their order. What does
// not fit into memory lies sorted in a temporary file without a name.
type store struct {
	block int // prints of a block
	most  int // full blocks in memory

	mu    sync.Mutex
	full  [][]print // sorted
	empty [][]print
	file  *os.File
	size  int64
	ends  []int64 // of each sorted run in the file
	count int64   // prints in all
}

const (
	// A block is sorted by the goroutine that has filled it. A million prints are 16 MiB, and
	// sorted in 0.1 s.
	maxBlock = 1 << 20

	// runBuffer is how much of each run of the file is in memory while they are merged, at most.
	runBuffer = 256 << 10

	checkEvery = 1 << 16 // prints, between two looks at the context
)

// newStore makes a store that has so many octets in memory, of which each of its workers
// fills one block.
func newStore(memory int64, workers int) *store {
	block := min(max(memory/printSize/32, 16), maxBlock)
	return &store{block: int(block), most: max(int(memory/printSize/block)-workers, 1)}
}

// lane is what one goroutine fills. Its zero value with a store is ready.
type lane struct {
	*store
	prints []print
}

func (l *lane) add(p print) error {
	if l.prints == nil {
		l.prints = l.room()
	}
	if l.prints = append(l.prints, p); len(l.prints) < l.block {
		return nil
	}
	return l.flush()
}

// flush gives what the lane has to the store.
func (l *lane) flush() error {
	if len(l.prints) == 0 {
		return nil
	}
	slices.SortFunc(l.prints, comparePrints)
	full := l.prints
	l.prints = nil
	return l.take(full)
}

// room is an empty block.
func (s *store) room() []print {
	s.mu.Lock()
	defer s.mu.Unlock()
	if n := len(s.empty); n > 0 {
		b := s.empty[n-1]
		s.empty = s.empty[:n-1]
		return b[:0]
	}
	return make([]print, 0, s.block)
}

// take takes a sorted block.
func (s *store) take(block []print) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.full = append(s.full, block)
	s.count += int64(len(block))
	if len(s.full) < s.most {
		return nil
	}
	return s.spill()
}

// spill merges the blocks in memory into a run of the file.
func (s *store) spill() (err error) {
	if s.file == nil {
		if s.file, err = os.CreateTemp("", "blockd-compare-"); err != nil {
			return temporary(err)
		}
		if err := os.Remove(s.file.Name()); err != nil {
			return temporary(err)
		}
	}
	w := bufio.NewWriterSize(s.file, runBuffer)
	var octets [printSize]byte
	err = merge(s.inMemory(), func(p print) error {
		binary.LittleEndian.PutUint64(octets[:], p.hi)
		binary.LittleEndian.PutUint64(octets[8:], p.lo)
		s.size += printSize
		_, err := w.Write(octets[:])
		return err
	})
	if err == nil {
		err = w.Flush()
	}
	if err != nil {
		return temporary(err)
	}
	s.ends = append(s.ends, s.size)
	s.empty = append(s.empty, s.full...)
	s.full = nil
	return nil
}

// each calls use for all prints in their order; equal ones follow each other.
func (s *store) each(ctx context.Context, use func(p print)) error {
	if s.file != nil {
		if err := s.spill(); err != nil {
			return err
		}
		s.empty = nil // the buffers of the runs take their place
	}
	runs, begin := s.inMemory(), int64(0)
	for _, end := range s.ends {
		size := min(max(s.most*s.block*printSize/len(s.ends), 4<<10), runBuffer)
		runs = append(runs, &run{r: bufio.NewReaderSize(io.NewSectionReader(s.file, begin, end-begin), size)})
		begin = end
	}
	n := 0
	return merge(runs, func(p print) error {
		use(p)
		if n++; n%checkEvery == 0 {
			return ctx.Err()
		}
		return nil
	})
}

func (s *store) close() {
	if s.file != nil {
		s.file.Close()
	}
}

func (s *store) inMemory() (runs []*run) {
	for _, b := range s.full {
		runs = append(runs, &run{block: b})
	}
	return runs
}

// run is sorted prints: a block, or a part of the file.
type run struct {
	first print
	block []print // what follows first
	r     *bufio.Reader
}

// next puts the next print in first; io.EOF is the end.
func (r *run) next() error {
	if r.r == nil {
		if len(r.block) == 0 {
			return io.EOF
		}
		r.first, r.block = r.block[0], r.block[1:]
		return nil
	}
	octets, err := r.r.Peek(printSize)
	if err != nil {
		if errors.Is(err, io.EOF) && len(octets) == 0 {
			return io.EOF
		}
		return temporary(err)
	}
	r.first = print{binary.LittleEndian.Uint64(octets), binary.LittleEndian.Uint64(octets[8:])}
	_, err = r.r.Discard(printSize)
	return err
}

// merge calls use for the prints of all runs in their order.
func merge(runs []*run, use func(print) error) error {
	var heap []*run
	for _, r := range runs {
		switch err := r.next(); {
		case err == nil:
			heap = append(heap, r)
		case !errors.Is(err, io.EOF):
			return err
		}
	}
	for i := len(heap)/2 - 1; i >= 0; i-- {
		sink(heap, i)
	}
	for len(heap) > 0 {
		if err := use(heap[0].first); err != nil {
			return err
		}
		switch err := heap[0].next(); {
		case errors.Is(err, io.EOF):
			heap[0] = heap[len(heap)-1]
			heap = heap[:len(heap)-1]
		case err != nil:
			return err
		}
		sink(heap, 0)
	}
	return nil
}

// sink moves a run down to its place in a heap with the least print at its root. The heap of the
// standard library calls an interface for each step, and takes three times as long.
func sink(heap []*run, i int) {
	for {
		least := i
		for child := 2*i + 1; child <= 2*i+2 && child < len(heap); child++ {
			if comparePrints(heap[child].first, heap[least].first) < 0 {
				least = child
			}
		}
		if least == i {
			return
		}
		heap[i], heap[least] = heap[least], heap[i]
		i = least
	}
}

// temporary says which disk is at fault, and what helps.
func temporary(err error) error {
	return fmt.Errorf("temporary file in %s: %w; TMPDIR can name another folder, --memory can be more, and --approximate needs none", os.TempDir(), err)
}

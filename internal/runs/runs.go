// Package runs sorts lines that do not fit into memory: sorted runs go to temporary files, which are merged
// (Knuth, The Art of Computer Programming, volume 3, section 5.4.1).
package runs

import (
	"bufio"
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"iter"
	"os"
	"slices"
)

const (
	// fanIn is how many runs are merged at once. With 16 MiB of lines a run, 64 of them are a GiB, and two levels
	// hold 64 GiB with 128 open files.
	fanIn = 64

	// bufferSize is of each file that is read or written: 4 MiB for 64 runs.
	bufferSize = 64 << 10

	maxLine = 1 << 20 // octets; a longer one in a file is damage
)

// Sorter takes lines in any order and gives them in the order of their octets. It is for one goroutine.
type Sorter struct {
	folder string
	memory int
	text   []byte
	lines  []span
	levels [][]*os.File // runs, the larger ones in the higher levels
}

// span is a line in memory. Most comparisons end with its first octets.
type span struct {
	first uint64 // eight octets, the first one highest
	at, n uint32
}

const spanSize = 16

// New makes a Sorter with temporary files in folder, "" = the system's. They have no name, so they go with the
// process. memory bounds what its lines take, in octets, at least 64 KiB and at most 1 GiB; merging takes some MiB more.
func New(folder string, memory int) *Sorter {
	return &Sorter{folder: folder, memory: min(max(memory, 64<<10), 1<<30)}
}

// Add takes a line, which it copies: any octets, at most 1 MiB. The error is about a temporary file, such as a full
// disk; nothing but Close may follow it.
func (s *Sorter) Add(line []byte) error {
	if len(line) > maxLine {
		return fmt.Errorf("a line of %d octets, at most %d can be sorted", len(line), maxLine)
	}
	if len(s.text)+len(line)+spanSize*(len(s.lines)+1) > s.memory {
		if err := s.spill(); err != nil {
			return err
		}
	}
	s.grow(len(line))
	var first [8]byte
	copy(first[:], line)
	s.lines = append(s.lines, span{binary.BigEndian.Uint64(first[:]), uint32(len(s.text)), uint32(len(line))})
	s.text = append(s.text, line...)
	return nil
}

// grow makes room for a line. A Sorter of more than a few lines takes what it may have at once: growing by bits leaves
// garbage of several times that size. What is not used of it is never touched, and takes no memory.
func (s *Sorter) grow(line int) {
	const few = 16 << 10
	switch need := len(s.text) + line; {
	case need <= cap(s.text):
	case need > few:
		s.text = slices.Grow(s.text, max(s.memory*3/4-len(s.text), line))
	default:
		s.text = slices.Grow(s.text, few)
	}
	if len(s.lines) == cap(s.lines) && len(s.lines)*spanSize > few && cap(s.lines)*spanSize < s.memory/4 {
		s.lines = slices.Grow(s.lines, s.memory/4/spanSize-len(s.lines))
	}
}

// sort orders the lines in memory.
func (s *Sorter) sort() {
	slices.SortFunc(s.lines, func(a, b span) int {
		switch {
		case a.first < b.first:
			return -1
		case a.first > b.first:
			return 1
		}
		return bytes.Compare(s.line(a), s.line(b))
	})
}

func (s *Sorter) line(l span) []byte { return s.text[l.at : l.at+l.n] }

// inMemory gives the lines in memory, which are sorted.
func (s *Sorter) inMemory() cursor {
	i := 0
	return func() ([]byte, error) {
		if i == len(s.lines) {
			return nil, io.EOF
		}
		i++
		return s.line(s.lines[i-1]), nil
	}
}

// spill writes the lines in memory as a run.
func (s *Sorter) spill() error {
	if len(s.lines) == 0 {
		return nil
	}
	s.sort()
	f, err := s.write([]cursor{s.inMemory()})
	if err != nil {
		return err
	}
	s.text, s.lines = s.text[:0], s.lines[:0]
	return s.keep(f, 0)
}

// keep puts a run into a level. A full level becomes one run of the next.
func (s *Sorter) keep(f *os.File, level int) error {
	if level == len(s.levels) {
		s.levels = append(s.levels, nil)
	}
	s.levels[level] = append(s.levels[level], f)
	if len(s.levels[level]) < fanIn {
		return nil
	}
	inputs, err := cursorsOf(s.levels[level])
	if err != nil {
		return err
	}
	merged, err := s.write(inputs)
	if err != nil {
		return err
	}
	closeAll(s.levels[level])
	s.levels[level] = nil
	return s.keep(merged, level+1)
}

// write writes a run of what inputs give.
func (s *Sorter) write(inputs []cursor) (*os.File, error) {
	f, err := os.CreateTemp(s.folder, ".sort.*")
	if err != nil {
		return nil, err
	}
	if err = os.Remove(f.Name()); err == nil {
		err = writeLines(f, inputs)
	}
	if err != nil {
		f.Close()
		return nil, err
	}
	return f, nil
}

func writeLines(f io.Writer, inputs []cursor) error {
	out := bufio.NewWriterSize(f, bufferSize)
	var size [binary.MaxVarintLen64]byte
	for line, err := range merge(inputs) {
		if err != nil {
			return err
		}
		out.Write(size[:binary.PutUvarint(size[:], uint64(len(line)))])
		if _, err := out.Write(line); err != nil {
			return err
		}
	}
	return out.Flush()
}

// Lines gives all lines in the order of their octets, equal ones one after the other. A line holds until the next
// one is asked for. An error about a temporary file ends them. Lines is called once, after the last Add; Reset begins anew.
func (s *Sorter) Lines() iter.Seq2[[]byte, error] {
	return func(yield func([]byte, error) bool) {
		s.sort()
		inputs := []cursor{s.inMemory()}
		for _, level := range s.levels {
			more, err := cursorsOf(level)
			if err != nil {
				yield(nil, err)
				return
			}
			inputs = append(inputs, more...)
		}
		merge(inputs)(yield)
	}
}

// Reset makes the Sorter empty, to be used again with the memory that it has.
func (s *Sorter) Reset() {
	for _, level := range s.levels {
		closeAll(level)
	}
	s.levels, s.text, s.lines = nil, s.text[:0], s.lines[:0]
}

// Close gives the files and the memory back. It may be called twice.
func (s *Sorter) Close() {
	for _, level := range s.levels {
		closeAll(level)
	}
	s.levels, s.text, s.lines = nil, nil, nil
}

func closeAll(files []*os.File) {
	for _, f := range files {
		f.Close()
	}
}

// cursor gives the next line, which holds until the next call; io.EOF is the end.
type cursor func() ([]byte, error)

// cursorsOf reads runs from their start.
func cursorsOf(files []*os.File) ([]cursor, error) {
	cursors := make([]cursor, len(files))
	for i, f := range files {
		if _, err := f.Seek(0, io.SeekStart); err != nil {
			return nil, err
		}
		cursors[i] = readRun(f)
	}
	return cursors, nil
}

func readRun(f io.Reader) cursor {
	in := bufio.NewReaderSize(f, bufferSize)
	var line []byte
	return func() ([]byte, error) {
		n, err := binary.ReadUvarint(in)
		if err != nil {
			return nil, err
		}
		if n > maxLine {
			return nil, errors.New("a temporary file is damaged")
		}
		line = slices.Grow(line[:0], int(n))[:n]
		if _, err := io.ReadFull(in, line); err != nil {
			return nil, errors.New("a temporary file has lost its end")
		}
		return line, nil
	}
}

// input is a cursor with its next line.
type input struct {
	next cursor
	line []byte
}

// merge gives the lines of sorted inputs in order.
func merge(inputs []cursor) iter.Seq2[[]byte, error] {
	return func(yield func([]byte, error) bool) {
		var heap []input // the lowest line first; the children of i are 2i+1 and 2i+2
		for _, next := range inputs {
			line, err := next()
			if err == io.EOF {
				continue
			}
			if err != nil {
				yield(nil, err)
				return
			}
			heap = append(heap, input{next, line})
		}
		for i := len(heap)/2 - 1; i >= 0; i-- {
			sink(heap, i)
		}
		for len(heap) > 0 {
			if !yield(heap[0].line, nil) {
				return
			}
			line, err := heap[0].next()
			switch {
			case err == io.EOF:
				heap[0] = heap[len(heap)-1]
				heap = heap[:len(heap)-1]
			case err != nil:
				yield(nil, err)
				return
			default:
				heap[0].line = line
			}
			sink(heap, 0)
		}
	}
}

// sink moves an input down to its place.
func sink(heap []input, i int) {
	for {
		least := i
		for child := 2*i + 1; child <= 2*i+2 && child < len(heap); child++ {
			if bytes.Compare(heap[child].line, heap[least].line) < 0 {
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

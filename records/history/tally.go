package history

import (
	"bufio"
	"cmp"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/maphash"
	"io"
	"os"
)

const (
	// tallyParts is how many parts names are divided into when they do not fit into memory.
	// With 64 parts, names of 64 times the memory are read back without another division.
	tallyParts = 64

	// perName is what a name takes in memory beside its octets: its place in a map that is
	// three quarters full, the counter, and the rounding of two allocations.
	perName = 96

	// partBuffer is what waits in memory for each part's file.
	partBuffer = 32 << 10
)

// tally counts names. The counts are exact whatever their number is: names that do not fit
// into memory go to temporary files, divided by a hash, so that all counts of one name are in
// one file. The files have no names, and the system removes them when the process ends.
type tally struct {
	most   int64 // octets in memory
	size   int64 // of counts
	counts map[string]*uint64
	seed   maphash.Seed // its own: the names of one part of another tally spread again
	parts  []*part      // nil until names did not fit; each may be nil
}

// part is one file of names and counts.
type part struct {
	file *os.File
	w    *bufio.Writer
}

func newTally(most int64) *tally {
	return &tally{most: most, counts: map[string]*uint64{}, seed: maphash.MakeSeed()}
}

// add counts a name n times. It keeps a copy of the name.
func (t *tally) add(name string, n uint64) error {
	if have := t.counts[name]; have != nil {
		*have += n
		return nil
	}
	size := int64(len(name)) + perName
	if t.size+size > t.most && t.size > 0 {
		if err := t.spill(); err != nil {
			return err
		}
	}
	t.size += size
	t.counts[string([]byte(name))] = &n
	return nil
}

// spill writes all counts to the files of their parts.
func (t *tally) spill() error {
	if t.parts == nil {
		t.parts = make([]*part, tallyParts)
	}
	var head [2 * binary.MaxVarintLen64]byte
	for name, n := range t.counts {
		p, err := t.part(name)
		if err != nil {
			return temporary(err)
		}
		text := binary.AppendUvarint(binary.AppendUvarint(head[:0], *n), uint64(len(name)))
		if _, err := p.w.Write(text); err != nil {
			return temporary(err)
		}
		if _, err := p.w.WriteString(name); err != nil {
			return temporary(err)
		}
	}
	for name := range t.counts {
		delete(t.counts, name)
	}
	t.size = 0
	return nil
}

// part is the part of a name. Its file is made when it is first needed.
func (t *tally) part(name string) (*part, error) {
	i := maphash.String(t.seed, name) % tallyParts
	if t.parts[i] == nil {
		f, err := os.CreateTemp("", "blockd-history-")
		if err != nil {
			return nil, err
		}
		t.parts[i] = &part{f, bufio.NewWriterSize(f, partBuffer)}
		if err := os.Remove(f.Name()); err != nil {
			return nil, err
		}
	}
	return t.parts[i], nil
}

// each calls use for every name once, in no order. The tally is empty afterwards.
func (t *tally) each(ctx context.Context, use func(name string, n uint64)) error {
	if t.parts == nil {
		for name, n := range t.counts {
			use(name, *n)
		}
		return nil
	}
	if err := t.spill(); err != nil {
		return err
	}
	t.counts = nil // the parts need the memory
	for _, p := range t.parts {
		if err := ctx.Err(); err != nil {
			return err
		}
		if p == nil {
			continue
		}
		err := p.each(ctx, t.most, use)
		p.file.Close()
		if err != nil {
			return err
		}
	}
	return nil
}

// close gives the files back.
func (t *tally) close() {
	for _, p := range t.parts {
		if p != nil {
			p.file.Close()
		}
	}
}

// each sums the counts of a part, and calls use for every name once.
func (p *part) each(ctx context.Context, most int64, use func(name string, n uint64)) error {
	if err := p.w.Flush(); err != nil {
		return temporary(err)
	}
	if _, err := p.file.Seek(0, io.SeekStart); err != nil {
		return temporary(err)
	}
	sum := newTally(most)
	defer sum.close()
	r := bufio.NewReaderSize(p.file, partBuffer)
	var name []byte
	for {
		n, err := binary.ReadUvarint(r)
		if errors.Is(err, io.EOF) {
			return sum.each(ctx, use)
		}
		length, badLength := binary.ReadUvarint(r)
		if err := cmp.Or(err, badLength); err != nil {
			return temporary(err)
		}
		if length > maxName {
			return temporary(errNoLine)
		}
		name = append(name[:0], make([]byte, length)...)
		if _, err := io.ReadFull(r, name); err != nil {
			return temporary(err)
		}
		if err := sum.add(string(name), n); err != nil {
			return err
		}
	}
}

// temporary says which disk is at fault, and what helps.
func temporary(err error) error {
	return fmt.Errorf("temporary file in %s: %w; TMPDIR can name another folder", os.TempDir(), err)
}

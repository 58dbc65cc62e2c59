package mirror

import (
	"bytes"
	"context"
	"errors"
	"os"
	"slices"
	"sync/atomic"

	"golang.org/x/sync/errgroup"

	"blockd/internal/runs"
	"blockd/lists"
)

const (
	// sorters is how many files of a full read are sorted at once.
	sorters = 2

	// sortMemory is for the lines that one of them sorts, in octets. It holds a file of a list of ten million. With the
	// buffers of 64 files and of 64 parts the whole stays below 64 MiB at any size.
	sortMemory = 12 << 20

	// partSize is how much of a part is in memory while a source is read: 1 MiB for the 64 parts. Any number of sources
	// may be read at once, since a slow one must not hold up the others; copies are sorted one at a time.
	partSize = 16 << 10
)

// parts takes the lines of a full read in any order, and keeps those of each file apart: in memory, and what is more in one
// temporary file. A file sorted by itself needs no merge of all, and another one can be sorted meanwhile.
type parts struct {
	folder string
	text   [files][]byte // that is not in the temporary file
	more   *os.File      // nil = all is in memory
	end    int64         // of more
	pieces [files][]piece
}

// piece is a place in the temporary file, of whole lines of one part.
type piece struct{ from, size int64 }

// add takes a line, which it copies. The error is about the disk.
func (p *parts) add(line []byte) error {
	n := fileOf(keyOf(line))
	if size := len(p.text[n]); size > 0 && size+len(line) > partSize {
		if err := p.spill(n); err != nil {
			return err
		}
	}
	p.text[n] = append(p.text[n], line...)
	return nil
}

// spill writes what is in memory of a part into the file.
func (p *parts) spill(n int) error {
	if p.more == nil {
		f, err := os.CreateTemp(p.folder, ".sort.*")
		if err != nil {
			return err
		}
		p.more = f
		if err := os.Remove(f.Name()); err != nil { // without a name it goes with the process
			return err
		}
	}
	if _, err := p.more.WriteAt(p.text[n], p.end); err != nil {
		return err
	}
	size := int64(len(p.text[n]))
	p.pieces[n] = append(p.pieces[n], piece{p.end, size})
	p.end += size
	p.text[n] = p.text[n][:0]
	return nil
}

// sort gives the lines of a part to a sorter. Other goroutines may sort other parts.
func (p *parts) sort(n int, sorter *runs.Sorter) error {
	add := func(text []byte) error {
		for line := range bytes.Lines(text) {
			if err := sorter.Add(line); err != nil {
				return err
			}
		}
		return nil
	}
	if err := add(p.text[n]); err != nil {
		return err
	}
	text := p.text[n]
	p.text[n] = nil
	for _, at := range p.pieces[n] {
		text = slices.Grow(text[:0], int(at.size))[:at.size]
		if _, err := p.more.ReadAt(text, at.from); err != nil {
			return err
		}
		if err := add(text); err != nil {
			return err
		}
	}
	return nil
}

func (p *parts) close() {
	if p.more != nil {
		p.more.Close()
	}
}

// writeAll writes the files of a full read, with the changes that came meanwhile.
func (g *generation) writeAll(ctx context.Context, p *parts, late *pending) (err error) {
	if g.turn != nil { // before files are opened: lists that wait hold one each
		select {
		case g.turn <- struct{}{}:
			defer func() { <-g.turn }()
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	if err := g.make(); err != nil {
		return err
	}
	var all [files]*output
	defer func() { err = errors.Join(err, closeAll(all[:])) }()
	for n := range all {
		if all[n], err = g.create(n); err != nil {
			return err
		}
	}
	g.state.Lines = [files]int64{}
	changes := late.split()
	var next atomic.Int32
	group, ctx := errgroup.WithContext(ctx)
	for range sorters {
		group.Go(func() error {
			sorter := runs.New(g.Mirror.folder, sortMemory)
			defer sorter.Close()
			for n := int(next.Add(1)) - 1; n < files; n = int(next.Add(1)) - 1 {
				if err := p.sort(n, sorter); err != nil {
					return err
				}
				for line, err := range lists.OneOfEach(changes[n].over(sorter.Lines())) {
					if err == nil {
						_, err = all[n].w.Write(line)
					}
					if err != nil {
						return err
					}
					if g.state.Lines[n]++; g.state.Lines[n]%1024 == 0 && ctx.Err() != nil {
						return ctx.Err()
					}
				}
				sorter.Reset()
			}
			return nil
		})
	}
	return group.Wait()
}

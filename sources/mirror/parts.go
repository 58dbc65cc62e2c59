package mirror

import (
	"context"
	"errors"
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

// writeAll writes the files of a full read, with the changes that came meanwhile.
func (g *generation) writeAll(ctx context.Context, p *runs.Parts, late *pending) (err error) {
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
				if err := p.Sort(n, sorter); err != nil {
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

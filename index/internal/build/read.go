package build

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"

	"blockd/index/internal/format"
	"blockd/index/internal/segment"
	"blockd/lists"
)

// readAll reads every source, also behind a refused one, so that all faults are
// told at once.
func (b *Builder) readAll(ctx context.Context) error {
	defer b.stages.begin("read")()
	for {
		refused, err := b.readOnce(ctx)
		switch {
		case errors.Is(err, errAgain):
			if err := b.reset(); err != nil {
				return err
			}
		case err != nil:
			return err
		case len(refused) > 0 && !b.KeepGoing:
			return &SourcesError{refused}
		default:
			return nil
		}
	}
}

// errAgain reports that a source's entries were taken in that must not count, and
// others of it will. All that was taken in goes. It happens once a segment or
// source at most.
var errAgain = errors.New("sources have to be read again")

func (b *Builder) readOnce(ctx context.Context) (refused []error, err error) {
	p := Progress{Stage: "read"}
	sizes := make([]int64, len(b.sources))
	for i, s := range b.sources {
		sizes[i] = fileSize(cmp.Or(s.Kept, s.Path))
		p.Total += sizes[i]
	}
	b.Rows, b.Tests, b.cached = make([]format.ListInfo, len(b.sources)), nil, 0
	for i, s := range b.sources {
		p.Source = s.Path
		err := b.readSource(ctx, i, s, p, sizes[i])
		var file *lists.FileError
		switch row := &b.Rows[i]; {
		case err == nil:
		case !errors.As(err, &file):
			return nil, err
		case s.Optional && file.Class == lists.Missing:
		default:
			row.Refused = &SourceError{s.List, err}
			if b.lastGood(i, row.Refused) {
				return nil, errAgain
			}
			refused = append(refused, row.Refused)
		}
		p.Done += sizes[i]
		p.Entries = int64(b.in.counted().entries)
		b.progress.report(p)
	}
	return refused, b.in.records.finish()
}

// reading is one source while several workers read it.
type reading struct {
	*Builder
	source   format.Source
	row      int
	progress Progress
	size     int64 // of the file
	done     atomic.Int64
	entries  atomic.Int64

	mu    sync.Mutex // guards tests
	tests []segment.Test
}

// readSource takes one source in as a row: from its segment if there is one. Of a
// source that ends in an error, which may show at its very last byte, nothing
// counts.
func (b *Builder) readSource(ctx context.Context, number int, s format.Source, p Progress, size int64) error {
	row := &b.Rows[number]
	if left, out := b.left[number]; out {
		*row = left
		return nil
	}
	*row = format.ListInfo{Source: s, Guard: s.Settings.Guard.ID()}
	r := &reading{Builder: b, source: s, row: number, progress: p, size: size}
	r.entries.Store(p.Entries)
	b.in.Begin(number)
	ok, err := r.fromCache(ctx)
	if !ok && err == nil {
		err = r.parse(ctx)
	}
	b.in.End(number, err == nil)
	if err == nil {
		err = b.boundPatterns(number)
	}
	if err == nil {
		b.Tests = append(b.Tests, r.tests...)
		row.NetworkEntries = b.in.rows[number].Networks
	}
	return err
}

// parse reads the text of the source, and writes its segment.
func (r *reading) parse(ctx context.Context) error {
	kept := r.Segments.Write(r.source, r.Workers)
	for i := range r.in.Workers {
		r.in.Workers[i].segment = kept.Lane(i)
	}
	states := make([]readState, r.Workers)
	workers := r.Workers
	if r.inTurn[r.row] {
		workers = 1
	}
	var err error
	r.Rows[r.row].Summary, err = lists.ReadBlocks(ctx, r.source.Path, r.source.Settings, workers, func(i int, it *lists.Item) error {
		return r.take(&r.in.Workers[i], &states[i], it)
	})
	slices.SortStableFunc(r.tests, func(a, b segment.Test) int { return cmp.Compare(a.Line, b.Line) })
	meta := segment.Meta{Summary: r.Rows[r.row].Summary, Reasons: r.in.rows[r.row].reasons, Tests: r.tests}
	for i := range r.in.Workers {
		r.in.Workers[i].segment = nil
		meta.Counts.Add(r.in.Workers[i].Counts)
	}
	kept.End(r.source, meta, err)
	if errors.Is(err, lists.ErrInTurn) {
		if r.inTurn == nil {
			r.inTurn = map[int]bool{}
		}
		r.inTurn[r.row] = true
		return errAgain
	}
	return err
}

// Parse reads the text of a source for its segment alone.
func Parse(ctx context.Context, c *segment.Cache, s format.Source, workers int) error {
	b := &Builder{Options: Options{Workers: workers}, Segments: c, sources: []format.Source{s}, Rows: make([]format.ListInfo, 1)}
	b.in = &Intake{rows: make([]rowIntake, 1), Workers: make([]worker, workers)} // without lanes
	for i := range b.in.Workers {
		b.in.Workers[i].in = b.in
	}
	for {
		b.in.Begin(0)
		if err := (&reading{Builder: b, source: s}).parse(ctx); !errors.Is(err, errAgain) {
			return err
		}
	}
}

// readState is what a worker knows of its progress.
type readState struct {
	items, line int
	octets      int64
	_           [64]byte // written by different cores
}

// take takes in one item.
func (r *reading) take(w *worker, state *readState, it *lists.Item) error {
	if it.Line != state.line {
		state.line, state.octets = it.Line, state.octets+int64(len(it.Text))+1
	}
	if state.items++; state.items == progressEvery {
		r.report(state)
	}
	if it.Kind == lists.Skip && it.Test != nil {
		r.mu.Lock()
		r.tests = append(r.tests, segment.Test{Row: r.row, Line: it.Line, Test: it.Test})
		r.mu.Unlock()
	}
	err := w.Take(it, it.Expires)
	if err != nil && !errors.Is(err, errTemporary) {
		err = fmt.Errorf("%s:%d: %w", r.source.Path, it.Line, err)
	}
	return err
}

func (r *reading) report(state *readState) {
	now := r.progress
	// A packed file has more text than bytes.
	now.Done += min(r.done.Add(state.octets), r.size)
	now.Entries = r.entries.Add(int64(state.items))
	state.items, state.octets = 0, 0
	r.Builder.progress.report(now)
}

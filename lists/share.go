package lists

import (
	"cmp"
	"errors"
	"math"
	"sync"
)

// share reads the text that r has opened with r and a further worker for each of
// emit, and gives r the sums of all.
func (r *reading) share(f *format, emit []func(*Item) error) error {
	workers := []*reading{r}
	if f.records {
		r.shared.head = &csvHead{known: make(chan struct{})}
	}
	for _, e := range emit {
		w := newReading(f, r.arg, r.settings, e)
		w.settings, w.shared, w.removed, w.carving, w.wide = r.settings, r.shared, r.removed, r.carving, r.wide
		w.lines = r.lines.cutter.reader()
		workers = append(workers, w)
	}
	errs := make([]error, len(workers))
	var all sync.WaitGroup
	for i, w := range workers {
		all.Go(func() {
			errs[i] = f.read(w)
			w.lines.leave(cmp.Or(w.err, errs[i]))
		})
	}
	all.Wait()
	err := fewEach(workers)
	for i, w := range workers {
		if i > 0 {
			r.gather(w)
		}
		if err == nil || lineOf(errs[i]) < lineOf(err) {
			err = errs[i]
		}
	}
	return err
}

// ErrInTurn is the error of several workers that read a list in which an owner has too many entries: which of them are refused depends
// on the lines before, so one worker has to read it anew. What was emitted does not count.
var ErrInTurn = errors.New("an owner has too many entries, and the lines have to be read in turn")

// fewEach is ErrInTurn if an owner has too many entries by all workers together.
func fewEach(workers []*reading) error {
	if workers[0].settings.MaxPerOwner == 0 {
		return nil
	}
	all := workers[0].owned.settle()
	for _, w := range workers[1:] {
		for owner, n := range w.owned.settle() {
			if all[owner] += n; int(all[owner]) > w.settings.MaxPerOwner {
				return ErrInTurn
			}
		}
	}
	return nil
}

// lineOf is the line for which a file is refused. Of several faults the first counts, as for one worker.
func lineOf(err error) int {
	if fe, ok := err.(*FileError); ok && fe.Line > 0 {
		return fe.Line
	}
	return math.MaxInt
}

// gather adds what w has read to r.
func (r *reading) gather(w *reading) {
	if r.err == nil {
		r.err = w.err
	}
	r.sum.Lines = max(r.sum.Lines, w.sum.Lines)
	r.sum.Entries += w.sum.Entries
	r.sum.Errors += w.sum.Errors
	r.sum.Skipped += w.sum.Skipped
	r.sum.Dropped.Gather(&w.sum.Dropped)
	r.void += w.void
	r.tally.add(&w.tally)
}

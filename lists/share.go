package lists

import (
	"cmp"
	"math"
	"sync"
)

// share reads the text that r has opened with r and a further worker for each of
// emit, and gives r the sums of all.
func (r *reading) share(f *format, emit []func(*Item) error) error {
	workers := []*reading{r}
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
	var err error
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

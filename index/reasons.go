package index

import (
	"cmp"
	"slices"
	"sync"

	"blockd/index/internal/format"
)

// place is where in a source something was met: its line, and what of the line.
type place struct{ line, seq int }

func (p place) compare(o place) int {
	return cmp.Or(cmp.Compare(p.line, o.line), cmp.Compare(p.seq, o.seq))
}

// sourceReasons are the reasons of one source. Several workers meet them in an
// order that is another one at every build, so each is kept with the first place
// in the source where it was met, by which they are numbered in the file.
type sourceReasons struct {
	mu    sync.Mutex // guards what follows while the source is read
	table format.ReasonTable
	first []place // of each reason
}

func newSourceReasons() *sourceReasons { return &sourceReasons{table: format.NewReasonTable()} }

// add returns the number of reason, and false when the table is full.
func (r *sourceReasons) add(reason string, at place) (number uint32, ok bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if number, ok = r.table.Add(reason); !ok {
		return 0, false
	}
	if int(number) == len(r.first) {
		r.first = append(r.first, at)
	} else if at.compare(r.first[number]) < 0 {
		r.first[number] = at
	}
	return number, true
}

func (r *sourceReasons) len() int { return len(r.first) }

// text is the reason of a number.
func (r *sourceReasons) text(number uint32) string { return string(r.table.Get(number)) }

// inOrder are the numbers of the reasons in the order of their first places.
func (r *sourceReasons) inOrder() []uint32 {
	numbers := make([]uint32, len(r.first))
	for i := range numbers {
		numbers[i] = uint32(i)
	}
	slices.SortFunc(numbers, func(a, b uint32) int { return r.first[a].compare(r.first[b]) })
	return numbers
}

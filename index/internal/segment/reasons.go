package segment

import (
	"cmp"
	"slices"
	"sync"

	"blockd/index/internal/format"
)

// Place is where in a source something was met: its line, and what of the line.
type Place struct{ Line, Seq int }

func (p Place) compare(o Place) int {
	return cmp.Or(cmp.Compare(p.Line, o.Line), cmp.Compare(p.Seq, o.Seq))
}

// Reasons are the reasons of one source. Several workers meet them in an
// order that is another one at every build, so each is kept with the first place
// in the source where it was met, by which they are numbered in the file.
type Reasons struct {
	mu    sync.Mutex // guards what follows while the source is read
	table format.ReasonTable
	first []Place // of each reason
}

// NewReasons has none.
func NewReasons() *Reasons { return &Reasons{table: format.NewReasonTable()} }

// Add returns the number of reason, and false when the table is full.
func (r *Reasons) Add(reason string, at Place) (number uint32, ok bool) {
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

// Len is their number.
func (r *Reasons) Len() int { return len(r.first) }

// Text is the reason of a number.
func (r *Reasons) Text(number uint32) string { return string(r.table.Get(number)) }

// InOrder are the numbers of the reasons in the order of their first places.
func (r *Reasons) InOrder() []uint32 {
	numbers := make([]uint32, len(r.first))
	for i := range numbers {
		numbers[i] = uint32(i)
	}
	slices.SortFunc(numbers, func(a, b uint32) int { return r.first[a].compare(r.first[b]) })
	return numbers
}

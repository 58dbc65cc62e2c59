package durable

import (
	"errors"
	"fmt"
	"io/fs"
	"iter"
	"maps"
	"slices"
	"time"
)

// Table is rows by their keys, in a Log that several processes share. A row that is put takes the place of the one of its key.
// The methods may be called from any goroutine.
type Table[K comparable, V any] struct {
	s    TableSettings[K, V]
	log  *Log[change[K, V]]
	rows map[K]V // under the log's lock
	last map[K]V // of the file before the one that is read
}

// TableSettings of a Table.
type TableSettings[K comparable, V any] struct {
	Path    string
	Mode    fs.FileMode
	Most    int           // rows, more than which cannot be put
	MaxLine int           // bytes of a row as JSON
	Wait    time.Duration // for another process that changes the table
	Busy    error         // what a change returns after that

	Key   func(V) K
	Check func(V) error                  // what is wrong with a row; such a line of the file is damaged
	Over  func(V) bool                   // a row that has ended: it goes with the next change; nil = none does
	Old   func(text []byte) ([]V, error) // reads a whole file of the form before; nil = there was none
	Now   func(rows map[K]V)             // is told after every change, of others too; what it gets is not to be changed or kept. It may be nil
}

// change is a line of the file: a row, or the key of one that has gone.
type change[K, V any] struct {
	Row  *V `json:"row,omitempty"`
	Gone *K `json:"gone,omitempty"`
}

// tableSlack is how many lines may say nothing any more before the file is written anew.
const tableSlack = 1000

// NewTable returns the table of a file that need not be there. It is read with the first call.
func NewTable[K comparable, V any](s TableSettings[K, V]) *Table[K, V] {
	t := &Table[K, V]{s: s, rows: map[K]V{}}
	ls := LogSettings[change[K, V]]{Path: s.Path, Mode: s.Mode, MaxLine: s.MaxLine, Max: int64(2*s.Most+2*tableSlack) * int64(s.MaxLine),
		Wait: s.Wait, Busy: s.Busy, Begin: func() { t.last, t.rows = t.rows, map[K]V{} }, Take: t.take, Done: t.done}
	if s.Old != nil {
		ls.Old = func(text []byte) (all []change[K, V], err error) {
			old, err := s.Old(text)
			for i := range old {
				all = append(all, change[K, V]{Row: &old[i]})
			}
			return all, err
		}
	}
	t.log = NewLog(ls)
	return t
}

func (t *Table[K, V]) take(c change[K, V]) bool {
	switch {
	case (c.Row == nil) == (c.Gone == nil), c.Row != nil && t.s.Check(*c.Row) != nil:
		return false
	case c.Gone != nil:
		delete(t.rows, *c.Gone)
	default:
		t.rows[t.s.Key(*c.Row)] = *c.Row
	}
	return true
}

// done has rows stay that are not in a file which has taken the place of another, if some of it cannot be read. It tells who wants
// to know.
func (t *Table[K, V]) done() {
	if t.log.read.Damaged > 0 {
		for key, row := range t.last {
			if _, there := t.rows[key]; !there {
				t.rows[key] = row
			}
		}
	}
	t.last = nil
	if t.s.Now != nil {
		t.s.Now(t.rows)
	}
}

// View takes up what other processes have changed, and has look see all rows, which it must not keep. Rows that are over may be
// among them. After an error, which is that of the file, the rows are those of before.
func (t *Table[K, V]) View(look func(rows map[K]V)) error { return t.log.View(func() { look(t.rows) }) }

// Damaged is how many lines of the file could not be read when it was read last.
func (t *Table[K, V]) Damaged() int { return t.log.Damaged() }

// ErrFull is wrapped by the error of a change for which a table has no room.
var ErrFull = errors.New("there is no room for more")

// Change has decide see the rows, and say which are to be put and of which keys they are to go, while nobody else changes the table.
// When it returns that is on the disk, or has not happened: an error of decide is returned as it is.
func (t *Table[K, V]) Change(decide func(rows map[K]V) (put []V, gone []K, err error)) error {
	return t.log.Change(func() (all []change[K, V], err error) {
		put, gone, err := decide(t.rows)
		if err != nil {
			return nil, err
		}
		for _, key := range gone {
			all = append(all, change[K, V]{Gone: &key})
		}
		left := len(t.rows)
		for key, row := range t.rows {
			if slices.Contains(gone, key) || t.s.Over != nil && t.s.Over(row) {
				left--
			}
		}
		for _, row := range put {
			if err := t.s.Check(row); err != nil {
				return nil, err
			}
			if _, there := t.rows[t.s.Key(row)]; !there {
				left++
			}
			all = append(all, change[K, V]{Row: &row})
		}
		if len(put) > 0 && left > t.s.Most {
			return nil, fmt.Errorf("%s: %w than %d", t.s.Path, ErrFull, t.s.Most)
		}
		return all, nil
	}, t.tidy)
}

// tidy returns all rows if some are over, most lines say nothing any more, or some are damaged.
func (t *Table[K, V]) tidy(has Extent) iter.Seq[change[K, V]] {
	before := len(t.rows)
	if t.s.Over != nil {
		maps.DeleteFunc(t.rows, func(_ K, row V) bool { return t.s.Over(row) })
	}
	if before == len(t.rows) && !has.Old && has.Damaged == 0 && has.Lines < 2*len(t.rows)+tableSlack {
		return nil
	}
	return t.all()
}

func (t *Table[K, V]) all() iter.Seq[change[K, V]] {
	return func(yield func(change[K, V]) bool) {
		for _, row := range t.rows {
			if !yield(change[K, V]{Row: &row}) {
				return
			}
		}
	}
}

// Erase removes the rows that whose accepts, and returns how many they were. The file then has nothing of them any more, nor of a row that
// was changed, or had gone, before.
func (t *Table[K, V]) Erase(whose func(V) bool) (gone int, err error) {
	none := func() ([]change[K, V], error) { return nil, nil }
	err = t.log.Change(none, func(has Extent) iter.Seq[change[K, V]] {
		before := len(t.rows)
		maps.DeleteFunc(t.rows, func(_ K, row V) bool { return whose(row) })
		gone += before - len(t.rows)
		if has.Lines == len(t.rows) && has.Damaged == 0 && has.Torn == 0 && !has.Old {
			return nil
		}
		return t.all()
	})
	return gone, err
}

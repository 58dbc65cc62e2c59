package index

import (
	"encoding/binary"
	"fmt"
)

// pairedLists is how many lists, the first ones of the table, have their overlaps
// counted: 362 make 65,341 pairs, which are 1 MB of the file.
const pairedLists = 362

// ListWorth is what one list adds to the others. Keys are counted whatever the
// scope and action of their entries are; a glob's files are one list.
type ListWorth struct {
	List   string
	Keys   uint64 // distinct keys that it holds
	Unique uint64 // of those: that no other list holds
}

// Overlap is what two lists have in common. A stands before B in the table.
type Overlap struct {
	A, B string
	Keys uint64 // held by both
}

// worthTable is section 9 in memory.
type worthTable struct {
	lists    []ListWorth
	overlaps []Overlap
}

// listNames are the distinct names of rows in table order, and of each row the
// number of its name.
func listNames(rows []ListInfo) (names []string, byRow []uint32) {
	numbers := map[string]uint32{}
	byRow = make([]uint32, len(rows))
	for i, row := range rows {
		number, known := numbers[row.Source.List]
		if !known {
			number = uint32(len(names))
			numbers[row.Source.List] = number
			names = append(names, row.Source.List)
		}
		byRow[i] = number
	}
	return names, byRow
}

// worthCounter counts what lists are worth. It is for one goroutine.
type worthCounter struct {
	byRow []uint32 // of each row: the number of its list
	lists []struct{ keys, unique uint64 }
	pairs []uint64 // of lists a < b: number b(b-1)/2 + a

	serial uint64   // of the key in hand
	seen   []uint64 // of each list: the last key that it held
	held   []uint32 // lists, reused
}

func newWorthCounter(rows []ListInfo) *worthCounter {
	names, byRow := listNames(rows)
	paired := min(len(names), pairedLists)
	return &worthCounter{
		byRow: byRow,
		lists: make([]struct{ keys, unique uint64 }, len(names)),
		pairs: make([]uint64, max(0, paired*(paired-1)/2)),
		seen:  make([]uint64, len(names)),
	}
}

// one counts a key that only this row holds.
func (w *worthCounter) one(row int) {
	l := &w.lists[w.byRow[row]]
	l.keys++
	l.unique++
}

// count counts a key of which entries tell.
func (w *worthCounter) count(entries []entry) {
	w.held = w.held[:0]
	w.serial++
	for _, e := range entries {
		if list := w.byRow[e.row]; w.seen[list] != w.serial {
			w.seen[list] = w.serial
			w.held = append(w.held, list)
			w.lists[list].keys++
		}
	}
	if len(w.held) == 1 {
		w.lists[w.held[0]].unique++
		return
	}
	held := w.held[:min(len(w.held), maxSources)]
	for i, b := range held {
		for _, a := range held[:i] {
			if a, b := min(a, b), max(a, b); b < pairedLists {
				w.pairs[b*(b-1)/2+a]++
			}
		}
	}
}

func (w *worthCounter) add(o *worthCounter) {
	for i, l := range o.lists {
		w.lists[i].keys += l.keys
		w.lists[i].unique += l.unique
	}
	for i, n := range o.pairs {
		w.pairs[i] += n
	}
}

// Sizes in section 9.
const (
	worthBytes   = 16 // of a list
	overlapBytes = 16 // of a pair

	maxWorthBytes = maxLists*worthBytes + pairedLists*(pairedLists-1)/2*overlapBytes
)

// amend makes the counts those of t, of which the keys that was has counted are now
// as w has counted them. Both have the lists of t.
func (w *worthCounter) amend(t worthTable, was *worthCounter) {
	numbers := map[string]uint32{}
	for i, l := range t.lists {
		numbers[l.List] = uint32(i)
		w.lists[i].keys += l.Keys - was.lists[i].keys
		w.lists[i].unique += l.Unique - was.lists[i].unique
	}
	for _, o := range t.overlaps {
		a, b := numbers[o.A], numbers[o.B]
		w.pairs[b*(b-1)/2+a] += o.Keys
	}
	for i, n := range was.pairs {
		w.pairs[i] -= n
	}
}

// append encodes section 9.
func (w *worthCounter) append(dst []byte) []byte {
	le := binary.LittleEndian
	for _, l := range w.lists {
		dst = le.AppendUint64(dst, l.keys)
		dst = le.AppendUint64(dst, l.unique)
	}
	for a := range uint32(pairedLists) {
		for b := a + 1; b < pairedLists && int(b*(b-1)/2+a) < len(w.pairs); b++ {
			if n := w.pairs[b*(b-1)/2+a]; n > 0 {
				dst = le.AppendUint32(dst, a)
				dst = le.AppendUint32(dst, b)
				dst = le.AppendUint64(dst, n)
			}
		}
	}
	return dst
}

// decodeWorth reads section 9, which tells of items lists.
func decodeWorth(b []byte, items uint64, rows []ListInfo, keys uint64) (t worthTable, err error) {
	names, _ := listNames(rows)
	if items != uint64(len(names)) || len(b) < worthBytes*len(names) || (len(b)-worthBytes*len(names))%overlapBytes != 0 {
		return t, fmt.Errorf("worth of %d lists in %d bytes, the table has %d", items, len(b), len(names))
	}
	le := binary.LittleEndian
	for _, name := range names {
		l := ListWorth{name, le.Uint64(b), le.Uint64(b[8:])}
		if l.Keys > keys || l.Unique > l.Keys {
			return t, fmt.Errorf("list %s with %d keys, %d its own, of %d", name, l.Keys, l.Unique, keys)
		}
		t.lists, b = append(t.lists, l), b[worthBytes:]
	}
	last := int64(-1)
	for ; len(b) > 0; b = b[overlapBytes:] {
		x, y, n := le.Uint32(b), le.Uint32(b[4:]), le.Uint64(b[8:])
		order := int64(x)<<32 | int64(y)
		if x >= y || int(y) >= len(names) || order <= last || n == 0 || n > min(t.lists[x].Keys, t.lists[y].Keys) {
			return t, fmt.Errorf("lists %d and %d with %d keys in common", x, y, n)
		}
		last = order
		t.overlaps = append(t.overlaps, Overlap{names[x], names[y], n})
	}
	return t, nil
}

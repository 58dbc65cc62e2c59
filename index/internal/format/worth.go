package format

import (
	"encoding/binary"
	"fmt"
)

// PairedLists is how many lists, the first ones of the table, have their overlaps
// counted: 362 make 65,341 pairs, which are 1 MB of the file.
const PairedLists = 362

// ListWorth is what one list adds to the others. Keys are counted whatever the
// scope and action of their entries are; a glob's files are one list.
type ListWorth struct {
	List   string `json:"list"`
	Keys   uint64 `json:"keys"`   // distinct keys that it holds
	Unique uint64 `json:"unique"` // of those: that no other list holds
}

// Overlap is what two lists have in common. A stands before B in the table.
type Overlap struct {
	A    string `json:"a"`
	B    string `json:"b"`
	Keys uint64 `json:"keys"` // held by both
}

// worthTable is section 9 in memory.
type worthTable struct {
	Lists    []ListWorth
	Overlaps []Overlap
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

// WorthCounter counts what lists are worth. It is for one goroutine.
type WorthCounter struct {
	byRow []uint32 // of each row: the number of its list
	Lists []struct{ keys, unique uint64 }
	pairs []uint64 // of lists a < b: number b(b-1)/2 + a

	serial uint64   // of the key in hand
	seen   []uint64 // of each list: the last key that it held
	held   []uint32 // lists, reused
}

// NewWorthCounter counts for the lists of these rows.
func NewWorthCounter(rows []ListInfo) *WorthCounter {
	names, byRow := listNames(rows)
	paired := min(len(names), PairedLists)
	return &WorthCounter{
		byRow: byRow,
		Lists: make([]struct{ keys, unique uint64 }, len(names)),
		pairs: make([]uint64, max(0, paired*(paired-1)/2)),
		seen:  make([]uint64, len(names)),
	}
}

// One counts a key that only this row holds.
func (w *WorthCounter) One(row int) {
	l := &w.Lists[w.byRow[row]]
	l.keys++
	l.unique++
}

// Count counts a key of which entries tell.
func (w *WorthCounter) Count(entries []Entry) {
	w.held = w.held[:0]
	w.serial++
	for _, e := range entries {
		if list := w.byRow[e.Row]; w.seen[list] != w.serial {
			w.seen[list] = w.serial
			w.held = append(w.held, list)
			w.Lists[list].keys++
		}
	}
	if len(w.held) == 1 {
		w.Lists[w.held[0]].unique++
		return
	}
	held := w.held[:min(len(w.held), MaxSources)]
	for i, b := range held {
		for _, a := range held[:i] {
			if a, b := min(a, b), max(a, b); b < PairedLists {
				w.pairs[b*(b-1)/2+a]++
			}
		}
	}
}

// Add takes in what another goroutine has counted.
func (w *WorthCounter) Add(o *WorthCounter) {
	for i, l := range o.Lists {
		w.Lists[i].keys += l.keys
		w.Lists[i].unique += l.unique
	}
	for i, n := range o.pairs {
		w.pairs[i] += n
	}
}

// Sizes in section 9.
const (
	worthBytes   = 16 // of a list
	overlapBytes = 16 // of a pair

	maxWorthBytes = MaxLists*worthBytes + PairedLists*(PairedLists-1)/2*overlapBytes
)

// Amend makes the counts those of t, of which the keys that was has counted are now
// as w has counted them. Both have the lists of t.
func (w *WorthCounter) Amend(t worthTable, was *WorthCounter) {
	numbers := map[string]uint32{}
	for i, l := range t.Lists {
		numbers[l.List] = uint32(i)
		w.Lists[i].keys += l.Keys - was.Lists[i].keys
		w.Lists[i].unique += l.Unique - was.Lists[i].unique
	}
	for _, o := range t.Overlaps {
		a, b := numbers[o.A], numbers[o.B]
		w.pairs[b*(b-1)/2+a] += o.Keys
	}
	for i, n := range was.pairs {
		w.pairs[i] -= n
	}
}

// Append encodes section 9.
func (w *WorthCounter) Append(dst []byte) []byte {
	le := binary.LittleEndian
	for _, l := range w.Lists {
		dst = le.AppendUint64(dst, l.keys)
		dst = le.AppendUint64(dst, l.unique)
	}
	for a := range uint32(PairedLists) {
		for b := a + 1; b < PairedLists && int(b*(b-1)/2+a) < len(w.pairs); b++ {
			if n := w.pairs[b*(b-1)/2+a]; n > 0 {
				dst = le.AppendUint32(dst, a)
				dst = le.AppendUint32(dst, b)
				dst = le.AppendUint64(dst, n)
			}
		}
	}
	return dst
}

// DecodeWorth reads section 9, which tells of items lists.
func DecodeWorth(b []byte, items uint64, rows []ListInfo, keys uint64) (t worthTable, err error) {
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
		t.Lists, b = append(t.Lists, l), b[worthBytes:]
	}
	last := int64(-1)
	for ; len(b) > 0; b = b[overlapBytes:] {
		x, y, n := le.Uint32(b), le.Uint32(b[4:]), le.Uint64(b[8:])
		order := int64(x)<<32 | int64(y)
		if x >= y || int(y) >= len(names) || order <= last || n == 0 || n > min(t.Lists[x].Keys, t.Lists[y].Keys) {
			return t, fmt.Errorf("lists %d and %d with %d keys in common", x, y, n)
		}
		last = order
		t.Overlaps = append(t.Overlaps, Overlap{names[x], names[y], n})
	}
	return t, nil
}

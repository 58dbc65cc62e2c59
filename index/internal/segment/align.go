package segment

import (
	"context"
	"errors"
	"fmt"
	"sort"
)

const (
	// alignRun is how many entries in a row must be the same for two contents to be
	// taken as in step again. Wherever they are, the answer is right; a run only
	// keeps a repeated entry from pulling them apart.
	alignRun = 3

	// The first look ahead: enough for a line or a few. It grows eightfold.
	alignWindow = 16
)

// difference is what two contents of a source have not in common.
type difference struct {
	gone []int64 // where entries stand in the old segment that the new one has not there
	come []int64 // and in the new one, that the old one has not
	from []spot  // of gone
	// lines is where the entries have gone that both have.
	lines LineMap
}

// align walks over an old and a new segment of one source and finds entries that
// are the same in the same order. What it leaves may be more than the smallest
// difference. Where that is over limit entries the error says so.
//
// Lists change by a line here and there, or by a block of lines: where the two
// differ, the nearest place is sought from which on they agree again, in a window
// that grows. So the time is that of one pass and of the difference, and the memory
// that of the largest change.
func align(ctx context.Context, from, to *stream, limit int) (d difference, err error) {
	last := -1 // line of the last entry that was kept
	for ctx.Err() == nil {
		a, b := from.peek(1), to.peek(1)
		if from.err != nil || to.err != nil {
			return d, ErrDamaged
		}
		if len(a) == 0 && len(b) == 0 {
			return d, nil
		}
		if n := d.keep(a, b, &last); n > 0 {
			from.take(n)
			to.take(n)
			continue // one of the two may have more than what was shown
		}
		room := limit - len(d.gone) - len(d.come)
		gone, come, err := apart(from, to, room)
		if err != nil {
			return d, err
		}
		if gone+come > room {
			return d, errFar(limit)
		}
		d.from = from.spots(d.from, gone)
		d.gone = from.takePlaces(d.gone, gone)
		d.come = to.takePlaces(d.come, come)
	}
	return d, ctx.Err()
}

// keep notes where the entries have gone with which both a and b begin, and returns
// their number. Entries of one line stay in one line: last is the old line of the
// entry before.
func (d *difference) keep(a, b []seen, last *int) (n int) {
	for n < min(len(a), len(b)) && a[n].sum == b[n].sum && (a[n].line != *last || b[n].line == d.lines.Line(*last)) && d.lines.add(a[n].line, b[n].line) {
		*last = a[n].line
		n++
	}
	return n
}

// apart returns how many of the next entries the other one has not: the first ones
// differ, or cannot be kept.
func apart(from, to *stream, limit int) (gone, come int, err error) {
	a, b := from.peek(1), to.peek(1)
	if len(a) > 0 && len(b) > 0 && a[0].sum == b[0].sum {
		return 1, 1, nil // two entries of one line that are in two lines now
	}
	return resync(from, to, limit)
}

// takePlaces takes n entries and appends their places to dst.
func (s *stream) takePlaces(dst []int64, n int) []int64 {
	for _, e := range s.peek(n)[:n] {
		dst = append(dst, e.where)
	}
	s.take(n)
	return dst
}

// spots appends the spots of the next n entries to dst.
func (s *stream) spots(dst []spot, n int) []spot {
	at := s.at
	for _, e := range s.peek(n)[:n] {
		at.pass(e.line)
		dst = append(dst, at)
	}
	return dst
}

func errFar(limit int) error { return TooDifferent("more than %d entries differ", limit) }

// resync returns after how many entries of the two they agree again. It looks no
// further than limit asks for.
func resync(from, to *stream, limit int) (gone, come int, err error) {
	for window := alignWindow; ; window *= 8 {
		a, b := from.peek(window+alignRun), to.peek(window+alignRun)
		if from.err != nil || to.err != nil {
			return 0, 0, ErrDamaged
		}
		if gone, come, ok := meet(a, b, window); ok {
			return gone, come, nil
		}
		if len(a) <= window && len(b) <= window { // to the end there is no such place
			return len(a), len(b), nil
		}
		if window > limit {
			return 0, 0, errFar(limit)
		}
	}
}

// meet finds the nearest places in a and b, below window, from which on they agree.
// The end of one agrees with anything.
func meet(a, b []seen, window int) (gone, come int, ok bool) {
	first := make(map[uint64]int, min(len(b), window))
	for j := min(len(b), window) - 1; j >= 0; j-- {
		first[b[j].sum] = j
	}
	for i := range min(len(a), window) {
		if ok && i >= gone+come {
			break
		}
		j, known := first[a[i].sum]
		if known && (!ok || i+j < gone+come) && agree(a[i:], b[j:]) {
			gone, come, ok = i, j, true
		}
	}
	return gone, come, ok
}

func agree(a, b []seen) bool {
	for k := range min(len(a), len(b), alignRun) {
		if a[k].sum != b[k].sum {
			return false
		}
	}
	return true
}

// maxLineShifts bounds how often the lines of one source move apart.
const maxLineShifts = 1 << 16

// LineMap says where the lines of a source have moved, as its entries tell: from
// each of these lines on by so many, up to the next one. The zero LineMap moves
// nothing.
type LineMap struct {
	from []int
	by   []int
}

// Line is where the entry of an old line stands now.
func (m LineMap) Line(old int) int {
	i := sort.SearchInts(m.from, old+1)
	if i == 0 {
		return old
	}
	return old + m.by[i-1]
}

// Bytes is about what it takes of memory.
func (m LineMap) Bytes() int64 { return int64(16 * len(m.from)) }

// add makes lines from old on move to now and behind it, and is false where that
// cannot be. Call it with rising lines.
func (m *LineMap) add(old, now int) bool {
	by, last := 0, len(m.from)-1
	if last >= 0 {
		by = m.by[last]
	}
	switch {
	case now-old == by:
		return true
	case last >= 0 && m.from[last] == old || last == maxLineShifts-1:
		return false
	}
	m.from, m.by = append(m.from, old), append(m.by, now-old)
	return true
}

// ErrTooDifferent is wrapped by Update's error where only a Build can tell what the
// lists say now. Its text says why.
var ErrTooDifferent = errors.New("no small change")

// TooDifferent is an error that wraps ErrTooDifferent.
func TooDifferent(format string, args ...any) error {
	return fmt.Errorf("%w: %s", ErrTooDifferent, fmt.Sprintf(format, args...))
}

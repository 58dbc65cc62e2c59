package query

import (
	"hash/maphash"
	"strconv"
	"strings"

	"blockd/sources/mirror"
)

// Position is how far changes were read by a watermark.
type Position struct {
	Value string // the highest that was there, as the database writes it; "" = there was none
	Polls uint64 // that have found something; it tells a poll that was taken in from one that was not
}

// Mark writes a position down.
func (p Position) Mark() mirror.Mark {
	return mirror.Mark(Watermark + " " + strconv.FormatUint(p.Polls, 10) + " " + p.Value)
}

// PositionOf reads a mark; false for one of another way to find changes.
func PositionOf(m mirror.Mark) (Position, bool) {
	word, rest, _ := strings.Cut(string(m), " ")
	polls, value, ok := strings.Cut(rest, " ")
	n, err := strconv.ParseUint(polls, 10, 64)
	return Position{value, n}, ok && err == nil && word == Watermark
}

// Window is the rows behind a watermark that one poll reads, to see which of them are new.
type Window struct {
	Keys []Key // of rows that the poll before has not read

	options *Options
	seen    *Seen
	asked   map[Key]bool
	rows    int
}

// Window begins a poll since a mark.
func (s *Seen) Window(since mirror.Mark, o *Options) *Window {
	s.Begin(since)
	return &Window{options: o, seen: s, asked: map[Key]bool{}}
}

// Take takes a row.
func (w *Window) Take(c Columns, values []string) error {
	if w.rows++; w.rows > MaxWindow || len(w.Keys) > MaxEntries {
		return w.options.TooMany()
	}
	row := c.Row(values)
	if key := KeyOf(&row, w.options.PerRecipient); w.seen.New(values) && !w.asked[key] {
		w.asked[key] = true
		w.Keys = append(w.Keys, key)
	}
	return nil
}

// Seen knows the rows that the poll before has read. With a watermark every poll reads the last rows again, and nearly
// always they are the same. The zero Seen knows nothing.
type Seen struct {
	mark   mirror.Mark // that the poll before has returned
	seed   maphash.Seed
	before map[uint64]bool
	now    map[uint64]bool
}

// Begin begins a poll since a mark. If the poll before returned another one, it was not taken in, and its rows are
// new once more.
func (s *Seen) Begin(since mirror.Mark) {
	if s.now = map[uint64]bool{}; s.before == nil || since != s.mark {
		s.before, s.seed = map[uint64]bool{}, maphash.MakeSeed()
	}
}

// New reports whether the poll before did not have a row of these values.
func (s *Seen) New(values []string) bool {
	var h maphash.Hash
	h.SetSeed(s.seed)
	for _, v := range values {
		maphash.WriteComparable(&h, len(v))
		h.WriteString(v)
	}
	sum := h.Sum64()
	s.now[sum] = true
	return !s.before[sum]
}

// End ends a poll, which returns a mark.
func (s *Seen) End(mark mirror.Mark) { s.mark, s.before, s.now = mark, s.now, nil }

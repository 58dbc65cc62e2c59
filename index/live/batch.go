package live

import "fmt"

// What is written at once is there as a whole or not at all: each of its records says which part it is of how many. A crash
// may leave a part of the last write, or other octets in its place; it was never acknowledged, so all of it is cut. Any
// write before the last was acknowledged: if one of its lines is damaged, the others count.

// setParts numbers the records of one write. It takes the field of opFold for it: a program that does not know of parts
// would leave out a record with an unknown field.
func setParts(records []record) {
	if len(records) < 2 {
		return
	}
	for i := range records {
		records[i].Hash = fmt.Sprintf("%d/%d", i+1, len(records))
	}
}

// part is which part of how many a record is; 0 = of none.
func (r *record) part() (n, of int) {
	if r.Op != opAdd && r.Op != opRemove || r.Hash == "" {
		return 0, 0
	}
	if _, err := fmt.Sscanf(r.Hash, "%d/%d", &n, &of); err != nil || n < 1 || n > of {
		return 0, 0
	}
	return n, of
}

// mostDamaged bounds the damaged lines that are kept until it is known what they belong to.
const mostDamaged = 10_000

// read is a line of the journal behind the head.
type read struct {
	number int // of the line
	record record
	fault  error // why it is no record
}

// tail keeps the last lines of a journal while they may be a write that is not whole: parts, and damaged lines among them
// and before them.
type tail struct {
	to       *contents
	from     int64 // where the first line begins
	lines    []read
	part, of int  // of the last one that is good; 0 = all are damaged
	gaps     bool // a part is missing or damaged
}

// next takes the line that begins at an offset.
func (t *tail) next(number int, line []byte, at int64) {
	if number == 1 {
		t.to.head(line)
		return
	}
	one := read{number: number}
	one.fault = one.record.decode(line)
	part, of := 0, 0
	if one.fault == nil {
		part, of = one.record.part()
	}
	switch {
	case one.fault != nil:
		if len(t.lines) >= mostDamaged && t.of == 0 {
			t.apply()
		}
		t.gaps = true
	case part == 0:
		t.apply()
		t.to.line(&one)
		return
	case part == 1, t.of > 0 && (of != t.of || part <= t.part): // of another write
		t.apply()
		fallthrough
	default:
		t.gaps = t.gaps || part != t.part+1
		t.part, t.of = part, of
	}
	if len(t.lines) == 0 {
		t.from = at
	}
	t.lines = append(t.lines, one)
}

// apply applies the lines that are kept, each by itself.
func (t *tail) apply() {
	for i := range t.lines {
		t.to.line(&t.lines[i])
	}
	*t = tail{to: t.to}
}

// end is the end of the journal; more is set if an unfinished line follows, which another write has begun. If it returns false, what
// begins at from is a write that is not whole.
func (t *tail) end(more bool) (whole bool) {
	if t.of > 0 && (t.part < t.of || t.gaps && !more) {
		return false
	}
	t.apply()
	return true
}

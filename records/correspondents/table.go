package correspondents

import "math/rand/v2"

// A table keeps keys of 53 bits and 22 bits about each in slots of 64 bits. The first 11 bits of a key are the number of
// its part, the others are in its slot. A part grows by itself, so that growing never needs the table twice. A slot is
// found by linear probing from the place that the key's bits name; nothing is marked as deleted, the slots after it move.
const (
	parts     = 1 << partBits
	partBits  = 11
	tagBits   = 42
	stateBits = 64 - tagBits

	// mostSlots of a part are 9,472 octets, a size of the allocator: 19.4 MB of all parts. mostKeys of them are taken, so
	// that a look-up for a key that is not there reads 35 slots in a full table, and two in one of usual size.
	mostSlots = 1184
	mostKeys  = 1042
)

// key is a keyed hash, cut to partBits and tagBits.
type key uint64

func (k key) part() int   { return int(k >> tagBits) }
func (k key) tag() uint64 { return uint64(k) & (1<<tagBits - 1) }

// state is what is known of a key: the day on which it was last written to, what it is, on how many days, and of a name
// about how many addresses it has. The zero state is of no key.
type state uint32

const (
	whatShift, daysShift, dayShift = 4, 6, 8
	mostNumber                     = 1<<whatShift - 1
	mostDays                       = 3 // counted from 0: on four days or more
	mostDay                        = 1<<(stateBits-dayShift) - 1
)

// What a key is. A name may be both names. The texts of addresses, names and local-parts differ.
const (
	isAddress = 0
	isName    = 1 // of the domain of an address; or a local-part with its @
	isAbove   = 2 // a parent of the domain of an address
)

func (s state) day() int    { return int(s >> dayShift) }
func (s state) days() int   { return int(s>>daysShift) & mostDays }
func (s state) what() int   { return int(s>>whatShift) & (isName | isAbove) }
func (s state) number() int { return int(s) & mostNumber }

// mark notes a day.
func (s state) mark(day int) state {
	if day <= s.day() {
		return s
	}
	days := s.days()
	if s != 0 && days < mostDays {
		days++
	}
	return state(day<<dayShift|days<<daysShift) | s&(1<<daysShift-1)
}

// more notes one address more. The number is the binary logarithm of how many there are, and grows by chance, with half the
// probability each time (R. Morris, Counting Large Numbers of Events in Small Registers, 1978): within a factor of two,
// which is enough for saying which entry covers most.
func (s state) more() state {
	if n := s.number(); n < mostNumber && rand.Uint32()&(1<<n-1) == 0 {
		s++
	}
	return s
}

// about is the number that more has counted.
func (s state) about() int { return 1 << max(0, s.number()-1) }

// table is not safe for use by several goroutines.
type table struct {
	parts [parts]part
	keys  int    // all of them
	sum   [4]int // of each what
}

type part struct {
	slots []uint64
	keys  int
}

func (p *part) place(tag uint64) int { return int(tag * uint64(len(p.slots)) >> tagBits) }

// find returns the slot of a key, or the empty one where it would be. The part has an empty slot.
func (p *part) find(tag uint64) (at int, found bool) {
	for at = p.place(tag); p.slots[at] != 0; {
		if p.slots[at]>>stateBits == tag {
			return at, true
		}
		if at++; at == len(p.slots) {
			at = 0
		}
	}
	return at, false
}

// get returns the state of a key, 0 if it is not there.
func (t *table) get(k key) state {
	p := &t.parts[k.part()]
	if p.keys == 0 {
		return 0
	}
	at, _ := p.find(k.tag())
	return state(p.slots[at] & (1<<stateBits - 1))
}

// full reports whether a key of this part, which is not there, has no room.
func (t *table) full(k key) bool { return t.parts[k.part()].keys >= mostKeys }

// put sets the state of a key, which is not 0. The caller has seen that there is room.
func (t *table) put(k key, s state) {
	p := &t.parts[k.part()]
	if p.keys >= len(p.slots)*mostKeys/mostSlots {
		p.grow()
	}
	at, found := p.find(k.tag())
	if found {
		t.sum[state(p.slots[at]).what()]--
	} else {
		p.keys++
		t.keys++
	}
	t.sum[s.what()]++
	p.slots[at] = k.tag()<<stateBits | uint64(s)
}

func (p *part) grow() {
	old := p.slots
	p.slots = make([]uint64, min(max(8, len(old)*3/2), mostSlots))
	for _, slot := range old {
		if slot != 0 {
			at, _ := p.find(slot >> stateBits)
			p.slots[at] = slot
		}
	}
}

// remove takes a key out, and reports whether it was there.
func (t *table) remove(k key) bool {
	p := &t.parts[k.part()]
	if p.keys == 0 {
		return false
	}
	hole, found := p.find(k.tag())
	if !found {
		return false
	}
	t.sum[state(p.slots[hole]).what()]--
	p.keys--
	t.keys--
	n := len(p.slots)
	for at := (hole + 1) % n; p.slots[at] != 0; at = (at + 1) % n {
		if home := p.place(p.slots[at] >> stateBits); (at-home+n)%n >= (at-hole+n)%n { // it may stand in the hole
			p.slots[hole], hole = p.slots[at], at
		}
	}
	p.slots[hole] = 0
	return true
}

// each calls yield with the keys of one part, until it returns false. yield must not change the table.
func (t *table) each(number int, yield func(key, state) bool) {
	for _, slot := range t.parts[number].slots {
		if slot != 0 && !yield(key(number)<<tagBits|key(slot>>stateBits), state(slot&(1<<stateBits-1))) {
			return
		}
	}
}

// yielding returns the key that gives way to a newcomer beside k: of those of its part that were seen on one day alone and before
// today, and that may, the one that was last seen first.
func (t *table) yielding(k key, today int, may func(state) bool) (victim key, found bool) {
	oldest := today
	t.each(k.part(), func(other key, s state) bool {
		if s.days() == 0 && s.day() < oldest && may(s) {
			victim, oldest, found = other, s.day(), true
		}
		return true
	})
	return victim, found
}

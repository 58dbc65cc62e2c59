package filter

import (
	"errors"
	"fmt"
	mathbits "math/bits"
	"sync"
	"sync/atomic"
	"time"
)

// SeenSettings of a Seen.
type SeenSettings struct {
	// Octets of memory, for both halves: from MinSeen to MaxSeen; 0 = those of the file that is read,
	// 64 MiB for a new set. A half that is filled to 0.5 holds a key for every one and a half octets of
	// its size.
	Octets int64
	// RotateAt is the share of bits from which a half is full: from 0.01 to MaxFill; 0 = 0.5. With
	// 0.5 some 1 % of the keys that a half does not hold seem to be there.
	RotateAt float64
	// MaxAge is how long one half takes new keys. A key that came last at some moment is remembered
	// for MaxAge after it, and forgotten after twice that time at the latest; 0 = until a half is full.
	MaxAge time.Duration
}

// The bounds of SeenSettings. Half of MaxSeen is cleared in some 50 ms, which AddIfAbsent waits for
// when the halves change roles.
const (
	MinSeen = 64
	MaxSeen = 1 << 30
	MaxFill = 0.9

	defaultSeen = 64 << 20
)

// Seen remembers which keys have come, in bounded memory and for a bounded time. It has two halves.
// Both are asked, and the young one is written. When that is full or old, the other one is dropped and
// the roles change: so no moment forgets everything, and the set never holds so much that everything
// seems to be there. A key that has not come may seem to have come; one that has come is known until
// its half is dropped. Age is passed time (Advance), so that a clock that jumps does not count.
//
// All methods may be used from any goroutine, and allocate nothing but when the roles change.
type Seen struct {
	settings SeenSettings

	mu         sync.RWMutex // of what follows
	young, old *half
	age        time.Duration
	writing    bool // Write reads both halves

	saving  sync.Mutex    // held by Write
	full    atomic.Uint64 // changes of roles, by reason
	aged    atomic.Uint64
	changed atomic.Bool // since the last Write
}

// half is a split-block filter of bits.
type half struct {
	words []uint64 // four for a block: the even lane in the low 32 bits
	set   atomic.Int64
}

const (
	blockWords  = lanes * lane / 64
	blockOctets = blockWords * 8
)

func newHalf(blocks uint64) *half { return &half{words: make([]uint64, blocks*blockWords)} }

func (h *half) blocks() uint64 { return uint64(len(h.words)) / blockWords }

// masks are the bits of a key in the four words of its block.
func (s spot) masks() (m [blockWords]uint64) {
	for i := range lanes {
		m[i/2] |= 1 << (s.place(i) + uint64(i%2)*lane)
	}
	return m
}

func (h *half) has(key string) bool {
	s := spotOf(key, h.blocks())
	for i, m := range s.masks() {
		if atomic.LoadUint64(&h.words[s.block*blockWords+uint64(i)])&m != m {
			return false
		}
	}
	return true
}

// add reports whether it has changed a bit.
func (h *half) add(key string) bool {
	s, n := spotOf(key, h.blocks()), 0
	for i, m := range s.masks() {
		n += mathbits.OnesCount64(m &^ atomic.OrUint64(&h.words[s.block*blockWords+uint64(i)], m))
	}
	h.set.Add(int64(n))
	return n > 0
}

// fill is the share of bits that are set.
func (h *half) fill() float64 { return float64(h.set.Load()) / float64(len(h.words)*64) }

// NewSeen makes an empty set.
func NewSeen(s SeenSettings) (*Seen, error) {
	if s.Octets == 0 {
		s.Octets = defaultSeen
	}
	if err := s.check(); err != nil {
		return nil, err
	}
	return &Seen{settings: s, young: newHalf(s.blocks()), old: newHalf(s.blocks())}, nil
}

// check fills in the default of RotateAt, and reports what is out of bounds.
func (s *SeenSettings) check() error {
	if s.RotateAt == 0 {
		s.RotateAt = 0.5
	}
	switch {
	case s.Octets != 0 && s.Octets < MinSeen || s.Octets > MaxSeen:
		return fmt.Errorf("%d octets for a set of seen keys; want %d to %d", s.Octets, MinSeen, int64(MaxSeen))
	case !(s.RotateAt >= 0.01 && s.RotateAt <= MaxFill):
		return fmt.Errorf("a half cannot be full at %g; want 0.01 to %g", s.RotateAt, MaxFill)
	case s.MaxAge < 0:
		return errors.New("the age of a half cannot be negative")
	}
	return nil
}

// blocks are those of one half.
func (s *SeenSettings) blocks() uint64 { return uint64(s.Octets) / 2 / blockOctets }

// Known reports whether key may have come. A key that only the older half holds is put into the
// younger one too: it has come again.
func (s *Seen) Known(key string) bool { return s.ask(key, false) }

// AddIfAbsent puts key in, and reports whether it had not come before. Of several goroutines that
// put in the same new key at once, one or more are told that it is new.
func (s *Seen) AddIfAbsent(key string) bool { return !s.ask(key, true) }

func (s *Seen) ask(key string, add bool) (known bool) {
	known, full := s.askHalves(key, add)
	if full {
		s.mu.Lock()
		defer s.mu.Unlock()
		if s.isFull() { // and no other goroutine was faster
			s.turn(&s.full)
		}
	}
	return known
}

func (s *Seen) askHalves(key string, add bool) (known, full bool) {
	s.mu.RLock()
	defer s.mu.RUnlock()
	if s.young.has(key) {
		return true, false
	}
	known = s.old.has(key)
	if known || add {
		s.young.add(key)
		s.changed.Store(true)
		full = s.isFull()
	}
	return known, full
}

func (s *Seen) isFull() bool { return s.young.fill() >= s.settings.RotateAt }

// Advance tells the set that d has passed; negative counts as nothing. The roles change once at most,
// however long it was: the keys that came last stay for MaxAge.
func (s *Seen) Advance(d time.Duration) {
	if s.settings.MaxAge == 0 || d <= 0 {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.age += min(d, s.settings.MaxAge); s.age >= s.settings.MaxAge {
		s.turn(&s.aged)
	}
}

// turn drops the old half. Its memory becomes the young one's, unless Write reads it, or another size
// is wanted.
func (s *Seen) turn(why *atomic.Uint64) {
	s.young, s.old, s.age = s.old, s.young, 0
	if want := s.settings.blocks(); s.writing || s.young.blocks() != want {
		s.young = newHalf(want)
	} else {
		clear(s.young.words)
		s.young.set.Store(0)
	}
	why.Add(1)
	s.changed.Store(true)
}

// Fill is the share of bits that are set in the half that takes new keys, from 0 to 1.
func (s *Seen) Fill() float64 {
	s.mu.RLock()
	defer s.mu.RUnlock()
	return s.young.fill()
}

// Turns says how often a half was dropped, since it was full, and since it was old.
func (s *Seen) Turns() (full, aged uint64) { return s.full.Load(), s.aged.Load() }

// Changed reports whether there is something that the last Write has not written.
func (s *Seen) Changed() bool { return s.changed.Load() }

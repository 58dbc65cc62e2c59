package filter

import (
	"errors"
	"fmt"
	"math"
)

// maxLinks bounds a Scaling: its links hold 65,535 times what the first one does.
const maxLinks = 16

// ErrFull is the error of Scaling.Add when no further link can be made.
var ErrFull = errors.New("the scaling filter is full")

// Scaling is a Bloom filter that grows: Almeida, Baquero, Preguiça and Hutchison, "Scalable Bloom
// Filters" (2007). A full link is followed by one for twice as many keys, with half its rate of
// false positives, so that all of them together stay below the rate that was asked for. It is for
// one goroutine at a time.
type Scaling struct {
	links []link // the newest last
	n     uint64
	p     float64
}

// link is one filter of a Scaling.
type link struct {
	Filter
	room uint64 // keys that it may still take
}

// NewScaling makes an empty filter, whose first link is for n keys. It says "perhaps" to a share of
// at most p of all keys that it does not hold.
func NewScaling(n uint64, p float64) (*Scaling, error) {
	s := &Scaling{n: max(n, 1), p: p}
	if !(p >= MinRate*(1<<maxLinks) && p < 1) {
		return nil, fmt.Errorf("want a rate of false positives from %.2g to below 1, have %g", MinRate*(1<<maxLinks), p)
	}
	return s, s.grow()
}

// grow adds a link.
func (s *Scaling) grow() error {
	i := len(s.links)
	if i == maxLinks {
		return ErrFull
	}
	room := s.n << i
	f, err := newBits(room, s.p/math.Exp2(float64(i+1)))
	if err != nil {
		return err
	}
	s.links = append(s.links, link{f, room})
	return nil
}

// Has reports whether the filter may hold key. False is certain. The newest link, which holds half
// of all keys, is asked first.
func (s *Scaling) Has(key []byte) bool {
	for i := len(s.links) - 1; i >= 0; i-- {
		if s.links[i].Has(key) {
			return true
		}
	}
	return false
}

// Add puts key in, unless the filter says that it may be there. After an error, which is ErrFull
// or one of too large a link, the filter is as it was.
func (s *Scaling) Add(key []byte) error {
	if s.Has(key) {
		return nil
	}
	if s.links[len(s.links)-1].room == 0 {
		if err := s.grow(); err != nil {
			return err
		}
	}
	newest := &s.links[len(s.links)-1]
	newest.Add(key)
	newest.room--
	return nil
}

package overlap

import (
	"context"
	"slices"
	"sync"
)

// sample keeps the prints whose hash begins with level zero bits: each name with the
// probability 2^-level, on both sides alike. It begins with all names, and raises the level
// whenever they are too many. So a name that is listed twice counts once, which a sample
// of lines cannot do (adaptive sampling: Flajolet, Computing 43, 1990).
type sample struct {
	most int // prints

	mu     sync.Mutex
	prints []print
	level  int
}

// wants reports whether a print is of a level.
func wants(p print, level int) bool { return p.hi>>(64-level) == 0 }

func (s *sample) addAll(block []print) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, p := range block {
		if !wants(p, s.level) {
			continue
		}
		if s.prints = append(s.prints, p); len(s.prints) == s.most {
			s.shrink()
		}
	}
}

// shrink removes repeated prints, and raises the level until half of the room is free.
func (s *sample) shrink() {
	slices.SortFunc(s.prints, comparePrints)
	s.prints = slices.Compact(s.prints)
	for len(s.prints) > s.most/2 && s.level < 64 {
		s.level++
		s.prints = slices.DeleteFunc(s.prints, func(p print) bool { return !wants(p, s.level) })
	}
}

// each calls use for all prints in their order.
func (s *sample) each(_ context.Context, use func(p print)) error {
	slices.SortFunc(s.prints, comparePrints)
	for _, p := range s.prints {
		use(p)
	}
	return nil
}

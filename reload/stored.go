package reload

import (
	"os"
	"slices"
	"time"

	"blockd/index"
)

// Stored is the status of an index file that no Reloader serves, as far as the file and
// those of the lists tell. all are the lists that are configured; none are without a
// configuration.
func Stored(file string, ix *index.Index, all []List) (Status, error) {
	s := Status{Generation: ix.Generation(), Files: ix.Lists(), Worth: ix.Worth(), Overlaps: ix.Overlaps(),
		Dates: map[[2]string]time.Time{}, Held: map[string]int{}}
	held, err := Held(file)
	if err != nil {
		return s, err
	}
	for _, e := range held {
		s.Held[e.List]++
	}
	s.Remarks = append(DroppedRemarks(s.Files), HeldRemarks(s.Held)...)
	now := time.Now()
	for _, row := range s.Files {
		info, err := os.Stat(row.Source.Path)
		if err != nil || info.ModTime().After(ix.Built()) {
			continue // not what was compiled
		}
		var l List
		if i := slices.IndexFunc(all, func(l List) bool { return l.Name == row.Source.List }); i >= 0 {
			l = all[i]
		}
		at := l.date(info)
		s.Dates[[2]string{row.Source.List, row.Source.Path}] = at
		if l.MaxAge > 0 && now.Sub(at) > l.MaxAge && !slices.Contains(s.Stale, l.Name) {
			s.Stale = append(s.Stale, l.Name)
		}
	}
	return s, nil
}

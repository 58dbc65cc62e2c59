package reload

import (
	"os"
	"slices"
	"time"

	"blockd/index"
)

// Stored returns the status of an index file that no Reloader serves, as far as the file and
// those of the lists tell. all are the lists that are configured; none are without a
// configuration.
func Stored(path string, ix *index.Index, all []List) (s Status, err error) {
	held, err := readHeld(path)
	if err != nil {
		return s, err
	}
	s.show(ix, held.in(ix))
	s.Dates = map[file]time.Time{}
	now, byName := time.Now(), listsByName(all)
	for _, row := range s.Files {
		info, err := os.Stat(row.Source.Path)
		if err != nil || info.ModTime().After(ix.Built()) {
			continue // not what was compiled
		}
		l := byName[row.Source.List]
		at := l.date(info)
		s.Dates[fileOf(row)] = at
		if l.tooOld(at, now) && !slices.Contains(s.Stale, l.Name) {
			s.Stale = append(s.Stale, l.Name)
		}
	}
	s.Remarks = append(s.Remarks, fileRemarks(s.Files, s.Dates, now)...)
	return s, nil
}

package session

import "time"

// rate counts the commands of the minute that began with the first of them. The
// zero rate has counted none.
type rate struct {
	since time.Time
	n     int
}

// over counts a command at the time now, and reports whether there have been
// more than most within the minute; 0 is any number.
func (r *rate) over(most int, now time.Time) bool {
	if most == 0 {
		return false
	}
	if now.Sub(r.since) >= time.Minute {
		*r = rate{since: now}
	}
	r.n++
	return r.n > most
}

package session

import "time"

// rate counts commands, minute by minute. A minute begins with its first command. The zero
// rate has counted none.
type rate struct {
	since time.Time
	n     int
}

// over counts a command at the time now. It reports whether there are more than most in the
// current minute. A most of 0 allows any number.
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

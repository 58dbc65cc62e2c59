package httpapi

import (
	"net/netip"
	"sync"
	"time"

	"blockd/internal/listener"
)

// maxCallers bounds the callers that a limiter remembers, some 100 octets each. Further
// callers share one allowance. Only callers that ask right now take a place.
const maxCallers = 10_000

// callerKey names the callers that share an allowance: the holders of a token, or a client address.
type callerKey struct {
	token  string
	client netip.Prefix // of listener.Network
}

// clientKey is the key of a client without a token.
func clientKey(client netip.Addr) callerKey {
	return callerKey{client: listener.Network(client)}
}

// limiter limits the requests a second of each caller. After a second of silence a whole
// second's worth may come at once. It keeps one time for each caller, by the generic cell rate
// algorithm (ITU-T I.371): when the requests so far would be done at the full rate. A caller
// whose time is over counts as unknown. It is safe for concurrent use.
type limiter struct {
	cell  time.Duration // of one request at the full rate; 0 = any rate
	burst time.Duration // how far ahead a caller may be
	most  int           // callers

	mu   sync.Mutex
	due  map[callerKey]time.Time
	next time.Time // sweep
}

// newLimiter returns a limiter to so many requests a second; 0 = any.
func newLimiter(rate int) *limiter {
	if rate == 0 {
		return newSlowLimiter(0, 0)
	}
	return newSlowLimiter(time.Second/time.Duration(rate), rate)
}

// newSlowLimiter returns a limiter to one request in so long; so many may come at once. 0 = any.
func newSlowLimiter(every time.Duration, atOnce int) *limiter {
	return &limiter{cell: every, burst: every * time.Duration(atOnce), most: maxCallers, due: map[callerKey]time.Time{}}
}

// admit takes one request off the caller's allowance. wait is 0 if there was one,
// and otherwise the time until there is.
func (l *limiter) admit(k callerKey, now time.Time) (wait time.Duration) {
	if l.cell == 0 {
		return 0
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if _, known := l.due[k]; !known && len(l.due) >= l.most {
		if l.sweep(now); len(l.due) >= l.most {
			k = callerKey{}
		}
	}
	due := l.due[k]
	if due.Before(now) {
		due = now
	}
	due = due.Add(l.cell)
	if wait = due.Sub(now) - l.burst; wait > 0 {
		return wait
	}
	l.due[k] = due
	return 0
}

// allows is admit for callers that are not told when to come again.
func (l *limiter) allows(k callerKey, now time.Time) bool { return l.admit(k, now) == 0 }

// sweep forgets callers that would be admitted in full. It runs once a burst's time at
// most: before that it would keep the same callers again.
func (l *limiter) sweep(now time.Time) {
	if now.Before(l.next) {
		return
	}
	l.next = now.Add(l.burst / 10)
	for k, due := range l.due {
		if !due.After(now) {
			delete(l.due, k)
		}
	}
}

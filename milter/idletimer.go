package milter

import (
	"errors"
	"os"
	"sync/atomic"
	"time"
)

// writeTimeout is how long a mail server may take to read an answer.
const writeTimeout = 10 * time.Second

// idleTimer limits how long a connection waits for its peer.
//
// Deadlines of net.Conn would be timers, about seven for each message. A new timer that is the
// next to expire may wake another thread of the scheduler. On busy cores Postfix then
// processed a tenth fewer messages, although the timers cost only a fiftieth of its CPU. So a
// wait is a number, and one goroutine looks at all of them from time to time.
type idleTimer struct {
	due atomic.Int64 // on the clock of connections, in nanoseconds; 0 means no wait
}

// begin starts a wait that ends at due.
func (t *idleTimer) begin(due time.Duration) { t.due.Store(int64(due)) }

func (t *idleTimer) end() { t.due.Store(0) }

// over reports whether the current wait has lasted too long.
func (t *idleTimer) over(now time.Duration) bool {
	due := t.due.Load()
	return due != 0 && int64(now) >= due
}

// wait starts a wait for the peer of at most this long.
func (c *conn) wait(most time.Duration) { c.idle.begin(c.connections.now() + most) }

// stale reports whether err belongs to an earlier wait: its deadline came just after the next
// wait had begun. stale then clears the deadline, and the caller tries again.
func (c *conn) stale(err error) bool {
	if !errors.Is(err, os.ErrDeadlineExceeded) || c.idle.over(c.connections.now()) {
		return false
	}
	return c.Conn.SetDeadline(time.Time{}) == nil
}

// now returns the time since the start. It is never 0, because 0 means no wait.
func (g *connections) now() time.Duration { return time.Since(g.begun) + 1 }

// watch ends waits that last too long, until done is closed. A wait may last longer than its
// limit by an eighth of the shortest timeout, and never by more than a second.
func (g *connections) watch(done <-chan struct{}) {
	s := g.settings
	every := min(s.FirstTimeout, s.PacketTimeout, s.IdleTimeout) / 8
	tick := time.NewTicker(max(min(every, time.Second), time.Millisecond))
	defer tick.Stop()
	for {
		select {
		case <-tick.C:
			g.endOverdue()
		case <-done:
			return
		}
	}
}

// endOverdue ends the waits that have lasted too long.
func (g *connections) endOverdue() {
	g.mu.Lock()
	defer g.mu.Unlock()
	now := g.now()
	for c := range g.open {
		if c.idle.over(now) {
			c.Conn.SetDeadline(time.Unix(1, 0)) // a time in the past; an error means that the connection is gone
		}
	}
}

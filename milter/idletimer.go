package milter

import (
	"errors"
	"os"
	"sync/atomic"
	"time"
)

// writeTimeout is how long a mail server may take to read an answer.
const writeTimeout = 10 * time.Second

// idleTimer is how long a connection waits for its peer. Deadlines of the connection
// would be timers, seven settings for a mail, and each that comes to stand first may have the
// scheduler wake another thread to look after it: Postfix on busy cores took a tenth
// fewer mails, though it cost a fiftieth of its CPU. So a wait is a number, and the guard looks
// at all of them now and then.
type idleTimer struct {
	due atomic.Int64 // on the guard's clock, nanoseconds; 0 = nobody waits
}

// begin begins a wait that is over at due.
func (t *idleTimer) begin(due time.Duration) { t.due.Store(int64(due)) }

func (t *idleTimer) end() { t.due.Store(0) }

// over reports whether there is a wait, and it has lasted too long.
func (t *idleTimer) over(now time.Duration) bool {
	due := t.due.Load()
	return due != 0 && int64(now) >= due
}

// wait begins a wait for the peer.
func (c *conn) wait(most time.Duration) { c.idle.begin(c.guard.now() + most) }

// early reports that err ended a wait which the guard took for the one before it, and
// has it go on.
func (c *conn) early(err error) bool {
	if !errors.Is(err, os.ErrDeadlineExceeded) || c.idle.over(c.guard.now()) {
		return false
	}
	return c.Conn.SetDeadline(time.Time{}) == nil
}

// now is the guard's clock. It starts a nanosecond behind 0, which is no wait.
func (g *guard) now() time.Duration { return time.Since(g.begun) + 1 }

// lookOut ends waits that last too long, until done is closed. They last an eighth of
// the shortest timeout too long at most, and never more than a second.
func (g *guard) lookOut(done <-chan struct{}) {
	s := g.settings
	every := min(s.FirstTimeout, s.PacketTimeout, s.IdleTimeout) / 8
	tick := time.NewTicker(max(min(every, time.Second), time.Millisecond))
	defer tick.Stop()
	for {
		select {
		case <-tick.C:
			g.hurry()
		case <-done:
			return
		}
	}
}

// hurry ends the waits that are over now.
func (g *guard) hurry() {
	g.mu.Lock()
	defer g.mu.Unlock()
	now := g.now()
	for c := range g.open {
		if c.idle.over(now) {
			c.Conn.SetDeadline(time.Unix(1, 0)) // long ago; an error is a connection that is gone
		}
	}
}

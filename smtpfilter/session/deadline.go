package session

import (
	"context"
	"net"
	"sync"
	"time"
)

// deadlines bounds every read and write of a session. The session sets each limit with
// armClient or armUpstream. From other goroutines, the end of the session's time and the end
// of the drain may cut a wait short. Between the dot and upstream's reply neither does.
//
// A wait may exceed its limit by 1/lateShare of it: moving the deadline with every command
// would cost more than reading the command.
type deadlines struct {
	mu       sync.Mutex
	client   armed
	upstream armed // its conn is nil while there is no connection
	idle     bool  // the session waits for a command and has no transaction
	final    bool  // between the dot and upstream's reply
	draining bool  // the filter is stopping
	over     bool  // the session's time is over
}

// armed is a connection and the deadline that is set on it. The zero time means that the
// deadline is not known.
type armed struct {
	conn net.Conn
	at   time.Time
}

// lateShare is the part of a limit by which its deadline may be late: 1/64, or 4.7 s of 5 min.
const lateShare = 64

// watch starts the session's clock. The returned context ends when the session's time is over.
// The caller calls stop at the end of the session.
//
// The session's time is a plain timer. A context with a deadline, and a function that runs after
// it, take half a KiB more of an idle session (docs/decisions/0066).
func (d *deadlines) watch(drain context.Context, l Limits) (hard context.Context, stop func()) {
	hard, cancel := context.WithCancel(context.WithoutCancel(drain))
	over := func() {
		cancel()
		d.cut()
	}
	clock := time.AfterFunc(l.Session, over)
	stopDrain := context.AfterFunc(drain, func() {
		d.drain()
		select {
		case <-time.After(l.Drain):
			over()
		case <-hard.Done():
		}
	})
	return hard, func() {
		stopDrain()
		clock.Stop()
		cancel()
	}
}

// past returns a deadline that ends a blocked read or write at once.
func past() time.Time { return time.Unix(1, 0) }

// drain ends the wait for a command if the session has no transaction.
func (d *deadlines) drain() {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.draining = true
	if d.idle {
		d.client.conn.SetReadDeadline(past())
		d.client.at = time.Time{}
	}
}

// cut ends whatever the session waits for, except the final reply.
func (d *deadlines) cut() {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.over = true
	if d.final {
		return
	}
	d.client.set(past())
	if d.upstream.conn != nil {
		d.upstream.set(past())
	}
}

// armClient limits the next reads and writes of the client, together. A closed connection
// shows up in the read or write itself.
func (d *deadlines) armClient(limit time.Duration) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.set(&d.client, limit)
}

// armUpstream is armClient for the connection that setUpstream has set.
func (d *deadlines) armUpstream(limit time.Duration) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.set(&d.upstream, limit)
}

// set sets the deadline of one connection. The caller holds the lock.
func (d *deadlines) set(a *armed, limit time.Duration) {
	if d.over && !d.final {
		a.set(past())
		return
	}
	a.within(limit)
}

// within sets a deadline at or shortly after the limit, unless one is already set there.
func (a *armed) within(limit time.Duration) {
	at := time.Now().Add(limit)
	late := at.Add(limit / lateShare)
	if a.at.Before(at) || a.at.After(late) {
		a.set(late)
	}
}

func (a *armed) set(at time.Time) {
	a.conn.SetDeadline(at)
	a.at = at
}

// farewell is the time for the last replies after the session's time is over.
const farewell = 10 * time.Second

// armReply limits the next write of replies. Replies get some time even after the session's
// time is over, above all the answer to a dot.
func (d *deadlines) armReply(limit time.Duration) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.over {
		limit = farewell
	}
	d.client.within(limit)
}

// await limits the wait for the next command. It returns false if the filter is stopping and
// the session has no transaction: no command is read then.
func (d *deadlines) await(limit time.Duration, idle bool) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.draining && idle {
		return false
	}
	d.idle = idle
	d.set(&d.client, limit)
	return true
}

// arrived ends the wait that await began.
func (d *deadlines) arrived() {
	d.mu.Lock()
	d.idle = false
	d.mu.Unlock()
}

// finalReply says whether the session waits for upstream's reply to the dot.
func (d *deadlines) finalReply(on bool) {
	d.mu.Lock()
	d.final = on
	d.mu.Unlock()
}

// setClient replaces the client's connection by conn, which wraps it.
func (d *deadlines) setClient(conn net.Conn) {
	d.mu.Lock()
	d.client = armed{conn: conn}
	d.mu.Unlock()
}

// setUpstream sets the connection to upstream that cut must end; nil means none.
func (d *deadlines) setUpstream(conn net.Conn) {
	d.mu.Lock()
	d.upstream = armed{conn: conn}
	d.mu.Unlock()
}

// stopping reports whether the filter is stopping.
func (d *deadlines) stopping() bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.draining
}

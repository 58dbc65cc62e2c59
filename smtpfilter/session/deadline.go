package session

import (
	"context"
	"net"
	"sync"
	"time"
)

// deadlines bounds every read and write of a session. Each one sets its own
// limit, with armClient or armUpstream; two things may cut it short from another goroutine: the end
// of the session's whole time, and the end of the drain's. Between the dot and
// upstream's reply neither does.
//
// A deadline that is set may pass up to a grace-th of its limit late: moving it with
// every command would cost more than reading one.
type deadlines struct {
	mu       sync.Mutex
	client   armed
	upstream armed // without a connection while there is none
	idle     bool  // waiting for a command, without a transaction
	final    bool  // between the dot and upstream's reply
	draining bool  // the filter is stopping
	over     bool  // no time is left
}

// armed is a connection and the deadline that is set on it; zero: not known.
type armed struct {
	conn net.Conn
	at   time.Time
}

// grace is what share of a limit its deadline may pass late: 4.7 s of 5 min.
const grace = 64

// watch starts the clock of the session. The returned context ends when no
// time is left; stop releases what watch holds.
func (d *deadlines) watch(drain context.Context, l Limits) (hard context.Context, stop func()) {
	hard, cancel := context.WithTimeout(context.WithoutCancel(drain), l.Session)
	stopCut := context.AfterFunc(hard, d.cut)
	stopDrain := context.AfterFunc(drain, func() {
		d.drain()
		select {
		case <-time.After(l.Drain):
			cancel()
		case <-hard.Done():
		}
	})
	return hard, func() {
		stopDrain()
		stopCut()
		cancel()
	}
}

// past is a deadline that ends a blocked read or write at once.
func past() time.Time { return time.Unix(1, 0) }

// drain ends the wait of a session that has no transaction.
func (d *deadlines) drain() {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.draining = true
	if d.idle {
		d.client.conn.SetReadDeadline(past())
		d.client.at = time.Time{}
	}
}

// cut ends whatever the session waits for, unless that is the final reply.
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

// armClient gives the next reads and writes of the client, together, the time limit.
// A connection that is gone shows in the read or write itself.
func (d *deadlines) armClient(limit time.Duration) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.set(&d.client, limit)
}

// armUpstream is armClient for the connection that setUpstream has told of.
func (d *deadlines) armUpstream(limit time.Duration) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.set(&d.upstream, limit)
}

// set arms one of the two with the lock held.
func (d *deadlines) set(a *armed, limit time.Duration) {
	if d.over && !d.final {
		a.set(past())
		return
	}
	a.within(limit)
}

// within sets a deadline after the limit, unless one is set that is as good.
func (a *armed) within(limit time.Duration) {
	at := time.Now().Add(limit)
	late := at.Add(limit / grace)
	if a.at.Before(at) || a.at.After(late) {
		a.set(late)
	}
}

func (a *armed) set(at time.Time) {
	a.conn.SetDeadline(at)
	a.at = at
}

// farewell is the time for the last replies when no time is left.
const farewell = 10 * time.Second

// armReply gives the next write of replies its limit. When no time is left there
// is still some for them: above all for the answer to a dot.
func (d *deadlines) armReply(limit time.Duration) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.over {
		limit = farewell
	}
	d.client.within(limit)
}

// await arms the client for its next command. It reports false if there is to
// be none: the filter is stopping and the session has no transaction.
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

// arrived ends an await.
func (d *deadlines) arrived() {
	d.mu.Lock()
	d.idle = false
	d.mu.Unlock()
}

// finalReply marks the time between the dot and upstream's reply.
func (d *deadlines) finalReply(on bool) {
	d.mu.Lock()
	d.final = on
	d.mu.Unlock()
}

// setClient tells which connection takes the place of the client's, which is
// part of it.
func (d *deadlines) setClient(conn net.Conn) {
	d.mu.Lock()
	d.client = armed{conn: conn}
	d.mu.Unlock()
}

// setUpstream tells which connection cut must end; nil: none.
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

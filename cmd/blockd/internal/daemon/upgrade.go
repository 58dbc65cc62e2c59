package daemon

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"os"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"blockd/cmd/blockd/internal/upgrade"
	"blockd/records/audit"
)

// Program is what SIGUSR2 starts beside this process, to take over from it.
type Program struct {
	Path string // of the executable, as this process was started by; what is there then may be another version
	Args []string
}

// upgrading is how this process took over from another one, and how it will be taken over from.
type upgrading struct {
	program Program
	began   os.FileInfo // of the executable when this process began; nil: not known

	predecessor *upgrade.Predecessor // nil: none
	parent      int                  // its number
	arrivals    map[string]*arrivals // connections of the predecessor, by doors; made before the doors are run
	handedOver  func()               // ends the doors
	orphaned    chan struct{}        // closed when nobody answers any more, and what is left of this process is not waited for
	stopped     stopped

	// What one process alone may have at a time. These parts may be run again after their end.
	readers crew // of the sources of lists, and what writes filters of them
	writers crew // of live entries, and of what is kept for the next start

	mu        sync.Mutex         // guards the three below
	following bool               // upgrade.Lists is yielded
	yielded   chan struct{}      // nil: upgrade.Writes is not yielded; closed when it is known who goes on
	successor *upgrade.Successor // that answers in our place; nil: there is none
	fault     atomic.Pointer[error]
	former    atomic.Int32 // processes that were taken over from and still end their sessions, as the last of them has told
}

// upgradeNow has a new process take over. If it cannot, everything goes on as before. Call it with setup.turn held.
func (d *daemon) upgradeNow(ctx context.Context) {
	if _, _, err := d.handToNew(ctx, upgradePatience); err != nil {
		d.upgrade.fault.Store(&err)
		d.log.Error("not upgraded: this process serves on", slog.String("program", d.upgrade.program.Path), slog.Any("error", err))
	}
}

// How long a new process may take until it answers. After a change of the configuration it may have to build lists.
const (
	upgradePatience = 30 * time.Second
	changePatience  = 15 * time.Minute
)

// mostFormer bounds the processes that end their sessions at a time: a configuration that is changed each second would
// else fill the memory with them.
const mostFormer = 16

// handToNew starts a new process and has it take over. It returns what that one says of its lists: the generation by
// which it answers, and their problems, a line each.
func (d *daemon) handToNew(ctx context.Context, patience time.Duration) (to *upgrade.Successor, says string, err error) {
	u, begun := &d.upgrade, time.Now()
	if _, already := u.hasYielded(); already != nil {
		return nil, "", errors.New("another process has taken over already")
	}
	if u.program.Path == "" {
		return nil, "", errors.New("the program that it was started by is not known")
	}
	if former := u.former.Load(); former >= mostFormer {
		return nil, "", fmt.Errorf("%d former processes still end their sessions; try again when one of them has, in smtp.drain_timeout (%v) at most",
			former, time.Duration(d.config.SMTP.DrainTimeout))
	}
	if !supervised() {
		if err := adopt(); err != nil {
			return nil, "", fmt.Errorf("the processes after the next one would be nobody's: %w", err)
		}
	}
	sockets, err := d.sockets.copies()
	if err != nil {
		return nil, "", err
	}
	successor, err := upgrade.Start(u.program.Path, u.program.Args, sockets, "WATCHDOG_PID") // systemd's watchdog is of the main process
	closeFiles(sockets)
	if err != nil {
		return nil, "", err
	}
	d.log.Info("another process begins", slog.String("program", u.program.Path), slog.Int("pid", successor.PID()))
	if says, err = successor.Await(ctx, patience, func(what upgrade.Stage) error { return d.yield(ctx, what, successor) }); err != nil {
		return nil, "", errors.Join(err, d.takeBack())
	}
	u.fault.Store(nil)
	u.decide(successor)
	u.tellCounters(d) // first: it shows no metrics without them
	d.log.Info("another process answers, this one ends its sessions", slog.Int("pid", successor.PID()), slog.Duration("took", time.Since(begun)))
	supervisor{d.log}.succeeded(successor.PID())
	d.sockets.give()
	u.handedOver()
	return successor, says, nil
}

// hasYielded reports whether another process has what one alone can have, and whether it answers.
func (u *upgrading) hasYielded() (undecided <-chan struct{}, to *upgrade.Successor) {
	u.mu.Lock()
	defer u.mu.Unlock()
	return u.yielded, u.successor
}

// crewOf are the parts that end when a stage is yielded.
func (u *upgrading) crewOf(what upgrade.Stage) *crew {
	if what == upgrade.Lists {
		return &u.readers
	}
	return &u.writers
}

// decide ends what yield began: to answers from here on, or with nil this process as before.
func (u *upgrading) decide(to *upgrade.Successor) {
	u.mu.Lock()
	defer u.mu.Unlock()
	if u.yielded != nil {
		close(u.yielded)
	}
	if u.successor = to; to == nil {
		u.yielded = nil
	}
}

// openUpgrade tells what went wrong with the last upgrade, until one succeeds or another process begins, and keeps up
// with a successor.
func openUpgrade(_ context.Context, d *daemon, p *part) error {
	p.run = func(ctx context.Context) error { return d.upgrade.keepUp(ctx, d) }
	p.problems = lines(func() []string {
		if err := d.upgrade.fault.Load(); err != nil {
			return []string{"not upgraded: " + (*err).Error()}
		}
		return nil
	})
	return nil
}

// replaced reports whether another program is where this one was started from. Other rights or another owner make no
// other program of it.
func (u *upgrading) replaced() bool {
	now, err := os.Stat(u.program.Path)
	return err == nil && u.began != nil && !(os.SameFile(now, u.began) && now.Size() == u.began.Size() && now.ModTime().Equal(u.began.ModTime()))
}

// signalled does what a signal asks for. SIGHUP after the program was replaced, as a package does it, upgrades: the new
// one reads the configuration too. A process that was taken over from hands signals on.
func (d *daemon) signalled(ctx context.Context, s os.Signal, systemd supervisor) {
	handOn := func() bool {
		_, to := d.upgrade.hasYielded()
		if to != nil {
			to.Signal(s)
		}
		return to != nil
	}
	if handOn() {
		return
	}
	systemd.reloading()
	if s == syscall.SIGUSR2 || d.upgrade.replaced() {
		d.setup.turn.Lock()
		if !handOn() { // it may have waited for a reload that has had another process take over
			d.upgradeNow(ctx)
		}
		d.setup.turn.Unlock()
	} else if _, err := d.reread(ctx, audit.Author(audit.Daemon, "SIGHUP")); err != nil {
		handOn()
	}
	systemd.ready()
}

// arrivals is a listener for connections that another process has handed over. It is for one door.
type arrivals struct {
	conns  chan net.Conn
	closed chan struct{}
	once   sync.Once
}

// andArrivals returns listeners, and one more where a predecessor may hand over connections of that door.
func (u *upgrading) andArrivals(door string, listeners []net.Listener) []net.Listener {
	if u.predecessor == nil {
		return listeners
	}
	if u.arrivals == nil {
		u.arrivals = map[string]*arrivals{}
	}
	a := &arrivals{conns: make(chan net.Conn), closed: make(chan struct{})}
	u.arrivals[door] = a
	return append(listeners[:len(listeners):len(listeners)], a)
}

// arrive is upgrade.Follower.Conn.
func (u *upgrading) arrive(door string, file *os.File) {
	defer file.Close()
	conn, err := net.FileConn(file)
	if err != nil {
		return
	}
	if a := u.arrivals[door]; a != nil {
		select {
		case a.conns <- conn:
			return
		case <-a.closed:
		}
	}
	conn.Close() // the door is shut here
}

// leave hands a connection over to the successor, if there is one that answers.
func (u *upgrading) leave(door string, conn net.Conn) bool {
	_, to := u.hasYielded()
	raw, ok := conn.(syscall.Conn)
	if to == nil || !ok {
		return false
	}
	f, err := dup(raw)
	if err != nil {
		return false
	}
	defer f.Close()
	return to.Conn(door, int(f.Fd())) == nil
}

// Accept implements net.Listener.
func (a *arrivals) Accept() (net.Conn, error) {
	select {
	case conn := <-a.conns:
		return conn, nil
	case <-a.closed:
		return nil, net.ErrClosed
	}
}

// Close implements net.Listener.
func (a *arrivals) Close() error {
	a.once.Do(func() { close(a.closed) })
	return nil
}

// Addr implements net.Listener.
func (a *arrivals) Addr() net.Addr { return arrivalsAddr{} }

type arrivalsAddr struct{}

func (arrivalsAddr) Network() string { return "handed over" }
func (arrivalsAddr) String() string  { return "connections of the process before" }

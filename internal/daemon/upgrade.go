package daemon

import (
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"net/http/httputil"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"golang.org/x/sync/errgroup"
	"golang.org/x/sys/unix"

	"blockd/firstseen"
	"blockd/history"
	"blockd/index"
	"blockd/internal/upgrade"
	"blockd/live"
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

// crew are parts that end together and may begin again.
type crew struct {
	begun func()
	end   context.CancelFunc
	parts sync.WaitGroup
}

// begin begins parts, which end with ctx or stop. Their errors are g's.
func (c *crew) begin(ctx context.Context, g *errgroup.Group, parts ...func(context.Context) error) {
	c.begun = func() {
		ctx, cancel := context.WithCancel(ctx)
		c.end = cancel
		for _, part := range parts {
			c.parts.Add(1)
			g.Go(func() error {
				defer c.parts.Done()
				return part(ctx)
			})
		}
	}
	c.begun()
}

// stop ends the parts, and waits for that.
func (c *crew) stop() {
	c.end()
	c.parts.Wait()
}

// inherit takes over the sockets of a predecessor, where there is one.
func (d *daemon) inheritSockets() error {
	p, sockets, err := upgrade.Inherit()
	if err != nil {
		return err
	}
	d.upgrade.predecessor, d.upgrade.parent = p, os.Getppid()
	d.sockets.before = map[place]socket{}
	for _, s := range sockets {
		if err := d.sockets.receive(s); err != nil {
			return fmt.Errorf("socket of the process before, %s: %w", s.Name, err)
		}
	}
	return nil
}

// sent is the name under which a socket is handed over.
type sent struct {
	Door    string `json:"door"`
	Network string `json:"network"`
	Address string `json:"address"`
	Ours    bool   `json:"ours,omitempty"` // a Unix socket whose path is removed by the last process
}

// receive puts one socket of a predecessor into before.
func (s *sockets) receive(one upgrade.Socket) error {
	defer one.File.Close()
	var name sent
	if err := json.Unmarshal([]byte(one.Name), &name); err != nil {
		return err
	}
	where := place{name.Door, name.Network, name.Address}
	open := s.before[where]
	if name.Network == "udp" {
		p, err := net.FilePacketConn(one.File)
		if err != nil {
			return err
		}
		open.packets = append(open.packets, p)
	} else {
		l, err := net.FileListener(one.File)
		if err != nil {
			return err
		}
		if u, ok := l.(*net.UnixListener); ok {
			u.SetUnlinkOnClose(false) // until settle: the process before may have to serve on
		}
		open.listeners, open.ours = append(open.listeners, newListener(l)), name.Ours
	}
	s.before[where] = open
	return nil
}

// copies returns a copy of each socket, for a successor. Those of before that no door has taken are not ours to give.
func (s *sockets) copies() (all []upgrade.Socket, err error) {
	add := func(where place, ours bool, from any) {
		if err != nil {
			return
		}
		conn, ok := from.(syscall.Conn)
		if !ok {
			err = fmt.Errorf("%T cannot be handed over", from)
			return
		}
		var f *os.File
		if f, err = dup(conn); err != nil {
			return
		}
		name, _ := json.Marshal(sent{where.door, where.network, where.address, ours}) // texts alone
		all = append(all, upgrade.Socket{Name: string(name), File: f})
	}
	for where, one := range s.open {
		for _, l := range one.listeners {
			add(where, one.ours, l.Listener)
		}
		for _, p := range one.packets {
			add(where, false, p)
		}
	}
	if err != nil {
		closeFiles(all)
		return nil, err
	}
	return all, nil
}

// dup returns a copy of a socket. It is not that of its File method, which would make the socket block for all processes.
func dup(conn syscall.Conn) (f *os.File, err error) {
	raw, err := conn.SyscallConn()
	if err != nil {
		return nil, err
	}
	failed := raw.Control(func(fd uintptr) {
		var n int
		if n, err = unix.FcntlInt(fd, unix.F_DUPFD_CLOEXEC, 3); err == nil {
			f = os.NewFile(uintptr(n), "socket")
		}
	})
	return f, errors.Join(failed, err)
}

func closeFiles(all []upgrade.Socket) {
	for _, s := range all {
		s.File.Close()
	}
}

// give leaves all sockets to a successor, which has copies of them. Those of UDP are closed by their door, when it has
// answered what it has read.
func (s *sockets) give() {
	for _, one := range s.open {
		for _, l := range one.listeners {
			l.give()
		}
		for _, p := range one.packets {
			p.SetReadDeadline(time.Unix(1, 0))
		}
	}
}

// settle makes what was received ours, after Ready: sockets that no door has taken are closed, and paths are removed when we end.
func (s *sockets) settle() {
	for where, one := range s.before {
		for _, l := range one.listeners {
			if u, ok := l.Listener.(*net.UnixListener); ok {
				u.SetUnlinkOnClose(one.ours)
			}
		}
		if _, taken := s.open[where]; !taken {
			one.close()
		}
	}
	s.before = nil
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

// handToNew starts a new process and has it take over. It returns what that one says of its lists: the generation by which it
// answers, and their problems, a line each.
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

// After a successor has taken over, HTTP and RESP, whose clients keep connections, end after lastQuestions: a question that was
// on its way is answered, and they connect again. Connections of Postfix's services go on in the successor (leave). Those of
// milters end with their SMTP sessions by themselves. SMTP sessions are left to end as their clients like, for the drain time.
const (
	lastQuestions = 5 * time.Second
	retireEvery   = 100 * time.Millisecond
)

// retire returns when no SMTP session is open, or the time of the drain is over, or ctx ends. It calls endOthers before, in
// time.
func (d *daemon) retire(ctx context.Context, endOthers func()) {
	patience := time.Duration(d.config.SMTP.DrainTimeout)
	end, questions := time.After(patience), time.After(min(lastQuestions, patience))
	tick := time.NewTicker(retireEvery)
	defer tick.Stop()
	for asked := false; ; {
		select {
		case <-tick.C:
			if asked && (d.smtp.sessions == nil || d.smtp.sessions() == 0) {
				return
			}
		case <-questions:
			asked = true
			endOthers()
		case <-end:
			endOthers()
			return
		case <-ctx.Done():
			return
		}
	}
}

// yield gives up what one process alone can have. Mail and questions are answered on, by what the other process makes of
// the lists and the live entries.
func (d *daemon) yield(ctx context.Context, what upgrade.Stage, to *upgrade.Successor) error {
	u := &d.upgrade
	if what == upgrade.Lists {
		u.mu.Lock()
		u.following = true
		u.mu.Unlock()
		u.readers.stop()
		d.lists.Follow(true)
		if err := index.WaitBuilt(ctx, d.config.Index.Path); err != nil { // what this process has begun to build
			return err
		}
		if err := d.recent.Save(d.config.RecentPath()); err != nil {
			d.log.Error("who wrote lately is not kept for the next process", slog.Any("error", err))
		}
		if err := d.partners.Save(); err != nil {
			d.log.Error("correspondents are not kept for the next process", slog.Any("error", err))
		}
		return nil
	}
	u.mu.Lock()
	u.yielded = make(chan struct{})
	u.mu.Unlock()
	u.writers.stop()
	var err error
	if d.entries != nil {
		err = d.entries.Yield()
	}
	err = errors.Join(err, d.past.Yield(to.Lines))
	if failed := d.partners.Yield(); failed != nil {
		d.log.Error("correspondents are not kept for the next process", slog.Any("error", failed))
	}
	if failed := d.domains.Yield(); failed != nil {
		d.log.Error("the domains seen first are not kept for the next process", slog.Any("error", failed))
	}
	return err
}

// takeWrites takes what the predecessor has yielded last.
func (d *daemon) takeWrites(ctx context.Context) (err error) {
	if err := d.upgrade.predecessor.Want(upgrade.Writes); err != nil {
		return err
	}
	if d.entries != nil { // somebody may hold them for a moment who adds one
		if err := unlocked(ctx, live.ErrLocked, d.entries.Resume); err != nil {
			return fmt.Errorf("live entries: %w", err)
		}
	}
	if err := unlocked(ctx, history.ErrLocked, d.past.Resume); err != nil {
		d.log.Error("no history is kept", slog.Any("error", err))
	}
	d.resumeCorrespondents(ctx)
	if d.domains, err = d.openFirstSeen(ctx); err != nil {
		return err
	}
	rules := *d.setup.rules.Load()
	rules.FirstSeen.Domains = d.domains
	d.setup.rules.Store(&rules)
	d.checker.Renew(rules)
	return nil
}

// hasYielded reports whether another process has what one alone can have, and whether it answers.
func (u *upgrading) hasYielded() (undecided <-chan struct{}, to *upgrade.Successor) {
	u.mu.Lock()
	defer u.mu.Unlock()
	return u.yielded, u.successor
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

// successor is httpapi.Settings.Successor.
func (d *daemon) successor(ctx context.Context) http.Handler {
	undecided, _ := d.upgrade.hasYielded()
	if undecided == nil {
		return nil
	}
	select {
	case <-undecided:
	case <-ctx.Done():
		return nil
	}
	if _, to := d.upgrade.hasYielded(); to == nil {
		return nil
	}
	return d.there()
}

// there has the process that has taken over answer a request: it listens where this one did.
func (d *daemon) there() http.Handler {
	at := d.http.listeners[len(d.http.listeners)-1].Addr() // the Unix socket is the last
	scheme := "http"
	if at.Network() != "unix" {
		scheme = d.config.HTTP.Scheme()
	}
	return &httputil.ReverseProxy{
		Rewrite: func(r *httputil.ProxyRequest) {
			r.Out.URL.Scheme, r.Out.URL.Host, r.Out.Host = scheme, "successor", r.In.Host
		},
		Transport: &http.Transport{
			DisableKeepAlives: true,
			TLSClientConfig:   &tls.Config{InsecureSkipVerify: true}, // it is the address where this process listened itself
			DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
				var dialer net.Dialer
				return dialer.DialContext(ctx, at.Network(), at.String())
			},
		},
		ErrorLog: slog.NewLogLogger(d.log.Handler(), slog.LevelWarn),
	}
}

// takeBack undoes yield, whatever there is to undo. What cannot be had back is an error; mail is filtered in any case.
func (d *daemon) takeBack() (err error) {
	u := &d.upgrade
	if yielded, _ := u.hasYielded(); yielded != nil {
		// Somebody may hold a folder for a moment, as who adds an entry while nobody has them. The daemon's end is not waited for.
		if d.entries != nil {
			err = unlocked(context.Background(), live.ErrLocked, d.entries.Resume)
		}
		err = errors.Join(err, unlocked(context.Background(), history.ErrLocked, d.past.Resume), unlocked(context.Background(), firstseen.ErrLocked, d.domains.Resume))
		d.resumeCorrespondents(context.Background())
		u.writers.begun()
		u.decide(nil)
	}
	u.mu.Lock()
	following := u.following
	u.following = false
	u.mu.Unlock()
	if following {
		d.lists.Follow(false)
		u.readers.begun()
	}
	return err
}

// How often a process that has yielded looks at live entries and lists, and tells its counters.
const (
	followEvery = 500 * time.Millisecond
	tellEvery   = 2 * time.Second
)

// keepUp follows what the successor does for as long as sessions of this process last.
func (u *upgrading) keepUp(d *daemon) func(context.Context) error {
	return func(ctx context.Context) error {
		follow, tell := time.NewTicker(followEvery), time.NewTicker(tellEvery)
		defer follow.Stop()
		defer tell.Stop()
		failing := false
		for {
			select {
			case <-follow.C:
				u.mu.Lock()
				lists, writes := u.following, u.yielded != nil
				u.mu.Unlock()
				if lists {
					d.lists.Replaced()
				}
				if !writes || d.entries == nil {
					continue
				}
				err := d.entries.Follow()
				if err != nil && !failing {
					d.log.Error("live entries of the process that has taken over are not followed", slog.Any("error", err))
				}
				failing = err != nil
			case <-tell.C:
				u.tellCounters(d)
			case <-ctx.Done():
				return nil
			}
		}
	}
}

// tellCounters tells the successor, if there is one, what was counted here.
func (u *upgrading) tellCounters(d *daemon) {
	_, s := u.hasYielded()
	if s == nil {
		return
	}
	metrics, err := d.metrics.Text()
	if err == nil {
		text, _ := json.Marshal(counted{string(metrics), d.checker.Hits().State(), u.former.Load() + 1, d.charts.State()}) // texts and a number
		err = s.Counters(text)
	}
	if err != nil {
		d.log.Debug("counters not told to the process that has taken over", slog.Any("error", err))
	}
}

// farewell tells the successor the last of what happened here, after the last session.
func (u *upgrading) farewell(d *daemon) {
	_, s := u.hasYielded()
	if s == nil {
		return
	}
	if err := d.past.Flush(); err != nil {
		d.log.Error("last decisions not told to the process that has taken over", slog.Any("error", err))
	}
	u.tellCounters(d)
	s.Close()
}

// followPredecessor takes up what the process before still decides, until it has ended; so each process ends after those
// before it. When this process stops, an init system tells nobody else to, and kills what is left when it has ended: so the one
// before is told, and waited for. Where there is a keeper, that one tells all.
func (u *upgrading) followPredecessor(ctx context.Context, d *daemon) error {
	if u.predecessor == nil {
		return nil
	}
	stop := context.AfterFunc(ctx, func() {
		if !supervised() {
			u.predecessor.Close()
		} else if os.Getppid() == u.parent { // it is there
			syscall.Kill(u.parent, syscall.SIGTERM)
		}
	})
	defer stop()
	err := u.predecessor.Follow(upgrade.Follower{Lines: d.past.AddLines, Counters: d.addCounters, Conn: u.arrive})
	u.former.Store(0) // it ends after those before it
	switch {
	case err != nil:
		d.log.Error("what the process before decides is not known any more", slog.Any("error", err))
	case ctx.Err() == nil:
		d.log.Info("the process before has ended")
	}
	return nil
}

// firstLook is how long a new process waits for the next server before it takes over: without a look at it no mail passes.
// One that is away is as away for the old process.
const firstLook = 10 * time.Second

// ready tells the predecessor, if there is one, that this process answers from now on, and goes on from its counters.
func (u *upgrading) ready(ctx context.Context, d *daemon) error {
	if u.predecessor == nil {
		return nil
	}
	if d.smtp.look != nil {
		ctx, cancel := context.WithTimeout(ctx, firstLook)
		d.smtp.look(ctx)
		cancel()
	}
	if err := d.takeWrites(ctx); err != nil {
		return err
	}
	status := d.lists.Status()
	counters, err := u.predecessor.Ready(strings.Join(append([]string{status.Generation}, status.Problems...), "\n"))
	if err != nil {
		d.log.Error("the process before does not answer: its counters are not known", slog.Any("error", err))
	} else {
		d.addCounters(counters)
	}
	d.sockets.settle()
	return nil
}

// counted is what a process has counted: what /metrics shows, and hits.Table.State and rollup.Table.State.
type counted struct {
	Metrics string          `json:"metrics"`
	Hits    json.RawMessage `json:"hits"`
	Former  int32           `json:"former"` // processes that still end their sessions, this one included
	Charts  json.RawMessage `json:"charts,omitempty"`
}

func (d *daemon) addCounters(text []byte) {
	if len(text) == 0 { // the process before has ended
		return
	}
	var c counted
	err := json.Unmarshal(text, &c)
	if err == nil {
		err = errors.Join(d.metrics.Add([]byte(c.Metrics)), d.checker.Hits().Restore(c.Hits), d.charts.Join(c.Charts))
	}
	d.upgrade.former.Store(c.Former)
	if err != nil {
		d.log.Error("counters not taken over", slog.Any("error", err))
	}
}

// problems is what went wrong with the last upgrade, until one succeeds or another process begins.
func (u *upgrading) problems() []string {
	if err := u.fault.Load(); err != nil {
		return []string{"not upgraded: " + (*err).Error()}
	}
	return nil
}

// replaced reports whether another program is where this one was started from.
func (u *upgrading) replaced() bool {
	now, err := os.Stat(u.program.Path)
	return err == nil && u.began != nil && (!os.SameFile(now, u.began) || now.Size() != u.began.Size() || !now.ModTime().Equal(u.began.ModTime()))
}

// signalled does what a signal asks for. SIGHUP after the program was replaced, as a package does it, upgrades: the new
// one reads the configuration too. A process that was taken over from hands signals on.
func (d *daemon) signalled(ctx context.Context, s os.Signal, systemd supervisor) {
	if _, to := d.upgrade.hasYielded(); to != nil {
		to.Signal(s)
		return
	}
	systemd.reloading()
	if s == syscall.SIGUSR2 || d.upgrade.replaced() {
		d.setup.turn.Lock()
		d.upgradeNow(ctx)
		d.setup.turn.Unlock()
	} else {
		d.reread(ctx, "SIGHUP")
	}
	systemd.ready()
}

package daemon

import (
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"log/slog"
	"net"
	"net/http"
	"net/http/httputil"
	"os"
	"slices"
	"strings"
	"syscall"
	"time"

	"blockd/cmd/blockd/internal/upgrade"
)

// After a successor has taken over, HTTP and RESP, whose clients keep connections, end after lastQuestions: a question
// that was on its way is answered, and they connect again. Connections of Postfix's services go on in the successor
// (leave). Those of milters end with their SMTP sessions by themselves. SMTP sessions are left to end as their clients
// like, for the drain time.
const (
	lastQuestions = 5 * time.Second
	retireEvery   = 100 * time.Millisecond
)

// retire returns when no SMTP session is open, or the time of the drain is over, or ctx ends. It calls endOthers
// before, in time.
func (d *daemon) retire(ctx context.Context, endOthers func()) {
	patience := time.Duration(d.config.SMTP.DrainTimeout)
	end, questions := time.After(patience), time.After(min(lastQuestions, patience))
	tick := time.Tick(retireEvery)
	for asked := false; ; {
		select {
		case <-tick:
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
	at := d.http[len(d.http)-1].Addr() // the Unix socket is the last
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

// How often a process that has yielded looks at live entries and at lists, and tells its counters. Somebody may have
// added a live entry by the new process, and ask this one by a kept connection: so it looks often. That costs a look
// at a file, but the reading of a million entries where one has changed: so it never takes more than a tenth of the
// time.
const (
	followEvery = 50 * time.Millisecond
	followShare = 10
	listsEvery  = 500 * time.Millisecond
	tellEvery   = 2 * time.Second
)

// errOrphaned is how a process ends that was taken over from, and whose successor has ended before it.
var errOrphaned = errors.New("the process that had taken over has ended, and this one with it")

// orphanGrace is how long sessions may take to end where nobody answers new clients any more.
const orphanGrace = 2 * time.Second

// outlive returns errOrphaned when all processes that have taken over have ended and this one still ends its
// sessions: its listeners are gone, and whoever watches it, be it a container's restart policy or runit, can begin
// anew only when it has ended. It returns nil with last or stop. An init system that knows which process is the main
// one sees to that by itself.
func (u *upgrading) outlive(last, stop context.Context) error {
	_, to := u.hasYielded()
	if supervised() {
		return nil
	}
	tick := time.Tick(retireEvery)
	for {
		select {
		case <-last.Done():
			return nil
		case <-stop.Done():
			return nil
		case <-tick:
		}
		ended, failed := to.Ended()
		if !ended || slices.ContainsFunc(childrenOf(os.Getpid()), runs) { // or another one has taken over from it
			continue
		}
		if failed != nil { // else somebody has told it to stop: sessions have the time of a stop
			time.AfterFunc(orphanGrace, func() { close(u.orphaned) })
		}
		return errOrphaned
	}
}

// keepUp follows what the successor does for as long as sessions of this process last.
func (u *upgrading) keepUp(ctx context.Context, d *daemon) error {
	follow, lists, tell := time.After(followEvery), time.Tick(listsEvery), time.Tick(tellEvery)
	failing := false
	for {
		select {
		case <-lists:
			u.mu.Lock()
			following := u.following
			u.mu.Unlock()
			if following {
				d.lists.Replaced()
			}
		case <-follow:
			began := time.Now()
			if yielded, _ := u.hasYielded(); yielded != nil && d.entries != nil {
				err := d.entries.Follow()
				if err != nil && !failing {
					d.log.Error("live entries of the process that has taken over are not followed", slog.Any("error", err))
				}
				failing = err != nil
			}
			follow = time.After(max(followEvery, followShare*time.Since(began)))
		case <-tell:
			u.tellCounters(d)
		case <-ctx.Done():
			return nil
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

// counted is what a process has counted: what /metrics shows, and hits.Table.State and rollup.Table.State.
type counted struct {
	Metrics string          `json:"metrics"`
	Hits    json.RawMessage `json:"hits"`
	Former  int32           `json:"former"` // processes that still end their sessions, this one included
	Charts  json.RawMessage `json:"charts,omitempty"`
}

// followPredecessor takes over what the predecessor still decides, until the predecessor has ended: so each process
// ends after those before it. An init system tells this process alone to stop, and kills all others when it has ended.
// So this process tells its predecessor to stop, and waits for it. Where a keeper is the main process, the keeper
// tells all of them.
func (u *upgrading) followPredecessor(ctx context.Context, d *daemon) error {
	stop := context.AfterFunc(ctx, func() {
		if !supervised() {
			u.predecessor.Close()
		} else if os.Getppid() == u.parent { // it is there
			syscall.Kill(u.parent, syscall.SIGTERM)
		}
	})
	defer stop()
	err := u.predecessor.Follow(upgrade.Follower{Lines: d.past.AddLines, Counters: d.addCounters, Conn: u.arrive})
	u.formerAre(0, d) // it ends after those before it
	switch {
	case err != nil:
		d.log.Error("what the process before decides is not known any more", slog.Any("error", err))
	case ctx.Err() == nil:
		d.log.Info("the process before has ended")
	}
	return nil
}

func openPredecessor(_ context.Context, d *daemon, p *part) error {
	if u := &d.upgrade; u.predecessor != nil {
		p.run, p.ends = func(ctx context.Context) error { return u.followPredecessor(ctx, d) }, atStop
	}
	return nil
}

// firstLook is how long a new process waits for the next server before it takes over: without a look at it no mail
// passes. One that is away is as away for the old process.
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
	if err := u.predecessor.Want(upgrade.Writes); err != nil {
		return err
	}
	if err := d.resume(ctx, false); err != nil {
		return err
	}
	status := d.lists.Status()
	counters, err := u.predecessor.Ready(strings.Join(append([]string{status.Generation}, status.Told()...), "\n"))
	if err != nil {
		d.log.Error("the process before does not answer: its counters are not known", slog.Any("error", err))
	} else {
		d.addCounters(counters)
	}
	d.sockets.settle()
	return nil
}

// formerAre notes how many processes still end their sessions before this one, and tells its own successor at once:
// each process adds one to what the one before it has told, so that after quick changes a count which waits for
// tellEvery at each of them refuses the next change while two or three are left.
func (u *upgrading) formerAre(n int32, d *daemon) {
	if u.former.Swap(n) != n {
		u.tellCounters(d)
	}
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
	d.upgrade.formerAre(c.Former, d)
	if err != nil {
		d.log.Error("counters not taken over", slog.Any("error", err))
	}
}

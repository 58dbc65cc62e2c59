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
	"time"
)

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

// How often a process that has yielded looks at live entries and at lists, and tells its counters. Somebody may have added a
// live entry by the new process, and ask this one by a kept connection: so it looks often. That costs a look at a file, but
// the reading of a million entries where one has changed: so it never takes more than a tenth of the time.
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
	tick := time.NewTicker(retireEvery)
	defer tick.Stop()
	for {
		select {
		case <-last.Done():
			return nil
		case <-stop.Done():
			return nil
		case <-tick.C:
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
func (u *upgrading) keepUp(d *daemon) func(context.Context) error {
	return func(ctx context.Context) error {
		follow, lists, tell := time.NewTimer(followEvery), time.NewTicker(listsEvery), time.NewTicker(tellEvery)
		defer follow.Stop()
		defer lists.Stop()
		defer tell.Stop()
		failing := false
		for {
			select {
			case <-lists.C:
				u.mu.Lock()
				following := u.following
				u.mu.Unlock()
				if following {
					d.lists.Replaced()
				}
			case <-follow.C:
				began := time.Now()
				if yielded, _ := u.hasYielded(); yielded != nil && d.entries != nil {
					err := d.entries.Follow()
					if err != nil && !failing {
						d.log.Error("live entries of the process that has taken over are not followed", slog.Any("error", err))
					}
					failing = err != nil
				}
				follow.Reset(max(followEvery, followShare*time.Since(began)))
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

// counted is what a process has counted: what /metrics shows, and hits.Table.State and rollup.Table.State.
type counted struct {
	Metrics string          `json:"metrics"`
	Hits    json.RawMessage `json:"hits"`
	Former  int32           `json:"former"` // processes that still end their sessions, this one included
	Charts  json.RawMessage `json:"charts,omitempty"`
}

// Package remote keeps local copies of lists that are published over HTTP.
//
// A copy is a file like any other. The readers of lists watch it, read it when it
// has been replaced, and judge its content. This package knows nothing of
// entries. It decides when to ask, and which answer is a file at all. It replaces the copy
// in one step by a whole file, or does not touch it: whatever a server, a
// network or a disk does, the last good copy stays.
package remote

import (
	"cmp"
	"context"
	"crypto/x509"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"net/http"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// Settings of a Fetcher.
type Settings struct {
	Sources []Source
	Version string         // the program's, for the User-Agent; "" = "devel"
	Roots   *x509.CertPool // authorities for a server's certificate; nil = the system's
}

// Fetcher keeps the copies of its sources. All its methods may be used at any
// time from any goroutine, Run once. Two Fetchers, of one process or of two, may
// keep the same copies, because each replaces a file whole.
type Fetcher struct {
	sources   []*source
	transport *http.Transport
	userAgent string
	log       *slog.Logger
	metrics   *metrics
	slots     chan struct{} // one held by every fetch under way
}

// maxFetches is how many sources are fetched at one time. A daemon with a hundred
// lists does not open a hundred connections at its start. A slow source
// holds its place for its Timeout at most, one that drips for a minute (leastOctets).
const maxFetches = 8

// New returns a Fetcher, or all faults of its settings. It opens no file and no
// connection.
func New(s Settings, log *slog.Logger, reg prometheus.Registerer) (*Fetcher, error) {
	f := &Fetcher{
		transport: newTransport(s.Roots),
		userAgent: "blockd/" + cmp.Or(s.Version, "devel") + " (+list fetch)",
		log:       log,
		slots:     make(chan struct{}, maxFetches),
	}
	var faults []error
	names, paths := map[string]bool{}, map[string]bool{}
	for _, settings := range s.Sources {
		src, err := newSource(settings)
		if err == nil && (names[src.Name] || paths[src.Path]) {
			err = fmt.Errorf("the name or the path %s is that of another source", src.Path)
		}
		if err != nil {
			faults = append(faults, fmt.Errorf("list %s: %w", settings.Name, err))
			continue
		}
		names[src.Name], paths[src.Path] = true, true
		f.sources = append(f.sources, src)
	}
	if err := errors.Join(faults...); err != nil {
		return nil, err
	}
	f.metrics = newMetrics(reg, f.sources)
	return f, nil
}

// Run keeps all copies fresh until ctx ends, and then returns nil. It fetches a copy
// at once that is missing, or is not what was last stored. The others it fetches
// when they are due, counted from the last question to their server.
// So a daemon that restarts often does not ask more often.
func (f *Fetcher) Run(ctx context.Context) error {
	var all sync.WaitGroup
	for _, s := range f.sources {
		all.Go(func() { f.keep(ctx, s) })
	}
	all.Wait()
	return nil
}

// Now asks Run to fetch all sources at once, even those whose servers asked for
// patience. It does not wait.
func (f *Fetcher) Now() {
	for _, s := range f.sources {
		select {
		case s.asked <- struct{}{}:
		default: // it is asked for already
		}
	}
}

// FetchDue fetches once, in the foreground, the sources that Run would ask at once: their
// copy is missing, is not what was last stored, or was last confirmed longer ago than
// Every. The error joins one *Error for every source whose copy could not be brought up to
// date, or is that of ctx.
func (f *Fetcher) FetchDue(ctx context.Context) error {
	return f.fetchThose(ctx, func(s *source) bool {
		age, known := s.age()
		return !known || age >= s.Every
	})
}

func (f *Fetcher) fetchThose(ctx context.Context, due func(*source) bool) error {
	errs := make([]error, len(f.sources))
	var all sync.WaitGroup
	for i, s := range f.sources {
		all.Go(func() {
			if due(s) {
				_, errs[i] = f.attempt(ctx, s)
			}
		})
	}
	all.Wait()
	if err := ctx.Err(); err != nil {
		return err
	}
	return errors.Join(errs...)
}

// troubled is from how many failures in a row on a list does not follow its server: one or two come of a restart over
// there.
const troubled = 3

// Problems are lists that have not followed their servers for a while, by name, with the reason in one line.
func (f *Fetcher) Problems() map[string]string {
	all := map[string]string{}
	for _, s := range f.sources {
		if fault := s.fault.Load(); fault != nil {
			all[s.Name] = *fault
		}
	}
	return all
}

// keep is Run for one source.
func (f *Fetcher) keep(ctx context.Context, s *source) {
	removeStale(s.Path)
	timer := time.NewTimer(f.first(s))
	defer timer.Stop()
	for failures := 0; ; {
		select {
		case <-ctx.Done():
			return
		case <-timer.C:
		case <-s.asked:
		}
		changed, err := f.attempt(ctx, s)
		e, bad := errors.AsType[*Error](err)
		switch {
		case ctx.Err() != nil:
			return // the end of the daemon is no fault of a source
		case bad:
			if failures++; failures >= troubled {
				text := e.Error()
				s.fault.Store(&text)
			}
			wait := s.retry(failures, e.retryAfter, rand.Float64())
			f.log.LogAttrs(ctx, slog.LevelWarn, "list not fetched", slog.String("list", s.Name), slog.String("url", s.shown),
				slog.String("class", string(e.Class)), slog.String("error", e.text()),
				slog.Int("failures", failures), slog.String("next", wait.Round(time.Second).String()))
			timer.Reset(wait)
			continue
		case failures > 0 && !changed: // a change has a line of its own
			f.log.LogAttrs(ctx, slog.LevelInfo, "list server answers again", slog.String("list", s.Name), slog.String("url", s.shown))
		}
		failures = 0
		s.fault.Store(nil)
		timer.Reset(s.pause(rand.Float64()))
	}
}

// first returns when a source is due after a start.
func (f *Fetcher) first(s *source) time.Duration {
	age, known := s.age()
	if !known {
		return 0
	}
	f.metrics.lastSuccess.WithLabelValues(s.Name).Set(float64(time.Now().Add(-age).Unix()))
	return max(0, s.pause(rand.Float64())-age)
}

// age is how long ago the server last gave or confirmed the exact content of the
// copy. known is false if it never has, or if that time lies in the future because
// the clock was set back.
func (s *source) age() (age time.Duration, known bool) {
	_, r, err := s.recall()
	if err != nil || r.Checked.IsZero() {
		return 0, false
	}
	age = time.Since(r.Checked)
	return age, age >= 0
}

// attempt is one fetch with its traces in log and metrics. The error is an
// *Error, or that of ctx.
func (f *Fetcher) attempt(ctx context.Context, s *source) (changed bool, err error) {
	select {
	case f.slots <- struct{}{}:
		defer func() { <-f.slots }()
	case <-ctx.Done():
		return false, ctx.Err()
	}
	bytes, changed, err := f.fetch(ctx, s)
	if ctx.Err() != nil {
		return false, ctx.Err()
	}
	if err != nil {
		e := explain(ctx, Disk, err)
		e.List = s.Name
		f.metrics.count(s.Name, e.Class.result())
		return false, e
	}
	if !changed {
		f.metrics.count(s.Name, unchanged)
		return false, nil
	}
	f.metrics.count(s.Name, replaced)
	f.log.LogAttrs(ctx, slog.LevelInfo, "list fetched", slog.String("list", s.Name), slog.String("url", s.shown),
		slog.String("file", s.Path), slog.Int64("bytes", bytes))
	return true, nil
}

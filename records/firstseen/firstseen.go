// Package firstseen keeps on disk which keys have come, such as the domains of senders: filter.Seen in
// a file of its own, which one process has at a time. It is saved whole each minute and at the end.
package firstseen

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"os"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"

	"blockd/bloom/filter"
	"blockd/internal/durable"
)

// SaveEvery bounds what a crash may lose.
const SaveEvery = time.Minute

// troubles is how often the log says at most that the set cannot be saved: each minute tries again.
const troubles = 10 * time.Minute

// AsideSuffix makes the name of a file that cannot be read, which Open puts aside.
const AsideSuffix = ".unreadable"

// ErrLocked is the error of Open when another process has the set.
var ErrLocked = errors.New("another process has this set")

// Set is a set of keys with its file. All methods but Close may be used from any goroutine. A nil Set
// knows every key.
type Set struct {
	seen *filter.Seen
	path string
	lock *durable.LockFile

	clock struct { // told to seen
		sync.Mutex
		at time.Time
	}
	saving           sync.Mutex // held while the file is written; guards lock
	failures         atomic.Uint64
	tagged, deferred atomic.Uint64
}

// Open reads the set at path, or begins one where there is none. A file that holds no set, a damaged
// one, or one of a newer version is put aside under a name with AsideSuffix, in place of an earlier one, and
// an empty set begins: anew says why. The error is ErrLocked, one of the settings, or of the disk.
func Open(path string, set filter.SeenSettings) (s *Set, anew, err error) {
	lock, err := lockOf(path)
	if err != nil {
		return nil, nil, err
	}
	s = &Set{path: path, lock: lock}
	s.clock.at = time.Now()
	s.seen, err = read(path, set, s.clock.at)
	switch {
	case err == nil:
	case errors.Is(err, fs.ErrNotExist):
		s.seen, err = filter.NewSeen(set)
	case errors.Is(err, filter.ErrForeignSeen), errors.Is(err, filter.ErrNewerSeen), errors.Is(err, filter.ErrTornSeen):
		anew = fmt.Errorf("%s: %w; it is %s now, and an empty set begins", path, err, path+AsideSuffix)
		if err = os.Rename(path, path+AsideSuffix); err == nil {
			s.seen, err = filter.NewSeen(set)
		}
	}
	if err != nil {
		lock.Close()
		return nil, nil, err
	}
	return s, anew, nil
}

// read reads a regular file: others have no size.
func read(path string, set filter.SeenSettings, now time.Time) (*filter.Seen, error) {
	info, err := os.Stat(path)
	if err != nil {
		return nil, err
	}
	if !info.Mode().IsRegular() {
		return nil, fmt.Errorf("%s: no regular file", path)
	}
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	if info, err = f.Stat(); err != nil {
		return nil, err
	}
	return filter.ReadSeen(f, info.Size(), set, now)
}

// Known reports whether key has come, as far as the set remembers. It may say so of a key that has
// not. A key that comes again is remembered longer.
func (s *Set) Known(key string) bool { return s == nil || s.seen.Known(key) }

// AddIfAbsent puts key in, and reports whether it had not come.
func (s *Set) AddIfAbsent(key string) bool { return s != nil && s.seen.AddIfAbsent(key) }

// Tagged and Deferred count what was done because a key had not come.
func (s *Set) Tagged() { s.tagged.Add(1) }

// Deferred is beside Tagged.
func (s *Set) Deferred() { s.deferred.Add(1) }

// Save writes the set to its file, if it has changed. After an error the file is as it was. After Yield it does nothing.
func (s *Set) Save() error {
	if s == nil {
		return nil
	}
	s.saving.Lock()
	defer s.saving.Unlock()
	return s.save()
}

// save is Save for one that holds saving.
func (s *Set) save() error {
	if s.lock == nil {
		return nil
	}
	s.clock.Lock()
	now := time.Now()
	s.seen.Advance(now.Sub(s.clock.at)) // without the jumps of the clock
	s.clock.at = now
	s.clock.Unlock()
	if !s.seen.Changed() {
		return nil
	}
	err := durable.Replace(s.path, 0o600, func(w io.Writer) error { return s.seen.Write(w, now.Round(0)) })
	if err != nil {
		s.failures.Add(1)
	}
	return err
}

// Run saves the set each minute until ctx ends, and then once more. It never fails: what goes wrong is
// logged, and tried again.
func (s *Set) Run(ctx context.Context, log *slog.Logger) error {
	if s == nil {
		<-ctx.Done()
		return nil
	}
	tick := time.NewTicker(SaveEvery)
	defer tick.Stop()
	full, _ := s.seen.Turns()
	for told := (time.Time{}); ; {
		select {
		case <-tick.C:
		case <-ctx.Done():
		}
		if err := s.Save(); err != nil && (told.IsZero() || time.Since(told) >= troubles || ctx.Err() != nil) {
			told = time.Now()
			log.Error("the domains seen first are not kept for the next start", slog.Any("error", err))
		}
		if now, _ := s.seen.Turns(); now > full {
			full = now
			log.Warn("the set of domains seen first was full: the older half is forgotten early; make first_seen.size larger", slog.String("file", s.path))
		}
		if ctx.Err() != nil {
			return nil
		}
	}
}

// Close lets another process have the set. It does not save.
func (s *Set) Close() {
	if s != nil {
		s.saving.Lock()
		defer s.saving.Unlock()
		s.unlock()
	}
}

// Yield saves the set and lets another process open it. This one goes on from memory, and what it learns from here on
// is not saved. Yield once, and then Close or Resume. If the set cannot be saved, the other process begins with the last
// one that was.
func (s *Set) Yield() error {
	if s == nil {
		return nil
	}
	s.saving.Lock()
	defer s.saving.Unlock()
	err := s.save()
	s.unlock()
	return err
}

// Resume takes the set back after Yield, as it is in memory; ErrLocked while another process has it.
func (s *Set) Resume() (err error) {
	if s == nil {
		return nil
	}
	s.saving.Lock()
	defer s.saving.Unlock()
	if s.lock == nil {
		s.lock, err = lockOf(s.path)
	}
	return err
}

func lockOf(path string) (*durable.LockFile, error) {
	return durable.Lock(path+".lock", fmt.Errorf("%s: %w", path, ErrLocked))
}

// unlock lets another process have the set. The caller holds saving.
func (s *Set) unlock() {
	if s.lock != nil {
		s.lock.Close()
		s.lock = nil
	}
}

// Register registers the metrics of the set with reg.
func (s *Set) Register(reg prometheus.Registerer) {
	auto := promauto.With(reg)
	counter := func(name, help, label, value string, read func() uint64) {
		o := prometheus.CounterOpts{Name: name, Help: help}
		if label != "" {
			o.ConstLabels = prometheus.Labels{label: value}
		}
		auto.NewCounterFunc(o, func() float64 { return float64(read()) })
	}
	const total, turns = "Recipients of mail from a domain that was not seen here before, by what was done: tagged, deferred.",
		"How often the older half of the domains that were seen was forgotten, by why: full (of the younger one), age."
	counter("blockd_first_seen_total", total, "outcome", "tagged", s.tagged.Load)
	counter("blockd_first_seen_total", total, "outcome", "deferred", s.deferred.Load)
	counter("blockd_first_seen_turns_total", turns, "why", "full", func() uint64 { full, _ := s.seen.Turns(); return full })
	counter("blockd_first_seen_turns_total", turns, "why", "age", func() uint64 { _, aged := s.seen.Turns(); return aged })
	counter("blockd_first_seen_save_errors_total", "Times that the domains that were seen could not be saved.", "", "", s.failures.Load)
	auto.NewGaugeFunc(prometheus.GaugeOpts{Name: "blockd_first_seen_fill",
		Help: "Share of the younger half of the domains that were seen which is filled, from 0; at 0.5 it is full."}, s.seen.Fill)
}

package letter

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"

	"blockd/internal/durable"
)

// The times of a Courier. A letter that cannot be sent is tried for ever, at last four times a day: its period grows
// meanwhile, so that nothing is left out.
const (
	lookEvery   = 30 * time.Second
	firstRest   = time.Minute // after a try that failed; each later one is twice as long
	longestRest = 6 * time.Hour
	ahead       = time.Minute // how far a clock may have been ahead before a period is begun anew
)

// Courier sends a letter about each period.
type Courier struct {
	Every time.Duration // the length of a period
	Path  string        // where it is kept what was sent
	Make  func(ctx context.Context, since, until time.Time) (Letter, error)
	Send  func(ctx context.Context, l *Letter, id string) error // a try, of bounded time
	Diary *Diary
	Host  string

	log     *slog.Logger
	file    sync.Mutex // held while Path is written
	fault   atomic.Pointer[error]
	letters *prometheus.CounterVec
	sent    atomic.Int64 // Unix seconds of the last letter; 0: none
}

// Register gives c its log and its metrics. It comes before Run.
func (c *Courier) Register(log *slog.Logger, reg prometheus.Registerer) {
	c.log = log
	auto := promauto.With(reg)
	c.letters = auto.NewCounterVec(prometheus.CounterOpts{Name: "blockd_report_letters_total",
		Help: "Letters of [report], by result: sent, failed (one try, another follows), nothing (there was nothing to tell)."}, []string{"result"})
	for _, result := range []string{"sent", "failed", "nothing"} {
		c.letters.WithLabelValues(result)
	}
	auto.NewGaugeFunc(prometheus.GaugeOpts{Name: "blockd_report_failing", Help: "1 while a letter of [report] could not be sent."}, func() float64 {
		if c.Fault() != nil {
			return 1
		}
		return 0
	})
	auto.NewGaugeFunc(prometheus.GaugeOpts{Name: "blockd_report_last_sent_timestamp_seconds", Help: "When the last letter of [report] was sent, by Unix time; 0: none yet."},
		func() float64 { return float64(c.sent.Load()) })
}

// Fault is why the letter that is due could not be sent; nil if none is. A nil Courier has none.
func (c *Courier) Fault() error {
	if c == nil {
		return nil
	}
	if p := c.fault.Load(); p != nil {
		return *p
	}
	return nil
}

// state is the file of a Courier.
type state struct {
	Version int             `json:"report_version"`
	Since   time.Time       `json:"since"`           // the beginning of the period that no letter is about yet
	Sent    time.Time       `json:"sent,omitzero"`   // the last letter
	Trying  time.Time       `json:"trying,omitzero"` // a try of the next one whose answer is not known yet
	Loads   map[string]Load `json:"loads,omitempty"` // since Since
}

const (
	stateVersion = 1
	maxState     = 4 << 20
)

// readState reads the file, which need not be there.
func readState(path string) (state, error) {
	var s state
	err := durable.Load(path, maxState, &s)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return s, nil
	case err == nil && s.Version != stateVersion:
		err = fmt.Errorf("%s: %w: of another version", path, durable.ErrForeign)
	}
	if err != nil {
		return state{}, err
	}
	return s, nil
}

func (c *Courier) write(s *state) error {
	c.file.Lock()
	defer c.file.Unlock()
	s.Loads = c.Diary.State()
	return s.write(c.Path)
}

// Forget takes out of the notes what names accepts, here and in the file, and returns how many of them had it.
func (c *Courier) Forget(names func(text string) bool) (int, error) {
	noted := c.Diary.Forget(names)
	c.file.Lock()
	defer c.file.Unlock()
	kept, err := ForgetIn(c.Path, names)
	return max(noted, kept), err
}

// ForgetIn is Forget where no Courier runs.
func ForgetIn(path string, names func(text string) bool) (gone int, err error) {
	s, err := readState(path)
	if err != nil {
		return 0, err
	}
	for list, l := range s.Loads {
		if names(l.Why) {
			l.Why = forgotten
			s.Loads[list] = l
			gone++
		}
	}
	if gone == 0 {
		return 0, nil
	}
	return gone, s.write(path)
}

func (s *state) write(path string) error {
	s.Version = stateVersion
	return durable.Save(path, s, 0o600)
}

// Run sends each letter when it is due, until ctx ends. One process alone may run it at a time: the next one goes on where the file is.
// The first letter is about the period that begins with the first Run.
func (c *Courier) Run(ctx context.Context) error {
	s, err := readState(c.Path)
	if err != nil {
		c.log.Error("what was reported is forgotten: a period begins now", slog.Any("error", err))
	}
	c.Diary.Restore(s.Loads)
	if !s.Sent.IsZero() {
		c.sent.Store(s.Sent.Unix())
	}
	if !s.Trying.IsZero() {
		c.log.Warn("the answer to a report was not waited for: it may come once more, with the same Message-ID", slog.Time("tried", s.Trying))
	}
	tick := time.NewTicker(lookEvery)
	defer tick.Stop()
	var next time.Time // the next try
	unwritten, failures := true, 0
	for {
		now := time.Now().Round(0) // by the wall clock, which people mean and which goes on while a machine sleeps
		if s.Since.IsZero() || s.Since.After(now.Add(ahead)) {
			if !s.Since.IsZero() {
				c.log.Warn("the clock was set back: a period of [report] begins now", slog.Time("before", s.Since))
			}
			s.Since, unwritten = now, true
		}
		if now.Add(longestRest + time.Hour).Before(next) {
			next = now // the clock was set back
		}
		switch {
		case ctx.Err() != nil: // while a letter was sent
		case now.Sub(s.Since) >= c.Every && !now.Before(next):
			if err := c.report(ctx, &s, now); err == nil {
				failures, next, unwritten = 0, time.Time{}, false
				c.fault.Store(nil)
			} else if ctx.Err() == nil {
				if failures == 0 {
					c.log.Error("report not sent, tried again", slog.Any("error", err))
				}
				c.letters.WithLabelValues("failed").Inc()
				c.fault.Store(&err)
				next = time.Now().Round(0).Add(min(firstRest<<min(failures, 20), longestRest))
				failures++
			}
		case unwritten || c.Diary.Changed():
			err := c.write(&s)
			if err != nil && !unwritten {
				c.log.Error("the state of [report] is not kept for the next start", slog.Any("error", err))
			}
			unwritten = err != nil
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			if c.Diary.Changed() {
				if err := c.write(&s); err != nil {
					c.log.Error("the state of [report] is not kept for the next start", slog.Any("error", err))
				}
			}
			return nil
		}
	}
}

// report makes a letter of the period up to now, and sends it if there is something to tell. After an error the period goes
// on.
func (c *Courier) report(ctx context.Context, s *state, now time.Time) error {
	noted := c.Diary.State()
	l, err := c.Make(ctx, s.Since, now)
	if err != nil {
		return err
	}
	after := state{Since: now, Sent: s.Sent}
	if l.Empty() {
		c.Diary.Told(noted)
		if err := c.write(&after); err != nil {
			return err
		}
		*s = after
		c.letters.WithLabelValues("nothing").Inc()
		c.log.Info("nothing to report", slog.Time("since", l.Since))
		return nil
	}
	// First: where it cannot be written that a letter was sent, none goes, or each start would send it.
	s.Trying = now
	if err := c.write(s); err != nil {
		return err
	}
	if err := c.Send(ctx, &l, ID(c.Host, s.Since)); err != nil {
		if ctx.Err() == nil {
			s.Trying = time.Time{} // nobody has it
			if err := c.write(s); err != nil {
				c.log.Error("the state of [report] is not kept for the next start", slog.Any("error", err))
			}
		}
		return err
	}
	after.Sent = now
	*s = after
	c.sent.Store(now.Unix())
	c.letters.WithLabelValues("sent").Inc()
	c.log.Info("report sent", slog.Time("since", l.Since), slog.Time("until", l.Until))
	c.Diary.Told(noted)
	if err := c.write(s); err != nil {
		c.log.Error("report sent, and not noted: the next start sends it again", slog.Any("error", err))
	}
	return nil
}

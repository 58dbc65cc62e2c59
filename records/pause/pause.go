// Package pause remembers which lists do not count for a while.
//
// A pause is for the night in which a list refuses people it should not: one command, acting within a second, that ends
// by itself. The list's blocks then count as those of a list in shadow mode do; its exceptions count as before, so that
// nobody is refused because of a pause.
package pause

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"blockd/internal/durable"
)

// The bounds of a pause, and of how many there are.
const (
	Longest = 31 * 24 * time.Hour // a list that is to rest for longer is one in shadow mode
	most    = 1000
	maxLine = 4 << 10 // bytes of a pause in the file
	MaxText = 200     // octets of By and Why
)

// Pause is one list that does not count.
type Pause struct {
	List  string    `json:"list"`
	Since time.Time `json:"since"`
	Until time.Time `json:"until"`
	By    string    `json:"by,omitempty"`
	Why   string    `json:"why,omitempty"`
}

// String is p for people, in a line: "until 2026-11-24 03:00, by anna: it refuses the bank".
func (p Pause) String() string {
	text := "until " + p.Until.Local().Format("2006-01-02 15:04")
	if p.By != "" {
		text += ", by " + p.By
	}
	if p.Why != "" {
		text += ": " + p.Why
	}
	return text
}

// Set is the pauses of a file, which several processes may read and change. It is safe for concurrent use.
type Set struct {
	path  string
	table *durable.Table[string, Pause] // by list
	fault atomic.Pointer[error]         // why the file cannot be read; nil = it can
	now   atomic.Pointer[state]         // nil = nothing is paused
}

// state is what look-ups see. It does not change.
type state struct {
	pauses []Pause // by list
	by     map[string]Pause
	next   time.Time       // the first end
	names  map[string]bool // of pauses
}

func newState(pauses []Pause) *state {
	if len(pauses) == 0 {
		return nil
	}
	s := &state{pauses: pauses, by: map[string]Pause{}, names: map[string]bool{}}
	for _, p := range pauses {
		s.by[p.List], s.names[p.List] = p, true
		if s.next.IsZero() || p.Until.Before(s.next) {
			s.next = p.Until
		}
	}
	return s
}

// Open reads the pauses of a file, which need not be there. With an error the Set is one without any.
func Open(path string) (*Set, error) {
	s := &Set{path: path}
	s.table = durable.NewTable(durable.TableSettings[string, Pause]{Path: path, Mode: 0o640, Most: most, MaxLine: maxLine, Wait: 5 * time.Second, Busy: errBusy,
		Key: func(p Pause) string { return p.List }, Check: Pause.Check, Over: over, Now: s.take,
		Old: func(text []byte) (all []Pause, err error) { return all, json.Unmarshal(text, &all) }})
	return s, s.read()
}

func over(p Pause) bool { return !time.Now().Before(p.Until) }

// take makes the pauses of the table that last those that look-ups see.
func (s *Set) take(rows map[string]Pause) {
	last := slices.DeleteFunc(slices.Collect(maps.Values(rows)), over)
	slices.SortFunc(last, func(a, b Pause) int { return strings.Compare(a.List, b.List) })
	s.now.Store(newState(last))
}

// read takes up what is in the file.
func (s *Set) read() error {
	err := s.table.View(func(map[string]Pause) {})
	if n := s.table.Damaged(); err == nil && n > 0 {
		err = fmt.Errorf("%s: %d damaged lines; blockd pause, or resume, of any list writes the file anew", s.path, n)
	}
	if err == nil {
		s.fault.Store(nil)
	} else {
		s.fault.Store(&err)
	}
	return err
}

// Problems are that the file cannot be read: which lists somebody has paused is not known.
func (s *Set) Problems() []string {
	if s == nil {
		return nil
	}
	if fault := s.fault.Load(); fault != nil {
		return []string{fmt.Sprintf("pauses: %v; the pauses that were read last go on", *fault)}
	}
	return nil
}

// Paused are the names of the lists whose blocks do not count now; nil is none. It is not to be changed, and costs
// an atomic load where nothing is paused.
func (s *Set) Paused(now time.Time) map[string]bool {
	if s == nil {
		return nil
	}
	at := s.now.Load()
	switch {
	case at == nil:
		return nil
	case now.Before(at.next):
		return at.names
	}
	names := map[string]bool{} // for less than a second: see Run
	for _, p := range at.pauses {
		if now.Before(p.Until) {
			names[p.List] = true
		}
	}
	return names
}

// All are the pauses that last, by list.
func (s *Set) All(now time.Time) (all []Pause) {
	if s == nil {
		return nil
	}
	if at := s.now.Load(); at != nil {
		for _, p := range at.pauses {
			if now.Before(p.Until) {
				all = append(all, p)
			}
		}
	}
	return all
}

// Of is the pause of a list; ok is false if it counts.
func (s *Set) Of(list string, now time.Time) (p Pause, ok bool) {
	if s == nil {
		return p, false
	}
	if at := s.now.Load(); at != nil {
		p, ok = at.by[list]
	}
	return p, ok && now.Before(p.Until)
}

// Describe is of prometheus.Collector.
func (s *Set) Describe(to chan<- *prometheus.Desc) { to <- pausedDesc }

// Collect is of prometheus.Collector: blockd_list_paused of each list that is.
func (s *Set) Collect(to chan<- prometheus.Metric) {
	for _, p := range s.All(time.Now()) {
		to <- prometheus.MustNewConstMetric(pausedDesc, prometheus.GaugeValue, 1, p.List)
	}
}

var pausedDesc = prometheus.NewDesc("blockd_list_paused", "1 while the blocks of a list do not count: blockd pause.", []string{"list"}, nil)

// Start pauses a list, or changes its pause. When it returns without an error the pause is on disk.
func (s *Set) Start(p Pause) error {
	if err := p.Check(); err != nil {
		return err
	}
	return s.change(func(map[string]Pause) ([]Pause, []string, error) { return []Pause{p}, nil, nil })
}

// End ends the pause of a list. ok is false if there is none.
func (s *Set) End(list string, now time.Time) (was Pause, ok bool, err error) {
	err = s.change(func(rows map[string]Pause) ([]Pause, []string, error) {
		was, ok = rows[list]
		if ok = ok && now.Before(was.Until); !ok {
			return nil, nil, nil
		}
		return nil, []string{list}, nil
	})
	return was, ok && err == nil, err
}

// Check says what is wrong with p, in a line.
func (p Pause) Check() error {
	switch {
	case p.List == "":
		return errors.New("want a list to pause")
	case !p.Since.Before(p.Until):
		return errors.New("a pause ends after it begins")
	case p.Until.Sub(p.Since) > Longest:
		return fmt.Errorf("a pause is %d days at most; mode = \"shadow\" is for longer", int(Longest.Hours()/24))
	}
	for _, text := range []string{p.By, p.Why} {
		if len(text) > MaxText || strings.ContainsFunc(text, func(r rune) bool { return r < ' ' || r == 0x7f }) {
			return fmt.Errorf("want one line of at most %d octets to say who and why", MaxText)
		}
	}
	return nil
}

// change changes the table, and takes up that its file can be read again.
func (s *Set) change(decide func(map[string]Pause) ([]Pause, []string, error)) error {
	if err := s.table.Change(decide); err != nil {
		return err
	}
	s.fault.Store(nil)
	return nil
}

var errBusy = errors.New("another process changes the pauses")

// refresh takes up what another process has written, and returns the pauses that have ended by themselves since the last
// call, which are then forgotten here.
func (s *Set) refresh(now time.Time) (ended []Pause, err error) {
	err = s.read()
	at := s.now.Load()
	if at == nil || now.Before(at.next) {
		return nil, err
	}
	var last []Pause
	for _, p := range at.pauses {
		if now.Before(p.Until) {
			last = append(last, p)
		} else {
			ended = append(ended, p)
		}
	}
	if !s.now.CompareAndSwap(at, newState(last)) { // somebody has just changed them
		ended = nil
	}
	return ended, err
}

// Run takes up every half second what another process has written, and logs pauses that end, until ctx does.
func (s *Set) Run(ctx context.Context, log *slog.Logger) error {
	tick := time.NewTicker(500 * time.Millisecond)
	defer tick.Stop()
	for told := ""; ; {
		select {
		case <-ctx.Done():
			return nil
		case now := <-tick.C:
			ended, err := s.refresh(now)
			if text := fmt.Sprint(err); err != nil && text != told {
				told = text
				log.Error("pauses cannot be read; those before go on", slog.Any("error", err))
			} else if err == nil {
				told = ""
			}
			for _, p := range ended {
				log.Info("list counts again, its pause is over", slog.String("list", p.List))
			}
		}
	}
}

package rollup

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"
)

// span is how a time is divided.
type span struct {
	name string
	step int64 // minutes
	n    int64
}

var spans = []span{{"1h", 1, 60}, {"24h", 10, 144}, {"7d", 60, 168}, {"30d", 6 * 60, 120}, {"365d", 24 * 60, 365}}

// Spans are the values of Query.Span, and Groups those of Query.By.
func Spans() (names []string) {
	for _, s := range spans {
		names = append(names, s.name)
	}
	return names
}

// Groups are what numbers are counted by.
func Groups() []string { return []string{"outcome", "door", "list", "shadow", "overruled", "checks"} }

// Query selects numbers. What is "" selects nothing.
type Query struct {
	By, Span            string
	Outcome, Door, List string
}

// ErrQuery is wrapped by the error of a Query that the counts cannot answer.
var ErrQuery = errors.New("not counted like this")

// Series are counts over time.
type Series struct {
	From, Until time.Time
	Step        time.Duration
	Since       time.Time // counts are kept since then; zero: there are none yet
	Filling     bool      // what is before is being read
	Rows        []Row     // the most first
}

// Row is one name, with a count for each Step.
type Row struct {
	Name   string
	Counts []uint64
}

// of says what a count is shown as; "" is not at all.
func (q *Query) of(c cell) string {
	switch {
	case q.By == "outcome" && q.List == "" && c.kind == doors && (q.Door == "" || q.Door == c.name):
		return c.what
	case q.By == "outcome" && q.List != "" && c.kind == byList && c.what != shadow && q.List == c.name:
		return c.what
	case q.By == "door" && c.kind == doors && (q.Outcome == "" || q.Outcome == c.what),
		q.By == "list" && c.kind == byList && c.what != shadow && (q.Outcome == "" || q.Outcome == c.what) && (q.List == "" || q.List == c.name),
		q.By == "shadow" && c.kind == byList && c.what == shadow && (q.List == "" || q.List == c.name),
		q.By == "overruled" && c.kind == overruled && (q.List == "" || q.List == c.name),
		q.By == "checks" && c.kind == checks && (q.Door == "" || q.Door == c.name):
		return c.name
	case q.By == "checks" && c.kind == doors && (q.Door == "" || q.Door == c.name):
		return c.name // a decision about mail is one too
	}
	return ""
}

// check refuses parameters that would have no effect.
func (q *Query) check() error {
	takes := map[string][3]bool{"outcome": {false, true, true}, "door": {true, false, false}, "list": {true, false, true},
		"shadow": {false, false, true}, "overruled": {false, false, true}, "checks": {false, true, false}}[q.By]
	for i, text := range []string{q.Outcome, q.Door, q.List} {
		if name := [...]string{"outcome", "door", "list"}[i]; text != "" && !takes[i] {
			return fmt.Errorf("%s: %w: by=%s", name, ErrQuery, q.By)
		}
	}
	if q.Door != "" && q.List != "" {
		return fmt.Errorf("door: %w: together with list", ErrQuery)
	}
	return nil
}

// Series counts over a span that ends now. The last count is of the current step.
func (t *Table) Series(q Query, now time.Time) (s Series, err error) {
	i := slices.IndexFunc(spans, func(s span) bool { return s.name == q.Span })
	if i < 0 {
		return s, fmt.Errorf("span: %w: %q", ErrQuery, q.Span)
	}
	if err := q.check(); err != nil {
		return s, err
	}
	step, n := spans[i].step, spans[i].n
	until := (minuteOf(now)/step + 1) * step
	from := until - n*step
	s = Series{From: time.Unix(from*60, 0).UTC(), Until: time.Unix(until*60, 0).UTC(), Step: time.Duration(step) * time.Minute}
	t.mu.Lock()
	if t.loaded && t.kept.since > 0 {
		s.Since = time.Unix(t.kept.since*60, 0).UTC()
	}
	s.Filling = t.filling || !t.loaded
	bins, cells, current := t.kept.bins, t.kept.cells, map[int64]map[cell]uint64{} // bins and cells are replaced or grow, and those there are never change
	t.counted(t.minute.Load(), func(minute int64, c cell, n uint64) {
		if current[minute] == nil {
			current[minute] = map[cell]uint64{}
		}
		current[minute][c] = n
	})
	t.mu.Unlock()
	rows := map[string][]uint64{}
	row := func(c cell) []uint64 {
		name := q.of(c)
		if name != "" && rows[name] == nil {
			rows[name] = make([]uint64, n)
		}
		return rows[name]
	}
	wanted := make([][]uint64, len(cells)) // by the numbers of cells; nil = not wanted
	for id, c := range cells {
		wanted[id] = row(c)
	}
	for i := range bins {
		if b := &bins[i]; b.at >= from && b.at < until {
			b.sum(wanted, int((b.at-from)/step))
		}
	}
	for minute, counted := range current {
		for c, count := range counted {
			if counts := row(c); counts != nil && minute >= from && minute < until {
				counts[(minute-from)/step] += count
			}
		}
	}
	maps.DeleteFunc(rows, func(_ string, counts []uint64) bool {
		return !slices.ContainsFunc(counts, func(n uint64) bool { return n > 0 })
	})
	s.Rows = sorted(rows, int(n))
	return s, nil
}

// sorted are the rows with the most first, and one for those without a place.
func sorted(rows map[string][]uint64, n int) (all []Row) {
	sum := func(counts []uint64) (sum uint64) {
		for _, n := range counts {
			sum += n
		}
		return sum
	}
	names := slices.SortedFunc(maps.Keys(rows), func(a, b string) int {
		return cmp.Or(cmp.Compare(sum(rows[b]), sum(rows[a])), cmp.Compare(a, b))
	})
	rest := make([]uint64, n)
	for _, name := range names {
		if len(all) < maxNames && name != Others {
			all = append(all, Row{name, rows[name]})
			continue
		}
		for at, count := range rows[name] {
			rest[at] += count
		}
	}
	if sum(rest) > 0 {
		all = append(all, Row{Others, rest})
	}
	return all
}

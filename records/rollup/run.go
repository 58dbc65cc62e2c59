package rollup

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"time"

	"blockd/records/history"
)

// Run loads the file, writes a line to it once a minute, and the last when ctx ends. It returns nil. It may run again after
// that, but not twice at a time. What the history in folder has of before the counts began is added meanwhile; "": nothing is.
func (t *Table) Run(ctx context.Context, folder string, log *slog.Logger) error {
	if t == nil {
		return nil
	}
	if fault := t.load(folder != ""); fault != "" {
		log.Error("the counts of charts", slog.String("fault", fault))
	}
	filled := make(chan struct{})
	go func() {
		defer close(filled)
		t.fill(ctx, folder, log)
	}()
	out, failing := &file{path: t.path}, false
	defer out.close()
	write := func() {
		err := out.append(t.step(time.Now(), out))
		if err != nil && !failing {
			log.Error("the counts of charts are not kept for the next start", slog.Any("error", err))
		} else if err == nil && failing {
			log.Info("the counts of charts are kept again")
		}
		failing = err != nil
		t.mu.Lock()
		t.unsaved = failing
		t.mu.Unlock()
	}
	for {
		timer := time.NewTimer(time.Minute - time.Duration(time.Now().UnixNano()%int64(time.Minute)))
		select {
		case <-timer.C:
			write()
		case <-filled:
			filled = nil
			write()
		case <-ctx.Done():
			timer.Stop()
			if filled != nil {
				<-filled
			}
			write()
			return nil
		}
		timer.Stop()
	}
}

// step makes a bin of each minute that was counted, and returns their lines, and the whole file for one that needs
// that.
func (t *Table) step(now time.Time, out *file) (lines []byte, whole func() []byte) {
	t.mu.Lock()
	defer t.mu.Unlock()
	minute, begins := t.minute.Load(), minuteOf(now)
	t.minute.Store(begins)
	whole = func() []byte {
		t.mu.Lock()
		defer t.mu.Unlock()
		return t.kept.file()
	}
	if t.renumbered {
		out.close()
		t.renumbered = false
	}
	for at := minute - 1; at <= minute+1; at++ {
		if at == begins && at != minute {
			continue // it goes on
		}
		counts := t.take(at)
		if at == minute {
			t.addTotals(counts)
		}
		if len(counts) == 0 {
			continue
		}
		text, fresh := t.kept.text(counts)
		for _, id := range fresh {
			lines = appendLine(lines, t.kept.cells[id].line())
		}
		b := bin{at, false, text}
		t.kept.add(b)
		lines = appendLine(lines, b.line())
	}
	if len(lines) > 0 && t.kept.tidy() {
		out.close()
	}
	return lines, whole
}

// addTotals adds by how much the totals have grown. t.mu is held.
func (t *Table) addTotals(counts map[cell]uint64) {
	if t.totals == nil {
		return
	}
	for _, total := range t.totals() {
		c := cell{kind: checks, name: total.Name}
		if total.Overruled {
			c.kind = overruled
		}
		if n := total.N - t.last[c]; total.N > t.last[c] {
			t.last[c] = total.N
			counts[t.of(c).cell] += n
		}
	}
}

// told is a number of State.
type told struct {
	Kind string `json:"kind"`
	Name string `json:"name"`
	What string `json:"what"`
	N    uint64 `json:"n"`
}

// State is all that was counted since Run has ended, for a process that has taken over. It grows until that one is told the last.
func (t *Table) State() []byte {
	if t == nil {
		return nil
	}
	counts := map[cell]uint64{}
	t.counted(t.minute.Load(), func(_ int64, c cell, n uint64) { counts[c] += n })
	all := []told{}
	for c, n := range counts {
		all = append(all, told{string(c.kind), c.name, c.what, n})
	}
	text, _ := json.Marshal(all) // texts and numbers
	return text
}

// Join counts what another process's State has more than the one before had.
func (t *Table) Join(text []byte) error {
	if t == nil || len(text) == 0 {
		return nil
	}
	var all []told
	if err := json.Unmarshal(text, &all); err != nil {
		return fmt.Errorf("counts of charts: %w", err)
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, one := range all {
		if len(one.Kind) != 1 || len(t.told) > maxAliases {
			continue
		}
		c := cell{one.Kind[0], one.Name, one.What}
		if one.N > t.told[c] {
			t.of(c).n[t.minute.Load()%around].Add(one.N - t.told[c])
			t.told[c] = one.N
		}
	}
	return nil
}

// How long fill works, and how long it lets others work then.
const (
	fillWorks = 4 * time.Millisecond
	fillRests = 12 * time.Millisecond
)

// fill adds what the history has of the time before the counts began.
func (t *Table) fill(ctx context.Context, folder string, log *slog.Logger) {
	t.mu.Lock()
	since, wanted := t.kept.since, t.filling
	t.mu.Unlock()
	if !wanted {
		return
	}
	began := time.Now()
	past, oldest, err := readPast(ctx, folder, since)
	t.mu.Lock()
	defer t.mu.Unlock()
	t.filling = false
	if ctx.Err() != nil {
		return // the next start begins again
	}
	if err != nil {
		log.Info("charts begin now: the history cannot be read", slog.Any("error", err))
	}
	var bins []bin
	for _, key := range slices.SortedFunc(maps.Keys(past), func(a, b bin) int { return int(a.at - b.at) }) {
		key.text, _ = t.kept.text(past[key])
		bins = append(bins, key)
	}
	t.kept.before(bins)
	t.kept.since, t.kept.whole = min(t.kept.since, oldest), true
	t.kept.tidy()
	t.renumbered = true
	if len(bins) > 0 {
		log.Info("charts have the past of the history", slog.Time("since", time.Unix(t.kept.since*60, 0)), slog.Duration("took", time.Since(began).Round(time.Millisecond)))
	}
}

// readPast counts the decisions of a history before a minute: by minute those of the last day, by hour the others.
func readPast(ctx context.Context, folder string, before int64) (past map[bin]map[cell]uint64, oldest int64, err error) {
	past, oldest = map[bin]map[cell]uint64{}, before
	names := map[byte]map[string]bool{}
	var counts map[cell]uint64
	works := time.Now()
	_, err = history.Walk(ctx, folder, time.Time{}, func(r *history.Record) bool {
		if time.Since(works) > fillWorks {
			select {
			case <-time.After(fillRests):
			case <-ctx.Done():
				return false
			}
			works = time.Now()
		}
		at := minuteOf(r.Time)
		if at >= before {
			return true
		}
		oldest = min(oldest, at)
		key := bin{at: at}
		if before-at > keptMinutes {
			key = bin{at: at - at%60, hour: true}
		}
		if counts = past[key]; counts == nil {
			counts = map[cell]uint64{}
			past[key] = counts
		}
		cellsOf(r, func(c cell) {
			if counts[c] == 0 { // its texts are parts of a file's
				c = within(names, c)
			}
			counts[c] += r.Times()
		})
		return true
	})
	return past, oldest, err
}

// within is a cell with texts of its own, whose name is one of those that have a place.
func within(names map[byte]map[string]bool, c cell) cell {
	if names[c.kind] == nil {
		names[c.kind] = map[string]bool{}
	}
	switch known := names[c.kind]; {
	case c.name == None || known[c.name]:
	case len(known) >= maxNames:
		c.name = Others
	default:
		known[string([]byte(c.name))] = true
	}
	c.name, c.what = string([]byte(c.name)), string([]byte(c.what))
	return c
}

package history

import (
	"context"
	"errors"
	"fmt"
	"hash/maphash"
	"log/slog"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
	"time"

	"blockd/internal/durable"
)

// Log collects decisions. All methods may be used from any goroutine. A nil Log
// remembers nothing. Decisions reach the disk only while Run runs.
type Log struct {
	settings Settings
	lock     *durable.LockFile
	told     bool          // Run's: the fault is logged
	woken    chan struct{} // a decision waits
	urgent   chan struct{} // many decisions wait
	crowded  chan struct{} // makeRoom has work
	seed     maphash.Seed  // of shareOf

	searches chan struct{}
	tops     chan struct{} // has one of each count that is under way
	finished chan struct{} // a segment may lack its sums
	refused  refusalCache

	mu      sync.Mutex // of the three below; held for the time of an encoding
	waiting []byte
	records uint64                   // in waiting
	held    [2 * mostNetworks]uint32 // octets in waiting, by network and then by door

	writing sync.Mutex // of the fields below
	spare   []byte     // the buffer that is not filled just now
	file    *os.File   // nil: a new segment is to be made
	size    int64
	number  uint64                   // of file, or of the last one there was
	since   time.Time                // of its first decision
	wrote   time.Time                // its last ones
	older   []segment                // the oldest first
	relay   func(lines []byte) error // see Yield; nil: not yielded

	written, dropped, failed atomic.Uint64 // records
	octets                   atomic.Int64  // on disk
	broken                   atomic.Pointer[error]
}

// Open opens a history for writing, and makes its folder if it is not there.
func Open(s Settings) (*Log, error) {
	l, err := newLog(s)
	if err != nil {
		return nil, err
	}
	if l.lock, err = lockOf(s.Folder); err != nil {
		return nil, err
	}
	if err := l.resume(); err != nil {
		l.lock.Close()
		return nil, err
	}
	return l, nil
}

func newLog(s Settings) (*Log, error) {
	if s.Max < MinMax {
		return nil, fmt.Errorf("history of %d octets, want %d at least", s.Max, MinMax)
	}
	return &Log{settings: s,
		woken: make(chan struct{}, 1), urgent: make(chan struct{}, 1),
		crowded: make(chan struct{}, 1), seed: maphash.MakeSeed(),
		searches: make(chan struct{}, maxSearches), tops: make(chan struct{}, mostTops), finished: make(chan struct{}, 1)}, nil
}

// lockOf locks a folder, which it makes if it is not there.
func lockOf(folder string) (*durable.LockFile, error) {
	if err := durable.MakeFolder(folder); err != nil {
		return nil, err
	}
	held, err := durable.Lock(filepath.Join(folder, "lock"), ErrLocked)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", folder, err)
	}
	return held, nil
}

// resume finds the segments on disk, and goes on with the newest.
func (l *Log) resume() (err error) {
	if l.older, err = segments(l.settings.Folder); err != nil {
		return err
	}
	if n := len(l.older); n > 0 {
		last := l.older[n-1]
		l.number = last.number
		if l.file, l.size, l.since, err = openSegment(last); err != nil {
			return err
		}
		if l.file != nil {
			l.older, l.wrote = l.older[:n-1], last.written
		}
	}
	l.prune(time.Now(), 0)
	return nil
}

// Add takes a decision. It never waits for the disk and allocates nothing. A decision
// without room is dropped and counted.
func (l *Log) Add(r Record) {
	if l == nil {
		return
	}
	network, door := maphash.Comparable(l.seed, Network(r.Client))%mostNetworks, mostNetworks+maphash.String(l.seed, r.Door)%mostNetworks
	l.mu.Lock()
	before := len(l.waiting)
	if before+maxLine > maxBuffer || l.held[network] > maxOfNetwork || l.held[door] > maxOfDoor {
		l.mu.Unlock()
		l.dropped.Add(1)
		return
	}
	l.waiting = appendLine(l.waiting, &r)
	l.records++
	after := len(l.waiting)
	l.held[network] += uint32(after - before)
	l.held[door] += uint32(after - before)
	l.mu.Unlock()
	if before == 0 {
		wake(l.woken)
	}
	if before < writeFrom && after >= writeFrom {
		wake(l.urgent)
	}
}

func wake(c chan struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}

// Run writes decisions until ctx ends, and then the rest. It returns nil. A failure to
// write is logged once, until writing succeeds again.
func (l *Log) Run(ctx context.Context, log *slog.Logger) error {
	if l == nil {
		<-ctx.Done()
		return nil
	}
	var sharing sync.WaitGroup
	defer sharing.Wait()
	sharing.Go(func() { l.makeRoom(ctx, log) })
	sharing.Go(func() { l.sumUp(ctx, log) })
	prune := time.NewTicker(pruneEvery)
	defer prune.Stop()
	for ctx.Err() == nil {
		select {
		case <-ctx.Done():
		case <-prune.C:
			l.writing.Lock()
			l.prune(time.Now(), 0)
			l.writing.Unlock()
			continue
		case <-l.woken:
			l.gather(ctx)
		}
		l.write(log)
	}
	l.write(log)
	return nil
}

// makeRoom makes room whenever it is needed, until ctx ends.
func (l *Log) makeRoom(ctx context.Context, log *slog.Logger) {
	for {
		select {
		case <-l.crowded:
			if err := l.share(ctx); err != nil && ctx.Err() == nil {
				log.Error("history not shared: its oldest file goes instead", slog.Any("error", err))
			}
		case <-ctx.Done():
			return
		}
	}
}

// gather waits a moment for more decisions.
func (l *Log) gather(ctx context.Context) {
	timer := time.NewTimer(writeAfter)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-l.urgent:
	case <-ctx.Done():
	}
}

// write is Flush, with a line in the log when Flush begins or stops to fail. A search
// may have met the failure first.
func (l *Log) write(log *slog.Logger) {
	l.Flush()
	switch err := l.broken.Load(); {
	case err != nil && !l.told:
		log.Error("history not written", slog.Any("error", *err))
		l.told = true
	case err == nil && l.told:
		log.Info("history is written again")
		l.told = false
	}
}

// Flush writes the waiting decisions. An error means that they were dropped, and says why.
func (l *Log) Flush() error {
	if l == nil {
		return nil
	}
	l.writing.Lock()
	defer l.writing.Unlock()
	l.mu.Lock()
	lines, n := l.waiting, l.records
	l.waiting, l.records, l.held = l.spare[:0], 0, [2 * mostNetworks]uint32{}
	l.mu.Unlock()
	l.spare = lines
	if n == 0 {
		return nil
	}
	if err := l.append(lines); err != nil {
		l.failed.Add(n)
		l.broken.Store(&err)
		return err
	}
	l.written.Add(n)
	l.broken.Store(nil)
	return nil
}

// Settle is Flush after what is still counted elsewhere, so that a reader of the files finds every decision until now.
func (l *Log) Settle() error {
	if l == nil {
		return nil
	}
	if l.settings.Settle != nil {
		l.settings.Settle(l.Add)
	}
	return l.Flush()
}

// append writes lines to the newest segment, or to a new one. If only a part could be
// written, append takes it back.
func (l *Log) append(lines []byte) error {
	if l.relay != nil {
		err := l.relay(lines)
		if err == nil || l.takeBack() != nil {
			return err
		}
		// The other process has ended before this one, as at the end of all: the lines are written here.
	}
	if l.lock == nil {
		return os.ErrClosed
	}
	now := time.Now()
	if l.file != nil && (l.size+int64(len(lines)) > l.segmentSize() || now.Sub(l.since) > segmentAge) {
		l.finish()
	}
	l.prune(now, int64(len(lines)+len(fileHead)))
	if l.file == nil {
		f, err := createSegment(l.settings.Folder, l.number+1)
		if err != nil {
			return err
		}
		l.file, l.size, l.number, l.since = f, int64(len(fileHead)), l.number+1, now
		l.wrote = now
		l.octets.Add(l.size)
	}
	if _, err := l.file.WriteAt(lines, l.size); err != nil {
		if cut := l.file.Truncate(l.size); cut != nil {
			l.finish() // its torn end is a damaged line
		}
		return err
	}
	l.size, l.wrote = l.size+int64(len(lines)), now
	l.octets.Add(int64(len(lines)))
	return nil
}

// segmentSize is small enough that a small history, too, loses an eighth at a time.
func (l *Log) segmentSize() int64 { return min(maxSegment, l.settings.Max/8) }

// finish ends the newest segment.
func (l *Log) finish() {
	l.older = append(l.older, segment{l.number, segmentPath(l.settings.Folder, l.number), l.size, l.wrote})
	l.file.Close()
	l.file, l.size = nil, 0
	wake(l.finished)
}

// prune removes the oldest segments: all that are past their age, and as many as
// needed to make room for this many octets.
func (l *Log) prune(now time.Time, room int64) {
	if l.lock == nil {
		return // the files are another process's
	}
	if l.file != nil && now.Sub(l.since) > segmentAge {
		l.finish()
	}
	total := l.size
	for _, s := range l.older {
		total += s.size
	}
	for len(l.older) > 0 && (total+room > l.settings.Max || now.Sub(l.older[0].written) > l.settings.Keep) {
		if err := os.Remove(l.older[0].path); err != nil && !errors.Is(err, os.ErrNotExist) {
			l.broken.Store(&err)
			break
		}
		os.Remove(sumsPath(l.settings.Folder, l.older[0].number)) // if it stays, dropSums comes by
		total -= l.older[0].size
		l.older = l.older[1:]
	}
	l.octets.Store(total)
	l.crowding(total + room)
}

// Close writes the waiting decisions and unlocks the folder.
func (l *Log) Close() error {
	if l == nil {
		return nil
	}
	err := l.Flush()
	l.writing.Lock()
	defer l.writing.Unlock()
	if l.lock == nil {
		return nil
	}
	if l.file != nil {
		err = errors.Join(err, l.file.Close())
		l.file = nil
	}
	err = errors.Join(err, l.lock.Close())
	l.lock = nil
	return err
}

// Problems returns what an administrator must know, one line each.
func (l *Log) Problems() []string {
	if l == nil {
		return nil
	}
	if err := l.broken.Load(); err != nil {
		return []string{"history: " + (*err).Error()}
	}
	return nil
}

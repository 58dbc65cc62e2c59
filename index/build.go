package index

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"os"
	"runtime"
	"strings"
	"time"

	"blockd/bloom"
	"blockd/index/internal/format"
	"blockd/index/internal/segment"
)

const (
	// maxWorkers bounds the goroutines of a build: each has buffers of its own, and
	// from there on the disk decides.
	maxWorkers = 8

	minMemory = 1 << 20

	// progressEvery is the number of items of a worker between two reports.
	progressEvery = 1 << 14
)

// hooks are what tests put into a build. The zero value is the real thing.
type hooks struct {
	fail   func(step string) error     // asked before each step of publishing
	wrote  func(unit int)              // told of each unit of pages before it is read back
	weak   func(key []byte) bloom.Hash // stands in for XXH3
	direct bool                        // pages go past the system's cache, however few
	gap    uint64                      // pages of nothing before the store: a file over 4 GiB without its content
}

func (h *hooks) at(step string) error {
	if h.fail == nil {
		return nil
	}
	return h.fail(step)
}

// builder collects what one generation will hold.
type builder struct {
	Options
	hooks    hooks
	rows     []ListInfo
	tests    []segment.Test
	hash     format.Hasher
	buildID  [16]byte
	built    time.Time
	spill    *spillFile
	in       *intake
	progress reporter
	stages   stages
	cache    *segment.Cache
	cached   int              // sources that came from their segments
	useLast  map[int]error    // rows that are read from the last good segment, and why
	left     map[int]ListInfo // rows that are left out, and what is known of them

	// take takes all entries in, and again for each further draft: the memory of
	// the records is given back while the file is written.
	take func(ctx context.Context) error

	path string
	text int64 // octets of all sources, about
}

// Build reads all sources and writes a draft of the index at path. The file at
// path is not touched. When sources are refused it returns a *SourcesError that
// names every one of them (unless KeepGoing). Two builds of one path at a time
// are refused with ErrLocked.
//
// It takes Options.Memory for the records, some MiB for each worker, and 12 bits
// for each key; records beyond that lie in a file without a name beside path, of
// which about 16 MiB are in memory when they are read again. A key that is listed
// millions of times costs more: its records are merged at once.
func Build(ctx context.Context, path string, sources []Source, o Options) (*Draft, error) {
	b, err := newBuilder(o, hooks{})
	if err != nil {
		return nil, err
	}
	return b.build(ctx, path, sources)
}

func newBuilder(o Options, h hooks) (*builder, error) {
	if o.BitsPerKey == 0 {
		o.BitsPerKey = bloom.DefaultBitsPerKey
	}
	if !(o.BitsPerKey >= format.MinBitsPerKey && o.BitsPerKey <= format.MaxBitsPerKey) { // NaN too
		return nil, fmt.Errorf("%v bits a key: want %d to %d", o.BitsPerKey, format.MinBitsPerKey, format.MaxBitsPerKey)
	}
	if o.Memory == 0 {
		o.Memory = defaultMemory
	}
	if o.Memory < minMemory {
		return nil, fmt.Errorf("%d bytes of memory: want at least %d", o.Memory, minMemory)
	}
	if o.Workers == 0 {
		o.Workers = runtime.GOMAXPROCS(0)
	}
	o.Workers = min(max(o.Workers, 1), maxWorkers)
	b := &builder{Options: o, hooks: h, progress: reporter{to: o.Progress}, cache: segment.Open(""), useLast: map[int]error{}, left: map[int]ListInfo{}}
	b.hash = format.Hasher{Kind: format.HashXXH3, Weak: h.weak}
	if o.SipHash {
		b.hash.Kind = format.HashSip
	}
	if o.Seed != nil {
		b.buildID, b.hash.Key, b.built = o.Seed.BuildID, o.Seed.HashKey, o.Seed.Built
		return b, nil
	}
	b.built = time.Now()
	rand.Read(b.buildID[:]) // never fails: it ends the process rather
	rand.Read(b.hash.Key[:])
	return b, nil
}

func (b *builder) build(ctx context.Context, path string, sources []Source) (*Draft, error) {
	started := time.Now()
	if err := checkSources(sources); err != nil {
		return nil, err
	}
	lock, err := lockPath(path)
	if err != nil {
		return nil, err
	}
	d, err := b.locked(ctx, path, sources, lock)
	if err != nil {
		lock.Close()
		return nil, err
	}
	d.Report.Elapsed = time.Since(started)
	return d, nil
}

// locked does the work of build. The lock is the draft's when it succeeds.
func (b *builder) locked(ctx context.Context, path string, sources []Source, lock *os.File) (*Draft, error) {
	if err := removeStale(path); err != nil {
		return nil, err
	}
	b.cache = segment.Open(b.Cache)
	for row, why := range b.Hold {
		b.lastGood(row, sources[row], why)
	}
	if err := b.open(path, len(sources), textSize(sources)); err != nil {
		return nil, err
	}
	defer b.close()
	b.take = func(ctx context.Context) error { return b.readAll(ctx, sources) }
	if err := b.take(ctx); err != nil {
		b.cache.Discard()
		return nil, err
	}
	for {
		d, err := b.draft(ctx, path, lock)
		if err != nil {
			b.cache.Discard()
			return nil, err
		}
		failed, err := b.selfTest(ctx, d.index)
		if err == nil && len(failed) == 0 {
			return d, nil
		}
		os.Remove(d.temp)
		switch { // one source less each time
		case err != nil:
		case b.fallBack(failed):
			err = b.takeAgain(ctx)
		case b.KeepGoing:
			b.leaveOut(failed)
			err = b.takeAgain(ctx)
		default:
			err = failures(failed)
		}
		if err != nil {
			b.cache.Discard()
			return nil, err
		}
	}
}

// open makes room for the records of so many rows, whose texts have about so many
// octets. close it.
func (b *builder) open(path string, rows int, text int64) error {
	b.path, b.text = path, text
	b.spill = newSpillFile(path, b.hooks)
	records, err := b.newRecords(text)
	if err != nil {
		return err
	}
	b.in = newIntake(b.hash, b.built.Unix(), make([]rowIntake, rows), records)
	return nil
}

// takeAgain takes everything in anew.
func (b *builder) takeAgain(ctx context.Context) error {
	if err := b.reset(); err != nil {
		return err
	}
	return b.take(ctx)
}

// reset drops all that was taken in.
func (b *builder) reset() error {
	b.close()
	return b.open(b.path, len(b.in.rows), b.text)
}

// partBytes is what one part of the records is meant to have: with what is made of
// it, it fits into a core's own cache.
const partBytes = 512 << 10

func (b *builder) newRecords(text int64) (*scatter, error) {
	bits, expected := uint(4), text+text/4 // a line of 37 octets becomes 44
	for bits < 13 && expected>>bits > partBytes {
		bits++
	}
	return newScatter(b.Workers, bits, b.Memory, expected, b.spill)
}

func (b *builder) close() {
	if b.in != nil {
		b.in.records.close()
	}
	b.spill.close()
}

// textSize is about how much text the sources have.
func textSize(sources []Source) (size int64) {
	for _, s := range sources {
		n := fileSize(s.Path)
		if strings.HasSuffix(s.Path, ".gz") {
			n *= 4
		}
		size += n
	}
	return size
}

func fileSize(path string) int64 {
	if fi, err := os.Stat(path); err == nil && fi.Mode().IsRegular() {
		return fi.Size()
	}
	return 0
}

func checkSources(sources []Source) error {
	if len(sources) > format.MaxLists {
		return fmt.Errorf("%d list files are more than an index holds: %d", len(sources), format.MaxLists)
	}
	for _, s := range sources {
		switch {
		case s.List == "" || len(s.List) > format.MaxName:
			return fmt.Errorf("list name %q: want 1 to %d octets", s.List, format.MaxName)
		case len(s.Path) > format.MaxPath:
			return fmt.Errorf("list %s: path of %d octets, want at most %d", s.List, len(s.Path), format.MaxPath)
		case len(s.Settings.Format) > format.MaxText || len(s.Settings.Reason) > format.MaxText:
			return fmt.Errorf("list %s: format or reason over %d octets", s.List, format.MaxText)
		case s.Settings.MaxBytes < 0:
			return fmt.Errorf("list %s: size limit of %d bytes", s.List, s.Settings.MaxBytes)
		}
	}
	return nil
}

// ErrLocked reports that another build of the same path is under way.
var ErrLocked = errors.New("another build of this index is under way")

// SourcesError carries the error of every source that was refused, in order.
type SourcesError struct{ Errs []error }

func (e *SourcesError) Error() string {
	if len(e.Errs) == 1 {
		return e.Errs[0].Error()
	}
	texts := make([]string, len(e.Errs))
	for i, err := range e.Errs {
		texts[i] = err.Error()
	}
	return fmt.Sprintf("%d sources refused: %s", len(texts), strings.Join(texts, "; "))
}

// Unwrap lets errors.Is and errors.As look into each of them.
func (e *SourcesError) Unwrap() []error { return e.Errs }

package build

import (
	"cmp"
	"context"
	"crypto/rand"
	"fmt"
	"maps"
	"os"
	"runtime"
	"slices"
	"strings"
	"time"

	"blockd/bloom"
	"blockd/index/internal/format"
	"blockd/index/internal/segment"
	"blockd/lists"
)

const (
	// maxWorkers bounds the goroutines of a build: each has buffers of its own, and
	// from there on the disk decides.
	maxWorkers = 8

	MinMemory = 1 << 20

	// progressEvery is the number of items of a worker between two reports.
	progressEvery = 1 << 14
)

// TempMark stands between the target's name and the builder's process id.
const TempMark = ".tmp-"

// Hooks are what tests put into a build. The zero value is the real thing.
type Hooks struct {
	Fail   func(step string) error     // asked before each step of publishing
	Wrote  func(unit int)              // told of each unit of pages before it is read back
	Weak   func(key []byte) bloom.Hash // stands in for XXH3
	Direct bool                        // pages go past the system's cache, however few
	Gap    uint64                      // pages of nothing before the store: a file over 4 GiB without its content

	Entries func(in *Intake) error // takes entries in, in place of sources, of
	Rows    []format.ListInfo      // which this is the list table
}

// At is asked before each step.
func (h *Hooks) At(step string) error {
	if h.Fail == nil {
		return nil
	}
	return h.Fail(step)
}

// Builder makes the file of one generation. It is for one goroutine.
type Builder struct {
	Options
	hooks    Hooks
	path     string
	sources  []format.Source
	Rows     []format.ListInfo
	Tests    []segment.Test
	hash     format.Hasher
	buildID  [16]byte
	Built    time.Time
	spill    *spillFile
	in       *Intake
	progress reporter
	stages   stages
	Segments *segment.Cache
	cached   int                     // sources that came from their segments
	useLast  map[int]error           // rows that are read from the last good segment, and why
	left     map[int]format.ListInfo // rows that are left out, and what is known of them
	inTurn   map[int]bool            // rows that one worker has to read: see lists.ErrInTurn
}

// New makes the builder of an index at path; index.Build says what memory it takes.
func New(path string, sources []format.Source, o Options, h Hooks) (*Builder, error) {
	if o.BitsPerKey == 0 {
		o.BitsPerKey = bloom.DefaultBitsPerKey
	}
	if !(o.BitsPerKey >= format.MinBitsPerKey && o.BitsPerKey <= format.MaxBitsPerKey) { // NaN too
		return nil, fmt.Errorf("%v bits a key: want %d to %d", o.BitsPerKey, format.MinBitsPerKey, format.MaxBitsPerKey)
	}
	if o.Memory == 0 {
		o.Memory = DefaultMemory
	}
	if o.Memory < MinMemory {
		return nil, fmt.Errorf("%d bytes of memory: want at least %d", o.Memory, MinMemory)
	}
	o.Workers = Workers(o)
	if err := checkSources(sources); err != nil {
		return nil, err
	}
	b := &Builder{Options: o, hooks: h, path: path, sources: sources, progress: reporter{to: o.Progress},
		useLast: map[int]error{}, left: map[int]format.ListInfo{}}
	b.hash = format.Hasher{Kind: format.HashXXH3, Weak: h.Weak}
	if o.SipHash {
		b.hash.Kind = format.HashSip
	}
	if o.Seed != nil {
		b.buildID, b.hash.Key, b.Built = o.Seed.BuildID, o.Seed.HashKey, o.Seed.Built
		return b, nil
	}
	b.Built = time.Now()
	rand.Read(b.buildID[:]) // never fails: it ends the process rather
	rand.Read(b.hash.Key[:])
	return b, nil
}

// Workers is how many goroutines work at once.
func Workers(o Options) int {
	if o.Workers == 0 {
		o.Workers = runtime.GOMAXPROCS(0)
	}
	return min(max(o.Workers, 1), maxWorkers)
}

// Begin takes all sources in. The lock of the index is held.
func (b *Builder) Begin(ctx context.Context) error {
	b.Segments = segment.Open(b.Cache)
	for row, why := range b.Hold {
		if !b.lastGood(row, why) && b.KeepGoing {
			left := format.ListInfo{Source: b.sources[row], Guard: b.sources[row].Settings.Guard.ID(), Refused: why}
			left.Summary.Verdict, left.Summary.Why = lists.Refused, why.Error()
			b.left[row] = left
		}
	}
	if err := b.open(); err != nil {
		return err
	}
	return b.take(ctx)
}

// open makes room for the records.
func (b *Builder) open() error {
	b.spill = newSpillFile(b.path, b.hooks)
	records, err := b.newRecords(textSize(b.sources) * int64(1+b.Hashes.Len()))
	if err != nil {
		return err
	}
	b.in = newIntake(b.hash, b.Hashes, b.Built.Unix(), make([]rowIntake, max(len(b.sources), len(b.hooks.Rows))), records)
	return nil
}

// take takes all entries in.
func (b *Builder) take(ctx context.Context) error {
	if b.hooks.Entries == nil {
		return b.readAll(ctx)
	}
	b.Rows = b.hooks.Rows
	return cmp.Or(b.hooks.Entries(b.in), b.in.records.finish())
}

// takeAgain takes everything in anew: the memory of the records is given back while
// the file is written.
func (b *Builder) takeAgain(ctx context.Context) error {
	if err := b.reset(); err != nil {
		return err
	}
	return b.take(ctx)
}

// reset drops all that was taken in.
func (b *Builder) reset() error {
	b.Close()
	return b.open()
}

// Without makes the next draft one without the failed sources: with what they held
// before, or with nothing of them.
func (b *Builder) Without(ctx context.Context, failed map[int]format.ListInfo) error {
	switch {
	case b.fallBack(failed):
	case b.KeepGoing:
		maps.Copy(b.left, failed)
	default:
		return Failures(failed)
	}
	return b.takeAgain(ctx)
}

// partBytes is what one part of the records is meant to have: with what is made of
// it, it fits into a core's own cache.
const partBytes = 512 << 10

func (b *Builder) newRecords(text int64) (*scatter, error) {
	bits, expected := uint(4), text+text/4 // a line of 37 octets becomes 44
	for bits < 13 && expected>>bits > partBytes {
		bits++
	}
	return newScatter(b.Workers, bits, b.Memory, expected, b.spill)
}

// Close gives memory and temporary file back.
func (b *Builder) Close() {
	if b.in != nil {
		b.in.records.close()
		b.spill.close()
	}
}

// textSize is about how much text the sources have.
func textSize(sources []format.Source) (size int64) {
	for _, s := range sources {
		n := fileSize(cmp.Or(s.Kept, s.Path))
		if s.Kept == "" && strings.HasSuffix(s.Path, ".gz") {
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

// tooMany says which list has the most files. In a folder with one for each user that is what to mend.
func tooMany(sources []format.Source) error {
	files, most := map[string]int{}, 0
	for i, s := range sources {
		if files[s.List]++; files[s.List] > files[sources[most].List] {
			most = i
		}
	}
	err := fmt.Errorf("%d list files are more than an index holds: %d; list %q has %d of them", len(sources), format.MaxLists, sources[most].List, files[sources[most].List])
	if sources[most].Settings.PerRecipient {
		err = fmt.Errorf("%w: one CSV file or a database with a column owner has any number of users", err)
	}
	return err
}

func checkSources(sources []format.Source) error {
	if len(sources) > format.MaxLists {
		return tooMany(sources)
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

// SourceError is why a source is refused.
type SourceError struct {
	List string
	Err  error // wraps a *lists.FileError, which names the file
}

func (e *SourceError) Error() string { return fmt.Sprintf("list %s: %v", e.List, e.Err) }

func (e *SourceError) Unwrap() error { return e.Err }

// SourcesError carries the error of every source that was refused, in order: each is a
// *SourceError.
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

// Failures are the errors of failed sources in the order of their rows.
func Failures(failed map[int]format.ListInfo) *SourcesError {
	e := &SourcesError{}
	for _, i := range slices.Sorted(maps.Keys(failed)) {
		e.Errs = append(e.Errs, failed[i].Refused)
	}
	return e
}

package index

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"os"
	"time"

	"blockd/addr"
	"blockd/bloom"
	"blockd/lists"
)

const (
	minBitsPerKey = 8
	maxBitsPerKey = 20

	// buckets are the parts in which records are collected and sorted: by the
	// top bits of their hash, so that bucket behind bucket is the order of the
	// file, whatever number of partitions that has. 10 M keys of 37 octets are
	// about 2 MiB a bucket, as large as a core's own cache.
	bucketBits = 8
	buckets    = 1 << bucketBits

	// progressEvery is the number of items between two reports while reading.
	progressEvery = 1 << 14
)

// hooks are what tests put into a build. The zero value is the real thing.
type hooks struct {
	fail func(step string) error     // asked before each step of publishing
	weak func(key []byte) bloom.Hash // stands in for XXH3
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
	hooks   hooks
	rows    []ListInfo
	tests   []rowTest
	failed  map[int]ListInfo // rows that a build before this one refused by their self-tests
	hash    hasher
	buildID [16]byte
	built   time.Time
	buckets []arena
	reasons reasonTable
	entries int64
	kinds   uint64 // see kindBit
	record  []byte // reused by add
	key     []byte
}

// Build reads all sources and writes a draft of the index at path. The file at
// path is not touched. When sources are refused it returns a *SourcesError that
// names every one of them (unless KeepGoing). Two builds of one path at a time
// are refused with ErrLocked.
//
// All records are in memory meanwhile: about 60 bytes for an entry of 37 octets.
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
	if !(o.BitsPerKey >= minBitsPerKey && o.BitsPerKey <= maxBitsPerKey) { // NaN too
		return nil, fmt.Errorf("%v bits a key: want %d to %d", o.BitsPerKey, minBitsPerKey, maxBitsPerKey)
	}
	b := &builder{Options: o, hooks: h, buckets: make([]arena, buckets), reasons: newReasonTable()}
	b.hash = hasher{kind: hashXXH3, weak: h.weak}
	if o.SipHash {
		b.hash.kind = hashSip
	}
	if o.Seed != nil {
		b.buildID, b.hash.key, b.built = o.Seed.BuildID, o.Seed.HashKey, o.Seed.Built
		return b, nil
	}
	b.built = time.Now()
	rand.Read(b.buildID[:]) // never fails: it ends the process rather
	rand.Read(b.hash.key[:])
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
	for {
		if err := b.readAll(ctx, sources); err != nil {
			return nil, err
		}
		d, err := b.draft(ctx, path, lock)
		if err != nil {
			return nil, err
		}
		failed, err := b.selfTest(ctx, d.index)
		if err == nil && len(failed) == 0 {
			return d, nil
		}
		os.Remove(d.temp)
		if err == nil && !b.KeepGoing {
			err = failures(failed)
		}
		if err == nil { // one source less each time
			b, err = b.without(failed)
		}
		if err != nil {
			return nil, err
		}
	}
}

func checkSources(sources []Source) error {
	if len(sources) > maxLists {
		return fmt.Errorf("%d list files are more than an index holds: %d", len(sources), maxLists)
	}
	for _, s := range sources {
		switch {
		case s.List == "" || len(s.List) > maxName:
			return fmt.Errorf("list name %q: want 1 to %d octets", s.List, maxName)
		case len(s.Path) > maxPath:
			return fmt.Errorf("list %s: path of %d octets, want at most %d", s.List, len(s.Path), maxPath)
		case len(s.Settings.Format) > maxText || len(s.Settings.Reason) > maxText:
			return fmt.Errorf("list %s: format or reason over %d octets", s.List, maxText)
		case s.Settings.MaxBytes < 0:
			return fmt.Errorf("list %s: size limit of %d bytes", s.List, s.Settings.MaxBytes)
		}
	}
	return nil
}

// readAll reads every source, also behind a refused one, so that all faults are
// told at once.
func (b *builder) readAll(ctx context.Context, sources []Source) error {
	p := Progress{Stage: "read"}
	sizes := make([]int64, len(sources))
	for i, s := range sources {
		if fi, err := os.Stat(s.Path); err == nil && fi.Mode().IsRegular() {
			sizes[i] = fi.Size()
			p.Total += sizes[i]
		}
	}
	var refused []error
	for i, s := range sources {
		p.Source = s.Path
		row, err := b.readSource(ctx, s, p, sizes[i])
		var file *lists.FileError
		switch {
		case err == nil && row.Refused == nil:
		case err == nil:
			refused = append(refused, row.Refused)
		case !errors.As(err, &file):
			return err
		case s.Optional && file.Class == "missing":
		default:
			row.Refused = fmt.Errorf("list %s: %w", s.List, err)
			refused = append(refused, row.Refused)
		}
		b.rows[i] = row
		p.Done += sizes[i]
		p.Entries = b.entries
		b.report(p)
	}
	if len(refused) > 0 && !b.KeepGoing {
		return &SourcesError{refused}
	}
	return nil
}

// readSource reads one source into the buckets as the next row. Of a source that
// ends in an error, which may show at its very last byte, nothing stays.
func (b *builder) readSource(ctx context.Context, s Source, p Progress, size int64) (ListInfo, error) {
	number := len(b.rows)
	if row, ok := b.failed[number]; ok {
		b.rows = append(b.rows, row)
		return row, nil
	}
	b.rows = append(b.rows, ListInfo{Source: s, Guard: s.Settings.Guard.ID()})
	row := &b.rows[number]
	marks := make([]mark, len(b.buckets))
	for i := range b.buckets {
		marks[i] = b.buckets[i].mark()
	}
	reasons, entries, kinds, tests := len(b.reasons.ends), b.entries, b.kinds, len(b.tests)

	items, line, done := 0, 0, int64(0)
	summary, err := lists.ReadFile(ctx, s.Path, s.Settings, func(it *lists.Item) error {
		if it.Line != line {
			line, done = it.Line, done+int64(len(it.Text))+1
		}
		if items++; items%progressEvery == 0 {
			now := p
			now.Done += min(done, size) // a packed file has more text than bytes
			now.Entries = b.entries
			b.report(now)
		}
		switch it.Kind {
		case lists.Skip:
			if it.Test != nil {
				b.tests = append(b.tests, rowTest{number, it.Line, it.Test})
			}
		case lists.IP, lists.CIDR:
			row.NetworkEntries++
		case lists.Addr, lists.Domain:
			if err := b.add(number, it.Key, 0, it); err != nil {
				return fmt.Errorf("%s:%d: %w", s.Path, it.Line, err)
			}
		}
		return nil
	})
	row.Summary = summary
	if err != nil {
		for i, m := range marks {
			b.buckets[i].cut(m)
		}
		b.reasons.cut(reasons)
		b.entries, b.kinds, b.tests = entries, kinds, b.tests[:tests]
		row.NetworkEntries = 0
	}
	return *row, err
}

// add puts one entry of a row into its bucket. expiry is in Unix seconds, 0 is
// never.
func (b *builder) add(row int, key addr.Key, expiry int64, it *lists.Item) error {
	if len(key.Text) == 0 || len(key.Text) > maxKey {
		return fmt.Errorf("key of %d octets, want 1 to %d", len(key.Text), maxKey)
	}
	if reach(key.Kind, true)&(1<<it.Scope) == 0 && reach(key.Kind, false)&(1<<it.Scope) == 0 {
		return fmt.Errorf("%q cannot have scope %d", key.Text, it.Scope)
	}
	if it.Action > lists.Discard || it.Line < 0 || expiry < 0 {
		return fmt.Errorf("%q with action %d, line %d, expiry %d", key.Text, it.Action, it.Line, expiry)
	}
	if expiry != 0 && expiry <= b.built.Unix() {
		return nil
	}
	e := entry{row: row, line: it.Line, scope: it.Scope, action: it.Action, expiry: expiry}
	if it.Reason != "" {
		reason, ok := b.reasons.add(it.Reason[:min(len(it.Reason), maxReason)])
		if !ok {
			return fmt.Errorf("more than %d different reasons", maxReasons)
		}
		e.reason = reason + 1
	}
	b.key = append(b.key[:0], key.Text...)
	b.record = appendRecord(b.record[:0], b.key, []entry{e}, false)
	b.buckets[b.hash.sum(b.key).Hi>>(64-bucketBits)].add(b.record)
	b.kinds |= kindBit(key)
	b.entries++
	return nil
}

func (b *builder) report(p Progress) {
	if b.Progress != nil {
		b.Progress(p)
	}
}

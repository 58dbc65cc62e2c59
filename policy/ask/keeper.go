package ask

import (
	"bufio"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"sync"
	"time"

	"blockd/bloom"
	"blockd/bloom/filter"
	"blockd/lists"
	"blockd/mail/addr"
	"blockd/sources/mirror"
)

// Keeping says where a list's filter comes from: Open, Fetch or Given.
type Keeping struct {
	// Given says that another machine makes the filter: the file at Path is read whenever it is another one.
	Given bool
	// Path is the file of the list's own filter, which makes a restart fast.
	Path string
	// Open makes the driver that reads the keys of the store, of which the hashes alone are kept. nil with Fetch.
	Open func() (mirror.Source, error)
	// Fetch reads the filter of another program.
	Fetch func(context.Context) (filter.Filter, error)

	Every     time.Duration // how often changes are asked for, or Fetch is called
	Reconcile time.Duration // how often the filter is built anew
	MaxRows   int64
}

const (
	saveEvery = 5 * time.Minute // at most, while keys are added
	troubles  = 10 * time.Minute
)

// keeper keeps one filter.
type keeper struct {
	Keeping
	*Set
	source mirror.Source
	filter *Filter
	built  time.Time
	saved  time.Time
	dirty  bool
	told   time.Time
	took   time.Duration // of the last build
	stamp  fs.FileInfo   // of the file that is Given, as it was read

	unlogged *mirror.Unlogged // why the store is read whole each time; nil = it is not
}

// Status is how the filter of a list is kept up to date, in the words of copies.
func (s *Set) Status() mirror.Status {
	s.mu.Lock()
	defer s.mu.Unlock()
	now := s.status.now
	if f := s.local.Load(); f != nil {
		now.Rows = int64(f.keys.Load())
	}
	if since := s.pausedAt.Load(); since != 0 && now.State == mirror.OK {
		now.State, now.Class, now.Since, now.Error = mirror.Away, mirror.ClassUnreachable, time.Unix(0, since), ErrPaused.Error()
	}
	return now
}

// status is behind a lock of its own.
type status struct {
	mu  sync.Mutex
	now mirror.Status
}

// Keep keeps the list's filter up to date until ctx ends, and then returns nil. It is called once.
func (s *Set) Keep(ctx context.Context, from Keeping) error {
	k := &keeper{Keeping: from, Set: s}
	defer k.close()
	k.load()
	for failures := 0; ctx.Err() == nil; {
		err := k.attempt(ctx)
		switch {
		case ctx.Err() != nil:
		case errors.Is(err, errRests):
			k.rest(ctx, min(k.Every, mirror.UnloggedShare*k.took-time.Since(k.built)))
		case err != nil:
			k.failedToKeep(err)
			failures++
			sleep(ctx, mirror.Retry(failures))
		default:
			failures = 0
			k.confirmed()
			k.rest(ctx, k.Every)
		}
	}
	return nil
}

// load takes the filter of the last run. What is wrong with it is told; it is then built anew.
func (k *keeper) load() {
	if k.Open == nil {
		return
	}
	f, err := OpenFilter(k.Path)
	switch {
	case errors.Is(err, fs.ErrNotExist):
	case err != nil:
		k.log.Error("filter of a list is lost, and is built anew: until then the list is not asked", slog.Any("error", err))
	default:
		k.filter = f
		if info, err := os.Stat(k.Path); err == nil {
			k.built = info.ModTime()
		}
		k.UseFilter(f)
	}
}

// errRests is for a store that does not tell its changes, and was read whole not long ago.
var errRests = errors.New("it is read again later")

func (k *keeper) attempt(ctx context.Context) (err error) {
	if k.Given {
		return k.given()
	}
	if k.Fetch != nil {
		f, err := k.Fetch(ctx)
		if err == nil {
			k.UseForeign(f)
		}
		return err
	}
	if k.source == nil {
		if k.source, err = k.Open(); err != nil {
			return err
		}
	}
	fingerprint, err := k.source.Fingerprint(ctx)
	if err != nil {
		return err
	}
	if k.filter != nil && k.filter.fingerprint == fingerprint && !k.filter.worn() && time.Since(k.built) < k.Reconcile {
		if err = k.follow(ctx); !errors.Is(err, mirror.ErrTooOld) {
			if err == nil {
				k.unlogged = nil
			}
			return err
		}
		if k.unlogged, _ = errors.AsType[*mirror.Unlogged](err); k.unlogged != nil && time.Since(k.built) < mirror.UnloggedShare*k.took {
			return errRests
		}
	}
	began := time.Now()
	defer func() { k.took = time.Since(began) }()
	return k.build(ctx, fingerprint)
}

// given reads the file of a filter that another machine has made.
func (k *keeper) given() error {
	now, err := os.Stat(k.Path)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return &mirror.Error{Class: mirror.ClassSchema, Err: errors.New("the snapshot in force has no filter of this list: want a list of the same name with mode = \"ask\" at the publisher")}
	case err != nil:
		return &mirror.Error{Class: mirror.ClassDisk, Err: err}
	case k.stamp != nil && os.SameFile(k.stamp, now):
		return nil
	}
	f, err := OpenFilter(k.Path)
	if err != nil {
		return &mirror.Error{Class: mirror.ClassDisk, Err: err}
	}
	k.stamp = now
	k.UseFilter(f)
	k.log.Info("filter of a list taken from the snapshot", slog.Uint64("keys", f.keys.Load()))
	return nil
}

// follow adds what has come to the store. What has gone stays in the filter, and costs a question each time.
func (k *keeper) follow(ctx context.Context) error {
	mark, err := k.source.Changes(ctx, k.filter.mark, func(c mirror.Change) error {
		key, ok := k.keyOf(c.Entry)
		if !ok {
			return ctx.Err()
		}
		if len(c.Rows) > 0 {
			k.filter.Add(key)
			k.filter.added.Add(1)
		} else {
			k.filter.gone.Add(1)
		}
		k.forget(key)
		k.dirty = true
		return ctx.Err()
	})
	if err != nil {
		return err
	}
	if mark != k.filter.mark {
		k.filter.mark, k.dirty = mark, true
	}
	if k.dirty && time.Since(k.saved) >= saveEvery {
		return k.save()
	}
	return nil
}

// Covers reports whether the list's filter has an entry of the store, so that it is asked for; ok is false if that
// cannot be told: for what is no entry, and without a filter.
func (s *Set) Covers(entry string) (covered, ok bool) {
	key, ok := s.keyOf(entry)
	if !ok {
		return false, false
	}
	bits, ok := s.perhaps([]addr.Key{key})
	return bits != 0, ok
}

// keyOf is the key that an entry of the store has in the filter. Networks have none: they are not asked.
func (s *Set) keyOf(entry string) (addr.Key, bool) {
	if key, ok := addr.Simple(entry); ok {
		return key, true
	}
	it, err := lists.ParseEntry(entry, lists.Settings{})
	return it.Key, err == nil && (it.Kind == lists.Addr || it.Kind == lists.Domain)
}

// build reads all keys of the store, and makes a filter of the size that they need. Their hashes wait in a file.
func (k *keeper) build(ctx context.Context, fingerprint string) error {
	began := time.Now()
	spool, err := os.CreateTemp(filepath.Dir(k.Path), ".hashes.*")
	if err != nil {
		return &mirror.Error{Class: mirror.ClassDisk, Err: err}
	}
	defer spool.Close()
	os.Remove(spool.Name())
	fresh, out := NewFilter(0), bufio.NewWriterSize(spool, 1<<20)
	rows, keys := int64(0), uint64(0)
	mark, err := k.source.All(ctx, func(row mirror.Row) error {
		if rows++; k.MaxRows > 0 && rows > k.MaxRows {
			return &mirror.Error{Class: mirror.ClassRows, Err: fmt.Errorf("more than %d rows", k.MaxRows)}
		}
		key, ok := k.keyOf(row.Entry)
		if !ok {
			return ctx.Err()
		}
		keys++
		fresh.kinds.Or(key.KindBit())
		var octets [8]byte
		binary.LittleEndian.PutUint64(octets[:], fresh.seed.SumString(key.Text).Lo)
		if _, err := out.Write(octets[:]); err != nil {
			return &mirror.Error{Class: mirror.ClassDisk, Err: err}
		}
		return ctx.Err()
	})
	if err != nil {
		return err
	}
	if rows >= 100 && keys < uint64(rows)*3/4 {
		return &mirror.Error{Class: mirror.ClassEncoding, Err: fmt.Errorf("%d of %d rows are no senders", uint64(rows)-keys, rows)}
	}
	if err := errors.Join(out.Flush(), fresh.fill(spool, keys)); err != nil {
		return &mirror.Error{Class: mirror.ClassDisk, Err: err}
	}
	fresh.mark, fresh.fingerprint = mark, fingerprint
	k.filter, k.built = fresh, began
	k.UseFilter(fresh)
	k.log.Info("filter of a list built from its store", slog.Int64("rows", rows), slog.Uint64("keys", keys), slog.Float64("seconds", time.Since(began).Seconds()))
	return k.save()
}

// fill gives f the size that so many keys need, and adds them by their hashes.
func (f *Filter) fill(hashes io.ReadSeeker, keys uint64) error {
	if _, err := hashes.Seek(0, io.SeekStart); err != nil {
		return err
	}
	f.sized = max(keys, leastKeys)
	f.bits = bloom.NewGrowing(f.sized, bloom.DefaultBitsPerKey)
	in := bufio.NewReaderSize(hashes, 1<<20)
	var octets [8]byte
	for range keys {
		if _, err := io.ReadFull(in, octets[:]); err != nil {
			return err
		}
		f.add(bloom.Hash{Lo: binary.LittleEndian.Uint64(octets[:])})
	}
	return nil
}

// save writes the filter.
func (k *keeper) save() error {
	if err := k.filter.write(k.Path); err != nil {
		return &mirror.Error{Class: mirror.ClassDisk, Err: err}
	}
	k.saved, k.dirty = time.Now(), false
	return nil
}

// rest waits until the store is to be asked again, at the latest after most, or says that something has changed.
func (k *keeper) rest(ctx context.Context, most time.Duration) {
	if k.source == nil {
		sleep(ctx, most)
		return
	}
	hint, cancel := context.WithTimeout(ctx, most)
	defer cancel()
	if err := k.source.Wait(hint); err != nil {
		<-hint.Done() // no more hints: the poll finds it
	}
}

func sleep(ctx context.Context, d time.Duration) {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-ctx.Done():
	case <-timer.C:
	}
}

func (k *keeper) confirmed() {
	now := time.Now()
	k.mu.Lock()
	if k.status.now.State != mirror.OK {
		k.status.now.State, k.status.now.Since = mirror.OK, now
	}
	k.status.now.Class, k.status.now.Error, k.status.now.Confirmed = "", "", now
	if k.unlogged != nil {
		k.status.now.Class, k.status.now.Error = mirror.ClassUnlogged, k.unlogged.Error()
	}
	k.mu.Unlock()
	if k.unlogged != nil {
		k.trouble(mirror.ClassUnlogged, k.unlogged.Error())
	} else if !k.told.IsZero() {
		k.told = time.Time{}
		k.log.Info("filter of a list follows its store again")
	}
}

// trouble logs why the filter does not follow its store, now and then.
func (k *keeper) trouble(class mirror.Class, text string) {
	if k.told.IsZero() || time.Since(k.told) >= troubles {
		k.told = time.Now()
		k.log.Warn("filter of a list does not follow its store", slog.String("class", string(class)), slog.String("error", text), slog.Bool("asked", k.Loaded()))
	}
}

func (k *keeper) failedToKeep(err error) {
	k.mu.Lock()
	class, text := k.now.Fail(err)
	k.mu.Unlock()
	if class == mirror.ClassAuth && k.source != nil {
		k.source.Close() // so that a new secret counts
		k.source = nil
	}
	k.trouble(class, text)
}

func (k *keeper) close() {
	if k.dirty {
		k.save()
	}
	if k.source != nil {
		k.source.Close()
	}
}

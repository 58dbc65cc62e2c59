package index

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	"blockd/bloom"
	"blockd/index/internal/build"
	"blockd/index/internal/segment"
	"blockd/internal/durable"
)

// ErrLocked reports that another build of the same path is under way.
var ErrLocked = errors.New("another build of this index is under way")

// Draft is a built index file that nobody serves yet: complete, synced and
// checked as a reader would, under a temporary name beside its target. It holds
// the build's lock until Publish or Discard. It is for one goroutine.
type Draft struct {
	Report Report

	path, temp string
	lock       *durable.LockFile
	index      *Index
	hooks      build.Hooks
	cache      *segment.Cache
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
	return newDraft(ctx, path, sources, o, build.Hooks{})
}

func newDraft(ctx context.Context, path string, sources []Source, o Options, h build.Hooks) (*Draft, error) {
	started := time.Now()
	b, err := build.New(path, sources, o, h)
	if err != nil {
		return nil, err
	}
	d, err := begin(path)
	if err != nil {
		return nil, err
	}
	d.hooks = h
	if err := d.build(ctx, b); err != nil {
		d.lock.Close()
		return nil, err
	}
	d.Report.Elapsed = time.Since(started)
	return d, nil
}

// begin takes the lock of the index at path. No other builder is at work then, and what
// builders that died have left goes.
func begin(path string) (*Draft, error) {
	d := &Draft{path: path, temp: fmt.Sprintf("%s%s%d", path, build.TempMark, os.Getpid())}
	// The lock ends with the process or with this file. A link in its place is not followed:
	// root may build in a folder that is the daemon's.
	var err error
	if d.lock, err = durable.Lock(path+".lock", ErrLocked); err != nil {
		return nil, fmt.Errorf("index %s: %w", path, err)
	}
	if err := removeStale(path); err != nil {
		d.lock.Close()
		return nil, err
	}
	return d, nil
}

// build writes the draft, and again with one source less as long as one fails its
// self-tests.
func (d *Draft) build(ctx context.Context, b *build.Builder) error {
	defer b.Close()
	err := b.Begin(ctx)
	d.cache = b.Segments
	for err == nil {
		if err = d.write(ctx, b); err != nil {
			break
		}
		var failed map[int]ListInfo
		if failed, err = selfTest(ctx, d.index, b.Rows, b.Tests, b.Built); err == nil && len(failed) == 0 {
			return nil
		}
		os.Remove(d.temp)
		if err == nil {
			err = b.Without(ctx, failed)
		}
	}
	d.cache.Discard()
	return err
}

// write writes the file under its temporary name, syncs it, and reads it again
// as a reader would.
func (d *Draft) write(ctx context.Context, b *build.Builder) error {
	if err := d.hooks.At("create"); err != nil {
		return fmt.Errorf("index %s: %w", d.path, err)
	}
	f, err := os.OpenFile(d.temp, os.O_RDWR|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return err
	}
	err = b.Write(ctx, f, &d.Report, func() (file build.Opened, err error) {
		if d.index, err = openFile(d.temp, d.path); err != nil {
			return build.Opened{}, err
		}
		return build.Opened{Contents: &d.index.file, Filter: func(ctx context.Context) (*bloom.Filter, error) {
			err := d.index.promote(ctx)
			return d.index.filter.near.Load(), err
		}}, nil
	})
	f.Close() // what it could report, Sync has reported
	if err != nil {
		os.Remove(d.temp)
		return fmt.Errorf("index %s: %w", d.path, err)
	}
	return nil
}

// Index is the draft, opened as a reader opens it. It stays valid after Publish.
func (d *Draft) Index() *Index { return d.index }

// Publish renames the draft to its target and syncs the folder. After an error
// the target is the old file, or, where the folder's sync failed, the new one.
func (d *Draft) Publish() error {
	if d.lock == nil {
		return fmt.Errorf("index %s: draft is published or discarded already", d.path)
	}
	if err := d.hooks.At("rename"); err != nil {
		return fmt.Errorf("index %s: %w", d.path, err)
	}
	if err := os.Rename(d.temp, d.path); err != nil {
		return err
	}
	defer d.release()
	if err := d.hooks.At("sync folder"); err != nil {
		return fmt.Errorf("index %s: %w", d.path, err)
	}
	err := durable.SyncFolder(filepath.Dir(d.path))
	d.cache.Commit()
	d.Report.Notes = d.cache.Notes
	return err
}

// Discard removes the draft; after Publish it does nothing. Call it with defer.
func (d *Draft) Discard() {
	if d.lock == nil {
		return
	}
	os.Remove(d.temp) // what stays behind goes at the next build
	d.cache.Discard()
	d.release()
}

func (d *Draft) release() {
	d.lock.Close()
	d.lock = nil
}

// removeStale removes what builders that died have left. The lock is held.
func removeStale(path string) error {
	folder, base := filepath.Split(path)
	if folder == "" {
		folder = "."
	}
	files, err := os.ReadDir(folder)
	if err != nil {
		return err
	}
	for _, file := range files {
		if strings.HasPrefix(file.Name(), base+build.TempMark) {
			if err := os.Remove(filepath.Join(folder, file.Name())); err != nil {
				return err
			}
		}
	}
	return nil
}

// WaitBuilt waits until nobody builds the index at path, or ctx ends, whose error it returns then.
func WaitBuilt(ctx context.Context, path string) error {
	for {
		lock, err := durable.Lock(path+".lock", ErrLocked)
		if err == nil {
			return lock.Close()
		}
		if !errors.Is(err, ErrLocked) {
			return err
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(waitBuilt):
		}
	}
}

// waitBuilt is how often WaitBuilt looks. A small build takes as long.
const waitBuilt = 20 * time.Millisecond

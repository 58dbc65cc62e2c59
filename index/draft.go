package index

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"blockd/index/internal/segment"
	"blockd/internal/durable"
)

// Draft is a built index file that nobody serves yet: complete, synced and
// checked as a reader would, under a temporary name beside its target. It holds
// the build's lock until Publish or Discard. It is for one goroutine.
type Draft struct {
	Report Report

	path, temp string
	lock       *os.File
	index      *Index
	hooks      hooks
	cache      *segment.Cache
}

// draft writes the file under its temporary name, syncs it, and reads it again
// as a reader would.
func (b *builder) draft(ctx context.Context, path string, lock *os.File) (*Draft, error) {
	d := &Draft{path: path, temp: fmt.Sprintf("%s%s%d", path, tempMark, os.Getpid()), lock: lock, hooks: b.hooks, cache: b.cache}
	if err := b.hooks.at("create"); err != nil {
		return nil, fmt.Errorf("index %s: %w", path, err)
	}
	f, err := os.OpenFile(d.temp, os.O_RDWR|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return nil, err
	}
	err = b.fill(ctx, d, f)
	f.Close() // what it could report, Sync has reported
	if err != nil {
		os.Remove(d.temp)
		return nil, fmt.Errorf("index %s: %w", path, err)
	}
	return d, nil
}

// fill writes, syncs and checks the draft's file.
func (b *builder) fill(ctx context.Context, d *Draft, f *os.File) (err error) {
	pages := b.openPages(f, b.in.counted().bytes)
	defer pages.end()
	w, err := b.writeFile(ctx, pages, &d.Report)
	if err != nil {
		return err
	}
	defer w.close()
	if err := b.hooks.at("sync"); err != nil {
		return err
	}
	synced := make(chan error, 1)
	go func() { synced <- f.Sync() }()
	defer func() {
		end := b.stages.begin("sync")
		err = cmp.Or(<-synced, err)
		end()
		d.Report.Lists, d.Report.Cached, d.Report.Notes = b.rows, b.cached, b.cache.Notes
		d.Report.Stages, d.Report.Spilled, d.Report.PeakMemory = b.stages, b.spill.written(), peakMemory()
	}()
	if err := b.hooks.at("reopen"); err != nil {
		return err
	}
	if d.index, err = openFile(d.temp, d.path); err != nil {
		return err
	}
	if err := b.hooks.at("verify"); err != nil {
		return err
	}
	return w.checkDraft(ctx, d.index)
}

// Index is the draft, opened as a reader opens it. It stays valid after Publish.
func (d *Draft) Index() *Index { return d.index }

// Publish renames the draft to its target and syncs the folder. After an error
// the target is the old file, or, where the folder's sync failed, the new one.
func (d *Draft) Publish() error {
	if d.lock == nil {
		return fmt.Errorf("index %s: draft is published or discarded already", d.path)
	}
	if err := d.hooks.at("rename"); err != nil {
		return fmt.Errorf("index %s: %w", d.path, err)
	}
	if err := os.Rename(d.temp, d.path); err != nil {
		return err
	}
	defer d.release()
	if err := d.hooks.at("sync folder"); err != nil {
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

// tempMark stands between the target's name and the builder's process id.
const tempMark = ".tmp-"

// lockPath takes the lock of builds of path, which ends with the process or with
// the returned file. The lock file stays: removing it would race with the next. A link
// in its place is not followed: root may build in a folder that is the daemon's.
func lockPath(path string) (*os.File, error) {
	f, err := durable.Lock(path + ".lock")
	if errors.Is(err, durable.ErrLocked) {
		err = ErrLocked
	}
	if err != nil {
		return nil, fmt.Errorf("index %s: %w", path, err)
	}
	return f, nil
}

// removeStale removes what builders that died have left. The lock is held, so no
// other builder is at work.
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
		if strings.HasPrefix(file.Name(), base+tempMark) {
			if err := os.Remove(filepath.Join(folder, file.Name())); err != nil {
				return err
			}
		}
	}
	return nil
}

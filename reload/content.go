package reload

import (
	"context"
	"errors"
	"os"
	"time"

	"blockd/index"
	"blockd/lists"
)

// content is what one source holds. Equal contents, in equal order, give an
// equal index.
type content struct {
	list, path string
	hash       [16]byte // zero: missing, and may be
	guard      uint64   // that it is, or was, read under
}

// view is what a look finds.
type view struct {
	began    time.Time // the look
	sources  []index.Source
	contents []content
	faults   []problem              // of sources that are no list
	stamps   map[string]os.FileInfo // by path, from before the contents were read
}

// view reads all sources.
func (r *Reloader) view(ctx context.Context, began time.Time) view {
	v := view{began: began}
	v.sources, v.faults = expand(r.settings.Lists)
	now, unreadable := r.files.read(ctx, v.sources)
	v.contents, v.faults, v.stamps = now, append(v.faults, unreadable...), r.files.seen
	r.seen = v
	return v
}

// decideOn notes that the contents of v led to a refusal, if they are what was built: a file
// that has changed since it was hashed may have been refused for what it held in between.
func (r *Reloader) decideOn(v view) {
	if !r.files.moved(v.sources) {
		r.decidedOn = v.contents
	}
}

// fileCache knows what the files were when they were last looked at.
type fileCache struct {
	seen   map[string]os.FileInfo // by path; nil: no such file, or unreadable
	hashes map[string][16]byte    // of those in seen whose stamp can be trusted
	// unsure: a file was so young when it was read that a later write may have
	// left it with the same stamp. The next poll reads it again.
	unsure bool
}

// coarse is the largest step of a file's time: FAT has 2 s, older NFS and ext3
// 1 s. A file that is older than that when it is read cannot change and keep
// both size and time. Nor can one of the future, unless the clock is set back to
// that very moment; to read it anew at every poll would cost more than it tells.
const coarse = 2 * time.Second

// read hashes every source, but those whose stamp says that they are as before.
// It returns the contents, and the fault of every source that is no list.
func (c *fileCache) read(ctx context.Context, sources []index.Source) (now []content, faults []problem) {
	old, known := c.seen, c.hashes
	c.seen, c.hashes, c.unsure = map[string]os.FileInfo{}, map[string][16]byte{}, false
	for _, s := range sources {
		// The stamp is taken before the content: should the file change in between,
		// the stamp is the old one, and the next look sees another.
		info, _ := os.Stat(s.Path)
		c.seen[s.Path] = info
		hash, ok := known[s.Path]
		if !ok || !sameStamp(info, old[s.Path]) {
			began := time.Now()
			var err error
			if hash, err = lists.HashFile(ctx, s.Path); err != nil {
				if fe, ok := errors.AsType[*lists.FileError](err); !ok || fe.Class != lists.Missing || !s.Optional {
					faults = append(faults, fileProblem(s.List, s.Path, err))
				}
				hash = [16]byte{}
				info = nil
			}
			if info != nil && began.Sub(info.ModTime()).Abs() < coarse {
				c.unsure, info = true, nil
			}
		}
		if info != nil {
			c.hashes[s.Path] = hash
		}
		now = append(now, content{s.List, s.Path, hash, s.Settings.Guard.ID()})
	}
	return now, faults
}

// moved reports whether a file's stamp is another than at the last call or read.
func (c *fileCache) moved(sources []index.Source) bool {
	now, moved := make(map[string]os.FileInfo, len(sources)), false
	for _, s := range sources {
		info, _ := os.Stat(s.Path)
		old, known := c.seen[s.Path]
		if !known || !sameStamp(info, old) {
			moved = true
			delete(c.hashes, s.Path)
		}
		now[s.Path] = info
	}
	moved = moved || len(now) != len(c.seen)
	c.seen = now
	return moved
}

// forget makes the next read read everything.
func (c *fileCache) forget() { c.hashes = nil }

// sameStamp compares what the system says of a file. Any difference counts: a
// restored backup is older than what it replaces.
func sameStamp(a, b os.FileInfo) bool {
	if a == nil || b == nil {
		return a == nil && b == nil
	}
	return os.SameFile(a, b) && a.Size() == b.Size() && a.ModTime().Equal(b.ModTime()) && a.Mode() == b.Mode()
}

// contents are those that a generation was built from. Of a source that it
// lacks the table has no hash of the whole file: that comes from seen.
func contents(table []index.ListInfo, lacks lacking, seen []content) []content {
	all := make([]content, len(table))
	for i, row := range table {
		all[i] = content{row.Source.List, row.Source.Path, row.Summary.Hash, row.Guard}
		if lacks.source(row.Source) && i < len(seen) && seen[i].path == row.Source.Path {
			all[i] = seen[i]
		}
	}
	return all
}

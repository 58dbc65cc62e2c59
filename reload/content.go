package reload

import (
	"context"
	"errors"
	"log/slog"
	"maps"
	"os"
	"slices"
	"time"

	"blockd/index"
	"blockd/internal/stamp"
	"blockd/lists"
)

// content is what one source holds. Equal contents in equal order give an equal index.
type content struct {
	list, path string
	hash       [16]byte // zero: missing, and may be
	guard      uint64   // lists.Guard that it is, or was, read with
}

// view is what a look finds.
type view struct {
	began    time.Time // the look
	sources  []index.Source
	contents []content
	faults   []problem              // of sources that are no list
	stamps   map[string]os.FileInfo // by path, from before the contents were read
	proposed map[string]proposed    // what the files of pinned lists hold, by list
}

// view reads all sources.
func (r *Reloader) view(ctx context.Context, began time.Time) view {
	v := view{began: began}
	r.readPins()
	actual, faults := expand(r.settings.Lists)
	now, unreadable := r.files.read(ctx, began, actual)
	v.stamps = r.files.seen
	r.effective(&v, actual, now, append(faults, unreadable...))
	r.seen = v
	r.files.fresh = false
	if err := r.files.keep(r.settings.Path, began); err != nil {
		r.log.Warn("the next start reads all lists", slog.Any("error", err))
	}
	return v
}

// decideOn notes that the contents of v led to problems, unless a file has changed since: it
// may have been refused for what it held in between. A file that was moved away and back looks
// unchanged; then the build missed a file that the look had read.
func (r *Reloader) decideOn(v view, problems []problem) {
	missed := func(p problem) bool { return p.class == lists.Missing && v.read(p.file()) }
	actual, _ := expand(r.settings.Lists)
	if !r.files.moved(actual) && !slices.ContainsFunc(problems, missed) {
		r.decidedOn = v.contents
	}
}

// read reports whether the look has read a file.
func (v view) read(f file) bool {
	return slices.ContainsFunc(v.contents, func(c content) bool { return file{c.list, c.path} == f && c.hash != [16]byte{} })
}

// fileCache remembers the files as they were when they were last looked at.
type fileCache struct {
	seen   map[string]os.FileInfo // by path; nil: no such file, or unreadable
	hashes map[string][16]byte    // of those in seen whose stamp can be trusted
	// unsure: a file was so young when it was read that a later write may leave its
	// stamp as it is. The next poll reads it again.
	unsure bool

	kept  map[string]stamped // those of the file of stamps
	fresh bool               // nothing was looked at since the start
}

// coarse is the largest step of a file's time: FAT has 2 s, older NFS and ext3 1 s. A file that was changed longer ago
// than that when it is read cannot change and keep its stamp. Nor can a file of the future, unless the clock is set
// back to that moment.
const coarse = 2 * time.Second

// read hashes every source whose stamp has changed, in a look that began at that time. It returns all contents, and the
// fault of every source that is no list.
func (c *fileCache) read(ctx context.Context, began time.Time, sources []index.Source) (now []content, faults []problem) {
	old, known := c.seen, c.hashes
	c.seen, c.hashes, c.unsure = map[string]os.FileInfo{}, map[string][16]byte{}, false
	for _, s := range sources {
		// The stamp is taken before the content: should the file change in between,
		// the stamp is the old one, and the next look sees another.
		info, _ := os.Stat(s.Path)
		c.seen[s.Path] = info
		hash, ok := known[s.Path]
		if !ok || !stamp.Same(info, old[s.Path]) {
			var err error
			if hash, ok = c.ofLastRun(s.Path, info); ok {
				c.hashes[s.Path] = hash
				now = append(now, content{s.List, s.Path, hash, s.Settings.Guard.ID()})
				continue
			}
			if hash, err = lists.HashFile(ctx, s.Path); err != nil {
				if fe, ok := errors.AsType[*lists.FileError](err); !ok || fe.Class != lists.Missing || !s.Optional {
					faults = append(faults, fileProblem(s.List, s.Path, err))
				}
				hash = [16]byte{}
				info = nil
			}
			if info != nil && began.Sub(stamp.Changed(info)).Abs() < coarse {
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

// ofLastRun returns the hash of a file that is as it was when a daemon before this one read it, at the first look.
func (c *fileCache) ofLastRun(path string, info os.FileInfo) (hash [16]byte, ok bool) {
	if !c.fresh || info == nil {
		return hash, false
	}
	kept, ok := c.kept[path]
	if !ok {
		return hash, false
	}
	s, ok := stamp.Of(info)
	return kept.hash, ok && s == kept.Stamp
}

// moved reports whether a stamp has changed since the last call of moved or read.
func (c *fileCache) moved(sources []index.Source) bool {
	old, now := c.seen, stamps(sources)
	maps.DeleteFunc(c.hashes, func(path string, _ [16]byte) bool { return !stamp.Same(old[path], now[path]) })
	c.seen = now
	return !sameStamps(old, now)
}

// stamps returns what the system says of each file, by path; nil: no such file.
func stamps(sources []index.Source) map[string]os.FileInfo {
	all := make(map[string]os.FileInfo, len(sources))
	for _, s := range sources {
		all[s.Path], _ = os.Stat(s.Path)
	}
	return all
}

func sameStamps(a, b map[string]os.FileInfo) bool { return maps.EqualFunc(a, b, stamp.Same) }

// forget makes the next read read everything.
func (c *fileCache) forget() { c.hashes, c.fresh = nil, false }

// contents returns those that a generation was built from. The table has no hash of a source
// that it lacks; that one is taken from seen.
func contents(table []index.ListInfo, lacks lacking, seen []content) []content {
	all := make([]content, len(table))
	for i, row := range table {
		all[i] = content{row.Source.List, row.Source.Path, row.Summary.Hash, row.Guard}
		if lacks.has(fileOf(row)) && i < len(seen) && seen[i].path == row.Source.Path {
			all[i] = seen[i]
		}
	}
	return all
}

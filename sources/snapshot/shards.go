package snapshot

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"time"

	"golang.org/x/sync/errgroup"

	"blockd/internal/durable"
	"blockd/internal/stamp"
)

// The kinds of octets that are fetched, as labels of a metric.
const (
	kindDelta    = "delta"
	kindWhole    = "whole"
	kindManifest = "manifest"
)

// fetching brings the files of one manifest.
type fetching struct {
	*Node
	manifests map[int64]*Manifest // read so far
	octets    atomic.Int64        // of objects
}

// job is a file that is missing.
type job struct {
	plain   string
	octets  int64
	entries int64 // -1: it is no list
	object  string
	size    int64
	way     []stepOf // from a file that is there; none: the object itself
	base    *Base    // what the object is, if that is not the file
	change  Delta    // from base
}

// stepOf is a delta, and the shard that it makes.
type stepOf struct {
	from  string
	delta Delta
	to    Shard
}

// all brings every file that is not there.
func (f *fetching) all(ctx context.Context, m *Manifest) error {
	var jobs []job
	planned := map[string]bool{}
	plan := func(j job, l *List, i int) {
		if planned[j.plain] || f.has(j.plain, j.octets) {
			return
		}
		planned[j.plain] = true
		if l != nil {
			j.way = f.way(ctx, m, l.Name, i)
		}
		jobs = append(jobs, j)
	}
	for k := range m.Lists {
		l := &m.Lists[k]
		for i, s := range l.Shards {
			j := job{plain: s.Plain, octets: s.Octets, entries: s.Entries, object: s.Object, size: s.Size, base: s.Base}
			if s.Base != nil {
				j.change = s.fromBase()
			}
			plan(j, l, i)
		}
	}
	for _, a := range m.Ask {
		plan(job{plain: a.Filter.Key, octets: a.Filter.Octets, entries: -1, object: a.Filter.Object, size: a.Filter.Size}, nil, 0)
	}
	group, ctx := errgroup.WithContext(ctx)
	group.SetLimit(atOnce)
	for _, j := range jobs {
		group.Go(func() error { return f.bring(ctx, j) })
	}
	return group.Wait()
}

// has reports whether a file is there as it was made: its name is its SHA-256. A file is read once, and again after
// it was written to.
func (n *Node) has(plain string, octets int64) bool {
	there, err := n.whether(plain, octets)
	return there && err == nil
}

// whether is has, with the error of a file that may be as it was made, and could not be read.
func (n *Node) whether(plain string, octets int64) (bool, error) {
	path := n.path(filesName, plain)
	info, err := os.Stat(path)
	if errors.Is(err, fs.ErrNotExist) || err == nil && info.Size() != octets {
		return false, nil
	} else if err != nil {
		return false, err
	}
	n.wholeMu.Lock()
	was := n.whole[plain]
	n.wholeMu.Unlock()
	if stamp.Same(was, info) {
		return true, nil
	}
	file, err := os.Open(path)
	if err != nil {
		return false, err
	}
	defer file.Close()
	sum := sha256.New()
	if _, err := io.Copy(sum, file); err != nil {
		return false, err
	}
	if hex.EncodeToString(sum.Sum(nil)) != plain {
		return false, nil
	}
	n.wholeMu.Lock()
	defer n.wholeMu.Unlock()
	n.whole[plain] = info
	return true, nil
}

// heal fetches again the files in force that were altered, or have gone.
func (n *Node) heal(ctx context.Context) error {
	damaged, err := n.removeDamaged()
	if err != nil || len(damaged) == 0 {
		return err
	}
	f := fetching{Node: n, manifests: map[int64]*Manifest{n.current.Sequence: n.current}}
	if err := f.all(ctx, n.current); err != nil {
		return &Error{reasonOf(err), fmt.Errorf("%d files of sequence %d were altered or have gone, such as %s, and cannot be fetched again: %w", len(damaged), n.current.Sequence, damaged[0], err)}
	}
	n.Log.Info("altered files are fetched again", slog.String("channel", n.Channel), slog.Int64("sequence", n.current.Sequence), slog.Int("files", len(damaged)))
	if n.Changed != nil {
		n.Changed(n.current)
	}
	return nil
}

// removeDamaged removes files in force that are not what they were made as, and names all that are missing then. To
// who reads them as lists a file that is missing changes nothing. Links that lead elsewhere than the manifest says, or
// have gone, are made again, and named too.
func (n *Node) removeDamaged() (missing []string, err error) {
	if n.current == nil {
		return nil, nil
	}
	check := func(plain string, octets int64) {
		path := n.path(filesName, plain)
		switch there, unread := n.whether(plain, octets); {
		case unread != nil: // for want of a descriptor, or of memory: that is not the file's fault
			err = &Error{Disk, unread}
			return
		case there:
			return
		}
		missing = append(missing, plain)
		switch bad := os.Remove(path); {
		case bad == nil:
			n.Log.Error("a file of a snapshot was altered, and is fetched again", slog.String("channel", n.Channel), slog.String("file", path))
		case !errors.Is(bad, fs.ErrNotExist):
			err = &Error{Disk, bad}
		}
	}
	for _, l := range n.current.Lists {
		for _, s := range l.Shards {
			check(s.Plain, s.Octets)
		}
	}
	for _, a := range n.current.Ask {
		check(a.Filter.Key, a.Filter.Octets)
	}
	lost := n.lostLinks()
	for link, target := range lost {
		missing = append(missing, filepath.Join(currentName, link))
		path := n.path(currentName, link)
		if bad := errors.Join(durable.MakeFolder(filepath.Dir(path)), relink(target, path, n.path(freshName))); bad != nil {
			err = &Error{Disk, bad}
		}
	}
	if len(lost) > 0 {
		n.Log.Error("links of a snapshot have gone or were altered, and are made again", slog.String("channel", n.Channel), slog.Int("links", len(lost)),
			slog.String("file", n.path(missing[len(missing)-1])))
	}
	return missing, err
}

// lostLinks are the links in force that lead elsewhere than the manifest says, or have gone, and what they lead to. Those
// of a folder are read once, and again after it was changed.
func (n *Node) lostLinks() map[string]string {
	lost, all, folders := map[string]string{}, n.current.links(), map[string]os.FileInfo{}
	for link := range all {
		folder := filepath.Dir(link)
		if _, known := folders[folder]; !known {
			folders[folder], _ = os.Stat(n.path(currentName, folder))
		}
	}
	for link, target := range all {
		folder := filepath.Dir(link)
		if info := folders[folder]; info != nil && stamp.Same(n.linked[folder], info) {
			continue
		}
		if there, _ := os.Readlink(n.path(currentName, link)); there != target {
			lost[link] = target
			folders[folder] = nil
		}
	}
	for folder, info := range folders {
		if delete(n.linked, folder); info != nil && time.Since(stamp.Changed(info)) > settled {
			n.linked[folder] = info
		}
	}
	return lost
}

// settled is how old a folder's time must be, so that a later change gives it another one.
const settled = 2 * time.Second

// relink makes a link in the place of whatever is there, at once. fresh is a name beside it for as long.
func relink(target, path, fresh string) error {
	if info, err := os.Lstat(path); err == nil && info.IsDir() {
		if err := os.RemoveAll(path); err != nil {
			return err
		}
	}
	if err := os.Remove(fresh); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return errors.Join(os.Symlink(target, fresh), os.Rename(fresh, path))
}

// way finds deltas that lead from a file that is there to a shard: one of the manifest's own, or else by the manifests before it, each with
// its delta. Nil if the whole object is less, or there is no way.
func (f *fetching) way(ctx context.Context, m *Manifest, list string, shard int) (way []stepOf) {
	target := m.shard(list, shard)
	left := target.Size
	for range maxDeltas {
		s := m.shard(list, shard)
		if s == nil {
			return nil
		}
		var back *Delta
		var before *Shard
		for i, d := range s.Deltas {
			if info, err := os.Stat(f.path(filesName, d.From)); err == nil && info.Mode().IsRegular() && d.Size < left {
				return append([]stepOf{{d.From, d, *s}}, way...)
			}
			if back == nil && d.Size < left {
				back = &s.Deltas[i]
			}
		}
		if f.current == nil || m.Previous == 0 || m.Previous < f.current.Sequence {
			return nil
		}
		if m = f.before(ctx, m); m == nil {
			return nil
		}
		if before = m.shard(list, shard); before == nil {
			return nil
		}
		if before.Plain == s.Plain {
			continue // nothing has changed in it from one to the other
		}
		if back == nil || back.From != before.Plain {
			return nil
		}
		left -= back.Size
		way = append([]stepOf{{back.From, *back, *s}}, way...)
	}
	return nil
}

// before is the manifest before another one; nil if it cannot be had.
func (f *fetching) before(ctx context.Context, m *Manifest) *Manifest {
	if known, ok := f.manifests[m.Previous]; ok {
		return known
	}
	before, err := f.manifest(ctx, m.Previous)
	if err != nil {
		before = nil
	}
	f.manifests[m.Previous] = before
	return before
}

func (m *Manifest) shard(list string, i int) *Shard {
	for k := range m.Lists {
		if m.Lists[k].Name == list {
			return &m.Lists[k].Shards[i]
		}
	}
	return nil
}

// bring makes one file.
func (f *fetching) bring(ctx context.Context, j job) error {
	if err := f.byDeltas(ctx, j); err == nil {
		return nil
	} else if ctx.Err() != nil || reasonOf(err) == Disk {
		return err
	}
	path, err := f.object(ctx, j.object, j.size, kindWhole)
	if err != nil {
		return err
	}
	if j.base != nil {
		return f.onBase(ctx, path, j)
	}
	return f.make(j.plain, j.octets, j.entries, func(out io.Writer) (int64, error) {
		in, end, err := unpackFile(path, j.octets)
		if err != nil {
			return 0, err
		}
		defer end()
		if j.entries < 0 {
			_, err := io.Copy(out, in)
			return -1, err
		}
		return apply(out, in, strings.NewReader(head)) // which counts, and judges the order
	})
}

// onBase makes a file of the object of its base and the delta from there.
func (f *fetching) onBase(ctx context.Context, object string, j job) error {
	change, err := f.object(ctx, j.change.Object, j.change.Size, kindDelta)
	if err != nil {
		return err
	}
	return f.make(j.plain, j.octets, j.entries, func(out io.Writer) (int64, error) {
		base, end, err := unpackFile(object, j.base.Octets)
		if err != nil {
			return 0, err
		}
		defer end()
		delta, end, err := unpackFile(change, j.base.Octets+j.octets)
		if err != nil {
			return 0, err
		}
		defer end()
		return apply(out, base, delta)
	})
}

func (f *fetching) object(ctx context.Context, object string, size int64, kind string) (path string, err error) {
	path, err = f.fetch(ctx, object, size, kind)
	if err == nil {
		f.octets.Add(size)
	}
	return path, err
}

var errNoWay = errors.New("no delta leads there")

func (f *fetching) byDeltas(ctx context.Context, j job) error {
	if len(j.way) == 0 {
		return errNoWay
	}
	for _, s := range j.way {
		if f.has(s.to.Plain, s.to.Octets) {
			continue
		}
		path, err := f.object(ctx, s.delta.Object, s.delta.Size, kindDelta)
		if err != nil {
			return err
		}
		if err := f.applyStep(path, s); err != nil {
			return err
		}
	}
	return nil
}

// applyStep applies one delta. A delta has at most a line for each of both shards, and none is longer than the line that it is about.
func (f *fetching) applyStep(path string, s stepOf) error {
	base, err := os.Open(f.path(filesName, s.from))
	if err != nil {
		return &Error{Disk, err}
	}
	defer base.Close()
	info, err := base.Stat()
	if err != nil {
		return &Error{Disk, err}
	}
	return f.make(s.to.Plain, s.to.Octets, s.to.Entries, func(out io.Writer) (int64, error) {
		in, end, err := unpackFile(path, info.Size()+s.to.Octets)
		if err != nil {
			return 0, err
		}
		defer end()
		return apply(out, base, in)
	})
}

// unpackFile gives what is in a packed file, at most so many octets.
func unpackFile(path string, most int64) (in io.Reader, end func(), err error) {
	file, err := os.Open(path)
	if err != nil {
		return nil, nil, &Error{Disk, err}
	}
	u, err := newUnpacker()
	if err != nil {
		file.Close()
		return nil, nil, err
	}
	end = func() { u.close(); file.Close() }
	if in, err = u.read(file, most); err != nil {
		end()
		return nil, nil, &Error{Object, err}
	}
	return in, end, nil
}

// make writes a file, which gets its name only if it is what that says.
func (f *fetching) make(plain string, octets, entries int64, write func(io.Writer) (int64, error)) error {
	out, err := os.CreateTemp(f.path(fetchName), ".plain.*")
	if err != nil {
		return &Error{Disk, err}
	}
	defer os.Remove(out.Name())
	defer out.Close()
	disk := &diskWriter{f: out}
	s := newSummed(&atMostWriter{disk, octets})
	got, err := write(s)
	switch {
	case disk.err != nil:
		return &Error{Disk, disk.err}
	case err != nil && reasonOf(err) == Disk:
		return err
	case err != nil:
		return &Error{Object, fmt.Errorf("shard %s: %w", plain, err)}
	case s.size != octets || s.sum() != plain || got != entries:
		return refuse(Object, "shard %s: what comes of its objects is another file", plain)
	}
	if err := errors.Join(f.step("keep a file"), out.Chmod(0o640), out.Sync()); err != nil {
		return &Error{Disk, err}
	}
	if err := os.Rename(out.Name(), f.path(filesName, plain)); err != nil && !errors.Is(err, fs.ErrExist) {
		return &Error{Disk, err}
	}
	return nil
}

// atMostWriter ends what is longer than it may be.
type atMostWriter struct {
	out  io.Writer
	left int64
}

func (a *atMostWriter) Write(p []byte) (int, error) {
	if a.left -= int64(len(p)); a.left < 0 {
		return 0, errLength
	}
	return a.out.Write(p)
}

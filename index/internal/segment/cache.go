package segment

import (
	"cmp"
	"context"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/zeebo/xxh3"
	"golang.org/x/sys/unix"

	"blockd/index/internal/format"
	"blockd/internal/durable"
	"blockd/lists"
)

const (
	Suffix   = ".segment"
	memoName = "sources" // the file of the folder that says which segment is of which source
	newMark  = "new-"    // before the names of segments that are being written

	// coarse is the largest step of a file's time: FAT has 2 s, older NFS and ext3
	// 1 s. A file that is older than that when it is read cannot change and keep
	// size and times.
	coarse = 2 * time.Second
)

// Cache is the folder of segments beside an index. Builds use it one at a time,
// under the lock of the index. Whatever goes wrong with it costs time and no more:
// notes say what it was.
type Cache struct {
	folder string          // "" = none
	memos  map[string]memo // by source, of the last build that was published
	fresh  map[string]memo // of this one
	made   map[string]bool // segments that this build has written
	spare  [][]byte        // what the lanes of the last writer have filled, for those of the next one
	Notes  []string
}

// memo is what is known of a source.
type memo struct {
	stamp   stamp
	trusted bool // the file was old enough when it was read that its stamp will tell a change
	hash    [16]byte
	segment string // name of the file
}

// stamp is what the system says of a file: size, time of the last write and of the
// last change, inode and device. Any write changes it, but one within a tick of the
// clock.
type stamp [5]int64

// stampOf returns a memo with the stamp of a file, and is false for what is no regular
// file.
func stampOf(path string) (memo, bool) {
	now := time.Now()
	var st unix.Stat_t
	if err := unix.Stat(path, &st); err != nil || st.Mode&unix.S_IFMT != unix.S_IFREG {
		return memo{}, false
	}
	written, changed := st.Mtim.Nano(), st.Ctim.Nano()
	return memo{
		stamp:   stamp{st.Size, written, changed, int64(st.Ino), int64(st.Dev)},
		trusted: max(written, changed) < now.Add(-coarse).UnixNano(),
	}, true
}

// Open reads what the last build has left in folder.
func Open(folder string) *Cache {
	c := &Cache{folder: folder, memos: map[string]memo{}, fresh: map[string]memo{}, made: map[string]bool{}}
	if folder == "" {
		return c
	}
	b, err := os.ReadFile(filepath.Join(folder, memoName))
	if errors.Is(err, fs.ErrNotExist) {
		return c
	}
	memos, ok := decode(b)
	if err != nil || !ok {
		c.note("%s: %v", memoName, cmp.Or(err, ErrDamaged))
		return c
	}
	c.memos = memos
	return c
}

func (c *Cache) note(format string, args ...any) {
	c.Notes = append(c.Notes, "cache: "+fmt.Sprintf(format, args...))
}

// sourceKey tells sources apart whose files may give different entries.
func sourceKey(s format.Source) string { return s.Path + "\x00" + settingsID(s.Settings) }

// settingsID names what of settings, and of this program, changes the entries.
func settingsID(s lists.Settings) string {
	subdomains, guard := "default", s.Guard.ID()
	if s.Subdomains != nil {
		subdomains = fmt.Sprint(*s.Subdomains)
	}
	maxProtected, maxBadRatio := s.Guard.Bounds()
	s.Subdomains, s.Guard = nil, nil
	return fmt.Sprintf("%d %d %s %x %d %v %#v", version, lists.ParserVersion, subdomains, guard, maxProtected, maxBadRatio, s)
}

// idOf is the name of the segment of a source with this content.
func idOf(hash [16]byte, s lists.Settings) [16]byte {
	return xxh3.Hash128(append(hash[:], settingsID(s)...)).Bytes()
}

// NameOf is the name of the segment's file of a source with this content.
func NameOf(hash [16]byte, s lists.Settings) string { return nameOf(idOf(hash, s)) }

func nameOf(id [16]byte) string { return hex.EncodeToString(id[:]) + Suffix }

// Find opens the segment of a source as its file is now. nil: there is none.
func (c *Cache) Find(ctx context.Context, s format.Source) (*Segment, error) {
	if s.Kept != "" {
		return c.kept(s)
	}
	if len(c.memos) == 0 {
		return nil, nil
	}
	now, isFile := stampOf(s.Path)
	if !isFile {
		return nil, nil
	}
	var err error
	if now.hash, err = c.HashOf(ctx, s); err != nil {
		return nil, ctx.Err() // what is wrong with it the parser says
	}
	found := c.Of(s, now.hash)
	if found != nil {
		found.memo.stamp, found.memo.trusted = now.stamp, now.trusted
	}
	return found, nil
}

// kept opens the segment that stands in for the file of a source, and puts it into the folder too, for the update that follows.
// An error wraps a *lists.FileError: the file must not be read in its place.
func (c *Cache) kept(s format.Source) (*Segment, error) {
	found, err := OpenFile(s.Kept)
	if err != nil {
		return nil, KeptError(s, err)
	}
	found.memo = memo{hash: found.Summary.Hash, segment: nameOf(found.id)}
	if c.folder != "" {
		os.MkdirAll(c.folder, 0o700)
		os.Link(s.Kept, filepath.Join(c.folder, found.memo.segment)) // where that fails the next change of the list is built
	}
	return found, nil
}

// KeptError says that the kept content of a source is missing or damaged.
func KeptError(s format.Source, err error) error {
	return &lists.FileError{Path: s.Path, Class: lists.Kept, Err: fmt.Errorf("what it held before cannot be read: %w", err)}
}

// HashOf is the content of a source, by its stamp if that tells.
func (c *Cache) HashOf(ctx context.Context, s format.Source) ([16]byte, error) {
	if s.Kept != "" {
		found, err := OpenFile(s.Kept)
		if err != nil {
			return [16]byte{}, KeptError(s, err)
		}
		defer found.Close()
		return found.Summary.Hash, nil
	}
	old, known := c.memos[sourceKey(s)]
	if now, isFile := stampOf(s.Path); isFile && known && old.trusted && now.stamp == old.stamp {
		return old.hash, nil
	}
	return lists.HashFile(ctx, s.Path)
}

// Of opens the segment of what a source was when it had this hash. nil: there is none.
func (c *Cache) Of(s format.Source, hash [16]byte) *Segment {
	if s.Kept != "" {
		if found, err := c.kept(s); err == nil {
			if found.Summary.Hash == hash {
				return found
			}
			found.Close()
		}
	}
	return c.open(memo{hash: hash, segment: nameOf(idOf(hash, s.Settings))})
}

// Forget removes the segment of what a source was when it had this hash, unless the last published build needs it.
func (c *Cache) Forget(s format.Source, hash [16]byte) {
	name := nameOf(idOf(hash, s.Settings))
	for _, m := range c.memos {
		if m.segment == name {
			return
		}
	}
	if c.folder != "" {
		os.Remove(filepath.Join(c.folder, name))
	}
}

// Last opens the segment of what a source was in the last published build. nil: there
// is none.
func (c *Cache) Last(s format.Source) *Segment {
	old := c.memos[sourceKey(s)]
	return c.open(memo{hash: old.hash, segment: old.segment})
}

// New opens the segment that was written of a source since the cache was opened. nil:
// there is none.
func (c *Cache) New(s format.Source) *Segment { return c.open(c.fresh[sourceKey(s)]) }

// Use says that the build has what s holds from this segment.
func (c *Cache) Use(s format.Source, from *Segment) { c.fresh[sourceKey(s)] = from.memo }

// open opens the segment of a memo. nil: there is none that is any good.
func (c *Cache) open(m memo) *Segment {
	var id [16]byte
	if n, err := hex.Decode(id[:], []byte(strings.TrimSuffix(m.segment, Suffix))); n != len(id) || err != nil || c.folder == "" {
		return nil
	}
	f, err := os.Open(filepath.Join(c.folder, m.segment))
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	var s *Segment
	if err == nil {
		if s, err = read(f, id); err == nil {
			s.memo = m
			return s
		}
		f.Close()
	}
	c.remove(m.segment, err)
	return nil
}

// Drop removes a segment that is no good.
func (c *Cache) Drop(s *Segment, err error) { c.remove(s.memo.segment, err) }

func (c *Cache) remove(name string, err error) {
	c.note("%s: %v; it is dropped", name, err)
	os.Remove(filepath.Join(c.folder, name))
}

// Write begins the segment of a source that so many workers are about to parse. nil: it
// gets none.
func (c *Cache) Write(s format.Source, workers int) *Writer {
	now, isFile := stampOf(s.Path)
	if !isFile || c.folder == "" {
		return nil
	}
	err := cmp.Or(durable.NoTrap(c.folder), os.MkdirAll(c.folder, 0o700))
	var f *os.File
	if err == nil {
		f, err = os.CreateTemp(c.folder, newBy(os.Getpid()))
	}
	if err != nil {
		c.note("%v", err)
		return nil
	}
	w := newWriter(f, workers)
	w.cache, w.memo = c, now
	for i := range min(workers, len(c.spare)) {
		w.lanes[i].buf = c.spare[i]
	}
	c.spare = nil
	return w
}

// End ends the segment of a source, which m describes: it is kept unless the parsing
// has failed.
func (w *Writer) End(s format.Source, m Meta, failed error) {
	if w == nil {
		return
	}
	id := idOf(m.Summary.Hash, s.Settings)
	w.memo.hash, w.memo.segment = m.Summary.Hash, nameOf(id)
	var err error
	if failed == nil {
		err = w.finish(id, m)
	}
	for i := range w.lanes { // of 256 files they were half of what a build left to the garbage collector
		w.cache.spare = append(w.cache.spare, w.lanes[i].buf[:0])
	}
	err = cmp.Or(err, w.f.Close())
	if failed == nil && err == nil {
		err = os.Rename(w.f.Name(), filepath.Join(w.cache.folder, w.memo.segment))
	}
	if failed != nil || err != nil {
		os.Remove(w.f.Name())
		if failed == nil {
			w.cache.note("%v", err)
		}
		return
	}
	w.cache.made[w.memo.segment] = true
	w.cache.fresh[sourceKey(s)] = w.memo
}

// Commit makes what this build used the content of the folder.
func (c *Cache) Commit() {
	if c.folder == "" || len(c.fresh) == 0 && len(c.memos) == 0 {
		return
	}
	used := map[string]bool{memoName: true}
	for _, m := range c.fresh {
		used[m.segment] = true
	}
	c.made = map[string]bool{}
	if err := durable.WriteFile(filepath.Join(c.folder, memoName), c.encode(), 0o600); err != nil {
		c.note("%v", err)
		return
	}
	files, err := os.ReadDir(c.folder)
	if err != nil {
		c.note("%v", err)
		return
	}
	for _, f := range files {
		ours := strings.HasSuffix(f.Name(), Suffix) || strings.HasPrefix(f.Name(), newMark)
		if ours && !used[f.Name()] {
			os.Remove(filepath.Join(c.folder, f.Name()))
		}
	}
}

// Discard removes what this build has written.
func (c *Cache) Discard() {
	for _, m := range c.memos { // what the last build needs stays
		delete(c.made, m.segment)
	}
	for name := range c.made {
		os.Remove(filepath.Join(c.folder, name))
	}
	c.made = map[string]bool{}
}

// The file of memos is, for each source, its key, five times u64 of its stamp, u8
// trusted, its hash and the name of its segment; at the end XXH3-64 of all that.
func (c *Cache) encode() []byte {
	var b []byte
	for key, m := range c.fresh {
		b = format.AppendText(b, key, 4*format.MaxPath)
		for _, v := range m.stamp {
			b = binary.LittleEndian.AppendUint64(b, uint64(v))
		}
		b = append(b, bit(m.trusted))
		b = append(b, m.hash[:]...)
		b = format.AppendText(b, m.segment, format.MaxName)
	}
	return binary.LittleEndian.AppendUint64(b, xxh3.Hash(b))
}

func decode(b []byte) (memos map[string]memo, ok bool) {
	if len(b) < 8 || xxh3.Hash(b[:len(b)-8]) != binary.LittleEndian.Uint64(b[len(b)-8:]) {
		return nil, false
	}
	memos = map[string]memo{}
	r := format.Cursor{Rest: b[:len(b)-8]}
	for len(r.Rest) > 0 {
		key, m := string(r.Text(4*format.MaxPath)), memo{}
		for i := range m.stamp {
			m.stamp[i] = int64(r.Uint64())
		}
		m.trusted = r.Byte() == 1
		r.Bytes(m.hash[:])
		m.segment = string(r.Text(format.MaxName))
		memos[key] = m
	}
	return memos, !r.Bad
}

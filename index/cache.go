package index

import (
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"maps"
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
	segmentSuffix = ".segment"
	memoName      = "sources" // the file of the folder that says which segment is of which source

	// coarse is the largest step of a file's time: FAT has 2 s, older NFS and ext3
	// 1 s. A file that is older than that when it is read cannot change and keep
	// size and times.
	coarse = 2 * time.Second
)

// CacheSuffix makes the name of an index's own cache folder out of its path.
const CacheSuffix = ".cache"

// cache is the folder of segments beside an index. Builds use it one at a time,
// under the lock of the index. Whatever goes wrong with it costs time and no more:
// notes say what it was.
type cache struct {
	folder string          // "" = none
	memos  map[string]memo // by source, of the last build that was published
	fresh  map[string]memo // of this one
	made   map[string]bool // segments that this build has written
	notes  []string
}

// memo is what is known of a source.
type memo struct {
	stamp   stamp
	trusted bool // the file was old enough when it was read that its stamp will tell a change
	hash    [16]byte
	segment string // name of the file
}

// stamp is what the system says of a file. Any write changes it, but one within a
// tick of the clock.
type stamp struct{ size, mtime, ctime, inode, device int64 }

// stampOf is false for what is no regular file.
func stampOf(path string) (stamp, bool) {
	var st unix.Stat_t
	if err := unix.Stat(path, &st); err != nil || st.Mode&unix.S_IFMT != unix.S_IFREG {
		return stamp{}, false
	}
	return stamp{st.Size, st.Mtim.Nano(), st.Ctim.Nano(), int64(st.Ino), int64(st.Dev)}, true
}

// settled reports whether the file is old enough at now to be known by its stamp.
func (s stamp) settled(now time.Time) bool {
	return max(s.mtime, s.ctime) < now.Add(-coarse).UnixNano()
}

// openCache reads what the last build has left in folder.
func openCache(folder string) *cache {
	c := &cache{folder: folder, memos: map[string]memo{}, fresh: map[string]memo{}, made: map[string]bool{}}
	if folder == "" {
		return c
	}
	b, err := os.ReadFile(filepath.Join(folder, memoName))
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return c
	case err == nil && c.decode(b):
		return c
	case err == nil:
		err = errSegment
	}
	c.memos = map[string]memo{}
	c.note("%s: %v", memoName, err)
	return c
}

func (c *cache) note(format string, args ...any) {
	c.notes = append(c.notes, "cache: "+fmt.Sprintf(format, args...))
}

// sourceKey tells sources apart whose files may give different entries.
func sourceKey(s Source) string { return s.Path + "\x00" + settingsID(s.Settings) }

// settingsID names what of settings, and of this program, changes the entries.
func settingsID(s lists.Settings) string {
	subdomains, guard := "default", s.Guard.ID()
	if s.Subdomains != nil {
		subdomains = fmt.Sprint(*s.Subdomains)
	}
	maxProtected, maxBadRatio := s.Guard.Bounds()
	s.Subdomains, s.Guard = nil, nil
	return fmt.Sprintf("%d %d %s %x %d %v %#v", segmentVersion, lists.ParserVersion, subdomains, guard, maxProtected, maxBadRatio, s)
}

// segmentID is the name of the segment of a source with this content.
func segmentID(hash [16]byte, s lists.Settings) [16]byte {
	return xxh3.Hash128(append(hash[:], settingsID(s)...)).Bytes()
}

func segmentName(id [16]byte) string { return hex.EncodeToString(id[:]) + segmentSuffix }

// open opens the segment of a name. nil: there is none that is any good.
func (c *cache) open(name string) (*os.File, *segmentMeta) {
	var id [16]byte
	if n, err := hex.Decode(id[:], []byte(strings.TrimSuffix(name, segmentSuffix))); n != len(id) || err != nil {
		return nil, nil
	}
	f, err := os.Open(filepath.Join(c.folder, name))
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	var m *segmentMeta
	if err == nil {
		if m, err = readSegmentMeta(f, id); err == nil {
			return f, m
		}
		f.Close()
	}
	c.drop(name, err)
	return nil, nil
}

// drop removes a segment that is no good.
func (c *cache) drop(name string, err error) {
	c.note("%s: %v; it is dropped", name, err)
	os.Remove(filepath.Join(c.folder, name))
}

// create makes the file of a new segment. nil: it cannot be made.
func (c *cache) create() *os.File {
	err := os.MkdirAll(c.folder, 0o700)
	var f *os.File
	if err == nil {
		f, err = os.CreateTemp(c.folder, "new-")
	}
	if err != nil {
		c.note("%v", err)
		return nil
	}
	return f
}

// keep gives the file of a new segment its name.
func (c *cache) keep(f *os.File, id [16]byte) {
	err := f.Close()
	if err == nil {
		err = os.Rename(f.Name(), filepath.Join(c.folder, segmentName(id)))
	}
	if err != nil {
		c.abandon(f, err)
		return
	}
	c.made[segmentName(id)] = true
}

// abandon removes the file of a segment that was not finished.
func (c *cache) abandon(f *os.File, err error) {
	f.Close()
	os.Remove(f.Name())
	if err != nil {
		c.note("%v", err)
	}
}

// commit makes what this build used the content of the folder.
func (c *cache) commit() {
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
	c.clean(used)
}

// clean removes everything but the files that are used.
func (c *cache) clean(used map[string]bool) {
	files, err := os.ReadDir(c.folder)
	if err != nil {
		c.note("%v", err)
		return
	}
	for _, f := range files {
		ours := strings.HasSuffix(f.Name(), segmentSuffix) || strings.HasPrefix(f.Name(), "new-")
		if ours && !used[f.Name()] {
			os.Remove(filepath.Join(c.folder, f.Name()))
		}
	}
}

// discard removes what this build has written.
func (c *cache) discard() {
	for name := range c.made {
		if !c.uses(name) {
			os.Remove(filepath.Join(c.folder, name))
		}
	}
	c.made = map[string]bool{}
}

// uses reports whether the last build that was published needs a segment.
func (c *cache) uses(name string) bool {
	for m := range maps.Values(c.memos) {
		if m.segment == name {
			return true
		}
	}
	return false
}

// The file of memos is, for each source, its key, five times u64 of its stamp, u8
// trusted, its hash and the name of its segment; at the end XXH3-64 of all that.
func (c *cache) encode() []byte {
	var b []byte
	for key, m := range c.fresh {
		b = format.AppendText(b, key, 4*format.MaxPath)
		for _, v := range []int64{m.stamp.size, m.stamp.mtime, m.stamp.ctime, m.stamp.inode, m.stamp.device} {
			b = binary.LittleEndian.AppendUint64(b, uint64(v))
		}
		b = append(b, byte(bit(m.trusted)))
		b = append(b, m.hash[:]...)
		b = format.AppendText(b, m.segment, format.MaxName)
	}
	return binary.LittleEndian.AppendUint64(b, xxh3.Hash(b))
}

func (c *cache) decode(b []byte) bool {
	if len(b) < 8 || xxh3.Hash(b[:len(b)-8]) != binary.LittleEndian.Uint64(b[len(b)-8:]) {
		return false
	}
	r := format.Cursor{Rest: b[:len(b)-8]}
	for len(r.Rest) > 0 {
		key, m := string(r.Text(4*format.MaxPath)), memo{}
		for _, v := range []*int64{&m.stamp.size, &m.stamp.mtime, &m.stamp.ctime, &m.stamp.inode, &m.stamp.device} {
			*v = int64(r.Uint64())
		}
		m.trusted = r.Byte() == 1
		r.Bytes(m.hash[:])
		m.segment = string(r.Text(format.MaxName))
		c.memos[key] = m
	}
	return !r.Bad
}

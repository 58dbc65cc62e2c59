// Package kept remembers what each list held in the generations that served, so that people can see what has changed, and
// take a list back to what it was.
//
// Of each file of a list its entries are kept as they were read, a segment, named by its content: the content that serves
// whole, which costs nothing since it is the same file as the build's cache has (a hard link); those before it as their
// difference from what came next, or packed whole where they have too little in common. Two small files say the rest: the
// generations, and the pins, which are lists that do not follow their files.
//
// One process writes generations and contents, the one that builds. Pins are changed by any, under a lock. Everybody may
// read at any time.
package kept

import (
	"cmp"
	"context"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/zeebo/xxh3"

	"blockd/index/internal/format"
	"blockd/index/internal/segment"
	"blockd/internal/durable"
	"blockd/lists"
)

// Suffix makes of an index file's name that of the folder.
const Suffix = ".kept"

// File is what one file of a list held.
type File struct {
	Path    []byte `json:"path"` // it may be no UTF-8
	Hash    string `json:"hash"` // of its octets; of the file as it was, packed or not
	Segment string `json:"segment"`
	Entries int    `json:"entries"`
}

// Content is what a list held: its files in their order.
type Content []File

// ID names a content: two that differ in an octet, in a path, or in how they were read have different ones.
func (c Content) ID() string {
	var b []byte
	for _, f := range c {
		b = append(b, fmt.Sprintf("%d:%s%s", len(f.Path), f.Path, f.Segment)...)
	}
	sum := xxh3.Hash128(b).Bytes()
	return hex.EncodeToString(sum[:8])
}

// Entries is the number of its entries, repeated ones included.
func (c Content) Entries() (n int) {
	for _, f := range c {
		n += f.Entries
	}
	return n
}

// Has reports whether a file is among them.
func (c Content) Has(path string) bool {
	return slices.ContainsFunc(c, func(f File) bool { return string(f.Path) == path })
}

// HasHash reports whether a file is among them, and has these octets.
func (c Content) HasHash(path, hash string) bool {
	return slices.ContainsFunc(c, func(f File) bool { return string(f.Path) == path && f.Hash == hash })
}

// Equal reports whether two contents are the same, read the same way.
func (c Content) Equal(o Content) bool {
	return slices.EqualFunc(c, o, func(a, b File) bool { return a.Segment == b.Segment && string(a.Path) == string(b.Path) })
}

// State is what a list held in a generation.
type State struct {
	Name    string  `json:"name"`
	Entries int     `json:"entries"`
	Added   *int    `json:"added"` // since the generation before it; nil: not counted yet, or never to be
	Removed *int    `json:"removed"`
	Files   Content `json:"files"` // none of a list that is not kept
}

// unkept reports whether nothing is known of a list but how many entries it had.
func (s *State) unkept() bool { return len(s.Files) == 0 && s.Entries > 0 }

// Generation is what served from a moment on.
type Generation struct {
	ID    string    `json:"generation"`
	Also  []string  `json:"also,omitempty"` // generations of the same contents that followed it
	Time  time.Time `json:"time"`
	How   string    `json:"how"`
	By    string    `json:"by,omitempty"`
	Why   string    `json:"why,omitempty"`
	Lists []State   `json:"lists"`
}

// Of is what a list held.
func (g *Generation) Of(list string) (Content, bool) {
	for _, s := range g.Lists {
		if s.Name == list {
			return s.Files, true
		}
	}
	return nil, false
}

// Named reports whether text is the beginning of the generation's name, eight characters at least.
func (g *Generation) Named(text string) bool {
	has := func(id string) bool { return len(text) >= 8 && strings.HasPrefix(id, text) }
	return has(g.ID) || slices.ContainsFunc(g.Also, has)
}

// Store is the folder beside an index.
type Store struct {
	Folder string
	Keep   int   // contents of each list, that which serves included
	Bytes  int64 // for what no other file shares

	// Run does heavy work, in whichever process; nil = Job.Do.
	Run Runner

	state sync.Mutex // over what is claimed until it is recorded, and a sweep
	work  sync.Mutex // over forms of contents that change
	ends  atomic.Pointer[context.CancelFunc]
}

// urgent begins work that somebody waits for: tidying stops, and goes on another time.
func (s *Store) urgent() (done func()) {
	if end := s.ends.Load(); end != nil {
		(*end)()
	}
	s.work.Lock()
	return s.work.Unlock
}

// name is the file of a content in one of its forms.
func (s *Store) name(segment, form string) string { return filepath.Join(s.Folder, segment+form) }

// The forms of a content.
const (
	whole  = segment.Suffix
	packed = ".zst"
	delta  = ".delta" // "CONTENT-BASE.delta"
)

// fileOf finds a form of a content that is not whole; base is what a difference is from.
func (s *Store) fileOf(name string) (path, base string, ok bool) {
	if path = s.name(name, packed); exists(path) {
		return path, "", true
	}
	for _, path := range s.deltasOf(name) {
		_, base, _ := cutDelta(filepath.Base(path))
		return path, base, true
	}
	return "", "", false
}

func (s *Store) deltasOf(name string) []string {
	files, _ := os.ReadDir(s.Folder)
	var all []string
	for _, f := range files {
		if of, _, ok := cutDelta(f.Name()); ok && of == name {
			all = append(all, filepath.Join(s.Folder, f.Name()))
		}
	}
	return all
}

func cutDelta(file string) (name, base string, ok bool) {
	names, ok := strings.CutSuffix(file, delta)
	name, base, both := strings.Cut(names, "-")
	return name, base, ok && both && isSegment(name) && isSegment(base)
}

func exists(path string) bool {
	_, err := os.Stat(path)
	return err == nil
}

// Has reports whether all of a content is there, in whichever form.
func (s *Store) Has(c Content) bool {
	return !slices.ContainsFunc(c, func(f File) bool { return !s.hasFile(f.Segment) })
}

func (s *Store) hasFile(name string) bool {
	_, _, ok := s.fileOf(name)
	return ok || exists(s.name(name, whole))
}

// Whole is the path of the segment of a file; the file is there only after Open or an unpacking.
func (s *Store) Whole(f File) string { return s.name(f.Segment, whole) }

// SegmentOf is the name of what is read of a file with this hash by these settings.
func SegmentOf(hash [16]byte, settings lists.Settings) string {
	return strings.TrimSuffix(segment.NameOf(hash, settings), segment.Suffix)
}

// Claim keeps what a file held that was read last, from the cache of builds: a link, which costs nothing.
func (s *Store) Claim(cache, name string) error {
	if !isSegment(name) {
		return fmt.Errorf("%q is no content", name)
	}
	if _, err := os.Stat(s.name(name, whole)); err == nil {
		return nil
	}
	if err := cmp.Or(durable.NoTrap(s.Folder), os.MkdirAll(s.Folder, 0o700)); err != nil {
		return err
	}
	if err := link(filepath.Join(cache, name+whole), s.name(name, whole)); err != nil {
		return err
	}
	s.wholeOnly(name)
	return nil
}

// Lend puts a content into the cache of builds, which then need not read the file.
func (s *Store) Lend(cache string, f File) error {
	if err := cmp.Or(durable.NoTrap(cache), os.MkdirAll(cache, 0o700)); err != nil {
		return err
	}
	err := link(s.Whole(f), filepath.Join(cache, f.Segment+whole))
	if errors.Is(err, fs.ErrExist) {
		return nil
	}
	return err
}

// wholeOnly removes the other forms of a content that is there whole: another one may come to be kept as a difference
// from it, which it must then not depend on.
func (s *Store) wholeOnly(name string) {
	for _, path := range append(s.deltasOf(name), s.name(name, packed)) {
		os.Remove(path)
	}
}

// link makes a file available under another name, which must be free. Where the file system has no links it is copied.
func link(from, to string) error {
	err := os.Link(from, to)
	if err == nil || errors.Is(err, fs.ErrExist) || errors.Is(err, fs.ErrNotExist) {
		return err
	}
	text, err := os.Open(from)
	if err != nil {
		return err
	}
	defer text.Close()
	d, err := durable.Create(to, 0o600)
	if err != nil {
		return err
	}
	defer d.Discard()
	if _, err := text.WriteTo(d); err != nil {
		return err
	}
	return d.Commit()
}

func isSegment(name string) bool {
	return len(name) == 32 && strings.Trim(name, "0123456789abcdef") == ""
}

// open opens a content that is whole.
func (s *Store) open(c Content) (all []*segment.Segment, err error) {
	for _, f := range c {
		seg, err := segment.OpenFile(s.Whole(f))
		if err != nil {
			closeAll(all)
			return nil, err
		}
		if id := seg.ID(); hex.EncodeToString(id[:]) != f.Segment {
			seg.Close()
			closeAll(all)
			return nil, fmt.Errorf("%s: %w", s.Whole(f), segment.ErrDamaged)
		}
		all = append(all, seg)
	}
	return all, nil
}

func closeAll(all []*segment.Segment) {
	for _, s := range all {
		s.Close()
	}
}

// Entry is one entry of a difference.
type Entry struct {
	Came bool
	Path string // of its file
	Item lists.Item
}

// String is the entry as a plain list has it, with a word for what a plain list cannot say.
func (e *Entry) String() string {
	text := cmp.Or(e.Item.Plain(), e.Item.Name())
	switch e.Item.Action {
	case lists.Block:
		return text
	case lists.Allow:
		return "!" + text
	}
	return text + " " + e.Item.Action.String()
}

func entryOf(came bool, d segment.Said, key string, path []byte) Entry {
	item := lists.Item{Line: d.Line, Scope: d.Scope, Action: d.Action, Expires: d.Expiry, Reason: d.Text}
	format.Describe(&item, key)
	return Entry{came, string(path), item}
}

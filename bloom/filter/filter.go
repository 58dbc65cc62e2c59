// Package filter reads and writes the Bloom filters of other programs: Guava,
// RedisBloom, Redisson, bits-and-blooms for Go, and bitmaps in a Redis. A filter says "perhaps" or "surely
// not" about a key, exactly as the other program would.
//
// What other programs wrote is not trusted. Every length is checked against the size of
// the file before it is used, and the octets of the file are the filter's memory: a
// header that lies gives an error, never an allocation.
package filter

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// Filter is a Bloom filter in the layout of another program.
type Filter interface {
	// Kind is one of Kinds.
	Kind() string
	// Has reports whether the filter may hold key. False is certain.
	Has(key []byte) bool
	// Add puts key in. It is for filters that New has made.
	Add(key []byte)
	// Files are what is written to keep the filter under the name out.
	Files(out string) []File
}

// File is one file of a filter.
type File struct {
	Path  string
	Write func(io.Writer) error
}

// kind is a layout.
type kind struct {
	name, ending string // "": known by its contents alone
	new          func(n uint64, p float64) (Filter, error)
	is           func(contents) bool // judged by the contents
	read         func(contents) (Filter, error)
}

// kinds are the layouts. No contents are of two kinds.
var kinds = []kind{
	{"redisson", ".bitmap", newRedisson, isRedisson, readBitmap},
	{"bitmap", "", newMurmur, isMurmur, readBitmap},
	{"guava", ".bf", newGuava, isGuava, readGuava},
	{"redisbloom", ".rbd", newRedisBloom, isRedisBloom, readRedisBloom},
	{"bits", ".bits", newBits, isBits, readBits},
}

// contents are the octets of a filter's files.
type contents struct {
	data   []byte
	config []byte // the .json beside a .bitmap; nil if there is none
}

// Kinds are the names of the layouts.
func Kinds() (names []string) {
	for _, k := range kinds {
		names = append(names, k.name)
	}
	slices.Sort(names)
	return names
}

// New makes an empty filter of a kind. With n keys in it, it says "perhaps" to a share p of
// all others.
func New(name string, n uint64, p float64) (Filter, error) {
	if !(p >= MinRate && p < 1) {
		return nil, fmt.Errorf("want a rate of false positives from %g to below 1, have %g", MinRate, p)
	}
	for _, k := range kinds {
		if k.name == name {
			return k.new(max(n, 1), p)
		}
	}
	return nil, fmt.Errorf("no kind of filter %q; want one of %s", name, strings.Join(Kinds(), ", "))
}

// Open reads the filter at path: a file, NAME.bitmap beside NAME.json, or a folder of
// NAME-ITERATOR.chunk files, as FOLDER or FOLDER/NAME. NAME.rbd and NAME.bitmap are found by
// NAME, too. The contents say which kind it is,
// and if they do not, the ending.
func Open(path string) (Filter, error) {
	c, ending, err := load(path)
	if err != nil {
		return nil, err
	}
	f, err := read(c, ending)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	return f, nil
}

func read(c contents, ending string) (Filter, error) {
	for _, k := range kinds {
		if k.is(c) {
			return k.read(c)
		}
	}
	var endings []string
	for _, k := range kinds {
		if k.ending == ending && ending != "" {
			f, err := k.read(c)
			if err != nil {
				return nil, fmt.Errorf("as %s: %w", k.name, err)
			}
			return f, nil
		}
		if k.ending != "" {
			endings = append(endings, k.ending)
		}
	}
	return nil, fmt.Errorf("no filter of a known kind by its contents; an ending can say which it should be: %s", strings.Join(endings, ", "))
}

// load reads the files of a filter, and says by which ending it is known.
func load(path string) (c contents, ending string, err error) {
	info, err := os.Stat(path)
	switch base, ending := strings.CutSuffix(path, ".json"); {
	case ending: // the other half was named
		path = base + ".bitmap"
	case err == nil && info.IsDir():
		c.data, err = joinChunks(path, "")
		return c, ".rbd", err
	case errors.Is(err, fs.ErrNotExist):
		if _, bitmap := os.Stat(path + ".bitmap"); bitmap == nil {
			path += ".bitmap"
			break
		}
		if _, dump := os.Stat(path + ".rbd"); dump == nil {
			path += ".rbd"
			break
		}
		data, chunks := joinChunks(filepath.Dir(path), filepath.Base(path))
		if chunks != nil {
			return c, "", err
		}
		return contents{data: data}, ".rbd", nil
	}
	if c.data, err = readFile(path); err != nil {
		return c, "", err
	}
	if base, bitmap := strings.CutSuffix(path, ".bitmap"); bitmap {
		if c.config, err = readFile(base + ".json"); errors.Is(err, fs.ErrNotExist) {
			err = fmt.Errorf("%s: its size and hashes stand in %s.json, which is missing", path, filepath.Base(base))
		}
	}
	return c, filepath.Ext(path), err
}

// maxFile bounds a file, to the largest filter and room for its header.
const maxFile = maxBits/8 + 1<<20

// readFile reads a regular file. Others have no size to hold them to.
func readFile(path string) ([]byte, error) {
	info, err := os.Stat(path)
	switch {
	case err != nil:
		return nil, err
	case !info.Mode().IsRegular():
		return nil, fmt.Errorf("%s: no regular file", path)
	case info.Size() > maxFile:
		return nil, fmt.Errorf("%s: %d octets, more than any filter has", path, info.Size())
	}
	return os.ReadFile(path)
}

// single is the only file of a filter.
func single(path string, parts ...[]byte) []File {
	return []File{{path, func(w io.Writer) error {
		for _, part := range parts {
			if _, err := w.Write(part); err != nil {
				return err
			}
		}
		return nil
	}}}
}

// withEnding is path with an ending, once.
func withEnding(path, ending string) string { return strings.TrimSuffix(path, ending) + ending }

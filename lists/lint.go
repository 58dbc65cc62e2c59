package lists

import (
	"bytes"
	"context"
	"fmt"
	"math"

	"github.com/zeebo/xxh3"
)

// lintKeys bounds the distinct keys that Lint compares with each other. At about
// 30 to 60 octets each in the map they take 1 GiB at most; beyond it a key that
// is new is counted and not kept.
const lintKeys = 1 << 24

// Lint reads the list at path as ReadFile does and compares its entries with each
// other: a later one with the key and scope of an earlier one gets the class Dup,
// or Conflict if one of the two is an exception, with the earlier line in its
// message. It returns the number of distinct keys, each with its scope; beyond
// 16,777,216 of them repeated ones may be counted again and get no class.
func Lint(ctx context.Context, path string, s Settings, emit func(*Item) error) (Summary, int, error) {
	return lint(s, emit, func(s Settings, emit func(*Item) error) (Summary, error) { return ReadFile(ctx, path, s, emit) })
}

// LintText is Lint for a text, which has no file.
func LintText(ctx context.Context, text []byte, s Settings, emit func(*Item) error) (Summary, int, error) {
	return lint(s, emit, func(s Settings, emit func(*Item) error) (Summary, error) {
		return Read(ctx, bytes.NewReader(text), int64(len(text)), "text", s, emit)
	})
}

func lint(s Settings, emit func(*Item) error, read func(Settings, func(*Item) error) (Summary, error)) (Summary, int, error) {
	seen := keySet{lines: map[xxh3.Uint128]firstLines{}}
	s.lint = true
	sum, err := read(s, func(it *Item) error {
		if it.Kind != Skip && it.Kind != Err {
			seen.compare(it)
		}
		return emit(it)
	})
	return sum, seen.count, err
}

// firstLines are the lines that first block and first allow a key; 0: none.
type firstLines struct{ block, allow uint32 }

// keySet knows each key by a 128-bit hash: two of 2^24 keys share one with a
// probability below 1e-24, and then a warning is wrong, never an entry.
type keySet struct {
	lines map[xxh3.Uint128]firstLines
	count int
	key   []byte
}

// compare gives it a class if its key was there before, and notes its line. What is
// void is counted and compared with nothing.
func (k *keySet) compare(it *Item) {
	k.key = append(k.key[:0], byte(it.Kind), byte(it.Scope))
	if it.Kind == IP || it.Kind == CIDR {
		k.key = it.Net.AppendTo(k.key)
	} else {
		k.key = append(k.key, it.Name()...)
	}
	hash := xxh3.Hash128(k.key)
	first, known := k.lines[hash]
	if it.void || it.Action == AllowIfAuth { // which is neither the same as an exception nor its opposite
		if !known {
			k.count++
			k.lines[hash] = first
		}
		return
	}
	own, other := &first.block, first.allow
	if it.Action == Allow {
		own, other = &first.allow, first.block
	}
	switch {
	case !known:
		k.count++
	case other != 0 && it.Action == Allow:
		it.Class, it.Message = Conflict, fmt.Sprintf("an exception from line %d, and wins", other)
	case other != 0:
		it.Class, it.Message = Conflict, fmt.Sprintf("line %d is an exception from it, and wins", other)
	case *own != 0:
		it.Class, it.Message = Dup, fmt.Sprintf("same as line %d", *own)
	}
	if *own == 0 && (known || len(k.lines) < lintKeys) {
		*own = uint32(min(uint64(it.Line), math.MaxUint32))
		k.lines[hash] = first
	}
}

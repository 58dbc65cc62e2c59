package live

import (
	"bufio"
	"cmp"
	"encoding/binary"
	"errors"
	"hash/crc32"
	"io"
	"math/rand/v2"
	"os"
	"runtime"
	"slices"

	"github.com/zeebo/xxh3"

	"blockd/lists"
	"blockd/mail/digest"
)

// frozen is the state that a snapshot is to have.
type frozen struct {
	base     *snapshot // nil: nothing
	changes  []*Entry  // since base, in the order of their numbers, all of which are higher than those of base
	last     uint64
	foldedAt uint64
	folds    []fold
	cursor   Cursor
	hashes   digest.Set
}

// write writes the snapshot into an empty file. Beside the entries that have changed it takes 20 to 70
// octets of memory for each entry while it runs, and some 100 for each owner.
func (z *frozen) write(f *os.File) error {
	defer runtime.KeepAlive(z.base)
	h := snapshotHead{parser: lists.ParserVersion, last: z.last, foldedAt: z.foldedAt, seed: rand.Uint64(), hashes: z.hashes, folds: z.folds, cursor: z.cursor}
	var changed marks
	inBase := 0
	if z.base != nil {
		changed = z.base.changedBy(z.changes)
		for i := range z.base.count {
			if !changed.has(i) {
				inBase++
			}
		}
		h.kinds, h.lengths = z.base.kinds, z.base.lengths
	}
	news := slices.DeleteFunc(slices.Clone(z.changes), func(e *Entry) bool { return e.gone })
	h.count = inBase + len(news)

	var ends []ending
	var digests []uint64 // hashes
	var of []uint32      // of each, its record
	personal, ordinals := z.personal(), map[string]int{}
	keys := newCells(h.count + personal)
	if h.version = plainVersion; personal > 0 {
		h.version = personalVersion
		h.kinds |= 1 << personalKinds
	}
	if h.kinds &^= 1 << provedKinds; z.proved(changed) {
		h.version = provedVersion
		h.kinds |= 1 << provedKinds
	}
	if z.cursor != (Cursor{}) || z.revised() {
		h.version = sharedVersion
	}
	index := func(kind byte, key []byte, end int64, i int) {
		keys.put(xxh3.HashSeed(key, h.seed), i)
		if end != 0 {
			ends = append(ends, ending{end, uint32(i)})
		}
		if owner, _ := cutOwned(key); len(owner) > 0 {
			n := ordinals[string(owner)]
			ordinals[string(owner)]++
			keys.put(xxh3.HashStringSeed(place(string(owner), n), h.seed), i)
		}
		digests = digestHashes(digests, z.hashes, kind, key, h.seed)
		for len(of) < len(digests) {
			of = append(of, uint32(i))
		}
	}
	n := 0
	if z.base != nil {
		for i := range z.base.count {
			if !changed.has(i) {
				index(z.base.record(i)[38], z.base.keyOf(i), z.base.expiry(i), n)
				n++
			}
		}
	}
	for _, e := range news {
		index(kindCode(&e.Item), []byte(e.key), e.expiry, n)
		h.note(e)
		n++
	}
	tables := []byte(keys)
	h.cells = len(keys) / 8
	if z.hashes != 0 {
		c := newCells(len(digests))
		for d, hash := range digests {
			c.put(hash, int(of[d]))
		}
		h.digests, tables = len(c)/8, append(tables, c...)
	}
	slices.SortFunc(ends, func(a, b ending) int { return cmp.Or(cmp.Compare(a.at, b.at), cmp.Compare(a.record, b.record)) })
	for _, e := range ends {
		tables = binary.LittleEndian.AppendUint32(tables, e.record)
	}
	h.ends, h.tables = len(ends), crc32.Checksum(tables, castagnoli)

	at := int64(headerSize + len(tables))
	records := bufio.NewWriterSize(io.NewOffsetWriter(f, at), 64<<10)
	texts := bufio.NewWriterSize(io.NewOffsetWriter(f, at+int64(h.count)*recordSize), 64<<10)
	var room [recordSize]byte
	if z.base != nil {
		for i := range z.base.count {
			if changed.has(i) {
				continue
			}
			text, _, _, _ := z.base.textsOf(i)
			records.Write(z.base.moved(room[:0], i, h.texts)) // a Writer keeps its first error
			texts.Write(text)
			h.texts += len(text)
		}
	}
	for _, e := range news {
		records.Write(e.appendRecord(room[:0], h.texts))
		for _, text := range e.texts() {
			texts.WriteString(text)
			h.texts += len(text)
		}
	}
	if err := errors.Join(records.Flush(), texts.Flush()); err != nil {
		return err
	}
	if _, err := f.WriteAt(tables, headerSize); err != nil {
		return err
	}
	if _, err := f.WriteAt(h.append(nil), 0); err != nil {
		return err
	}
	return f.Sync()
}

// personal returns how many of the entries have owners or are about recipients.
func (z *frozen) personal() (n int) {
	if z.base != nil && z.base.kinds&(1<<personalKinds) != 0 {
		for i := range z.base.count {
			if z.base.personal(i) {
				n++
			}
		}
	}
	for _, e := range z.changes {
		if e.Item.Personal() && !e.gone {
			n++
		}
	}
	return n
}

// revised reports whether an entry may have a revision.
func (z *frozen) revised() bool {
	return z.base != nil && z.base.version >= sharedVersion || slices.ContainsFunc(z.changes, func(e *Entry) bool { return e.Rev > 0 })
}

// ending is when a record's entry ends, in Unix seconds.
type ending struct {
	at     int64
	record uint32
}

// note records the kind of an entry, so that look-ups search for such keys.
func (h *snapshotHead) note(e *Entry) {
	if e.Item.Personal() {
		return
	}
	if it := &e.Item; it.Kind != lists.IP && it.Kind != lists.CIDR {
		h.kinds |= 1 << it.Key.Kind
	} else {
		n := it.Net.Bits()
		h.lengths[family(it.Net.Addr())][n/64] |= 1 << (n % 64)
	}
}

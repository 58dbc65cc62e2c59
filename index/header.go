package index

import (
	"bytes"
	"cmp"
	"encoding/binary"
	"fmt"
	"hash/crc32"
	"math"

	"blockd/bloom"
)

const (
	pageSize      = 4096
	formatVersion = 2 // 1 had tags and offsets of a page apart, and packed records
	filterKind    = 1 // split-block, 256 bits, 8 lanes
	headerSumAt   = pageSize - 4

	maxSections   = 16
	sectionsAt    = 128
	sectionBytes  = 40
	mustKnow      = 1 // section flag: a reader that does not know the kind must refuse the file
	maxPartitions = 1 << 20
	maxLists      = 65_535
	maxTableBytes = 256 << 20 // of the list table
	maxReasons    = 1 << 24
	maxReason     = 1000 // octets; lists cuts at 400

	// chunkBytes is what one sum of the filter covers.
	chunkBytes = 64 << 10

	// minBitsPerKey and maxBitsPerKey bound the size of the filter.
	minBitsPerKey = 8
	maxBitsPerKey = 20
)

// The sections, in file order.
const (
	secFilter = iota + 1
	secFilterSums
	secDirectory
	secPages
	secLists
	secReasons
	secNetworks // this and what follows only where there is something to say
	secPatterns
	secWorth
	secDropped    // not needed to answer: mustKnow is not set
	knownSections = secDropped

	neededSections = secReasons
)

// magic begins the file. A copy in text mode changes one of its bytes.
var magic = []byte("BDX\r\n\x1a\n\x00")

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// header is the first page of the file; docs/index-format.md has its layout.
type header struct {
	size       uint64
	buildID    [16]byte
	hash       hasher
	keys       uint64
	entries    uint64
	blocks     uint64
	pages      uint64
	partitions uint64
	kinds      uint64 // see kindBit
	built      int64  // Unix seconds
	expiry     int64  // the earliest, Unix seconds; 0 = none
	sections   [knownSections + 1]section
}

// section is where one part of the file lies.
type section struct {
	offset, length, items uint64
	sum                   uint32 // CRC32C; 0 where the parts have sums of their own
}

// end is the first offset behind s; decodeSections has seen that it fits.
func (s section) end() uint64 { return s.offset + s.length }

// alignPage rounds up to whole pages. n is below 2^63.
func alignPage(n uint64) uint64 { return (n + pageSize - 1) &^ (pageSize - 1) }

// crcStart is what the sums of pages start from beside their number.
func (h *header) crcStart() uint32 { return binary.LittleEndian.Uint32(h.buildID[:4]) }

func (h *header) encode() []byte {
	b := make([]byte, pageSize)
	le := binary.LittleEndian
	copy(b, magic)
	le.PutUint32(b[8:], formatVersion)
	le.PutUint32(b[12:], pageSize)
	le.PutUint64(b[16:], h.size)
	copy(b[24:], h.buildID[:])
	copy(b[40:], h.hash.key[:])
	b[56], b[57] = h.hash.kind, filterKind
	for i, v := range []uint64{h.keys, h.entries, h.blocks, h.pages, h.partitions, h.kinds, uint64(h.built), uint64(h.expiry)} {
		le.PutUint64(b[64+8*i:], v)
	}
	row := 0
	for kind := secFilter; kind <= knownSections; kind++ {
		s, at := h.sections[kind], b[sectionsAt+row*sectionBytes:]
		if s.offset == 0 {
			continue // not in this file
		}
		row++
		le.PutUint32(at, uint32(kind))
		if kind != secDropped {
			le.PutUint32(at[4:], mustKnow)
		}
		le.PutUint64(at[8:], s.offset)
		le.PutUint64(at[16:], s.length)
		le.PutUint64(at[24:], s.items)
		le.PutUint32(at[32:], s.sum)
	}
	le.PutUint32(b[headerSumAt:], crc32.Checksum(b[:headerSumAt], castagnoli))
	return b
}

// decodeHeader reads the first page of a file of fileSize bytes and believes
// nothing of it that fileSize does not bear out. It allocates nothing that
// depends on the page.
func decodeHeader(b []byte, fileSize uint64) (*header, error) {
	le := binary.LittleEndian
	if len(b) != pageSize || !bytes.Equal(b[:8], magic) {
		return nil, corrupt(0, "no index file (magic bytes differ)")
	}
	// The version comes before the sum: another version may sum differently.
	if v := le.Uint32(b[8:]); v != formatVersion {
		return nil, corrupt(8, "format version %d, this program reads %d", v, formatVersion)
	}
	if got, want := crc32.Checksum(b[:headerSumAt], castagnoli), le.Uint32(b[headerSumAt:]); got != want {
		return nil, corrupt(headerSumAt, "header sum %08x, computed %08x", want, got)
	}
	h := &header{
		size:       le.Uint64(b[16:]),
		keys:       le.Uint64(b[64:]),
		entries:    le.Uint64(b[72:]),
		blocks:     le.Uint64(b[80:]),
		pages:      le.Uint64(b[88:]),
		partitions: le.Uint64(b[96:]),
		kinds:      le.Uint64(b[104:]),
		built:      int64(le.Uint64(b[112:])),
		expiry:     int64(le.Uint64(b[120:])),
	}
	copy(h.buildID[:], b[24:])
	copy(h.hash.key[:], b[40:])
	h.hash.kind = b[56]
	switch {
	case le.Uint32(b[12:]) != pageSize:
		return nil, corrupt(12, "page size %d, want %d", le.Uint32(b[12:]), pageSize)
	case h.size != fileSize:
		return nil, corrupt(16, "header says %d bytes, the file has %d", h.size, fileSize)
	case h.hash.kind != hashXXH3 && h.hash.kind != hashSip:
		return nil, corrupt(56, "unknown hash %d", h.hash.kind)
	case b[57] != filterKind:
		return nil, corrupt(57, "unknown filter %d", b[57])
	case h.built < 0 || h.expiry < 0:
		return nil, corrupt(112, "times %d and %d", h.built, h.expiry)
	case !allZero(b[58:64]) || !allZero(b[sectionsAt+maxSections*sectionBytes:headerSumAt]):
		return nil, corrupt(58, "reserved bytes are set")
	}
	if err := h.decodeSections(b[sectionsAt:], fileSize); err != nil {
		return nil, err
	}
	return h, h.check()
}

// decodeSections reads the section table: ascending kinds, ascending places
// inside the file, page-aligned, without overlap.
func (h *header) decodeSections(b []byte, fileSize uint64) error {
	le := binary.LittleEndian
	lastKind, free := uint32(0), uint64(pageSize)
	for i := range maxSections {
		row, at := b[i*sectionBytes:][:sectionBytes], uint64(sectionsAt+i*sectionBytes)
		kind, flags := le.Uint32(row), le.Uint32(row[4:])
		if kind == 0 {
			if !allZero(b[i*sectionBytes : maxSections*sectionBytes]) {
				return corrupt(at, "section table goes on behind its end")
			}
			break
		}
		s := section{le.Uint64(row[8:]), le.Uint64(row[16:]), le.Uint64(row[24:]), le.Uint32(row[32:])}
		switch {
		case kind <= lastKind:
			return corrupt(at, "section %d behind section %d", kind, lastKind)
		case flags&^mustKnow != 0 || le.Uint32(row[36:]) != 0:
			return corrupt(at, "section %d has reserved bits set", kind)
		case s.offset < free || s.offset%pageSize != 0 || s.offset > fileSize || s.length > fileSize-s.offset:
			return corrupt(at, "section %d at %d of %d bytes does not fit", kind, s.offset, s.length)
		case kind <= knownSections:
			h.sections[kind] = s
		case flags&mustKnow != 0:
			return corrupt(at, "section %d is unknown to this program and needed", kind)
		}
		lastKind, free = kind, s.end()
	}
	return nil
}

// check holds the counts against the sections, whose lengths fit the file. Every
// multiplication is of a number that a division has bounded before.
func (h *header) check() error {
	s := &h.sections
	want := func(kind int, items uint64, size uint64) error {
		if have := s[kind]; have.items != items || have.length/size != items || have.length%size != 0 {
			return corrupt(sectionsAt, "section %d has %d bytes and %d items, want %d of %d bytes",
				kind, have.length, have.items, items, size)
		}
		return nil
	}
	for kind := secFilter; kind <= neededSections; kind++ {
		if s[kind].offset == 0 {
			return corrupt(sectionsAt, "section %d is missing", kind)
		}
	}
	if err := cmp.Or(
		want(secFilter, h.blocks, bloom.BlockBytes),
		want(secFilterSums, filterChunks(s[secFilter].length), 4),
		want(secDirectory, h.partitions, partitionBytes),
		want(secPages, h.pages, pageSize),
		want(secNetworks, min(s[secNetworks].items, maxNetLengths), netLengthBytes),
	); err != nil {
		return err
	}
	patterns, worth, dropped := s[secPatterns], s[secWorth], s[secDropped]
	switch {
	case patterns.items > maxPatterns || patterns.length > maxPatternBytes || patterns.items > patterns.length/3:
		return corrupt(sectionsAt, "%d patterns in %d bytes", patterns.items, patterns.length)
	case worth.length > maxWorthBytes:
		return corrupt(worth.offset, "worth of lists in %d bytes", worth.length)
	case dropped.length > maxDroppedBytes:
		return corrupt(dropped.offset, "refused lines in %d bytes", dropped.length)
	case h.blocks == 0:
		return corrupt(80, "filter without blocks")
	case h.partitions == 0 || h.partitions > maxPartitions || h.partitions&(h.partitions-1) != 0:
		return corrupt(96, "%d partitions, want a power of two up to %d", h.partitions, maxPartitions)
	case h.keys/maxRecordsPerPage > h.pages || h.keys > h.entries || h.entries/maxSources > h.keys:
		return corrupt(64, "%d keys with %d entries in %d pages cannot be", h.keys, h.entries, h.pages)
	case h.blocks > maxBlocks(h.keys):
		return corrupt(80, "filter of %d blocks for %d keys", h.blocks, h.keys)
	case s[secLists].items > maxLists || s[secLists].length > maxTableBytes:
		return corrupt(sectionsAt, "list table of %d rows and %d bytes", s[secLists].items, s[secLists].length)
	case s[secReasons].items > maxReasons:
		return corrupt(sectionsAt, "%d reasons", s[secReasons].items)
	case s[secFilter].sum != 0 || s[secPages].sum != 0:
		return corrupt(sectionsAt, "sum of a section that is summed in parts")
	case h.size > math.MaxInt:
		return fmt.Errorf("%d bytes are more than this machine can map", h.size)
	}
	return nil
}

// filterChunks is the number of sums of a filter of so many octets.
func filterChunks(octets uint64) uint64 { return (octets + chunkBytes - 1) / chunkBytes }

// maxBlocks bounds what a filter may ask for: maxBitsPerKey, rounded up without
// a product that could overflow.
func maxBlocks(keys uint64) uint64 { return keys/bloom.BlockBits*maxBitsPerKey + maxBitsPerKey }

func allZero(b []byte) bool { return len(bytes.TrimLeft(b, "\x00")) == 0 }

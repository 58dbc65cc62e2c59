package format

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
	PageSize      = 4096
	formatVersion = 3 // 1 had tags and offsets of a page apart, and packed records
	oldVersion    = 2 // knows no owners; it is read, and never written
	filterKind    = 1 // split-block, 256 bits, 8 lanes
	HeaderSumAt   = PageSize - 4

	MaxSections   = 16
	SectionsAt    = 128
	SectionBytes  = 40
	mustKnow      = 1 // section flag: a reader that does not know the kind must refuse the file
	MaxPartitions = 1 << 20
	MaxLists      = 65_535
	maxTableBytes = 256 << 20 // of the list table
	MaxReasons    = 1 << 24
	MaxReason     = 1000 // octets; lists cuts at 400

	// ChunkBytes is what one sum of the filter covers.
	ChunkBytes = 64 << 10

	// MinBitsPerKey and MaxBitsPerKey bound the size of the filter.
	MinBitsPerKey = 8
	MaxBitsPerKey = 20
)

// The sections, in file order.
const (
	SecFilter = iota + 1
	SecFilterSums
	SecDirectory
	SecPages
	SecLists
	SecReasons
	SecNetworks // this and what follows only where there is something to say
	SecPatterns
	SecWorth
	SecDropped // not needed to answer: mustKnow is not set
	SecDigests
	SecAbout      // as SecDropped
	KnownSections = SecAbout

	neededSections = SecReasons
)

// magic begins the file. A copy in text mode changes one of its bytes.
const magic = "BDX\r\n\x1a\n\x00"

// MagicSize is how many octets Begins looks at.
const MagicSize = len(magic)

// Castagnoli is of all sums of 32 bits.
var Castagnoli = crc32.MakeTable(crc32.Castagnoli)

// Header is the first page of the file; docs/index-format.md has its layout.
type Header struct {
	Size       uint64
	BuildID    [16]byte
	Hash       Hasher
	Keys       uint64
	Entries    uint64
	Blocks     uint64
	Pages      uint64
	Partitions uint64
	Kinds      uint64 // see addr.Key.KindBit
	Built      int64  // Unix seconds
	Expiry     int64  // the earliest, Unix seconds; 0 = none
	OwnerMask  OwnerMask
	Owners     uint32 // markers
	Sections   [KnownSections + 1]Section

	version uint32
}

// Section is where one part of the file lies.
type Section struct {
	Offset, Length, Items uint64
	Sum                   uint32 // CRC32C; 0 where the parts have sums of their own
}

// End is the first offset behind s; decodeSections has seen that it fits.
func (s Section) End() uint64 { return s.Offset + s.Length }

// AlignPage rounds up to whole pages. n is below 2^63.
func AlignPage(n uint64) uint64 { return (n + PageSize - 1) &^ (PageSize - 1) }

// SumStart is what the sums of pages start from beside their number.
func (h *Header) SumStart() uint32 { return binary.LittleEndian.Uint32(h.BuildID[:4]) }

// Encode makes the first page.
func (h *Header) Encode() []byte {
	b := make([]byte, PageSize)
	le := binary.LittleEndian
	copy(b, magic)
	le.PutUint32(b[8:], formatVersion)
	le.PutUint32(b[12:], PageSize)
	le.PutUint64(b[16:], h.Size)
	copy(b[24:], h.BuildID[:])
	copy(b[40:], h.Hash.Key[:])
	b[56], b[57], b[58] = h.Hash.Kind, filterKind, byte(h.OwnerMask)
	le.PutUint32(b[60:], h.Owners)
	for i, v := range []uint64{h.Keys, h.Entries, h.Blocks, h.Pages, h.Partitions, h.Kinds, uint64(h.Built), uint64(h.Expiry)} {
		le.PutUint64(b[64+8*i:], v)
	}
	row := 0
	for kind := SecFilter; kind <= KnownSections; kind++ {
		s, at := h.Sections[kind], b[SectionsAt+row*SectionBytes:]
		if s.Offset == 0 {
			continue // not in this file
		}
		row++
		le.PutUint32(at, uint32(kind))
		if kind != SecDropped && kind != SecAbout {
			le.PutUint32(at[4:], mustKnow)
		}
		le.PutUint64(at[8:], s.Offset)
		le.PutUint64(at[16:], s.Length)
		le.PutUint64(at[24:], s.Items)
		le.PutUint32(at[32:], s.Sum)
	}
	le.PutUint32(b[HeaderSumAt:], crc32.Checksum(b[:HeaderSumAt], Castagnoli))
	return b
}

// Begins reports whether b begins as an index file does, of any version.
func Begins(b []byte) bool { return len(b) >= MagicSize && string(b[:MagicSize]) == magic }

// DecodeHeader reads the first page of a file of fileSize bytes and believes
// nothing of it that fileSize does not bear out. It allocates nothing that
// depends on the page.
func DecodeHeader(b []byte, fileSize uint64) (*Header, error) {
	le := binary.LittleEndian
	if len(b) != PageSize || !Begins(b) {
		return nil, Corrupt(0, "no index file (magic bytes differ)")
	}
	// The version comes before the sum: another version may sum differently.
	v := le.Uint32(b[8:])
	if v != formatVersion && v != oldVersion {
		return nil, Corrupt(8, "format version %d, this program reads %d", v, formatVersion)
	}
	if got, want := crc32.Checksum(b[:HeaderSumAt], Castagnoli), le.Uint32(b[HeaderSumAt:]); got != want {
		return nil, Corrupt(HeaderSumAt, "header sum %08x, computed %08x", want, got)
	}
	h := &Header{
		Size:       le.Uint64(b[16:]),
		Keys:       le.Uint64(b[64:]),
		Entries:    le.Uint64(b[72:]),
		Blocks:     le.Uint64(b[80:]),
		Pages:      le.Uint64(b[88:]),
		Partitions: le.Uint64(b[96:]),
		Kinds:      le.Uint64(b[104:]),
		Built:      int64(le.Uint64(b[112:])),
		Expiry:     int64(le.Uint64(b[120:])),
		OwnerMask:  OwnerMask(b[58]),
		Owners:     le.Uint32(b[60:]),
		version:    v,
	}
	copy(h.BuildID[:], b[24:])
	copy(h.Hash.Key[:], b[40:])
	h.Hash.Kind = b[56]
	switch {
	case le.Uint32(b[12:]) != PageSize:
		return nil, Corrupt(12, "page size %d, want %d", le.Uint32(b[12:]), PageSize)
	case h.Size != fileSize:
		return nil, Corrupt(16, "header says %d bytes, the file has %d", h.Size, fileSize)
	case h.Hash.Kind != HashXXH3 && h.Hash.Kind != HashSip:
		return nil, Corrupt(56, "unknown hash %d", h.Hash.Kind)
	case b[57] != filterKind:
		return nil, Corrupt(57, "unknown filter %d", b[57])
	case h.Built < 0 || h.Expiry < 0:
		return nil, Corrupt(112, "times %d and %d", h.Built, h.Expiry)
	case v == oldVersion && !allZero(b[58:64]) || h.OwnerMask&^ownersKnown != 0 || b[59] != 0 || !allZero(b[SectionsAt+MaxSections*SectionBytes:HeaderSumAt]):
		return nil, Corrupt(58, "reserved bytes are set")
	}
	if err := h.decodeSections(b[SectionsAt:], fileSize); err != nil {
		return nil, err
	}
	return h, h.check()
}

// decodeSections reads the section table: ascending kinds, ascending places
// inside the file, page-aligned, without overlap.
func (h *Header) decodeSections(b []byte, fileSize uint64) error {
	le := binary.LittleEndian
	lastKind, free := uint32(0), uint64(PageSize)
	for i := range MaxSections {
		row, at := b[i*SectionBytes:][:SectionBytes], uint64(SectionsAt+i*SectionBytes)
		kind, flags := le.Uint32(row), le.Uint32(row[4:])
		if kind == 0 {
			if !allZero(b[i*SectionBytes : MaxSections*SectionBytes]) {
				return Corrupt(at, "section table goes on behind its end")
			}
			break
		}
		s := Section{le.Uint64(row[8:]), le.Uint64(row[16:]), le.Uint64(row[24:]), le.Uint32(row[32:])}
		switch {
		case kind <= lastKind:
			return Corrupt(at, "section %d behind section %d", kind, lastKind)
		case flags&^mustKnow != 0 || le.Uint32(row[36:]) != 0:
			return Corrupt(at, "section %d has reserved bits set", kind)
		case s.Offset < free || s.Offset%PageSize != 0 || s.Offset > fileSize || s.Length > fileSize-s.Offset:
			return Corrupt(at, "section %d at %d of %d bytes does not fit", kind, s.Offset, s.Length)
		case kind <= KnownSections:
			h.Sections[kind] = s
		case flags&mustKnow != 0:
			return Corrupt(at, "section %d is unknown to this program and needed", kind)
		}
		lastKind, free = kind, s.End()
	}
	return nil
}

// check holds the counts against the sections, whose lengths fit the file. Every
// multiplication is of a number that a division has bounded before.
func (h *Header) check() error {
	s := &h.Sections
	want := func(kind int, items uint64, size uint64) error {
		if have := s[kind]; have.Items != items || have.Length/size != items || have.Length%size != 0 {
			return Corrupt(SectionsAt, "section %d has %d bytes and %d items, want %d of %d bytes",
				kind, have.Length, have.Items, items, size)
		}
		return nil
	}
	for kind := SecFilter; kind <= neededSections; kind++ {
		if s[kind].Offset == 0 {
			return Corrupt(SectionsAt, "section %d is missing", kind)
		}
	}
	if err := cmp.Or(
		want(SecFilter, h.Blocks, bloom.BlockBytes),
		want(SecFilterSums, FilterChunks(s[SecFilter].Length), 4),
		want(SecDirectory, h.Partitions, PartitionBytes),
		want(SecPages, h.Pages, PageSize),
		want(SecNetworks, min(s[SecNetworks].Items, maxNetLengths), NetLengthBytes),
		want(SecDigests, min(s[SecDigests].Items, math.MaxUint8), digestRow),
	); err != nil {
		return err
	}
	patterns, worth, dropped, about := s[SecPatterns], s[SecWorth], s[SecDropped], s[SecAbout]
	switch {
	case patterns.Items > MaxPatterns || patterns.Length > maxPatternBytes || patterns.Items > patterns.Length/3:
		return Corrupt(SectionsAt, "%d patterns in %d bytes", patterns.Items, patterns.Length)
	case worth.Length > maxWorthBytes:
		return Corrupt(worth.Offset, "worth of lists in %d bytes", worth.Length)
	case dropped.Length > maxDroppedBytes:
		return Corrupt(dropped.Offset, "refused lines in %d bytes", dropped.Length)
	case about.Length > maxAboutBytes:
		return Corrupt(about.Offset, "what lists say of themselves in %d bytes", about.Length)
	case h.Blocks == 0:
		return Corrupt(80, "filter without blocks")
	case h.Partitions == 0 || h.Partitions > MaxPartitions || h.Partitions&(h.Partitions-1) != 0:
		return Corrupt(96, "%d partitions, want a power of two up to %d", h.Partitions, MaxPartitions)
	case h.Keys/MaxRecordsPerPage > h.Pages || h.Keys > h.Entries || h.Entries/MaxSources > h.Keys:
		return Corrupt(64, "%d keys with %d entries in %d pages cannot be", h.Keys, h.Entries, h.Pages)
	case uint64(h.Owners) > h.Keys || (h.OwnerMask&^RecipientsAsKey == 0) != (h.Owners == 0):
		return Corrupt(58, "%d owners of the kinds %d among %d keys", h.Owners, h.OwnerMask, h.Keys)
	case h.Blocks > maxBlocks(h.Keys):
		return Corrupt(80, "filter of %d blocks for %d keys", h.Blocks, h.Keys)
	case s[SecLists].Items > MaxLists || s[SecLists].Length > maxTableBytes:
		return Corrupt(SectionsAt, "list table of %d rows and %d bytes", s[SecLists].Items, s[SecLists].Length)
	case s[SecReasons].Items > MaxReasons:
		return Corrupt(SectionsAt, "%d reasons", s[SecReasons].Items)
	case s[SecFilter].Sum != 0 || s[SecPages].Sum != 0:
		return Corrupt(SectionsAt, "sum of a section that is summed in parts")
	case h.Size > math.MaxInt:
		return fmt.Errorf("%d bytes are more than this machine can map", h.Size)
	}
	return nil
}

// FilterChunks is the number of sums of a filter of so many octets.
func FilterChunks(octets uint64) uint64 { return (octets + ChunkBytes - 1) / ChunkBytes }

// maxBlocks bounds what a filter may ask for: MaxBitsPerKey, rounded up without
// a product that could overflow.
func maxBlocks(keys uint64) uint64 { return keys/bloom.BlockBits*MaxBitsPerKey + MaxBitsPerKey }

func allZero(b []byte) bool { return len(bytes.TrimLeft(b, "\x00")) == 0 }

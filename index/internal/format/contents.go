package format

import (
	"encoding/binary"
	"hash/crc32"
	"io"
	"os"

	"blockd/lists/pattern"
)

// Contents is what of a file is read into memory when it is opened: all but the
// filter, the pages and the reasons, whose size grows with the number of keys.
type Contents struct {
	Directory
	FilterSums []byte // of the chunks, u32 each
	Lists      []ListInfo
	Networks   networks
	Patterns   []pattern.Stored
	Worth      worthTable
	Digests    DigestCounts // nil: the index cannot be asked for digests
}

// ReadContents reads and checks a file of size octets, the sum of its reasons
// included. It reads by system calls, so that a failing disk is a plain error here.
func ReadContents(f *os.File, size int64) (*Contents, error) {
	first := make([]byte, PageSize)
	if _, err := f.ReadAt(first, 0); err != nil {
		return nil, ReadError(err)
	}
	h, err := DecodeHeader(first, uint64(size))
	if err != nil {
		return nil, err
	}
	c := &Contents{Directory: NewDirectory(h)}
	if c.FilterSums, err = c.read(f, SecFilterSums); err != nil {
		return nil, err
	}
	rows, err := c.read(f, SecDirectory)
	if err != nil {
		return nil, err
	}
	if err := c.decode(rows); err != nil {
		return nil, err
	}
	for _, table := range []struct {
		kind   int
		decode func(b []byte, items uint64) error
	}{
		{SecLists, func(b []byte, items uint64) (err error) { c.Lists, err = decodeTable(b, items, h.version); return err }},
		{SecNetworks, func(b []byte, _ uint64) (err error) { c.Networks, err = DecodeNetLengths(b, h.Keys); return err }},
		{SecPatterns, func(b []byte, items uint64) (err error) { c.Patterns, err = DecodePatterns(b, items); return err }},
		{SecWorth, func(b []byte, items uint64) (err error) {
			c.Worth, err = DecodeWorth(b, items, c.Lists, h.Keys)
			return err
		}},
		{SecDigests, func(b []byte, _ uint64) (err error) { c.Digests, err = decodeDigests(b, h.Keys); return err }},
		{SecDropped, func(b []byte, items uint64) error { return decodeDropped(b, items, c.Lists) }},
		{SecAbout, func(b []byte, items uint64) error { return decodeAbout(b, items, c.Lists) }},
	} {
		s := h.Sections[table.kind]
		if s.Offset == 0 {
			continue
		}
		b, err := c.read(f, table.kind)
		if err != nil {
			return nil, err
		}
		if err := table.decode(b, s.Items); err != nil {
			return nil, Corrupt(s.Offset, "%v", err)
		}
	}
	return c, c.checkReasons(f)
}

// read reads a section whole and checks its sum. The section lies in the file, so
// no more is allocated than the file has.
func (h *Header) read(f *os.File, kind int) ([]byte, error) {
	s := h.Sections[kind]
	b := make([]byte, s.Length)
	if _, err := f.ReadAt(b, int64(s.Offset)); err != nil {
		return nil, ReadError(err)
	}
	return b, s.check(crc32.Checksum(b, Castagnoli))
}

// check holds the sum of a section's octets against the one that the header has.
func (s Section) check(sum uint32) error {
	if sum != s.Sum {
		return Corrupt(s.Offset, "section sum %08x, computed %08x", s.Sum, sum)
	}
	return nil
}

// checkReasons sums the reasons, which stay in the file, and checks their count.
func (h *Header) checkReasons(f *os.File) error {
	s := h.Sections[SecReasons]
	sum := crc32.New(Castagnoli)
	if n, err := io.Copy(sum, io.NewSectionReader(f, int64(s.Offset), int64(s.Length))); err != nil {
		return ReadError(err)
	} else if uint64(n) != s.Length {
		return ReadError(io.ErrUnexpectedEOF)
	}
	if err := s.check(sum.Sum32()); err != nil {
		return err
	}
	var count [8]byte
	if s.Length < reasonHead+8*(s.Items+1) {
		return Corrupt(s.Offset, "%d reasons in %d bytes", s.Items, s.Length)
	}
	if _, err := f.ReadAt(count[:], int64(s.Offset)); err != nil {
		return ReadError(err)
	}
	if n := binary.LittleEndian.Uint64(count[:]); n != s.Items {
		return Corrupt(s.Offset, "%d reasons, the header has %d", n, s.Items)
	}
	return nil
}

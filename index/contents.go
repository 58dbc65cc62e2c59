package index

import (
	"encoding/binary"
	"hash/crc32"
	"io"
	"os"

	"blockd/pattern"
)

// contents is what of a file is read into memory when it is opened: all but the
// filter, the pages and the reasons, whose size grows with the number of keys.
type contents struct {
	directory
	filterSums []byte // of the chunks, u32 each
	lists      []ListInfo
	networks   networks
	patterns   []pattern.Stored
	worth      worthTable
}

// readContents reads and checks a file of size octets, the sum of its reasons
// included. It reads by system calls, so that a failing disk is a plain error here.
func readContents(f *os.File, size int64) (*contents, error) {
	first := make([]byte, pageSize)
	if _, err := f.ReadAt(first, 0); err != nil {
		return nil, readError(err)
	}
	h, err := decodeHeader(first, uint64(size))
	if err != nil {
		return nil, err
	}
	c := &contents{directory: newDirectory(h)}
	if c.filterSums, err = c.read(f, secFilterSums); err != nil {
		return nil, err
	}
	rows, err := c.read(f, secDirectory)
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
		{secLists, func(b []byte, items uint64) (err error) { c.lists, err = decodeTable(b, items); return err }},
		{secNetworks, func(b []byte, _ uint64) (err error) { c.networks, err = decodeNetLengths(b, h.keys); return err }},
		{secPatterns, func(b []byte, items uint64) (err error) { c.patterns, err = decodePatterns(b, items); return err }},
		{secWorth, func(b []byte, items uint64) (err error) {
			c.worth, err = decodeWorth(b, items, c.lists, h.keys)
			return err
		}},
		{secDropped, func(b []byte, items uint64) error { return decodeDropped(b, items, c.lists) }},
	} {
		s := h.sections[table.kind]
		if s.offset == 0 {
			continue
		}
		b, err := c.read(f, table.kind)
		if err != nil {
			return nil, err
		}
		if err := table.decode(b, s.items); err != nil {
			return nil, corrupt(s.offset, "%v", err)
		}
	}
	return c, c.checkReasons(f)
}

// read reads a section whole and checks its sum. The section lies in the file, so
// no more is allocated than the file has.
func (h *header) read(f *os.File, kind int) ([]byte, error) {
	s := h.sections[kind]
	b := make([]byte, s.length)
	if _, err := f.ReadAt(b, int64(s.offset)); err != nil {
		return nil, readError(err)
	}
	return b, s.check(crc32.Checksum(b, castagnoli))
}

// check holds the sum of a section's octets against the one that the header has.
func (s section) check(sum uint32) error {
	if sum != s.sum {
		return corrupt(s.offset, "section sum %08x, computed %08x", s.sum, sum)
	}
	return nil
}

// checkReasons sums the reasons, which stay in the file, and checks their count.
func (h *header) checkReasons(f *os.File) error {
	s := h.sections[secReasons]
	sum := crc32.New(castagnoli)
	if n, err := io.Copy(sum, io.NewSectionReader(f, int64(s.offset), int64(s.length))); err != nil {
		return readError(err)
	} else if uint64(n) != s.length {
		return readError(io.ErrUnexpectedEOF)
	}
	if err := s.check(sum.Sum32()); err != nil {
		return err
	}
	var count [8]byte
	if s.length < reasonHead+8*(s.items+1) {
		return corrupt(s.offset, "%d reasons in %d bytes", s.items, s.length)
	}
	if _, err := f.ReadAt(count[:], int64(s.offset)); err != nil {
		return readError(err)
	}
	if n := binary.LittleEndian.Uint64(count[:]); n != s.items {
		return corrupt(s.offset, "%d reasons, the header has %d", n, s.items)
	}
	return nil
}

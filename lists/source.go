package lists

import (
	"bufio"
	"compress/flate"
	"compress/gzip"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
)

const (
	// defaultMaxBytes bounds the unpacked text of one file. 4 GiB hold the 100
	// million addresses that an index is built for, at 37 octets a line.
	defaultMaxBytes = 4 << 30

	// A packed file may unpack to freeBytes whatever its ratio, and beyond that to
	// maxRatio times its size. Real lists pack 3 to 8 times; DEFLATE can do 1032.
	freeBytes = 64 << 20
	maxRatio  = 100

	blockSize = 256 << 10 // of a block of lines

	// peekSize is of the buffers in which the beginning of a stream is looked at. What
	// is wanted in larger pieces than that goes around them.
	peekSize = 16 << 10
)

// source is one list file that may be read several times from its start: to see
// what it is, to guess its format, and to read its entries.
type source struct {
	ctx    context.Context
	file   io.ReadSeeker
	size   int64 // as stored
	max    int64 // of unpacked text; 0 = defaultMaxBytes
	block  int   // octets of a block of lines; 0 = blockSize
	stored int64 // octets of the file that the pass in hand has read
}

// raw begins a pass over the octets as stored. tap, if not nil, sees them all.
func (s *source) raw(tap io.Writer) (io.Reader, error) {
	if _, err := s.file.Seek(0, io.SeekStart); err != nil {
		return nil, refusal(NotAFile, "%w", bare(err))
	}
	s.stored = 0
	return &storedReader{src: s, tap: tap}, nil
}

// text begins a pass over the file's text: unpacked, in UTF-8, without a byte
// order mark. Its errors are *FileError or those of the context.
func (s *source) text(tap io.Writer) (io.Reader, error) {
	raw, err := s.raw(tap)
	if err != nil {
		return nil, err
	}
	packed := bufio.NewReaderSize(raw, peekSize)
	limit := s.max
	if limit <= 0 {
		limit = defaultMaxBytes
	}
	if s.size > limit {
		return nil, refusal(TooBig, "a file of %d octets, at most %d are read", s.size, limit)
	}
	bounded := &boundedReader{r: packed, limit: limit, what: "list"}
	if magic, _ := packed.Peek(2); string(magic) == gzipMagic {
		zip, err := gzip.NewReader(packed)
		if err != nil {
			return nil, gzipFault(err)
		}
		bounded.r = gzipReader{zip}
		if ratio := max(freeBytes, maxRatio*s.size); ratio < limit {
			bounded.limit, bounded.what = ratio, "unpacked list"
		}
	}
	return decode(bounded)
}

// storedReader reads the file itself and ends with the context.
type storedReader struct {
	src *source
	tap io.Writer
}

func (r *storedReader) Read(p []byte) (int, error) {
	if err := r.src.ctx.Err(); err != nil {
		return 0, err
	}
	n, err := r.src.file.Read(p)
	r.src.stored += int64(n)
	if r.tap != nil {
		r.tap.Write(p[:n]) // a hash: never fails
	}
	if err != nil && err != io.EOF {
		// A failing disk gave the front of the list, which is not the list.
		err = refusal(Truncated, "read at octet %d: %w", r.src.stored, bare(err))
	}
	return n, err
}

// boundedReader refuses what is longer than limit octets.
type boundedReader struct {
	r     io.Reader
	limit int64
	what  string
	n     int64
}

func (r *boundedReader) Read(p []byte) (int, error) {
	n, err := r.r.Read(p)
	if r.n += int64(n); r.n > r.limit {
		return 0, refusal(TooBig, "%s of more than %d octets", r.what, r.limit)
	}
	return n, err
}

const gzipMagic = "\x1f\x8b"

// gzipReader names the faults of a packed stream. Several members are one stream;
// the package takes whatever follows the last one for a member with a bad header.
type gzipReader struct{ zip *gzip.Reader }

func (r gzipReader) Read(p []byte) (int, error) {
	n, err := r.zip.Read(p)
	if err != nil && err != io.EOF {
		err = gzipFault(err)
	}
	return n, err
}

func gzipFault(err error) error {
	var corrupt flate.CorruptInputError
	switch {
	case errors.Is(err, io.ErrUnexpectedEOF), errors.Is(err, io.EOF):
		return refusal(Truncated, "gzip stream ends in the middle")
	case errors.Is(err, gzip.ErrChecksum):
		return refusal(Gzip, "wrong checksum")
	case errors.Is(err, gzip.ErrHeader):
		return refusal(Gzip, "what follows is no gzip stream: a wrong header, or garbage after the end")
	case errors.As(err, &corrupt):
		return &FileError{Class: Gzip, Err: fmt.Errorf("damaged at octet %d", int64(corrupt))}
	}
	return err // of the file below
}

// IsPacked reports whether a file begins as gzip does. One that cannot be read does not.
func IsPacked(path string) bool {
	f, err := os.Open(path)
	if err != nil {
		return false
	}
	defer f.Close()
	var magic [2]byte
	_, err = io.ReadFull(f, magic[:])
	return err == nil && string(magic[:]) == gzipMagic
}

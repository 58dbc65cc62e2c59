package snapshot

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"hash"
	"io"
	"os"

	"github.com/klauspost/compress/zstd"
)

// maxWindow is what a packed object may make a reader keep in memory, in octets.
const maxWindow = 8 << 20

// errLength says that an object holds more or less than its manifest says.
var errLength = errors.New("another length than its manifest says")

// packer packs octets, and tells the name of what comes of it.
type packer struct {
	encoder *zstd.Encoder
	hash    hash.Hash
	out     io.Writer
	size    int64
}

// Levels: a shard is packed once for thousands of fetches, but there are 64 of them each time; a delta is small.
func newPacker(level zstd.EncoderLevel) (*packer, error) {
	p := &packer{hash: sha256.New()}
	var err error
	p.encoder, err = zstd.NewWriter(nil, zstd.WithEncoderLevel(level), zstd.WithEncoderConcurrency(1), zstd.WithWindowSize(maxWindow), zstd.WithEncoderCRC(false))
	return p, err
}

// begin begins another object, which goes to out.
func (p *packer) begin(out io.Writer) {
	p.hash.Reset()
	p.out, p.size = out, 0
	p.encoder.Reset(packed{p})
}

// end ends the object, and returns its name.
func (p *packer) end() (object string, size int64, err error) {
	if err := p.encoder.Close(); err != nil {
		return "", 0, err
	}
	return hex.EncodeToString(p.hash.Sum(nil)) + objectEnding, p.size, nil
}

// packed takes what an encoder writes.
type packed struct{ *packer }

func (p packed) Write(b []byte) (int, error) {
	p.hash.Write(b)
	n, err := p.out.Write(b)
	p.size += int64(n)
	return n, err
}

// unpacker reads what a packer has packed, in bounded memory whatever the octets are.
type unpacker struct{ decoder *zstd.Decoder }

func newUnpacker() (unpacker, error) {
	d, err := zstd.NewReader(nil, zstd.WithDecoderConcurrency(1), zstd.WithDecoderLowmem(true), zstd.WithDecoderMaxWindow(maxWindow), zstd.WithDecoderMaxMemory(maxShard+1))
	return unpacker{d}, err
}

func (u unpacker) close() { u.decoder.Close() }

// read gives the plain octets of an object, at most so many. One octet more is errLength.
func (u unpacker) read(in io.Reader, most int64) (io.Reader, error) {
	if err := u.decoder.Reset(in); err != nil {
		return nil, fmt.Errorf("not packed by zstd: %w", err)
	}
	return &atMost{u.decoder, most}, nil
}

type atMost struct {
	in   io.Reader
	left int64
}

func (a *atMost) Read(p []byte) (int, error) {
	if int64(len(p)) > a.left+1 {
		p = p[:a.left+1]
	}
	n, err := a.in.Read(p)
	if a.left -= int64(n); a.left < 0 {
		return 0, errLength
	}
	return n, err
}

// summed writes to a file, and tells the SHA-256 of that.
type summed struct {
	out  io.Writer
	hash hash.Hash
	size int64
}

func newSummed(out io.Writer) *summed { return &summed{out: out, hash: sha256.New()} }

func (s *summed) Write(p []byte) (int, error) {
	n, err := s.out.Write(p)
	s.hash.Write(p[:n])
	s.size += int64(n)
	return n, err
}

func (s *summed) sum() string { return hex.EncodeToString(s.hash.Sum(nil)) }

// sumOfFile is the SHA-256 of a file, and its length.
func sumOfFile(path string) (sum string, size int64, err error) {
	f, err := os.Open(path)
	if err != nil {
		return "", 0, err
	}
	defer f.Close()
	s := newSummed(io.Discard)
	if _, err := io.Copy(s, f); err != nil {
		return "", 0, err
	}
	return s.sum(), s.size, nil
}

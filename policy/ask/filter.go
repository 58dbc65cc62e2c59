package ask

import (
	"bufio"
	"bytes"
	"crypto/rand"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"os"
	"sync/atomic"

	"blockd/bloom"
	"blockd/internal/durable"
	"blockd/mail/addr"
	"blockd/sources/mirror"
)

// Filter is the local half of a list: it says "surely not" or "perhaps" about a key. Keys are added in place while
// others ask. It never forgets one: what has left the store costs a question until the filter is built anew.
//
// Its file is one header page of 4096 octets, a CRC-32C for each 64 KiB of the blocks, padded to a page, and the
// blocks as package bloom writes them. Numbers are little-endian. The header:
//
//	  0  42 44 46 0D 0A 1A 0A 00        24  build id, 16 octets      72  keys it was sized for
//	  8  version, 4 octets: 1           40  hash key, 16 octets      80  keys added since the build
//	 12  page size, 4 octets: 4096      56  blocks                   88  entries gone since the build
//	 16  size of the file               64  keys                     96  kinds of keys, a bit each
//	104  length of the mark, 2 octets  106  length of the fingerprint, 2 octets
//	108  CRC-32C of the sums           128  mark, then fingerprint
//	4092 CRC-32C of the header before
//
// The hash key is secret to senders: who knows it can choose addresses that are false positives. The file has mode 0600.
type Filter struct {
	bits  *bloom.Growing
	seed  bloom.Seed
	build [16]byte
	sized uint64 // keys that it has room for at its rate of false positives

	keys, added, gone atomic.Uint64
	kinds             atomic.Uint64 // see addr.Key.KindBit

	mark        mirror.Mark // where the changes of the store go on; of the goroutine that keeps the filter
	fingerprint string
}

const (
	pageSize      = 4096
	filterVersion = 1
	chunkBytes    = 64 << 10
	headSumAt     = pageSize - 4
	textsAt       = 128
	maxTexts      = headSumAt - textsAt
	leastKeys     = 1024 // of which a filter is at least sized for
)

var (
	filterMagic = []byte("BDF\r\n\x1a\n\x00")
	castagnoli  = crc32.MakeTable(crc32.Castagnoli)
)

// ErrFilter is wrapped by every error about a file that is no filter this program can trust.
var ErrFilter = errors.New("damaged or no filter of blockd")

// NewFilter returns an empty filter with room for n keys.
func NewFilter(n uint64) *Filter {
	f := &Filter{sized: max(n, leastKeys)}
	f.bits = bloom.NewGrowing(f.sized, bloom.DefaultBitsPerKey)
	rand.Read(f.seed[:])
	rand.Read(f.build[:])
	return f
}

// Add adds a key.
func (f *Filter) Add(k addr.Key) {
	f.add(f.seed.SumString(k.Text))
	f.kinds.Or(k.KindBit())
}

func (f *Filter) add(h bloom.Hash) {
	if f.bits.Add(h) {
		f.keys.Add(1)
	}
}

// worn reports whether it should be built anew: a quarter more keys than it was sized for, or a tenth of its
// entries gone.
func (f *Filter) worn() bool {
	keys := f.keys.Load()
	return 4*keys >= 5*f.sized || keys >= leastKeys && 10*f.gone.Load() >= keys
}

// perhaps returns a bit for each of at most bloom.BatchSize keys that may be in the list.
func (f *Filter) perhaps(keys []addr.Key) (perhaps uint32) {
	kinds := f.kinds.Load()
	var hashes [bloom.BatchSize]bloom.Hash
	var of [bloom.BatchSize]uint8
	n := 0
	for i := range keys {
		if kinds&keys[i].KindBit() != 0 { // else no entry has such a key
			hashes[n&(bloom.BatchSize-1)], of[n&(bloom.BatchSize-1)] = f.seed.SumString(keys[i].Text), uint8(i)
			n++
		}
	}
	if n == 0 {
		return 0
	}
	found := f.bits.HasBatch(hashes[:n])
	if found == 0 {
		return 0
	}
	for i := range n {
		perhaps |= found >> i & 1 << of[i]
	}
	return perhaps
}

// write replaces the file at path. The filter may grow meanwhile: mark is then of before.
func (f *Filter) write(path string) error {
	if len(f.mark)+len(f.fingerprint) > maxTexts {
		return fmt.Errorf("the mark and the fingerprint of the store have %d octets, and there is room for %d", len(f.mark)+len(f.fingerprint), maxTexts)
	}
	d, err := durable.Create(path, 0o600)
	if err != nil {
		return err
	}
	defer d.Discard()
	head := f.header()
	sums := make([]byte, 0, 4*chunks(f.bits.Blocks()))
	at := int64(pageSize + align(uint64(cap(sums))))
	if _, err := d.Seek(at, io.SeekStart); err != nil {
		return err
	}
	// The blocks come in pieces of chunkBytes, but for the last.
	out := bufio.NewWriterSize(d, 4*chunkBytes)
	if _, err := f.bits.WriteTo(writerFunc(func(p []byte) (int, error) {
		sums = binary.LittleEndian.AppendUint32(sums, crc32.Checksum(p, castagnoli))
		return out.Write(p)
	})); err != nil {
		return err
	}
	if err := out.Flush(); err != nil {
		return err
	}
	binary.LittleEndian.PutUint32(head[108:], crc32.Checksum(sums, castagnoli))
	binary.LittleEndian.PutUint32(head[headSumAt:], crc32.Checksum(head[:headSumAt], castagnoli))
	if _, err := d.WriteAt(append(head, sums...), 0); err != nil {
		return err
	}
	return d.Commit()
}

type writerFunc func([]byte) (int, error)

func (w writerFunc) Write(p []byte) (int, error) { return w(p) }

// header is the first page, without its sums.
func (f *Filter) header() []byte {
	head := make([]byte, pageSize)
	le := binary.LittleEndian
	copy(head, filterMagic)
	le.PutUint32(head[8:], filterVersion)
	le.PutUint32(head[12:], pageSize)
	blocks := f.bits.Blocks()
	le.PutUint64(head[16:], fileSize(blocks))
	copy(head[24:], f.build[:])
	copy(head[40:], f.seed[:])
	for i, v := range []uint64{blocks, f.keys.Load(), f.sized, f.added.Load(), f.gone.Load(), f.kinds.Load()} {
		le.PutUint64(head[56+8*i:], v)
	}
	le.PutUint16(head[104:], uint16(len(f.mark)))
	le.PutUint16(head[106:], uint16(len(f.fingerprint)))
	copy(head[textsAt+copy(head[textsAt:], f.mark):], f.fingerprint)
	return head
}

func chunks(blocks uint64) uint64 { return (blocks*bloom.BlockBytes + chunkBytes - 1) / chunkBytes }

func align(n uint64) uint64 { return (n + pageSize - 1) &^ (pageSize - 1) }

func fileSize(blocks uint64) uint64 {
	return pageSize + align(4*chunks(blocks)) + blocks*bloom.BlockBytes
}

// OpenFilter reads the file at path. The error wraps ErrFilter if that is no filter, or one of which an octet is another
// than was written.
func OpenFilter(path string) (*Filter, error) {
	file, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer file.Close()
	info, err := file.Stat()
	if err != nil {
		return nil, err
	}
	f, err := readFilter(file, uint64(max(info.Size(), 0)))
	if err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	return f, nil
}

// readFilter reads a filter from so many octets. It takes no more memory than these.
func readFilter(r io.Reader, size uint64) (*Filter, error) {
	damaged := func(what string) (*Filter, error) { return nil, fmt.Errorf("%w: %s", ErrFilter, what) }
	head := make([]byte, pageSize)
	le := binary.LittleEndian
	if _, err := io.ReadFull(r, head); err != nil || !bytes.HasPrefix(head, filterMagic) {
		return damaged("it does not begin as one")
	}
	blocks := le.Uint64(head[56:])
	mark, fingerprint := int(le.Uint16(head[104:])), int(le.Uint16(head[106:]))
	switch {
	case le.Uint32(head[headSumAt:]) != crc32.Checksum(head[:headSumAt], castagnoli):
		return damaged("its header has another sum")
	case le.Uint32(head[8:]) != filterVersion || le.Uint32(head[12:]) != pageSize:
		return damaged("it is of another version")
	case blocks == 0 || blocks > size/bloom.BlockBytes || fileSize(blocks) != size || le.Uint64(head[16:]) != size:
		return damaged("it has another size")
	case mark+fingerprint > maxTexts:
		return damaged("its mark does not fit")
	}
	sums := make([]byte, align(4*chunks(blocks)))
	if _, err := io.ReadFull(r, sums); err != nil {
		return nil, err
	}
	rest := sums[4*chunks(blocks):]
	sums = sums[:4*chunks(blocks)]
	if crc32.Checksum(sums, castagnoli) != le.Uint32(head[108:]) || len(bytes.Trim(rest, "\x00")) > 0 {
		return damaged("its sums have another sum")
	}
	mem := make([]byte, blocks*bloom.BlockBytes)
	for n := range chunks(blocks) {
		chunk := mem[n*chunkBytes : min((n+1)*chunkBytes, uint64(len(mem)))]
		if _, err := io.ReadFull(r, chunk); err != nil {
			return nil, err
		}
		if crc32.Checksum(chunk, castagnoli) != le.Uint32(sums[4*n:]) {
			return damaged(fmt.Sprintf("the blocks from octet %d on have another sum", n*chunkBytes))
		}
	}
	bits, ok := bloom.Decode(mem)
	if !ok {
		return damaged("its blocks cannot be used")
	}
	f := &Filter{bits: bloom.Grow(bits), sized: le.Uint64(head[72:])}
	copy(f.build[:], head[24:])
	copy(f.seed[:], head[40:])
	for i, v := range []*atomic.Uint64{&f.added, &f.gone, &f.kinds} {
		v.Store(le.Uint64(head[80+8*i:]))
	}
	f.keys.Store(le.Uint64(head[64:]))
	f.mark = mirror.Mark(head[textsAt : textsAt+mark])
	f.fingerprint = string(head[textsAt+mark : textsAt+mark+fingerprint])
	return f, nil
}

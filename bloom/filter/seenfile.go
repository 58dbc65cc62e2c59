package filter

import (
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	mathbits "math/bits"
	"sync/atomic"
	"time"
)

// A set of seen keys on disk, all numbers with the lowest octet first:
//
//	 0  "blockdS\n"
//	 8  u32  version, 1
//	12  u32  0
//	16  i64  when it was written, Unix seconds
//	24  i64  how long the young half has taken keys, in nanoseconds
//	32  u64  blocks of the young half, 32 octets each
//	40  u64  blocks of the old half
//	48  u32  0
//	52  u32  CRC-32C of octets 0 to 51
//	56  the young half, the old half
//	    u32  CRC-32C of all octets before
//
// A block is 256 bits; lane i has bits 32 i to 32 i + 31, bit x of a block is bit x%8 of octet x/8. A
// key with the murmur3 128-bit hash (h1, h2) of seed 0 is in the block h1 * blocks / 2^64, and has in
// lane i the bit (h2 >> 5 i) % 32.
const (
	seenMagic   = "blockdS\n"
	seenVersion = 1
	seenHead    = 56
	seenTail    = 4
)

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// The errors of ReadSeen.
var (
	ErrForeignSeen = errors.New("no set of seen keys")
	ErrNewerSeen   = errors.New("a set of seen keys by a newer version")
	ErrTornSeen    = errors.New("a damaged set of seen keys")
)

// Write writes the set to w; now goes into the file, so that ReadSeen knows how long the set did not
// serve. Keys may be added meanwhile: those that came before are in it.
func (s *Seen) Write(w io.Writer, now time.Time) error {
	s.saving.Lock()
	defer s.saving.Unlock()
	s.mu.Lock()
	young, old, age := s.young, s.old, s.age
	s.writing = true
	s.changed.Store(false) // under the lock: a change of roles from here on is one to write
	s.mu.Unlock()
	err := writeSeen(w, now, young, old, age)
	if err != nil {
		s.changed.Store(true)
	}
	s.mu.Lock()
	s.writing = false
	s.mu.Unlock()
	return err
}

func writeSeen(w io.Writer, now time.Time, young, old *half, age time.Duration) error {
	head := append(make([]byte, 0, seenHead), seenMagic...)
	head = binary.LittleEndian.AppendUint32(head, seenVersion)
	head = binary.LittleEndian.AppendUint32(head, 0)
	for _, field := range []uint64{uint64(now.Unix()), uint64(age), young.blocks(), old.blocks()} {
		head = binary.LittleEndian.AppendUint64(head, field)
	}
	head = binary.LittleEndian.AppendUint32(head, 0)
	head = binary.LittleEndian.AppendUint32(head, crc32.Checksum(head, castagnoli))
	sum := crc32.New(castagnoli)
	both := io.MultiWriter(w, sum)
	if _, err := both.Write(head); err != nil {
		return err
	}
	buffer := make([]byte, 0, 64<<10)
	for _, h := range []*half{young, old} {
		for i := range h.words {
			buffer = binary.LittleEndian.AppendUint64(buffer, atomic.LoadUint64(&h.words[i]))
			if len(buffer) == cap(buffer) || i == len(h.words)-1 {
				if _, err := both.Write(buffer); err != nil {
					return err
				}
				buffer = buffer[:0]
			}
		}
	}
	_, err := w.Write(binary.LittleEndian.AppendUint32(nil, sum.Sum32()))
	return err
}

// ReadSeen reads a set of size octets from r. It allocates no more than that, and what the settings
// want. Where they want another size of a half, the keys that came last stay, and the older ones go.
// The time since it was written counts as passed; a clock that was set back counts as none. The error
// wraps ErrForeignSeen, ErrNewerSeen, ErrTornSeen or that of r.
func ReadSeen(r io.Reader, size int64, set SeenSettings, now time.Time) (*Seen, error) {
	if err := set.check(); err != nil {
		return nil, err
	}
	var head [seenHead]byte
	if _, err := io.ReadFull(r, head[:]); err != nil {
		return nil, ended(err, ErrForeignSeen)
	}
	field := func(at int) uint64 { return binary.LittleEndian.Uint64(head[at:]) }
	if string(head[:len(seenMagic)]) != seenMagic {
		return nil, ErrForeignSeen
	}
	if version := binary.LittleEndian.Uint32(head[8:]); version > seenVersion {
		return nil, fmt.Errorf("%w (%d; this one knows %d)", ErrNewerSeen, version, seenVersion)
	}
	young, old, age := field(32), field(40), time.Duration(field(24))
	const most = MaxSeen / 2 / blockOctets
	switch {
	case crc32.Checksum(head[:seenHead-4], castagnoli) != binary.LittleEndian.Uint32(head[seenHead-4:]):
		return nil, fmt.Errorf("%w: its header has another checksum", ErrTornSeen)
	case binary.LittleEndian.Uint32(head[8:]) != seenVersion || young == 0 || old == 0 || young > most || old > most || age < 0:
		return nil, fmt.Errorf("%w: its header cannot be", ErrTornSeen)
	case uint64(size) != seenHead+(young+old)*blockOctets+seenTail:
		return nil, fmt.Errorf("%w: %d octets, and its header tells of %d", ErrTornSeen, size, seenHead+(young+old)*blockOctets+seenTail)
	}
	if set.Octets == 0 {
		set.Octets = int64(young) * 2 * blockOctets
	}
	s := &Seen{settings: set, young: newHalf(young), old: newHalf(old), age: min(age, set.MaxAge)}
	if err := s.readHalves(r, crc32.Checksum(head[:], castagnoli)); err != nil {
		return nil, err
	}
	if young != set.blocks() {
		s.turn(new(atomic.Uint64))
	}
	s.Advance(now.Sub(time.Unix(int64(field(16)), 0)))
	return s, nil
}

// ended is the error where the octets end too early.
func ended(err, meaning error) error {
	if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
		return meaning
	}
	return err
}

func (s *Seen) readHalves(r io.Reader, sum uint32) error {
	buffer := make([]byte, 64<<10)
	for _, h := range []*half{s.young, s.old} {
		for words := h.words; len(words) > 0; {
			piece := buffer[:min(len(buffer), 8*len(words))]
			if _, err := io.ReadFull(r, piece); err != nil {
				return ended(err, ErrTornSeen)
			}
			sum = crc32.Update(sum, castagnoli, piece)
			for i := range len(piece) / 8 {
				words[i] = binary.LittleEndian.Uint64(piece[8*i:])
				h.set.Add(int64(mathbits.OnesCount64(words[i])))
			}
			words = words[len(piece)/8:]
		}
		if h.fill() > MaxFill+0.05 {
			return fmt.Errorf("%w: nearly every key would be in it", ErrTornSeen)
		}
	}
	var tail [seenTail]byte
	if _, err := io.ReadFull(r, tail[:]); err != nil {
		return ended(err, ErrTornSeen)
	}
	if binary.LittleEndian.Uint32(tail[:]) != sum {
		return fmt.Errorf("%w: its content has another checksum", ErrTornSeen)
	}
	return nil
}

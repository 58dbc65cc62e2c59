package index

import (
	"encoding/binary"
	"math"

	"blockd/lists"
)

const (
	maxSources = 64 // of a record

	// maxRecord is the format's bound. 64 entries of at most 26 bytes (row 3,
	// line 9, flags 1, reason 4, expiry 9) and the longest key are 2,668.
	maxRecord = 3000

	// minRecord is a key of one octet with one source: two lengths, the octet,
	// row, line and flags.
	minRecord         = 6
	maxRecordsPerPage = (pageSize - pageHead) / (minRecord + slotBytes)

	droppedBit = 0x80 // of a record's source count: it had more sources
)

// entry is what one source says about a key.
type entry struct {
	row    int // of the list table
	line   int
	scope  lists.Scope
	action lists.Action
	reason uint32 // 1 + number in the reason table; 0 = none
	expiry int64  // Unix seconds; 0 = never
}

// The flags of an entry: those of asks, and which optional fields follow.
const (
	flagReason = 1 << 4
	flagExpiry = 1 << 5
	flagsKnown = 1<<7 - 1
)

func (e *entry) flags() byte {
	flags := asks(e.action, e.scope)
	if e.reason != 0 {
		flags |= flagReason
	}
	if e.expiry != 0 {
		flags |= flagExpiry
	}
	return flags
}

// asks are the flags of an action and a scope. The third bit of an action lies
// apart from the others, where it was free when there came to be a fifth.
func asks(a lists.Action, s lists.Scope) byte {
	return byte(a&3) | byte(s)<<2 | byte(a>>2)<<6
}

// asked is the inverse of asks; what else is in flags does not matter.
func asked(flags byte) (lists.Action, lists.Scope) {
	return lists.Action(flags&3 | flags>>6&1<<2), lists.Scope(flags >> 2 & 3)
}

func appendEntry(b []byte, e entry) []byte {
	b = binary.AppendUvarint(b, uint64(e.row))
	b = binary.AppendUvarint(b, uint64(e.line))
	b = append(b, e.flags())
	if e.reason != 0 {
		b = binary.AppendUvarint(b, uint64(e.reason-1))
	}
	if e.expiry != 0 {
		b = binary.AppendUvarint(b, uint64(e.expiry))
	}
	return b
}

// appendRecord encodes a record: at most maxSources entries, and dropped if it
// had more.
func appendRecord(b, key []byte, entries []entry, dropped bool) []byte {
	b = binary.AppendUvarint(b, uint64(len(key)))
	b = append(b, key...)
	count := byte(len(entries))
	if dropped {
		count |= droppedBit
	}
	b = append(b, count)
	for _, e := range entries {
		b = appendEntry(b, e)
	}
	return b
}

// cursor reads a record from bytes that may be anything. After a read beyond the
// end or of an impossible value bad is set, and every further read gives zero.
type cursor struct {
	rest []byte
	bad  bool
}

func (c *cursor) fail() uint64 {
	c.bad, c.rest = true, nil
	return 0
}

// uvarint reads a number of at most most.
func (c *cursor) uvarint(most uint64) uint64 {
	v, n := binary.Uvarint(c.rest)
	if n <= 0 || v > most {
		return c.fail()
	}
	c.rest = c.rest[n:]
	return v
}

func (c *cursor) byte() byte {
	if len(c.rest) == 0 {
		return byte(c.fail())
	}
	b := c.rest[0]
	c.rest = c.rest[1:]
	return b
}

func (c *cursor) uint64() uint64 {
	if len(c.rest) < 8 {
		return c.fail()
	}
	v := binary.LittleEndian.Uint64(c.rest)
	c.rest = c.rest[8:]
	return v
}

// bytes fills b.
func (c *cursor) bytes(b []byte) {
	if len(c.rest) < len(b) {
		c.fail()
		return
	}
	copy(b, c.rest)
	c.rest = c.rest[len(b):]
}

// text reads a length of at most most and so many octets, not copied.
func (c *cursor) text(most uint64) []byte {
	n := c.uvarint(most)
	if n > uint64(len(c.rest)) {
		c.fail()
		return nil
	}
	b := c.rest[:n]
	c.rest = c.rest[n:]
	return b
}

// key reads the head of a record up to its key.
func (c *cursor) key() []byte {
	b := c.text(maxStored)
	if len(b) == 0 {
		c.fail()
	}
	return b
}

// sources reads the number of entries that follow.
func (c *cursor) sources() (n int, dropped bool) {
	b := c.byte()
	n = int(b &^ droppedBit)
	if n == 0 || n > maxSources {
		c.fail()
		return 0, false
	}
	return n, b&droppedBit != 0
}

func (c *cursor) entry() entry {
	e := entry{row: int(c.uvarint(maxLists)), line: int(c.uvarint(math.MaxInt))}
	flags := c.byte()
	e.action, e.scope = asked(flags)
	if flags&^flagsKnown != 0 || e.action > lists.AllowIfAuth {
		c.fail()
		return e
	}
	if flags&flagReason != 0 {
		e.reason = uint32(c.uvarint(maxReasons-1)) + 1
	}
	if flags&flagExpiry != 0 {
		e.expiry = int64(c.uvarint(math.MaxInt64))
	}
	return e
}

// recordKey is the key of a record that this build has encoded.
func recordKey(record []byte) []byte {
	c := cursor{rest: record}
	return c.key()
}

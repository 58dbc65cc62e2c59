package format

import (
	"encoding/binary"
	"math"

	"blockd/lists"
)

const (
	MaxSources = 64 // of a record

	// maxRecord is the format's bound. 64 entries of at most 26 bytes (row 3,
	// line 9, flags 1, reason 4, expiry 9) and the longest key are 2,668.
	maxRecord = 3000

	// minRecord is a key of one octet with one source: two lengths, the octet,
	// row, line and flags.
	minRecord         = 6
	MaxRecordsPerPage = (PageSize - pageHead) / (minRecord + SlotBytes)

	droppedBit = 0x80 // of a record's source count: it had more sources
)

// Entry is what one source says about a key.
type Entry struct {
	Row    int // of the list table
	Line   int
	Scope  lists.Scope
	Action lists.Action
	Reason uint32 // 1 + number in the reason table; 0 = none
	Expiry int64  // Unix seconds; 0 = never
}

// The flags of an entry: those of Asks, and which optional fields follow.
const (
	FlagReason = 1 << 4
	FlagExpiry = 1 << 5
	flagsKnown = 1<<7 - 1
)

// Flags are its flag byte.
func (e *Entry) Flags() byte {
	flags := Asks(e.Action, e.Scope)
	if e.Reason != 0 {
		flags |= FlagReason
	}
	if e.Expiry != 0 {
		flags |= FlagExpiry
	}
	return flags
}

// Asks are the flags of an action and a scope. The third bit of an action lies
// apart from the others, where it was free when there came to be a fifth.
func Asks(a lists.Action, s lists.Scope) byte {
	return byte(a&3) | byte(s)<<2 | byte(a>>2)<<6
}

// Asked is the inverse of Asks; what else is in flags does not matter.
func Asked(flags byte) (lists.Action, lists.Scope) {
	return lists.Action(flags&3 | flags>>6&1<<2), lists.Scope(flags >> 2 & 3)
}

// AppendEntry encodes one entry of a record.
func AppendEntry(b []byte, e Entry) []byte {
	b = binary.AppendUvarint(b, uint64(e.Row))
	b = binary.AppendUvarint(b, uint64(e.Line))
	b = append(b, e.Flags())
	if e.Reason != 0 {
		b = binary.AppendUvarint(b, uint64(e.Reason-1))
	}
	if e.Expiry != 0 {
		b = binary.AppendUvarint(b, uint64(e.Expiry))
	}
	return b
}

// AppendRecord encodes a record: at most MaxSources entries, and dropped if it
// had more.
func AppendRecord(b, key []byte, entries []Entry, dropped bool) []byte {
	b = binary.AppendUvarint(b, uint64(len(key)))
	b = append(b, key...)
	count := byte(len(entries))
	if dropped {
		count |= droppedBit
	}
	b = append(b, count)
	for _, e := range entries {
		b = AppendEntry(b, e)
	}
	return b
}

// Cursor reads a record from bytes that may be anything. After a read beyond the
// end or of an impossible value Bad is set, and every further read gives zero.
type Cursor struct {
	Rest []byte
	Bad  bool
}

// Fail says that the bytes are no record.
func (c *Cursor) Fail() uint64 {
	c.Bad, c.Rest = true, nil
	return 0
}

// Uvarint reads a number of at most most.
func (c *Cursor) Uvarint(most uint64) uint64 {
	v, n := binary.Uvarint(c.Rest)
	if n <= 0 || v > most {
		return c.Fail()
	}
	c.Rest = c.Rest[n:]
	return v
}

// Byte reads one.
func (c *Cursor) Byte() byte {
	if len(c.Rest) == 0 {
		return byte(c.Fail())
	}
	b := c.Rest[0]
	c.Rest = c.Rest[1:]
	return b
}

// Uint64 reads one of eight octets.
func (c *Cursor) Uint64() uint64 {
	if len(c.Rest) < 8 {
		return c.Fail()
	}
	v := binary.LittleEndian.Uint64(c.Rest)
	c.Rest = c.Rest[8:]
	return v
}

// Bytes fills b.
func (c *Cursor) Bytes(b []byte) {
	if len(c.Rest) < len(b) {
		c.Fail()
		return
	}
	copy(b, c.Rest)
	c.Rest = c.Rest[len(b):]
}

// Text reads a length of at most most and so many octets, not copied.
func (c *Cursor) Text(most uint64) []byte {
	n := c.Uvarint(most)
	if n > uint64(len(c.Rest)) {
		c.Fail()
		return nil
	}
	b := c.Rest[:n]
	c.Rest = c.Rest[n:]
	return b
}

// Key reads the head of a record up to its key.
func (c *Cursor) Key() []byte {
	b := c.Text(MaxStored)
	if len(b) == 0 {
		c.Fail()
	}
	return b
}

// Sources reads the number of entries that follow.
func (c *Cursor) Sources() (n int, dropped bool) {
	b := c.Byte()
	n = int(b &^ droppedBit)
	if n == 0 || n > MaxSources {
		c.Fail()
		return 0, false
	}
	return n, b&droppedBit != 0
}

// Entry reads one of the entries that Sources has told of.
func (c *Cursor) Entry() Entry {
	e := Entry{Row: int(c.Uvarint(MaxLists)), Line: int(c.Uvarint(math.MaxInt))}
	flags := c.Byte()
	e.Action, e.Scope = Asked(flags)
	if flags&^flagsKnown != 0 || e.Action > lists.AllowIfAuth {
		c.Fail()
		return e
	}
	if flags&FlagReason != 0 {
		e.Reason = uint32(c.Uvarint(MaxReasons-1)) + 1
	}
	if flags&FlagExpiry != 0 {
		e.Expiry = int64(c.Uvarint(math.MaxInt64))
	}
	return e
}

// RecordKey is the key of a record that this build has encoded.
func RecordKey(record []byte) []byte {
	c := Cursor{Rest: record}
	return c.Key()
}

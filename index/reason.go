package index

import (
	"encoding/binary"
	"hash/maphash"
	"io"
)

// reasonHead is the count and four reserved bytes before the offsets.
const reasonHead = 8

// reasonTable collects the distinct reason texts of a build. Some formats give
// each entry a text of its own, so like the records these are one large block.
type reasonTable struct {
	seed maphash.Seed
	text []byte
	ends []uint64          // of each reason in text
	byID map[uint64]uint32 // hash of a text -> its number; no pointers in it
}

func newReasonTable() reasonTable {
	return reasonTable{seed: maphash.MakeSeed(), byID: map[uint64]uint32{}}
}

func (t *reasonTable) get(number uint32) []byte {
	begin := uint64(0)
	if number > 0 {
		begin = t.ends[number-1]
	}
	return t.text[begin:t.ends[number]]
}

// add returns the number of reason, and false when the table is full.
func (t *reasonTable) add(reason string) (number uint32, ok bool) {
	sum := maphash.String(t.seed, reason)
	if n, known := t.byID[sum]; known && string(t.get(n)) == reason {
		return n, true
	}
	// Two texts with one 64-bit hash cost a text stored twice, nothing more.
	if len(t.ends) == maxReasons {
		return 0, false
	}
	n := uint32(len(t.ends))
	t.put([]byte(reason))
	t.byID[sum] = n
	return n, true
}

// put gives a reason the next number, whether or not the table has it.
func (t *reasonTable) put(reason []byte) {
	t.text = append(t.text, reason...)
	t.ends = append(t.ends, uint64(len(t.text)))
}

// size is that of the section.
func (t *reasonTable) size() uint64 {
	return reasonHead + 8*uint64(len(t.ends)+1) + uint64(len(t.text))
}

// writeTo writes the section: the count, where each text begins and the last
// one ends, and the texts.
func (t *reasonTable) writeTo(w io.Writer) error {
	b := make([]byte, 0, reasonHead+8*(len(t.ends)+1))
	b = binary.LittleEndian.AppendUint64(b, uint64(len(t.ends)))
	b = binary.LittleEndian.AppendUint64(b, 0)
	for _, end := range t.ends {
		b = binary.LittleEndian.AppendUint64(b, end)
	}
	if _, err := w.Write(b); err != nil {
		return err
	}
	_, err := w.Write(t.text)
	return err
}

// reasonAt returns the text with this number, in the section's memory.
func reasonAt(section []byte, number uint32) ([]byte, bool) {
	le := binary.LittleEndian
	if len(section) < reasonHead || uint64(number) >= le.Uint64(section) {
		return nil, false
	}
	text := reasonHead + 8*(le.Uint64(section)+1)
	if le.Uint64(section) > maxReasons || text > uint64(len(section)) {
		return nil, false
	}
	at := section[reasonHead+8*int(number):]
	begin, end := le.Uint64(at), le.Uint64(at[8:])
	if begin > end || end-begin > maxReason || end > uint64(len(section))-text {
		return nil, false
	}
	return section[text+begin : text+end], true
}

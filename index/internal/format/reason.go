package format

import (
	"encoding/binary"
	"hash/maphash"
	"io"
)

// reasonHead is the count and four reserved bytes before the offsets.
const reasonHead = 8

// ReasonTable collects the distinct reason texts of a build. Some formats give
// each entry a text of its own, so like the records these are one large block.
type ReasonTable struct {
	seed maphash.Seed
	text []byte
	Ends []uint64          // of each reason in text
	byID map[uint64]uint32 // hash of a text -> its number; no pointers in it
}

// NewReasonTable has no reasons.
func NewReasonTable() ReasonTable {
	return ReasonTable{seed: maphash.MakeSeed(), byID: map[uint64]uint32{}}
}

// Get returns the reason of a number.
func (t *ReasonTable) Get(number uint32) []byte {
	begin := uint64(0)
	if number > 0 {
		begin = t.Ends[number-1]
	}
	return t.text[begin:t.Ends[number]]
}

// Add returns the number of reason, and false when the table is full.
func (t *ReasonTable) Add(reason string) (number uint32, ok bool) {
	sum := maphash.String(t.seed, reason)
	if n, known := t.byID[sum]; known && string(t.Get(n)) == reason {
		return n, true
	}
	// Two texts with one 64-bit hash cost a text stored twice, nothing more.
	if len(t.Ends) == MaxReasons {
		return 0, false
	}
	n := uint32(len(t.Ends))
	t.Put([]byte(reason))
	t.byID[sum] = n
	return n, true
}

// Put gives a reason the next number, whether or not the table has it.
func (t *ReasonTable) Put(reason []byte) {
	t.text = append(t.text, reason...)
	t.Ends = append(t.Ends, uint64(len(t.text)))
}

// Size is that of the section.
func (t *ReasonTable) Size() uint64 {
	return reasonHead + 8*uint64(len(t.Ends)+1) + uint64(len(t.text))
}

// EncodeTo writes the section: the count, where each text begins and the last
// one ends, and the texts.
func (t *ReasonTable) EncodeTo(w io.Writer) error {
	b := make([]byte, 0, reasonHead+8*(len(t.Ends)+1))
	b = binary.LittleEndian.AppendUint64(b, uint64(len(t.Ends)))
	b = binary.LittleEndian.AppendUint64(b, 0)
	for _, end := range t.Ends {
		b = binary.LittleEndian.AppendUint64(b, end)
	}
	if _, err := w.Write(b); err != nil {
		return err
	}
	_, err := w.Write(t.text)
	return err
}

// ReasonAt returns the text with this number, in the section's memory.
func ReasonAt(section []byte, number uint32) ([]byte, bool) {
	le := binary.LittleEndian
	if len(section) < reasonHead || uint64(number) >= le.Uint64(section) {
		return nil, false
	}
	text := reasonHead + 8*(le.Uint64(section)+1)
	if le.Uint64(section) > MaxReasons || text > uint64(len(section)) {
		return nil, false
	}
	at := section[reasonHead+8*int(number):]
	begin, end := le.Uint64(at), le.Uint64(at[8:])
	if begin > end || end-begin > MaxReason || end > uint64(len(section))-text {
		return nil, false
	}
	return section[text+begin : text+end], true
}

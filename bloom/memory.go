package bloom

import (
	"encoding/binary"
	"math/bits"
	"unsafe"
)

// Over returns the filter whose bits are mem, as WriteTo wrote them. It copies
// nothing: mem must not change, and must outlive the Filter. ok is false where
// that cannot be: on a machine of another byte order than the file's, and for
// memory that is no whole number of blocks or not aligned to lanes. Has and
// HasBatch read mem, which may fault if it is a file's.
func Over(mem []byte) (f *Filter, ok bool) {
	if binary.NativeEndian.Uint16([]byte{1, 0}) != 1 {
		return nil, false
	}
	return over(mem)
}

// Decode is Over for memory that is the caller's to write: what WriteTo wrote
// there is put into this machine's byte order in place, once.
func Decode(mem []byte) (f *Filter, ok bool) {
	if f, ok = over(mem); ok && binary.NativeEndian.Uint16([]byte{1, 0}) != 1 {
		f.reverse()
	}
	return f, ok
}

func over(mem []byte) (*Filter, bool) {
	first := unsafe.Pointer(unsafe.SliceData(mem))
	if len(mem) == 0 || len(mem)%BlockBytes != 0 || uintptr(first)%unsafe.Alignof(block{}) != 0 {
		return nil, false
	}
	return &Filter{blocks: unsafe.Slice((*block)(first), len(mem)/BlockBytes)}, true
}

// reverse turns the octets of every lane around.
func (f *Filter) reverse() {
	for i := range f.blocks {
		for lane, v := range f.blocks[i] {
			f.blocks[i][lane] = bits.ReverseBytes32(v)
		}
	}
}

// Offset is where the block of h lies in the memory of the filter, in bytes.
func (f *Filter) Offset(h Hash) uint64 {
	return place(h, uint64(len(f.blocks))) * BlockBytes
}

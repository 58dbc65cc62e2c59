package filter

// Programs number the bits of their octets in three ways.

// bigWords are words of 64 bits, each written with its highest octet first. Bit 0 is the
// lowest bit of the first word.
type bigWords []byte

func (a bigWords) has(bit uint64) bool { return a[bit/8^7]&(1<<(bit%8)) != 0 }
func (a bigWords) set(bit uint64)      { a[bit/8^7] |= 1 << (bit % 8) }

// lowFirst are octets. Bit 0 is the lowest bit of the first.
type lowFirst []byte

func (a lowFirst) has(bit uint64) bool { return a[bit/8]&(1<<(bit%8)) != 0 }
func (a lowFirst) set(bit uint64)      { a[bit/8] |= 1 << (bit % 8) }

// highFirst are octets as SETBIT of Redis numbers them: bit 0 is the highest bit of the
// first. What lies past the end is not set.
type highFirst []byte

func (a highFirst) has(bit uint64) bool {
	return bit/8 < uint64(len(a)) && a[bit/8]&(0x80>>(bit%8)) != 0
}
func (a highFirst) set(bit uint64) { a[bit/8] |= 0x80 >> (bit % 8) }

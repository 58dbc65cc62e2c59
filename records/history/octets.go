package history

import (
	"encoding/binary"
	"math/bits"
)

// A search passes over millions of lines, so what it does with each of them is done with eight octets at a time.
const (
	ones  = 0x0101010101010101
	highs = 0x80 * ones
)

// lowered appends line to dst with the letters of ASCII in lower case. ascii is false if there are octets beyond ASCII; what it has appended
// then is of no use.
func lowered(dst, line []byte) (low []byte, ascii bool) {
	high := uint64(0)
	for ; len(line) >= 8; line = line[8:] {
		x := binary.LittleEndian.Uint64(line)
		high |= x
		// For octets of ASCII the first sum has the high bit from 'A' on, and the second one from the octet after 'Z' on: letters differ.
		upper := ((x + (0x80-'A')*ones) ^ (x + (0x7f-'Z')*ones)) & highs
		dst = binary.LittleEndian.AppendUint64(dst, x|upper>>2)
	}
	for _, c := range line {
		high |= uint64(c)
		if 'A' <= c && c <= 'Z' {
			c += 'a' - 'A'
		}
		dst = append(dst, c)
	}
	return dst, high&highs == 0
}

// lastEnd is the index of the last line end in text, -1 if there is none.
func lastEnd(text []byte) int {
	end := len(text)
	for ; end >= 8; end -= 8 {
		x := binary.LittleEndian.Uint64(text[end-8:]) ^ '\n'*ones
		// Line ends are zero now. The lowest zero has its high bit set rightly; an octet of one above a zero may have it too, since the
		// subtraction borrows from it. So the highest bit is where to begin, and there is a line end there or below.
		if zero := (x - ones) &^ x & highs; zero != 0 {
			for at := end - 8 + bits.Len64(zero)/8 - 1; ; at-- {
				if text[at] == '\n' {
					return at
				}
			}
		}
	}
	for end--; end >= 0 && text[end] != '\n'; end-- {
	}
	return end
}

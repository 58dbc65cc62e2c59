package reply

import "math/rand/v2"

// refLength is the length of a reference: ten digits are 50 random bits. Of a
// million decisions, a day of a large site, two share one with a chance of 1 in
// 2,000, and the log line's time tells those apart.
const refLength = 10

// NewRef draws a reference in Crockford's base 32, which has no letter that is
// misread on the telephone. The generator is the runtime's, seeded by the system.
func NewRef() string {
	const digits = "0123456789abcdefghjkmnpqrstvwxyz"
	var ref [refLength]byte
	bits := rand.Uint64()
	for i := range ref {
		ref[i] = digits[bits&31]
		bits >>= 5
	}
	return string(ref[:])
}

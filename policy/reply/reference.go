package reply

import "math/rand/v2"

// RefLength is the length of a reference: ten digits are 50 random bits. Of a
// million decisions, a day of a large site, two share one with a chance of 1 in
// 2,000, and the log line's time tells those apart.
const RefLength = 10

// maxRef is the length of a reference with a proof behind it (package receipt).
const maxRef = 16

// NewRef draws a reference in Crockford's base 32, which has no letter that is
// misread on the telephone. The generator is the runtime's, seeded by the system.
func NewRef() string {
	var octets [RefLength]byte
	bits := rand.Uint64()
	for i := range octets {
		octets[i] = byte(bits)
		bits >>= 5
	}
	return Digits(octets[:])
}

// Digits writes the lowest five bits of each octet as a digit of a reference.
func Digits(octets []byte) string {
	const digits = "0123456789abcdefghjkmnpqrstvwxyz"
	text := make([]byte, len(octets))
	for i, octet := range octets {
		text[i] = digits[octet&31]
	}
	return string(text)
}

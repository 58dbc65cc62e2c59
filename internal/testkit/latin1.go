package testkit

// Latin1 has a character for each octet of b, so that a regular expression can be written
// for octets.
func Latin1(b []byte) string {
	r := make([]rune, len(b))
	for i, c := range b {
		r[i] = rune(c)
	}
	return string(r)
}

// Octets is the way back from Latin1.
func Octets(s string) string {
	b := make([]byte, 0, len(s))
	for _, r := range s {
		b = append(b, byte(r))
	}
	return string(b)
}

package wire

import "bytes"

// Unstuff takes the doubled dots out of message data that Data has settled
// (RFC 5321, section 4.5.2). The zero Unstuff stands at the start of a message.
type Unstuff struct {
	inside bool // the next octet does not begin a line
}

// Next returns the first part of p without a doubled dot, as the reader of the
// message gets it, and the rest of p. Of the dot line it leaves
// CRLF.
func (u *Unstuff) Next(p []byte) (text, rest []byte) {
	if !u.inside && len(p) > 0 && p[0] == '.' {
		p = p[1:]
		u.inside = true
	}
	if i := bytes.Index(p, []byte("\n.")); i >= 0 {
		u.inside = false
		return p[:i+1], p[i+1:]
	}
	if len(p) > 0 {
		u.inside = p[len(p)-1] != '\n'
	}
	return p, nil
}

package wire

import "bytes"

// Data finds the end of message data: the first CRLF.CRLF, where the CRLF of the
// DATA command counts as the first (RFC 5321, section 4.1.1.4). The zero Data
// stands at the start of a message. It holds no bytes.
type Data struct {
	line position
	bare bool  // a bare CR, LF or NUL was found: now Scan looks only for the end
	done bool  // the dot line was settled
	read int64 // octets settled
	dots int64 // of them, dots that begin a line: stuffed ones, and that of the dot line
}

// Size is the size of the message so far, as SIZE counts it (RFC 1870, section 3):
// with its CRLFs, without the doubled dots and without the dot line.
func (d *Data) Size() int64 {
	size := d.read - d.dots
	if d.done {
		size -= int64(len("\r\n"))
	}
	return size
}

// position is where in a line the next octet stands.
type position uint8

const (
	atStart  position = iota // after CRLF
	afterDot                 // after CRLF and one dot
	inside                   // anywhere else
)

// Scan looks at p, the octets that follow those already settled, and returns
// how many of p it settled. They belong to the message, to its very last octet
// if done. Pieces may be cut anywhere: a CR at the end of p stays unsettled,
// because only the next octet tells what it is, so offer it again with more.
//
// The first bare CR, bare LF or NUL gives ErrBare, with n the octets before it.
// Scan then goes on after it, without further errors, to the real end. A false end
// of data, which a lax server would accept, is plain data here.
func (d *Data) Scan(p []byte) (n int, done bool, err error) {
	n, done, err = d.scan(p)
	d.read += int64(n)
	d.done = done
	return n, done, err
}

func (d *Data) scan(p []byte) (n int, done bool, err error) {
	whole := p
	if !d.bare {
		if i := bytes.IndexByte(p, 0); i >= 0 {
			p = p[:i] // the message may end before the NUL
		}
	}
	for n < len(p) {
		lf := bytes.IndexByte(p[n:], '\n')
		if lf < 0 {
			break
		}
		text := p[n : n+lf]
		cr := lf - 1
		if !d.bare {
			cr = bytes.IndexByte(text, '\r')
		}
		switch {
		case cr >= 0 && cr == lf-1 && text[cr] == '\r':
			done = d.ends(text[:cr])
			d.countDot(text)
			d.line = atStart
		case d.bare:
			d.countDot(text)
			d.line = inside
		case cr < 0: // bare LF
			return d.fault(n, text)
		default: // bare CR
			return d.fault(n, text[:cr])
		}
		n += lf + 1
		if done {
			return n, true, nil
		}
	}
	// A piece of a line, without LF.
	text := p[n:]
	cr := bytes.IndexByte(text, '\r')
	switch {
	case d.bare:
		text = bytes.TrimSuffix(text, []byte{'\r'})
	case cr >= 0 && (cr < len(text)-1 || len(p) < len(whole)):
		return d.fault(n, text[:cr])
	case len(p) < len(whole):
		return d.fault(n, text)
	case cr >= 0:
		text = text[:cr]
	}
	d.advance(text)
	return n + len(text), false, nil
}

// ends reports whether text, whole up to a CRLF, makes the line of a single dot.
func (d *Data) ends(text []byte) bool {
	return d.line == atStart && len(text) == 1 && text[0] == '.' ||
		d.line == afterDot && len(text) == 0
}

// fault settles text, which stands before the first bare octet.
func (d *Data) fault(n int, text []byte) (int, bool, error) {
	d.advance(text)
	d.bare = true
	return n + len(text), false, ErrBare
}

// countDot counts the dot of a line that begins with text.
func (d *Data) countDot(text []byte) {
	if d.line == atStart && len(text) > 0 && text[0] == '.' {
		d.dots++
	}
}

// advance moves the position over a piece of a line.
func (d *Data) advance(text []byte) {
	d.countDot(text)
	switch {
	case len(text) == 0:
	case d.line == atStart && len(text) == 1 && text[0] == '.':
		d.line = afterDot
	default:
		d.line = inside
	}
}

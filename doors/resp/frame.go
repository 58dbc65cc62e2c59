package resp

import "bytes"

// The bounds of one command. Redis allows 1,048,576 arguments, 512 MiB each and 64 KiB in a line.
const (
	maxArguments = 1024
	maxBulk      = 64 << 10
	maxCommand   = 1 << 20 // all arguments together, with their lengths
	maxLine      = 1 << 10 // of a command without lengths, as people type it
	maxDigits    = 10      // of a number in a command
)

// fault is why a connection ends before its peer ends it; the text is the label of the
// metric.
type fault string

func (f fault) Error() string { return string(f) }

// The faults.
const (
	errTooLong   fault = "too-long"  // a bound of one command
	errMalformed fault = "malformed" // no command
	errHTTP      fault = "http"      // an HTTP client, such as a web browser led here
	errSlow      fault = "slow"      // not whole within commandTime
	errUnread    fault = "unread"    // the peer takes no answers
	errMemory    fault = "memory"    // unfinished commands and unread answers of all connections
	errPasswords fault = "passwords" // too many wrong ones
	errPanic     fault = "panic"     // a defect of blockd
)

// frame finds the end of a command in the octets that have come so far. It goes on where it
// stopped, so that a command that comes octet by octet costs no more than one that comes whole.
// The library has no bounds, and takes a negative length for a place in its buffer: it is
// given whole frames that measure has checked.
type frame struct {
	at   int // octets that are checked
	left int // arguments that have not begun; -1: the first line is not read
}

// first is the frame before the first octet of a command.
func first() frame { return frame{left: -1} }

// measure returns the length of the command at the start of buf, 0 as long as it is not
// whole. Between two calls buf only grows at its end.
func (f *frame) measure(buf []byte) (int, error) {
	if len(buf) == 0 {
		return 0, nil
	}
	if f.left < 0 {
		if buf[0] != '*' {
			return f.line(buf)
		}
		n, end, err := number(buf[1:])
		switch {
		case end == 0 || err != nil:
			return 0, err
		case n > maxArguments:
			return 0, errTooLong
		}
		f.at, f.left = 1+end, max(n, 0)
	}
	for f.left > 0 {
		rest := buf[f.at:]
		if len(rest) == 0 {
			return 0, nil
		}
		if rest[0] != '$' {
			return 0, errMalformed
		}
		n, end, err := number(rest[1:])
		switch {
		case err != nil:
			return 0, err
		case end == 0:
			return 0, nil
		case n < 0:
			return 0, errMalformed
		case n > maxBulk || f.at+n > maxCommand:
			return 0, errTooLong
		}
		next := 1 + end + n
		if len(rest) < next+2 {
			return 0, nil
		}
		if rest[next] != '\r' || rest[next+1] != '\n' {
			return 0, errMalformed
		}
		f.at += next + 2
		f.left--
	}
	return f.at, nil
}

// line measures a command without lengths, which ends at its line end. A "$" would begin a command of
// another protocol that the library knows.
func (f *frame) line(buf []byte) (int, error) {
	if buf[0] == '$' {
		return 0, errMalformed
	}
	end := bytes.IndexByte(buf[f.at:min(len(buf), maxLine)], '\n')
	switch {
	case end >= 0:
		return f.at + end + 1, nil
	case len(buf) >= maxLine:
		return 0, errTooLong
	}
	f.at = len(buf)
	return 0, nil
}

// number reads a number and its line end; end is their length, 0 as long as they are not
// whole.
func number(buf []byte) (n, end int, err error) {
	sign, first := 1, 0
	if len(buf) > 0 && buf[0] == '-' {
		sign, first = -1, 1
	}
	for i := first; i < len(buf); i++ {
		c := buf[i]
		switch {
		case '0' <= c && c <= '9' && i < first+maxDigits:
			n = 10*n + int(c-'0')
		case c != '\r' || i == first:
			return 0, 0, errMalformed
		case i+1 == len(buf):
			return 0, 0, nil
		case buf[i+1] != '\n':
			return 0, 0, errMalformed
		default:
			return sign * n, i + 2, nil
		}
	}
	return 0, 0, nil
}

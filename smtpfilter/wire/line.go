package wire

import (
	"bytes"
	"errors"
	"io"
)

// MaxLine is the longest command line, with its CRLF. RFC 5321, section
// 4.5.3.1.4, asks for 512 octets; DSN, SMTPUTF8 and the rest add some 1,500.
const MaxLine = 4096

// MaxAuthLine is the longest line of an AUTH exchange, with its CRLF: RFC 4954,
// section 4.
const MaxAuthLine = 12288

// maxSkip ends a session whose line never ends: the octets that Line throws away of one
// line before it gives up. No honest client sends so much.
const maxSkip = 1 << 20

// Errors of Reader.Line. After ErrLongLine the stream goes on after the line.
// After the others the place of the next command is unknown.
var (
	ErrLongLine    = errors.New("command line too long")
	ErrEndlessLine = errors.New("command line without end")
	ErrBare        = errors.New("bare CR, bare LF or NUL")
)

// Reader reads the client's side of a session: command lines and, between
// them, message data. It keeps ownBuffer octets, MaxLine while a longer line is under
// way, and more only while a buffer is lent to it with Widen. It is for one goroutine.
type Reader struct {
	src   io.Reader
	own   []byte // ownBuffer octets
	buf   []byte // own, one of MaxLine octets, or the lent one
	lent  bool
	more  bool // the last read has filled buf, so more octets wait
	start int  // buf[start:end] is read and not consumed
	end   int
}

// ownBuffer is the buffer of an idle session for its next command: the longest
// line of RFC 5321 without extensions. Most sessions never need more, and ten thousand
// idle ones need 35 MB less than with MaxLine.
const ownBuffer = 512

// NewReader returns a Reader of src.
func NewReader(src io.Reader) *Reader {
	own := make([]byte, ownBuffer)
	return &Reader{src: src, own: own, buf: own}
}

// Reset makes r read from src, like a new Reader. Nothing of the old source is left in
// its own octets. A lent buffer is given up.
func (r *Reader) Reset(src io.Reader) {
	clear(r.own)
	*r = Reader{src: src, own: r.own, buf: r.own}
}

// Line returns the next command line without its CRLF. The slice holds until
// the next call of any method. At the end of the stream it gives io.EOF, within
// a line io.ErrUnexpectedEOF; other errors of the source are returned as they are.
func (r *Reader) Line() ([]byte, error) { return r.line(MaxLine) }

// AuthLine is Line with the bound of AUTH. It needs a lent buffer of more than
// MaxAuthLine octets.
func (r *Reader) AuthLine() ([]byte, error) { return r.line(MaxAuthLine) }

func (r *Reader) line(most int) ([]byte, error) {
	for seen := 0; ; {
		unread := r.Buffered()
		if i := bytes.IndexByte(unread[seen:], '\n'); i >= 0 {
			line := unread[:seen+i+1]
			r.start += len(line)
			return checkLine(line, most)
		}
		if seen = len(unread); seen >= most {
			return nil, r.skipLine()
		}
		if err := r.Fill(); err != nil {
			if err == io.EOF && seen > 0 {
				err = io.ErrUnexpectedEOF
			}
			return nil, err
		}
	}
}

// checkLine strips CRLF from a line that ends in LF.
func checkLine(line []byte, most int) ([]byte, error) {
	n := len(line) - 2
	switch {
	case n < 0 || line[n] != '\r':
		return nil, ErrBare
	case len(line) > most:
		return nil, ErrLongLine
	case bytes.IndexByte(line[:n], '\r') >= 0 || bytes.IndexByte(line[:n], 0) >= 0:
		return nil, ErrBare
	}
	return line[:n], nil
}

// skipLine throws the rest of a line away, without keeping any of it.
func (r *Reader) skipLine() error {
	skipped, last := 0, byte(0) // last octet of the piece before
	for {
		unread := r.Buffered()
		if i := bytes.IndexByte(unread, '\n'); i >= 0 {
			if i > 0 {
				last = unread[i-1]
			}
			r.start += i + 1
			if last != '\r' {
				return ErrBare
			}
			return ErrLongLine
		}
		if len(unread) > 0 {
			last = unread[len(unread)-1]
		}
		skipped += len(unread)
		r.start = r.end
		if skipped > maxSkip {
			return ErrEndlessLine
		}
		if err := r.Fill(); err != nil {
			if err == io.EOF {
				err = io.ErrUnexpectedEOF
			}
			return err
		}
	}
}

// Ready reports whether Line can answer without reading from the source.
func (r *Reader) Ready() bool {
	return bytes.IndexByte(r.Buffered(), '\n') >= 0
}

// Buffered returns what is read and not consumed. The slice holds until the
// next call of another method.
func (r *Reader) Buffered() []byte { return r.buf[r.start:r.end] }

// Discard consumes the first n octets of Buffered.
func (r *Reader) Discard(n int) { r.start += n }

// Fill reads once from the source, after the buffered octets. Call it only with
// room in the buffer, that is with fewer than MaxLine octets in Buffered.
func (r *Reader) Fill() error {
	switch {
	case r.lent:
		r.end = copy(r.buf, r.Buffered())
		r.start = 0
	case r.end-r.start < len(r.own) && !r.more:
		r.move(r.own)
	case len(r.buf) == len(r.own):
		r.move(make([]byte, MaxLine)) // a long line, or many commands at a time
	default:
		r.move(r.buf)
	}
	for range 100 { // as bufio does: a source that gives neither data nor error is broken
		n, err := r.src.Read(r.buf[r.end:])
		r.end += n
		if n > 0 {
			r.more = r.end == len(r.buf)
			return nil // the source repeats its error
		}
		if err != nil {
			return err
		}
	}
	return io.ErrNoProgress
}

// move brings the unread octets to the beginning of buf. It clears the buffer that it
// gives up: that may hold a password, which Wipe could not find.
func (r *Reader) move(buf []byte) {
	old := r.buf
	r.end = copy(buf, r.Buffered())
	r.start = 0
	r.buf = buf
	if !r.lent && &old[0] != &r.own[0] && &old[0] != &buf[0] {
		clear(old)
	}
}

// Wipe overwrites the consumed octets, which may have been a password.
func (r *Reader) Wipe() {
	clear(r.buf[:r.start])
	clear(r.buf[r.end:])
	if &r.buf[0] != &r.own[0] {
		clear(r.own)
	}
}

// Wide reports whether a buffer is lent.
func (r *Reader) Wide() bool { return r.lent }

// Widen lends buf, of more than MaxLine octets, to r until Narrow returns it.
func (r *Reader) Widen(buf []byte) {
	r.move(buf)
	r.lent = true
}

// Narrow returns the lent buffer as soon as the unread octets fit into a line's. Until
// then, and if none was lent, it returns nil.
func (r *Reader) Narrow() []byte {
	unread := r.end - r.start
	if !r.lent || unread > MaxLine {
		return nil
	}
	lent := r.buf
	if unread <= len(r.own) {
		r.move(r.own)
	} else {
		r.move(make([]byte, MaxLine))
	}
	r.lent = false
	return lent
}

package lists

import (
	"bytes"
	"io"
	"strings"
)

const (
	maxLine = 64 << 10 // octets of a line, without its end
	maxText = 4 << 10  // octets of Item.Text
)

// line is one physical line without its end.
type line struct {
	number int // from 1
	text   string
	long   bool // over maxLine octets: text is its beginning
}

// lineReader cuts text into lines. Each block of whole lines becomes one string
// that its lines share, so a line costs no allocation and a line that is kept
// stays what it was. A line over maxLine is read to its end without being kept.
type lineReader struct {
	r      io.Reader
	eol    byte   // '\n', or '\r' in a file without any LF
	buf    []byte // [:held] is a line whose end was not yet read
	held   int
	whole  string // whole lines not yet handed out
	number int    // of the line handed out last
	err    error  // why the text ended; io.EOF is the good end
}

func newLineReader(r io.Reader, eol byte) *lineReader {
	return &lineReader{r: r, eol: eol, buf: make([]byte, blockSize)}
}

// next returns false at the end of the text, and then err says which end it was.
func (lr *lineReader) next() (line, bool) {
	for lr.whole == "" {
		if lr.held == len(lr.buf) {
			return lr.longLine()
		}
		if lr.err != nil {
			return line{}, false
		}
		lr.fill()
	}
	text := lr.whole
	if i := strings.IndexByte(text, lr.eol); i >= 0 {
		text, lr.whole = text[:i], text[i+1:]
	} else {
		lr.whole = "" // the last line lacks its end
	}
	if lr.eol == '\n' {
		text = strings.TrimSuffix(text, "\r")
	}
	lr.number++
	if len(text) > maxLine {
		return line{number: lr.number, text: text[:maxText], long: true}, true
	}
	return line{number: lr.number, text: text}, true
}

// fill reads once and makes the lines that are complete available. At the end of
// the text what is held is a line too; at an error it is not.
func (lr *lineReader) fill() {
	n, err := lr.r.Read(lr.buf[lr.held:])
	end := lr.held + n
	last := bytes.LastIndexByte(lr.buf[lr.held:end], lr.eol)
	switch {
	case err != nil:
		lr.err = err
		if err != io.EOF {
			return
		}
		if end < len(lr.buf) || last >= 0 {
			lr.whole, lr.held = string(lr.buf[:end]), 0
		} else {
			lr.held = end
		}
	case last >= 0:
		cut := lr.held + last + 1
		lr.whole = string(lr.buf[:cut])
		lr.held = copy(lr.buf, lr.buf[cut:end])
	default:
		lr.held = end
	}
}

// longLine drops the rest of a line that fills the whole buffer.
func (lr *lineReader) longLine() (line, bool) {
	lr.number++
	l := line{number: lr.number, text: string(lr.buf[:maxText]), long: true}
	lr.held = 0
	for lr.err == nil {
		n, err := lr.r.Read(lr.buf)
		lr.err = err
		if i := bytes.IndexByte(lr.buf[:n], lr.eol); i >= 0 {
			lr.held = copy(lr.buf, lr.buf[i+1:n])
			lr.settle()
			break
		}
	}
	if lr.err != nil && lr.err != io.EOF {
		return line{}, false
	}
	return l, true
}

// settle hands out the whole lines among what longLine found behind a line.
func (lr *lineReader) settle() {
	cut := bytes.LastIndexByte(lr.buf[:lr.held], lr.eol) + 1
	if lr.err == io.EOF {
		cut = lr.held
	}
	lr.whole = string(lr.buf[:cut])
	lr.held = copy(lr.buf, lr.buf[cut:lr.held])
}

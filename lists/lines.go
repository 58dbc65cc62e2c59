package lists

import (
	"bytes"
	"io"
	"strings"
	"unicode/utf8"
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

// isControl tells the octets that no line may hold: C0 without TAB and the line
// ends, and DEL. C1 controls have two octets and are found by controlIn.
func isControl(c byte) bool {
	return c < ' ' && c != '\t' && c != '\n' && c != '\r' || c == 0x7f
}

// controlIn returns where the first NUL or, without any, the first control
// character of text is, and its class; -1 if there is none.
func controlIn(text string) (at int, c Class) {
	at = -1
	for i := 0; i < len(text); i++ {
		switch b := text[i]; {
		case b == 0:
			return i, NUL
		case at >= 0:
		case b < 0x20 && b != '\t', b == 0x7f,
			b == 0xc2 && i+1 < len(text) && text[i+1] >= 0x80 && text[i+1] < 0xa0:
			at, c = i, Control
		}
	}
	return at, c
}

// trim cuts leading and trailing blanks off: space, TAB, U+00A0 and U+3000.
func trim(s string) string { return trimRight(trimLeft(s)) }

func trimLeft(s string) string {
	for len(s) > 0 {
		n := blankAt(s)
		if n == 0 {
			break
		}
		s = s[n:]
	}
	return s
}

func trimRight(s string) string {
	for len(s) > 0 {
		switch c := s[len(s)-1]; {
		case c == ' ' || c == '\t':
			s = s[:len(s)-1]
		case c < utf8.RuneSelf:
			return s
		case strings.HasSuffix(s, "\u00a0"), strings.HasSuffix(s, "\u3000"):
			_, n := utf8.DecodeLastRuneInString(s)
			s = s[:len(s)-n]
		default:
			return s
		}
	}
	return s
}

// blankAt returns the octets of the blank that s begins with, 0 without one.
func blankAt(s string) int {
	switch {
	case s == "":
		return 0
	case s[0] == ' ' || s[0] == '\t':
		return 1
	case s[0] < utf8.RuneSelf:
		return 0
	case strings.HasPrefix(s, "\u00a0"):
		return 2
	case strings.HasPrefix(s, "\u3000"):
		return 3
	}
	return 0
}

// indexBlank returns where the first blank of s is, -1 without one.
func indexBlank(s string) int {
	for i := 0; i < len(s); i++ {
		if c := s[i]; c == ' ' || c == '\t' || c >= utf8.RuneSelf && blankAt(s[i:]) > 0 {
			return i
		}
	}
	return -1
}

package lists

import (
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

// lineReader hands out the lines of the blocks that it takes from a cutter, of
// which it may be one reader of several. The lines of a block share its memory, so
// one costs no allocation. A line that is kept stays what it was unless the cutter
// lends its blocks.
type lineReader struct {
	cutter *cutter
	eol    byte
	block  int    // the number of the block in hand; 0 = none
	before string // the last line of the block before, without its end
	run    int    // lines in a row up to that one which have the same owner
	buf    []byte // made when the first block is taken
	whole  string // lines not yet handed out
	number int    // of the line handed out last
	torn   bool   // that line has no end
	long   bool   // whole is the beginning of one line that is longer than buf
	err    error  // why the text ended; io.EOF is the good end
}

// newLineReader makes the only reader of a text.
func newLineReader(r io.Reader, eol byte) *lineReader {
	return newCutter(r, eol, blockSize).reader()
}

// next returns false at the end of the text, and then err says which end it was.
func (lr *lineReader) next() (line, bool) {
	for lr.whole == "" {
		if !lr.cutter.take(lr) {
			return line{}, false
		}
	}
	text := lr.whole
	lr.number++
	if lr.long {
		lr.whole, lr.long = "", false
		return line{number: lr.number, text: text, long: true}, true
	}
	if i := strings.IndexByte(text, lr.eol); i >= 0 {
		text, lr.whole = text[:i], text[i+1:]
	} else {
		lr.whole, lr.torn = "", true // the last line lacks its end
	}
	if n := len(text); n > 0 && text[n-1] == '\r' && lr.eol == '\n' {
		text = text[:n-1]
	}
	if len(text) > maxLine {
		return line{number: lr.number, text: text[:maxText], long: true}, true
	}
	return line{number: lr.number, text: text}, true
}

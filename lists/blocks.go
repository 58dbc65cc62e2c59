package lists

import (
	"bytes"
	"io"
	"math"
	"strings"
	"sync"
	"unsafe"
)

// cutter cuts a text into blocks of whole lines for one lineReader or for several
// at once. There is no goroutine that reads ahead: a reader that wants a block
// reads it itself, under the lock, into its own buffer, and so finds it in its own
// core's cache. Memory is a buffer a reader and one for the line at the border.
type cutter struct {
	r    io.Reader
	eol  byte // '\n', or '\r' in a file without any LF
	size int  // of a block, more than maxLine
	lend bool // the text of a block is overwritten by the next one of its reader, unless only one may read on

	quotes bool // the block with the first quote, and all after it, are for one reader

	mu      sync.Mutex
	freed   sync.Cond     // a block was done with
	readers []*lineReader // made by reader
	blocks  int           // handed out
	lines   int           // in them
	last    string        // line of the block handed out last, without its end
	runs    bool          // lines in a row of one owner are counted
	run     int           // such lines up to the last one
	owner   string        // of the last one
	rest    []byte        // behind them: read, and still to be handed out
	err     error         // why there is no more to read; io.EOF is the good end
	only    *lineReader   // who alone gets more blocks; nil = all do
}

// newCutter makes a cutter of the text in r. size bounds a block, in octets, and is
// more than maxLine.
func newCutter(r io.Reader, eol byte, size int) *cutter {
	c := &cutter{r: r, eol: eol, size: size}
	c.freed.L = &c.mu
	return c
}

// reader adds a reader. All of them are added before the first one reads.
func (c *cutter) reader() *lineReader {
	lr := &lineReader{cutter: c, eol: c.eol}
	c.readers = append(c.readers, lr)
	return lr
}

// take gives lr the next block in place of the one it has. It returns false at the
// end of the text, for which lr.err is the reason then.
func (c *cutter) take(lr *lineReader) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.release(lr)
	if c.only != nil && c.only != lr {
		lr.err = io.EOF
		return false
	}
	if lr.buf == nil {
		lr.buf = make([]byte, c.size)
	}
	text, long := c.cut(lr.buf)
	if len(text) == 0 {
		lr.err = c.err
		return false
	}
	if c.quotes && c.only == nil && bytes.IndexByte(text, '"') >= 0 {
		c.only = lr
	}
	c.blocks++
	lr.block, lr.long, lr.number, lr.before = c.blocks, long, c.lines, c.last
	lr.run = c.run
	whole := bytes.TrimSuffix(text, []byte{c.eol})
	c.last = string(whole[bytes.LastIndexByte(whole, c.eol)+1:]) // some 50 octets of 256 KiB
	if c.runs {
		c.countRun(whole)
	}
	if c.lend && c.only == nil {
		// A copy and what it leaves to the garbage collector took 25 ns a line of 110.
		lr.whole = unsafe.String(&text[0], len(text))
	} else {
		lr.whole = string(text)
	}
	c.lines += bytes.Count(text, []byte{c.eol})
	if text[len(text)-1] != c.eol {
		c.lines++ // the last line of the text, or a long one, has no end here
	}
	return true
}

// cut reads the next block into buf: whole lines, or the beginning of a line that
// buf has no room for, whose rest is dropped. Nothing is left at the end of the
// text, where what has no line end is a line too; at an error it is none.
func (c *cutter) cut(buf []byte) (text []byte, long bool) {
	n := copy(buf, c.rest)
	c.rest = c.rest[:0]
	for n < len(buf) && c.err == nil {
		n += c.read(buf[n:])
	}
	if c.err == io.EOF && n < len(buf) {
		return buf[:n], false
	}
	if end := bytes.LastIndexByte(buf[:n], c.eol) + 1; end > 0 {
		c.rest = append(c.rest, buf[end:n]...)
		return buf[:end], false
	}
	if n < len(buf) || !c.dropLine(buf[maxText:]) {
		return nil, false
	}
	return buf[:maxText], true
}

// dropLine reads on to the end of a line and keeps what is behind it. It returns
// false if the text ends with an error before.
func (c *cutter) dropLine(buf []byte) bool {
	for c.err == nil {
		n := c.read(buf)
		if i := bytes.IndexByte(buf[:n], c.eol); i >= 0 {
			c.rest = append(c.rest, buf[i+1:n]...)
			return true
		}
	}
	return c.err == io.EOF
}

func (c *cutter) read(p []byte) int {
	n, err := c.r.Read(p)
	c.err = err
	return n
}

// lendPlain lends the blocks to come, up to the first one with a quote: a record may go on behind the end of that.
func (c *cutter) lendPlain() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.lend = true
}

// alone keeps all blocks to come for lr.
func (lr *lineReader) alone() {
	c := lr.cutter
	c.mu.Lock()
	defer c.mu.Unlock()
	c.only = lr
}

// empty reports whether no block has been handed out.
func (c *cutter) empty() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.blocks == 0
}

// leave gives up the block that lr has. With an error, which is not one of the
// text, nobody gets another one.
func (lr *lineReader) leave(err error) {
	c := lr.cutter
	c.mu.Lock()
	defer c.mu.Unlock()
	c.release(lr)
	if err != nil {
		c.err, c.rest = err, nil
	}
}

// release says that lr is done with its block.
func (c *cutter) release(lr *lineReader) {
	lr.block = 0
	c.freed.Broadcast()
}

// inTurn waits until every block before the one of lr is done with. From then on lr
// is the first, and has for itself what the readers share, until it takes another
// block. The first one of all never waits, so each gets its turn.
func (lr *lineReader) inTurn() {
	c := lr.cutter
	c.mu.Lock()
	defer c.mu.Unlock()
	for c.first() < lr.block {
		c.freed.Wait()
	}
}

// first is the lowest number of a block in hand.
func (c *cutter) first() int {
	first := math.MaxInt
	for _, lr := range c.readers {
		if lr.block > 0 {
			first = min(first, lr.block)
		}
	}
	return first
}

// countRun counts the last lines of a block that have the same owner, and those that end
// the blocks before it if there is no other line in between. Lines are sorted by owner.
func (c *cutter) countRun(block []byte) {
	owner := OwnerOfLine(block[bytes.LastIndexByte(block, c.eol)+1:])
	n := 0
	for {
		at := bytes.LastIndexByte(block, c.eol)
		if !bytes.Equal(OwnerOfLine(block[at+1:]), owner) {
			break
		}
		n++
		if at < 0 {
			if c.owner == string(owner) {
				n += c.run
			}
			break
		}
		block = block[:at]
	}
	c.run, c.owner = n, string(owner)
}

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

package lists

import (
	"encoding/json"
	"errors"
	"io"
)

const (
	// maxToken bounds a string, a number or a run of blanks in JSON, which the
	// decoder keeps as a whole. An element over maxLine is refused by itself.
	maxToken = 1 << 20

	maxDepth = 1000 // of arrays and objects in each other
)

// members calls each with the names of an object's members, up to its end, and what their values begin with. each reads
// the rest of the value.
func (f *jsonFile) members(each func(name string, t json.Token) error) error {
	for {
		t, err := f.token()
		name, more := t.(string)
		if err != nil || f.r.err != nil || !more {
			return err
		}
		if t, err = f.token(); err != nil {
			return err
		}
		if err := each(name, t); err != nil {
			return err
		}
	}
}

// skipRest reads over the rest of the array or object that was just opened.
func (f *jsonFile) skipRest() error {
	for outside := f.depth - 1; f.depth > outside; {
		if _, err := f.token(); err != nil {
			return err
		}
	}
	return nil
}

// token reads the next token, and its line. A JSON text that ends here is unclosed.
func (f *jsonFile) token() (json.Token, error) {
	t, err := f.dec.Token()
	if err != nil {
		return nil, f.fault(err)
	}
	f.line = f.guard.lineAt(f.dec.InputOffset())
	switch t {
	case json.Delim('['), json.Delim('{'):
		if f.depth++; f.depth > maxDepth {
			return nil, refusal(JSON, "more than %d arrays and objects in each other", maxDepth)
		}
	case json.Delim(']'), json.Delim('}'):
		f.depth--
	}
	return t, nil
}

// fault names what ended the text.
func (f *jsonFile) fault(err error) error {
	var syntax *json.SyntaxError
	switch {
	case errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF):
		return refusal(JSON, "the text ends in the middle")
	case errors.As(err, &syntax):
		f.line = f.guard.lineAt(f.dec.InputOffset() + 1) // it stands before what is wrong
		return refusal(JSON, "%w", err)
	}
	return err // of the file below
}

// jsonGuard stands between the file and the decoder, which keeps one token, and
// the blanks before it, in memory whatever their size. It bounds both, and knows
// the line of an octet that the decoder has reached.
type jsonGuard struct {
	r       io.Reader
	eol     byte
	quoted  bool
	escaped bool
	run     int     // octets since the last structural character or quote
	n       int64   // octets read
	ends    []int64 // offsets behind line ends that lineAt has not passed
	line    int     // at the offset that lineAt was asked for last
	last    byte
}

func (g *jsonGuard) Read(p []byte) (int, error) {
	n, err := g.r.Read(p)
	for i, c := range p[:n] {
		g.run++
		switch {
		case g.escaped:
			g.escaped = false
		case c == '\\':
			g.escaped = g.quoted
		case c == '"':
			g.quoted, g.run = !g.quoted, 0
		case g.quoted:
		case c == '[', c == ']', c == '{', c == '}', c == ',', c == ':':
			g.run = 0
		}
		if c == g.eol {
			g.ends = append(g.ends, g.n+int64(i)+1)
		}
		if g.run > maxToken {
			err := refusal(JSON, "a string, a number or a gap of more than %d octets", maxToken)
			err.Line = g.line + len(g.ends)
			return 0, err
		}
	}
	if n > 0 {
		g.n += int64(n)
		g.last = p[n-1]
	}
	return n, err
}

// lineAt returns the line of the octet before offset. Offsets must not go back.
func (g *jsonGuard) lineAt(offset int64) int {
	passed := 0
	for passed < len(g.ends) && g.ends[passed] < offset {
		passed++
	}
	g.ends = append(g.ends[:0], g.ends[passed:]...)
	g.line += passed
	return g.line
}

// lines returns the physical lines that were read.
func (g *jsonGuard) lines() int {
	n := g.line + len(g.ends)
	if g.n == 0 || g.last == g.eol {
		n--
	}
	return n
}

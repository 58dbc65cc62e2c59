package migration

import (
	"fmt"
	"strings"
)

// The part of UCL, rspamd's configuration language, that its files are written in:
// nested sections, arrays, quoted and bare words, here documents, comments and
// macros.

// maxNodes bounds the values of one document.
const maxNodes = 100_000

// uclKind is what a value is.
type uclKind uint8

const (
	uclText uclKind = iota
	uclObject
	uclArray
)

// uclValue is one value with the line it begins on.
type uclValue struct {
	kind   uclKind
	line   int
	text   string     // of a uclText
	fields []uclField // of a uclObject, in order; a key may stand there again
	items  []uclValue // of a uclArray
}

// uclField is a key of an object. A macro has its name with the dot.
type uclField struct {
	key   string
	line  int
	value uclValue
}

// get returns the last value of a key, in any case.
func (v uclValue) get(key string) (uclValue, bool) {
	for i := len(v.fields) - 1; i >= 0; i-- {
		if strings.EqualFold(v.fields[i].key, key) {
			return v.fields[i].value, true
		}
	}
	return uclValue{}, false
}

// word returns the text of a key, "" if there is none.
func (v uclValue) word(key string) string {
	value, _ := v.get(key)
	return value.text
}

// uclReader reads one document.
type uclReader struct {
	text  string
	at    int
	line  int
	nodes int
}

// parseUCL reads a document. The error names the line.
func parseUCL(text string) (uclValue, error) {
	r := &uclReader{text: text, line: 1}
	v, err := r.object(0, 0)
	if err != nil {
		return v, fmt.Errorf("%d: %w", r.line, err)
	}
	return v, nil
}

// peek is the octet in hand, 0 at the end.
func (r *uclReader) peek() byte {
	if r.at == len(r.text) {
		return 0
	}
	return r.text[r.at]
}

func (r *uclReader) next() byte {
	c := r.peek()
	if r.at < len(r.text) {
		r.at++
	}
	if c == '\n' {
		r.line++
	}
	return c
}

// blanks skips blanks and comments; with ends, the ends of lines and of values too.
func (r *uclReader) blanks(ends bool) error {
	for r.at < len(r.text) {
		switch c := r.peek(); {
		case c == ' ' || c == '\t' || c == '\r':
			r.next()
		case ends && (c == '\n' || c == ';' || c == ','):
			r.next()
		case c == '#':
			for r.at < len(r.text) && r.peek() != '\n' {
				r.next()
			}
		case strings.HasPrefix(r.text[r.at:], "/*"):
			if err := r.comment(); err != nil {
				return err
			}
		default:
			return nil
		}
	}
	return nil
}

// comment skips a comment, which may have others in it.
func (r *uclReader) comment() error {
	from, depth := r.line, 0
	for r.at < len(r.text) {
		switch {
		case strings.HasPrefix(r.text[r.at:], "/*"):
			depth++
			r.at += 2
		case strings.HasPrefix(r.text[r.at:], "*/"):
			r.at += 2
			if depth--; depth == 0 {
				return nil
			}
		default:
			r.next()
		}
	}
	r.line = from
	return fmt.Errorf("a comment that is not closed")
}

// object reads fields up to "}", or to the end of the text for end = 0.
func (r *uclReader) object(depth int, end byte) (uclValue, error) {
	v := uclValue{kind: uclObject, line: r.line}
	if depth > maxDepth {
		return v, fmt.Errorf("sections more than %d deep", maxDepth)
	}
	for {
		if err := r.blanks(true); err != nil {
			return v, err
		}
		switch c := r.peek(); {
		case r.at == len(r.text) && end == 0:
			return v, nil
		case r.at == len(r.text):
			line := r.line
			r.line = v.line
			return v, fmt.Errorf("a section that is not closed by line %d", line)
		case c == '}' && end == '}':
			r.next()
			return v, nil
		case c == '{' && depth == 0 && end == 0 && len(v.fields) == 0: // a document in braces
			r.next()
			return r.object(depth+1, '}')
		case c == '}' || c == ']':
			return v, fmt.Errorf("%q without its beginning", c)
		}
		f := uclField{line: r.line}
		var err error
		if f.key, err = r.key(); err != nil {
			return v, err
		}
		if r.nodes++; r.nodes > maxNodes {
			return v, fmt.Errorf("%w: more than %d values", ErrTooBig, maxNodes)
		}
		if strings.HasPrefix(f.key, ".") && strings.HasPrefix(strings.TrimLeft(r.text[r.at:], " \t"), "(") { // .include(try=true) "x"
			for r.at < len(r.text) && r.peek() != ')' && r.peek() != '\n' {
				r.next()
			}
			r.next()
		}
		if f.value, err = r.value(depth); err != nil {
			return v, err
		}
		v.fields = append(v.fields, f)
	}
}

// key reads the name of a field.
func (r *uclReader) key() (string, error) {
	if c := r.peek(); c == '"' || c == '\'' {
		return r.quoted()
	}
	from := r.at
	for r.at < len(r.text) && strings.IndexByte(" \t\r\n=:{}[];,\"'(", r.peek()) < 0 {
		r.next()
	}
	if r.at == from {
		return "", fmt.Errorf("no key at %q", shown(r.text[from:min(len(r.text), from+20)]))
	}
	return r.text[from:r.at], nil
}

// value reads what belongs to a key: "= text", "text", "{", "[", or a name and "{".
func (r *uclReader) value(depth int) (uclValue, error) {
	if err := r.blanks(false); err != nil {
		return uclValue{}, err
	}
	if c := r.peek(); c == '=' || c == ':' {
		r.next()
		if err := r.blanks(false); err != nil {
			return uclValue{}, err
		}
		return r.item(depth)
	}
	switch c := r.peek(); c {
	case '{', '[':
		return r.item(depth)
	case '\n', ';', '}', 0:
		// "key" alone, or its section on the next line
		save := *r
		if err := r.blanks(true); err == nil && c == '\n' && r.peek() == '{' {
			return r.item(depth)
		}
		*r = save
		return uclValue{line: r.line}, nil
	}
	save := *r
	name, err := r.key()
	if err == nil && r.blanks(false) == nil && r.peek() == '{' { // "key name {": a section in a section
		line := r.line
		inner, err := r.item(depth + 1)
		return uclValue{kind: uclObject, line: line, fields: []uclField{{name, line, inner}}}, err
	}
	*r = save
	return r.item(depth)
}

// item reads one value.
func (r *uclReader) item(depth int) (uclValue, error) {
	v := uclValue{line: r.line}
	if r.nodes++; r.nodes > maxNodes {
		return v, fmt.Errorf("%w: more than %d values", ErrTooBig, maxNodes)
	}
	var err error
	switch c := r.peek(); {
	case c == '{':
		r.next()
		return r.object(depth+1, '}')
	case c == '[':
		r.next()
		return r.array(depth + 1)
	case c == '"' || c == '\'':
		v.text, err = r.quoted()
	case strings.HasPrefix(r.text[r.at:], "<<"):
		v.text, err = r.here()
	default:
		v.text = r.bare()
	}
	return v, err
}

func (r *uclReader) array(depth int) (uclValue, error) {
	v := uclValue{kind: uclArray, line: r.line}
	if depth > maxDepth {
		return v, fmt.Errorf("arrays more than %d deep", maxDepth)
	}
	for {
		if err := r.blanks(true); err != nil {
			return v, err
		}
		switch {
		case r.at == len(r.text):
			r.line = v.line
			return v, fmt.Errorf("an array that is not closed")
		case r.peek() == ']':
			r.next()
			return v, nil
		case r.peek() == '}':
			return v, fmt.Errorf("%q in an array", '}')
		}
		item, err := r.item(depth)
		if err != nil {
			return v, err
		}
		v.items = append(v.items, item)
	}
}

// quoted reads a text in quotes. Only double ones know escapes.
func (r *uclReader) quoted() (string, error) {
	from, mark := r.line, r.next()
	var b strings.Builder
	for r.at < len(r.text) {
		switch c := r.next(); {
		case c == mark:
			return b.String(), nil
		case c == '\\' && mark == '"' && r.at < len(r.text):
			switch e := r.next(); e {
			case 'n':
				b.WriteByte('\n')
			case 't':
				b.WriteByte('\t')
			case 'r':
				b.WriteByte('\r')
			case '"', '\\', '/':
				b.WriteByte(e)
			default:
				b.WriteByte('\\')
				b.WriteByte(e)
			}
		case c == '\\' && r.peek() == mark:
			b.WriteByte(r.next())
		default:
			b.WriteByte(c)
		}
	}
	r.line = from
	return "", fmt.Errorf("a quote that is not closed")
}

// here reads <<NAME, lines, and NAME alone on its line.
func (r *uclReader) here() (string, error) {
	from := r.line
	rest := r.text[r.at+2:]
	name, body, ok := strings.Cut(rest, "\n")
	name = strings.TrimSpace(name)
	if !ok || name == "" || strings.Trim(name, "ABCDEFGHIJKLMNOPQRSTUVWXYZ") != "" {
		r.line = from
		return r.bare(), nil
	}
	r.at += len(rest) - len(body) + 2
	r.line++
	from2 := r.at
	for r.at < len(r.text) {
		line, _, _ := strings.Cut(r.text[r.at:], "\n")
		if strings.TrimRight(line, "\r;") == name {
			text := strings.TrimSuffix(r.text[from2:r.at], "\n")
			r.at += len(line)
			return text, nil
		}
		r.at = min(len(r.text), r.at+len(line)+1)
		r.line++
	}
	r.line = from
	return "", fmt.Errorf("no line %q ends the text", shown(name))
}

// bare reads a text without quotes, up to the end of its line or value.
func (r *uclReader) bare() string {
	from := r.at
	for r.at < len(r.text) {
		c := r.peek()
		if c == '\n' || c == ';' || c == ',' || c == ']' || c == '}' || c == '#' && r.at > from && strings.IndexByte(" \t", r.text[r.at-1]) >= 0 {
			break
		}
		r.next()
	}
	if r.at == from && r.at < len(r.text) && r.peek() != '\n' && r.peek() != ';' && r.peek() != ',' {
		r.next() // what ends nothing here must not stop the reader
	}
	return strings.TrimSpace(r.text[from:r.at])
}

package msgauth

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"strings"
)

// The bounds of a header. Of what is beyond them nothing is known.
const (
	maxHeader = 256 << 10 // octets
	maxFields = 1000
)

// errBeyond is the error of a header beyond its bounds.
var errBeyond = errors.New("header too large")

// errHeader is the error of a header in which two readers may see two things: a
// verifier one author, a mail reader another.
var errHeader = errors.New("odd header")

func odd(format string, args ...any) error {
	return fmt.Errorf("%w: %s", errHeader, fmt.Sprintf(format, args...))
}

// header is that of a message.
type header struct {
	raw    []byte // with the empty line that ends it
	fields []field
}

// field is one of its fields.
type field struct {
	name  string // in lower case
	value string // behind the colon, with its line ends

	from, end int // in raw
}

// readHeader reads up to and with the empty line. A message without a body may lack
// that line, and then gets one. r ends without an error, and an error wraps
// errHeader or errBeyond.
func readHeader(r *bufio.Reader) (h header, err error) {
	for {
		from := len(h.raw)
		if err := h.readLine(r); err != nil {
			return h, err
		}
		line := bytes.TrimSuffix(bytes.TrimSuffix(h.raw[from:], []byte("\n")), []byte("\r"))
		if len(line) == 0 {
			return h, h.cut()
		}
		if i := bytes.IndexAny(line, "\x00\r"); i >= 0 {
			return h, odd("octet %#02x in it", line[i])
		}
		if line[0] != ' ' && line[0] != '\t' {
			if len(h.fields) == maxFields {
				return h, fmt.Errorf("%w: over %d fields", errBeyond, maxFields)
			}
			h.fields = append(h.fields, field{from: from})
		} else if len(h.fields) == 0 {
			return h, odd("it begins with a continuation")
		}
		h.fields[len(h.fields)-1].end = len(h.raw)
	}
}

// readLine adds a line to raw; an empty one at the end of the message.
func (h *header) readLine(r *bufio.Reader) error {
	from := len(h.raw)
	for {
		part, err := r.ReadSlice('\n')
		h.raw = append(h.raw, part...)
		switch {
		case len(h.raw) > maxHeader:
			return fmt.Errorf("%w: over %d octets", errBeyond, maxHeader)
		case err == nil:
			return nil
		case errors.Is(err, bufio.ErrBufferFull):
		case len(h.raw) > from:
			return odd("its last line has no end")
		default:
			h.raw = append(h.raw, "\r\n"...)
			return nil
		}
	}
}

// cut takes each field apart.
func (h *header) cut() error {
	for i := range h.fields {
		f := &h.fields[i]
		name, value, ok := strings.Cut(string(h.raw[f.from:f.end]), ":")
		name = strings.TrimRight(name, " \t") // RFC 5322, section 4.5.3
		if !ok || name == "" || strings.ContainsFunc(name, func(r rune) bool { return r <= ' ' || r > '~' }) {
			return odd("a line that is no field")
		}
		f.name, f.value = strings.ToLower(name), value
	}
	return nil
}

// values are the fields of one name, from the top.
func (h *header) values(name string) (all []string) {
	for _, f := range h.fields {
		if f.name == name {
			all = append(all, f.value)
		}
	}
	return all
}

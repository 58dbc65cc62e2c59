package session

import (
	"bytes"

	"blockd/header"
)

// maxHeader bounds the header of a message whose fields lists are asked about, in
// octets. Postfix reads 100 KiB of one by default, Sendmail 32.
const maxHeader = header.MaxOctets

// maxKept bounds what is in memory of such a header: the fields that are asked about,
// and a line whose end has not come. Four thousand sessions with as much take 256 MiB,
// and of no honest message is it more than a hundredth.
const maxKept = 64 << 10

// fields finds the header fields that lists are asked about, in the octets of a
// message as they come. Whatever a mail program may take for such a field is one:
// they are looked for up to the first empty line, also after lines that are no fields.
type fields struct {
	asked   func(name []byte) bool // whether lists are asked about a field
	stuffed bool                   // the octets are those of DATA: a dot in front of a line is none of it
	senders header.Senders

	octets int
	line   []byte // the line so far, where a piece has ended within it
	name   string // of the field so far; "" = no list is asked about it
	text   []byte
	kept   int  // octets of the fields before it
	ended  bool // the header has
	over   bool // it is too big
}

// read takes p, the octets after those already read; last says that no more come. It
// reports whether the header has ended.
func (f *fields) read(p []byte, last bool) bool {
	for !f.ended && len(p) > 0 {
		line, rest, whole := bytes.Cut(p, []byte{'\n'})
		if f.octets += len(p) - len(rest); f.octets > maxHeader {
			f.over, f.ended = true, true
			break
		}
		if len(f.line) > 0 || !whole {
			f.line = append(f.line, line...)
			line = f.line
		}
		if f.kept+len(f.text)+len(f.line) > maxKept {
			f.over, f.ended = true, true
			break
		}
		if !whole {
			break
		}
		f.endLine(line)
		f.line, p = f.line[:0], rest
	}
	if last && !f.ended {
		f.endLine(f.line)
		f.endField()
		f.ended = true
	}
	return f.ended
}

// endLine takes a whole line, without LF.
func (f *fields) endLine(line []byte) {
	line = bytes.TrimSuffix(line, []byte{'\r'})
	if f.stuffed {
		line = bytes.TrimPrefix(line, []byte{'.'})
	}
	if len(line) > 0 && (line[0] == ' ' || line[0] == '\t') { // folded
		if f.name != "" {
			f.text = append(append(f.text, ' '), line...)
		}
		return
	}
	f.endField()
	f.ended = len(line) == 0
	name, text, ok := bytes.Cut(line, []byte{':'})
	if ok && f.asked(name) {
		f.name, f.text = string(name), append(f.text[:0], text...)
	}
}

// endField takes the field whose lines are whole.
func (f *fields) endField() {
	if f.name != "" {
		f.senders.Add(f.name, string(f.text))
		f.kept += len(f.text)
	}
	f.name, f.text = "", f.text[:0]
}

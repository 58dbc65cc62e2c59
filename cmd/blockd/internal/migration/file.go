package migration

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"iter"
	"strings"

	"blockd/cmd/blockd/internal/migration/internal/original"
)

// Bounds of what is read. A mail server's own access tables end far below them: lists with millions of entries are for
// [[list]] itself, not for an import.
const (
	maxConfig  = 4 << 20   // octets of a configuration file
	maxTable   = 64 << 20  // octets of a table
	maxEntries = 1_000_000 // of all tables together; a finding takes some 300 octets
	maxFiles   = 1000
	maxDepth   = 64 // how deep restriction classes and conditions may nest
)

// ErrTooBig is wrapped by the error about a configuration file of more than 4 MiB, a table of more than 64 MiB, more
// than a thousand files, ten thousand networks of one's own, or a million entries.
var ErrTooBig = original.ErrTooBig

// files reads files and counts what they come to.
type files struct {
	read    int
	entries int
}

// load reads a regular file of at most max octets. A FIFO or a device is refused without waiting for it.
func (fs *files) load(path string, max int64) ([]byte, error) {
	if fs.read++; fs.read > maxFiles {
		return nil, fmt.Errorf("%s: %w: more than %d files", path, ErrTooBig, maxFiles)
	}
	data, err := original.Load(path, max)
	if err != nil {
		return nil, err
	}
	if i := bytes.IndexByte(data, 0); i >= 0 {
		return nil, fmt.Errorf("%s:%d: a NUL: this is no text file", path, 1+bytes.Count(data[:i], []byte("\n")))
	}
	return data, nil
}

// lines are those of a file, from 1, without outer blanks and empty ones.
func (fs *files) lines(path string) (iter.Seq2[int, string], error) {
	data, err := fs.load(path, maxTable)
	return func(yield func(int, string) bool) {
		n := 0
		for line := range strings.Lines(string(data)) {
			n++
			if line = strings.TrimSpace(line); line != "" && !yield(n, line) {
				return
			}
		}
	}, err
}

// count counts one more entry.
func (fs *files) count() error {
	if fs.entries++; fs.entries > maxEntries {
		return fmt.Errorf("%w: more than %d entries in all tables", ErrTooBig, maxEntries)
	}
	return nil
}

// unreadable says in a few words why a file was not read.
func unreadable(err error) string {
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return "no such file"
	case errors.Is(err, fs.ErrPermission):
		return "it may not be read"
	}
	return original.Shown(err.Error())
}

// logical is one logical line: a physical one and the indented ones behind it.
type logical struct {
	line    int    // of the first physical line, from 1
	text    string // joined, without outer blanks
	comment bool   // a comment, with its mark; it stands alone
	parts   []physical
}

// physical is one line of a logical one.
type physical struct {
	line int
	text string
}

// logicalLines cuts a text as postconf(5) and postmap(1) have it: a line that begins with a blank continues the one
// before, and comments and blank lines in between do not end it. orphan is the number of an indented line with nothing
// before it.
func logicalLines(data []byte) (lines []logical, orphan int) {
	open, n := -1, 0
	for raw := range bytes.Lines(data) {
		n++
		text := strings.TrimRight(string(raw), "\r\n")
		trimmed := strings.Trim(text, " \t\r\f\v")
		switch {
		case trimmed == "":
		case trimmed[0] == '#':
			lines = append(lines, logical{line: n, text: trimmed, comment: true})
		case text[0] == ' ' || text[0] == '\t':
			if open < 0 {
				orphan = n
				continue
			}
			lines[open].parts = append(lines[open].parts, physical{n, trimmed})
		default:
			lines = append(lines, logical{line: n, text: trimmed, parts: []physical{{n, trimmed}}})
			open = len(lines) - 1
		}
	}
	for i := range lines { // not as they come: a line may have a million parts
		if l := &lines[i]; len(l.parts) > 1 {
			var texts []string
			for _, p := range l.parts {
				texts = append(texts, p.text)
			}
			l.text = strings.Join(texts, " ")
		}
	}
	return lines, orphan
}

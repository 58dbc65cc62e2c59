package lists

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
)

// ErrUnsayable is returned by Writer.Write for an entry that the format has no
// line for: nothing was written.
var ErrUnsayable = errors.New("the format cannot say this")

// Writer writes entries as lines of one format, the way back from ReadFile: what
// it writes reads as the same entries, key, scope and action, and covers the same
// senders in the program that the format belongs to. What a format cannot say is
// refused or, where Write says so, narrowed; nothing is ever widened. It is for
// one goroutine.
type Writer struct {
	out        *bufio.Writer
	say        sayer
	exceptions bool
	line       []byte
	dataset    string // of rbldnsd:combined: which is open
}

// sayer appends the lines of an entry; false if the format has none for it. All
// that it appends by then is dropped.
type sayer func(w *Writer, dst []byte, it *Item) ([]byte, bool)

// writable names the formats that can be written, with how each begins its
// comments, what its file must begin with, and whether it has exceptions.
var writable = [...]target{
	{"plain", "#", "", true, sayPlain},
	{"hosts", "#", "", false, sayHosts},
	{"postfix", "#", "", true, sayPostfix},
	{"rspamd", "#", "", false, sayRspamd},
	{"rbldnsd", "#", "", true, sayDnset},
	{"rbldnsd:ip4set", "#", "", true, sayIP4set},
	{"rbldnsd:combined", "#", "", true, sayCombined},
	{"rpz", ";", "$TTL 300\n@ SOA localhost. root.localhost. ( 1 3600 900 2592000 300 )\n@ NS localhost.\n", true, sayRPZ},
}

// target is a format to write.
type target struct {
	name, comment, head string
	exceptions          bool
	say                 sayer
}

// WritableFormats lists the formats of NewWriter.
func WritableFormats() []string {
	var names []string
	for _, f := range writable {
		names = append(names, f.name)
	}
	return names
}

// NewWriter begins a file of the format on out, with comment, which may have
// several lines, at its top.
func NewWriter(out io.Writer, format, comment string) (*Writer, error) {
	i := slices.IndexFunc(writable[:], func(f target) bool { return f.name == format })
	if i < 0 {
		return nil, fmt.Errorf("format %q cannot be written, only %s", format, strings.Join(WritableFormats(), ", "))
	}
	f := writable[i]
	w := &Writer{out: bufio.NewWriterSize(out, 64<<10), say: f.say, exceptions: f.exceptions}
	for line := range strings.Lines(comment) {
		fmt.Fprintf(w.out, "%s %s\n", f.comment, strings.TrimRight(line, "\r\n"))
	}
	w.out.WriteString(f.head)
	return w, nil
}

// Exceptions reports whether the format has exceptions at all.
func (w *Writer) Exceptions() bool { return w.exceptions }

// Write writes one entry: its kind, key, scope, action and, as far as the format
// carries such texts, its reason. A name that blocks with all names below it
// becomes the name alone where the format knows no more, and narrowed is true:
// that lets more mail pass, and refuses nobody. The error is ErrUnsayable, or that
// of out.
func (w *Writer) Write(it *Item) (narrowed bool, err error) {
	line, ok := w.say(w, w.line[:0], it)
	if !ok && it.Kind == Domain && it.Scope == Tree && it.Action == Block {
		alone := *it
		alone.Scope, narrowed = Exact, true
		line, ok = w.say(w, w.line[:0], &alone)
	}
	w.line = line
	if !ok {
		return false, ErrUnsayable
	}
	_, err = w.out.Write(line)
	return narrowed, err
}

// Close writes what is still in memory. It does not close out.
func (w *Writer) Close() error { return w.out.Flush() }

package lists

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"

	"blockd/internal/runs"
	"blockd/lists/pattern"
	"blockd/mail/addr"
)

// ErrUnsayable is returned by Writer.Write for an entry that the format has no
// line for: nothing was written.
var ErrUnsayable = errors.New("the format cannot say this")

// Writer writes entries as lines of one format, the way back from ReadFile: what
// it writes reads as the same entries, key, scope and action, and covers the same
// senders in the program that the format belongs to. Patterns are read where
// Settings.Patterns is set. What a format cannot say is refused or, where Write says
// so, narrowed; nothing is ever widened. It is for one goroutine.
//
// No entry is trusted to be what ReadFile makes: an index file may come from
// anywhere, and a line end or a "$INCLUDE" in a key would be read by a program that
// is not ours.
type Writer struct {
	out     *bufio.Writer
	target  *target
	line    []byte
	dataset string       // of rbldnsd:combined: which is open
	lines   *runs.Sorter // of a sorted format
}

// sortMemory is what the lines of a sorted format take, in octets; what is more lies in temporary files.
const sortMemory = 32 << 20

// sayer appends the lines of an entry; false if the format has none for it. All
// that it appends by then is dropped.
type sayer func(w *Writer, dst []byte, it *Item) ([]byte, bool)

// writable names the formats that can be written, with how each begins its
// comments, what its file must begin with, and what it makes of exceptions.
var writable = [...]target{
	{name: "plain", comment: "#", exceptions: Prevail, say: sayPlain},
	{name: "entries", head: EntriesHead + "\n", exceptions: Prevail, sorted: true, say: sayEntries},
	{name: "hosts", comment: "#", say: sayHosts},
	{name: "postfix", comment: "#", exceptions: Nearest, say: sayPostfix},
	{name: "rspamd", comment: "#", say: sayRspamd},
	{name: "rbldnsd", comment: "#", exceptions: Nearest, say: sayDnset},
	{name: "rbldnsd:ip4set", comment: "#", exceptions: Nearest, say: sayIP4set},
	{name: "rbldnsd:combined", comment: "#", exceptions: Nearest, say: sayCombined},
	{name: "rpz", comment: ";", exceptions: Nearest, say: sayRPZ,
		head: "$TTL 300\n@ SOA localhost. root.localhost. ( 1 3600 900 2592000 300 )\n@ NS localhost.\n"},
}

// target is a format to write.
type target struct {
	name, comment, head string
	exceptions          Exceptions
	sorted              bool // lines of AppendEntryLine in their order, each entry once
	say                 sayer
}

// Exceptions is what a program makes of exceptions in its lists.
type Exceptions uint8

// What they make of them.
const (
	NoExceptions Exceptions = iota // it has none
	Nearest                        // of an exception and a block the one that says more counts: a name before those above it
	Prevail                        // an exception counts, whatever else is listed
)

// WritableFormats lists the formats of NewWriter.
func WritableFormats() []string {
	var names []string
	for _, f := range writable {
		names = append(names, f.name)
	}
	return names
}

// NewWriter begins a file of the format on out, with comment, which may have
// several lines, at its top if the format has comments.
func NewWriter(out io.Writer, format, comment string) (*Writer, error) {
	i := slices.IndexFunc(writable[:], func(f target) bool { return f.name == format })
	if i < 0 {
		return nil, fmt.Errorf("format %q cannot be written, only %s", format, strings.Join(WritableFormats(), ", "))
	}
	f := &writable[i]
	w := &Writer{out: bufio.NewWriterSize(out, 64<<10), target: f}
	if f.sorted {
		w.lines = runs.New("", sortMemory)
	}
	for line := range strings.Lines(comment) {
		if f.comment != "" {
			fmt.Fprintf(w.out, "%s %s\n", f.comment, cleanReason(line))
		}
	}
	w.out.WriteString(f.head)
	return w, nil
}

// Exceptions says what the format's program makes of exceptions.
func (w *Writer) Exceptions() Exceptions { return w.target.exceptions }

// Write writes one entry: its kind, key, scope, action and, as far as the format
// carries such texts, its reason. A name that blocks with all names below it
// becomes the name alone where the format knows no more, and narrowed is true:
// that lets more mail pass, and refuses nobody. The error is ErrUnsayable, or that
// of out.
func (w *Writer) Write(it *Item) (narrowed bool, err error) {
	if !canonical(it) || it.Personal() && w.target.name != "entries" {
		return false, ErrUnsayable
	}
	if it.Reason != "" {
		clean := *it
		clean.Reason = cleanReason(it.Reason)
		it = &clean
	}
	line, ok := w.target.say(w, w.line[:0], it)
	if !ok && it.Kind == Domain && it.Scope == Tree && it.Action == Block {
		alone := *it
		alone.Scope, narrowed = Exact, true
		line, ok = w.target.say(w, w.line[:0], &alone)
	}
	w.line = line
	if !ok {
		return false, ErrUnsayable
	}
	if w.lines != nil {
		return narrowed, w.lines.Add(line)
	}
	_, err = w.out.Write(line)
	return narrowed, err
}

// canonical reports whether it is an entry as ReadFile makes them.
func canonical(it *Item) bool {
	if it.Owner.Text != "" {
		if k, err := addr.ParseOwner(it.Owner.Text); err != nil || k != it.Owner {
			return false
		}
	}
	switch it.Kind {
	case Recipient:
		a, err := addr.Parse(it.Key.Text)
		key, ok := a.Key()
		return ok && err == nil && key == it.Key && it.Scope == Exact
	case Addr:
		text := it.Key.Text
		if it.Scope == Local {
			local, ok := strings.CutSuffix(text, "@")
			key, err := addr.LocalKey(local)
			return ok && err == nil && key.Text == text
		}
		a, err := addr.Parse(text)
		key, ok := a.Key()
		return ok && err == nil && key.Text == text && it.Scope == Exact
	case Domain:
		key, err := addr.DomainKey(it.Key.Text)
		return err == nil && key.Text == it.Key.Text && it.Scope <= Tree
	case IP, CIDR:
		p := it.Net
		return p.IsValid() && p == p.Masked() && !p.Addr().Is4In6() && p.Bits() >= minBits(p.Addr()) && (it.Kind == IP) == p.IsSingleIP()
	case Glob:
		p, err := pattern.Parse(pattern.Glob, it.Pattern)
		return err == nil && p.String() == it.Pattern
	case Regexp:
		p, err := pattern.Parse(pattern.Regexp, strings.TrimSuffix(strings.TrimPrefix(it.Pattern, "/"), "/"))
		return err == nil && p.String() == it.Pattern
	}
	return false
}

// Origins reports whether the format says where an entry comes from: Item.Origin.
func (w *Writer) Origins() bool { return w.target.name == "entries" }

// Close writes what is still in memory, or in temporary files. It does not close out.
func (w *Writer) Close() error {
	if w.lines == nil {
		return w.out.Flush()
	}
	defer w.lines.Close()
	for line, err := range OneOfEach(w.lines.Lines()) {
		if err != nil {
			return err
		}
		w.out.Write(line)
	}
	return w.out.Flush()
}

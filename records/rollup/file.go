package rollup

import (
	"bytes"
	"errors"
	"fmt"
	"hash/crc32"
	"io/fs"
	"os"
	"strconv"
	"strings"
	"syscall"

	"blockd/internal/durable"
)

// The file is text. After its head each line is a checksum (CRC-32C, eight hexadecimal digits), a blank, and one of
//
//	n KIND WHAT "NAME"       names the next cell: they are numbered from 0
//	m MINUTE ID:COUNT …      what a minute brought, in base 36 but for the minute, which counts from 1970
//	h MINUTE ID:COUNT …      what the hour from that minute on brought
//	s MINUTE 0|1             since when counts are kept, and whether the history was asked for what was before; the last one counts
//
// A line that does not agree with its checksum is left out.
const (
	fileHead = "blockd rollup 1\n"
	maxFile  = 2 * maxKept
)

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// errOther reports a file that is none of this kind.
var errOther = errors.New("not a file of counts, or one of another version")

func appendLine(dst []byte, text string) []byte {
	return fmt.Appendf(dst, "%08x %s\n", crc32.Checksum([]byte(text), castagnoli), text)
}

func (c cell) line() string { return fmt.Sprintf("n %c %s %q", c.kind, c.what, c.name) }

func (b *bin) line() string {
	kind := "m"
	if b.hour {
		kind = "h"
	}
	return kind + " " + strconv.FormatInt(b.at, 10) + " " + b.text
}

func (k *kept) sinceLine() string {
	whole := 0
	if k.whole {
		whole = 1
	}
	return fmt.Sprintf("s %d %d", k.since, whole)
}

// file is the whole text.
func (k *kept) file() []byte {
	text := append(make([]byte, 0, k.octets+k.octets/4+4096), fileHead...)
	for _, c := range k.cells {
		text = appendLine(text, c.line())
	}
	text = appendLine(text, k.sinceLine())
	for i := range k.bins {
		text = appendLine(text, k.bins[i].line())
	}
	return text
}

// read reads the file at path. lost are lines that had to be left out. The error is fs.ErrNotExist's for no file.
func read(path string) (k kept, lost int, err error) {
	text, err := durable.Read(path, maxFile)
	if errors.Is(err, durable.ErrForeign) {
		err = fmt.Errorf("%w: %w", errOther, err)
	}
	if err != nil {
		return k, 0, err
	}
	rest, ours := bytes.CutPrefix(text, []byte(fileHead))
	if !ours {
		return k, 0, fmt.Errorf("%s: %w", path, errOther)
	}
	for line := range bytes.Lines(rest) {
		sum, text, _ := strings.Cut(strings.TrimSuffix(string(line), "\n"), " ")
		if want, err := strconv.ParseUint(sum, 16, 32); err != nil || len(sum) != 8 || uint32(want) != crc32.Checksum([]byte(text), castagnoli) || !k.take(text) {
			lost++
			if strings.HasPrefix(text, "n ") {
				return k, lost, fmt.Errorf("%s: %w", path, errNames)
			}
		}
	}
	return k, lost, nil
}

// errNames reports a damaged name: the numbers of the others cannot be told.
var errNames = errors.New("a name in it is damaged")

// take reads one line without its checksum.
func (k *kept) take(line string) bool {
	kind, rest, _ := strings.Cut(line, " ")
	switch kind {
	case "n":
		about, quoted, _ := strings.Cut(rest, ` "`)
		group, what, _ := strings.Cut(about, " ")
		name, err := strconv.Unquote(`"` + quoted)
		if err != nil || len(group) != 1 {
			return false
		}
		c := cell{group[0], name, what}
		if k.ids == nil {
			k.ids = map[cell]int{}
		}
		k.ids[c] = len(k.cells)
		k.cells = append(k.cells, c)
		return true
	case "m", "h", "s":
		number, text, _ := strings.Cut(rest, " ")
		at, err := strconv.ParseInt(number, 10, 48)
		if err != nil {
			return false
		}
		if kind == "s" {
			k.since, k.whole = at, text == "1"
			return true
		}
		b := bin{at, kind == "h", text}
		if !k.each(&b, func(cell, uint64) {}) {
			return false
		}
		k.add(b)
		return true
	}
	return false
}

// load takes up what the file has, in place of what is in memory. The text says what was wrong with it; "" is nothing. past: there is a history, of which what was before may be had.
func (t *Table) load(past bool) (fault string) {
	k, lost, err := read(t.path)
	t.mu.Lock()
	defer t.mu.Unlock()
	switch {
	case t.loaded && t.unsaved:
		return "" // what is in memory is more
	case errors.Is(err, fs.ErrNotExist):
		k = kept{}
	case err != nil:
		fault, k = err.Error()+"; it is begun anew", kept{}
	case lost > 0:
		fault = fmt.Sprintf("%s: %d lines are damaged and left out", t.path, lost)
	}
	if k.since == 0 {
		k.since = t.minute.Load()
	}
	t.kept, t.loaded, t.filling = k, true, past && !k.whole
	return fault
}

// file is where lines are added. Only Run uses it.
type file struct {
	path string
	f    *os.File // nil: the whole is to be written
	size int64
}

// append adds text, or writes whole if that is needed first.
func (o *file) append(text []byte, whole func() []byte) (err error) {
	if o.f == nil {
		return o.replace(whole())
	}
	if len(text) == 0 {
		return nil
	}
	if _, err = o.f.WriteAt(text, o.size); err != nil {
		o.close()
		return err
	}
	o.size += int64(len(text))
	return nil
}

// replace writes the whole file.
func (o *file) replace(text []byte) (err error) {
	o.close()
	if err = durable.WriteFile(o.path, text, 0o600); err != nil {
		return err
	}
	if o.f, err = os.OpenFile(o.path, os.O_WRONLY|syscall.O_NOFOLLOW, 0); err == nil {
		o.size = int64(len(text))
	}
	return err
}

func (o *file) close() {
	if o.f != nil {
		o.f.Close()
		o.f = nil
	}
}

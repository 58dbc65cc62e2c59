package snapshot

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"

	"blockd/lists"
)

// bufferSize is of each file that is read or written.
const bufferSize = 64 << 10

const head = lists.EntriesHead + "\n"

// removal begins a line of a delta that removes an entry.
const removal = "-\t"

// errOrder says that lines are not those of a file that blockd has written.
var errOrder = errors.New("damaged: a line without its end, too long, or out of order")

// lineReader reads the lines of a shard or a delta. After next has returned true, line is the line with its end and id is what orders it.
type lineReader struct {
	in   *bufio.Reader
	line []byte
	id   []byte // of a removal, that of the entry
	gone bool   // the line is a removal
	last []byte
	n    int64
}

// newLineReader reads the head too.
func newLineReader(in io.Reader) (*lineReader, error) {
	r := &lineReader{in: bufio.NewReaderSize(in, bufferSize)}
	first, err := r.in.ReadSlice('\n')
	if err != nil && err != io.EOF && err != bufio.ErrBufferFull {
		return nil, err
	}
	if string(first) != head {
		return nil, fmt.Errorf("the first line is not %q", lists.EntriesHead)
	}
	return r, nil
}

// next reads a line. It returns false at the end.
func (r *lineReader) next() (bool, error) {
	line, err := r.in.ReadSlice('\n')
	switch {
	case err == io.EOF && len(line) == 0:
		r.line, r.id = nil, nil
		return false, nil
	case err == io.EOF || err == bufio.ErrBufferFull:
		return false, errOrder
	case err != nil:
		return false, err
	}
	r.line = line
	if r.gone = bytes.HasPrefix(line, []byte(removal)) && bytes.Count(line, []byte("\t")) == 3; r.gone {
		r.id = line[len(removal) : len(line)-1]
	} else {
		r.id = lists.EntryLineID(line)
	}
	if len(r.id) == 0 || bytes.Compare(r.id, r.last) <= 0 {
		return false, errOrder
	}
	r.last = append(r.last[:0], r.id...)
	r.n++
	return true, nil
}

// apply writes the shard that a delta makes of another one, and returns how many entries it has.
func apply(out io.Writer, from, delta io.Reader) (entries int64, err error) {
	return merge(out, from, delta, false)
}

// compose writes the delta that does what one does after another.
func compose(out io.Writer, first, second io.Reader) error {
	_, err := merge(out, first, second, true)
	return err
}

// merge writes the lines of base, with those of over in the place of what they are about. Removals are written too if keep.
func merge(out io.Writer, base, over io.Reader, keep bool) (entries int64, err error) {
	a, err := newLineReader(base)
	if err != nil {
		return 0, err
	}
	b, err := newLineReader(over)
	if err != nil {
		return 0, err
	}
	w := bufio.NewWriterSize(out, bufferSize)
	w.WriteString(head)
	moreA, errA := a.next()
	moreB, errB := b.next()
	for errA == nil && errB == nil && (moreA || moreB) {
		order := -1
		if !moreA {
			order = 1
		} else if moreB {
			order = bytes.Compare(a.id, b.id)
		}
		from := a
		if order >= 0 {
			from = b
		}
		if keep || !from.gone {
			entries++
			if _, err := w.Write(from.line); err != nil {
				return 0, err
			}
		}
		if order <= 0 {
			moreA, errA = a.next()
		}
		if order >= 0 {
			moreB, errB = b.next()
		}
	}
	return entries, errors.Join(errA, errB, w.Flush())
}

// difference is what differs between two shards.
type difference struct {
	added, removed, altered int64
	eases                   bool // nobody is refused because of it who was not refused before
}

// allows reports whether the entry of an id only lets mail pass: its action is "a".
func allows(id []byte) bool { return len(id) > 3 && id[len(id)-3] == 'a' }

// sameEnd reports whether two lines of one id end at the same time: then only their texts differ.
func sameEnd(a, b []byte) bool { return bytes.Equal(ends(a), ends(b)) }

func ends(line []byte) []byte {
	field, _, _ := bytes.Cut(line[len(lists.EntryLineID(line))+1:], []byte("\t"))
	return field
}

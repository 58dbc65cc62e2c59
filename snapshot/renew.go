package snapshot

import (
	"bytes"

	"blockd/lists"
)

// renewal makes a shard of an old one and of the lines of all its changed buckets, which are to be given in order.
type renewal struct {
	plain   bytes.Buffer          // the new shard
	delta   bytes.Buffer          // the lines that make it of the old one
	entries int64                 // in plain
	changed func(key []byte) bool // the old lines of this key are not those of the new shard
	differs difference

	old      []byte // what is left of the old shard, from line on
	line, id []byte // the first of it
}

// begin begins with an old shard. The error is errOrder.
func (r *renewal) begin(old []byte, changed func(key []byte) bool) error {
	r.plain.Reset()
	r.delta.Reset()
	r.plain.WriteString(head)
	r.delta.WriteString(head)
	r.entries, r.changed, r.differs = 0, changed, difference{eases: true}
	rest, ok := bytes.CutPrefix(old, []byte(head))
	if !ok {
		return errOrder
	}
	r.old, r.line = rest, nil
	return r.next()
}

// next goes to the next old line; none is left when line is nil.
func (r *renewal) next() error {
	r.old = r.old[len(r.line):]
	r.line, r.id = nil, nil
	if len(r.old) == 0 {
		return nil
	}
	end := bytes.IndexByte(r.old, '\n')
	line := r.old[:end+1]
	id := lists.EntryLineID(line)
	if end < 0 || len(id) == 0 {
		return errOrder
	}
	r.line, r.id = line, id
	return nil
}

// put takes the next line of a changed bucket.
func (r *renewal) put(line []byte) error {
	id := lists.EntryLineID(line)
	for r.line != nil {
		order := bytes.Compare(r.id, id)
		if order > 0 {
			break
		}
		if order == 0 {
			if !bytes.Equal(r.line, line) {
				r.differs.altered++
				r.differs.eases = r.differs.eases && sameEnd(r.line, line)
				r.delta.Write(line)
			}
			r.write(line)
			return r.next()
		}
		if err := r.pass(); err != nil {
			return err
		}
	}
	r.differs.added++
	r.differs.eases = r.differs.eases && allows(id)
	r.delta.Write(line)
	r.write(line)
	return nil
}

// end takes what is left of the old shard.
func (r *renewal) end() error {
	for r.line != nil {
		if err := r.pass(); err != nil {
			return err
		}
	}
	return nil
}

// pass takes the old line: it stays if its bucket has not changed, and is gone if it has, since put was not called with it.
func (r *renewal) pass() error {
	if r.changed(keyOf(r.id)) {
		r.differs.removed++
		r.differs.eases = r.differs.eases && !allows(r.id)
		r.delta.WriteString(removal)
		r.delta.Write(r.id)
		r.delta.WriteByte('\n')
	} else {
		r.write(r.line)
	}
	return r.next()
}

func (r *renewal) write(line []byte) {
	r.plain.Write(line)
	r.entries++
}

// keyOf is the key in an id, or in a line.
func keyOf(id []byte) []byte {
	key, _, _ := bytes.Cut(id, []byte("\t"))
	return key
}

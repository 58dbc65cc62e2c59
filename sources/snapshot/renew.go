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

	old      []byte // the old shard
	from, to int    // of the old line in hand, in old; none is left if they are the same
	kept     int    // in old: from there to from it is to be in plain, and is not yet
	id       []byte // of the old line in hand
}

// begin begins with an old shard. The error is errOrder.
func (r *renewal) begin(old []byte, changed func(key []byte) bool) error {
	r.plain.Reset()
	r.delta.Reset()
	r.delta.WriteString(head)
	r.entries, r.changed, r.differs = 0, changed, difference{eases: true}
	if !bytes.HasPrefix(old, []byte(head)) {
		return errOrder
	}
	r.old, r.kept, r.to = old, 0, len(head)
	return r.next()
}

// next goes to the next old line.
func (r *renewal) next() error {
	r.from = r.to
	if r.from == len(r.old) {
		return nil
	}
	size := bytes.IndexByte(r.old[r.from:], '\n') + 1
	r.to += size
	if r.id = lists.EntryLineID(r.old[r.from:r.to]); size == 0 || len(r.id) == 0 {
		return errOrder
	}
	return nil
}

// put takes the next line of a changed bucket.
func (r *renewal) put(line []byte) error {
	id := lists.EntryLineID(line)
	for r.from < r.to {
		order := bytes.Compare(r.id, id)
		if order > 0 {
			break
		}
		if order == 0 {
			old := r.old[r.from:r.to]
			if bytes.Equal(old, line) {
				r.entries++
				return r.next()
			}
			r.differs.altered++
			r.differs.eases = r.differs.eases && sameEnd(old, line)
			r.drop()
			r.write(line)
			return r.next()
		}
		if err := r.pass(); err != nil {
			return err
		}
	}
	r.differs.added++
	r.differs.eases = r.differs.eases && allows(id)
	r.flush()
	r.write(line)
	return nil
}

// end takes what is left of the old shard.
func (r *renewal) end() error {
	for r.from < r.to {
		if err := r.pass(); err != nil {
			return err
		}
	}
	r.flush()
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
		r.drop()
	} else {
		r.entries++
	}
	return r.next()
}

// flush writes the old lines that stay, up to the one in hand: those between two changes are written at once.
func (r *renewal) flush() {
	r.plain.Write(r.old[r.kept:r.from])
	r.kept = r.from
}

// drop leaves the old line in hand out.
func (r *renewal) drop() {
	r.flush()
	r.kept = r.to
}

// write writes a line that the old shard does not have.
func (r *renewal) write(line []byte) {
	r.plain.Write(line)
	r.delta.Write(line)
	r.entries++
}

// keyOf is the key in an id, or in a line.
func keyOf(id []byte) []byte {
	key, _, _ := bytes.Cut(id, []byte("\t"))
	return key
}

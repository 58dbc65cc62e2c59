package build

import (
	"bytes"
	"cmp"
	"encoding/binary"
	"errors"
	"math"
	"math/bits"
	"slices"

	"blockd/index/internal/format"
)

// merged counts what became of the records of a build.
type merged struct {
	format.Census
	duplicates, dropped uint64
	expiry              int64 // the earliest; 0 = none
}

func (m *merged) add(o merged) {
	m.Census.Add(o.Census)
	m.duplicates += o.duplicates
	m.dropped += o.dropped
	m.expires(o.expiry)
}

// expires takes in when an entry expires.
func (m *merged) expires(at int64) {
	if at != 0 && (m.expiry == 0 || at < m.expiry) {
		m.expiry = at
	}
}

// errTooMuch is what an attacker of the hash would get who knew its key.
var errTooMuch = errors.New("one part of the records has more than 2 GiB")

// merger turns the taken records of some parts into one record a key, in order of
// their hash. It is for one goroutine and keeps its memory from call to call.
type merger struct {
	in     *Intake
	parts  *partReader
	rows   []format.ListInfo
	worth  *format.WorthCounter
	counts merged

	buf     []byte // what was loaded, and behind it the records that were made of it
	special bool   // some key in it may be a network's, a pattern's or a digest's
	refs    []ref
	sorted  []ref
	starts  []uint32
	records []format.Placed // of the last merge, in order of their hash
	entries []format.Entry
	picks   []bool
}

// ref is a taken record: where it lies in buf, and its row.
type ref struct {
	hi  uint64
	at  uint32
	n   uint16
	row uint16
}

// merge loads so many parts from first on, a power of two, and leaves in records
// their keys, each once, with the entries of all its records in the order of their
// row and line. The parts are gone then.
func (m *merger) merge(first, parts int) error {
	m.buf, m.refs, m.records, m.special = m.buf[:0], m.refs[:0], m.records[:0], false
	for number := first; number < first+parts; number++ {
		from := len(m.buf)
		var err error
		if m.buf, err = m.parts.load(m.buf, number); err != nil {
			return err
		}
		if len(m.buf) > math.MaxInt32 {
			return errTooMuch
		}
		m.in.records.drop(number)
		m.find(from)
	}
	m.sort(m.in.records.bits - uint(bits2(parts)))
	for i := 0; i < len(m.sorted); {
		r, n := m.sorted[i], 1
		for i+n < len(m.sorted) && m.sorted[i+n].hi == r.hi && m.sameKey(r, m.sorted[i+n]) {
			n++
		}
		if n == 1 && m.in.rows[r.row].plain {
			if m.special {
				m.counts.Note(m.key(r), 1)
			}
			m.records = append(m.records, format.Placed{Hi: r.hi, At: r.at, N: uint32(r.n)})
			m.counts.Entries++
			if !m.special || !format.IsDerived(m.key(r)) {
				m.worth.One(int(r.row))
			}
		} else {
			m.join(m.sorted[i : i+n])
		}
		m.counts.Keys++
		i += n
	}
	return nil
}

// find makes refs of the records of live rows among the blocks from from on.
func (m *merger) find(from int) {
	for ; from < len(m.buf); from += m.in.records.block {
		block := m.buf[from:][:blockEnd(m.buf[from:])]
		for at := scatterHead; at < len(block); {
			// The key's length, below 16,384, and the key; a 1; the row, the line, flags.
			p, n := at+1, int(block[at])
			if n >= 0x80 {
				n += int(block[p])<<7 - 0x80
				p++
			}
			m.special = m.special || block[p] < ' '
			h := m.in.hash.Sum(block[p : p+n])
			p += n + 1
			row := int(block[p])
			p++
			if row >= 0x80 {
				long, size := binary.Uvarint(block[p-1:])
				row, p = int(long), p-1+size
			}
			p = uvarintEnd(block, p)
			flags := block[p]
			p++
			if flags&format.FlagReason != 0 {
				p = uvarintEnd(block, p)
			}
			if flags&format.FlagExpiry != 0 {
				p = uvarintEnd(block, p)
			}
			if m.in.rows[row].live {
				m.refs = append(m.refs, ref{h.Hi, uint32(from + at), uint16(p - at), uint16(row)})
			}
			at = p
		}
	}
}

// uvarintEnd is where the uvarint at p of b ends.
func uvarintEnd(b []byte, p int) int {
	for b[p] >= 0x80 {
		p++
	}
	return p + 1
}

func (m *merger) key(r ref) []byte { return format.RecordKey(m.buf[r.at:]) }

// sameKey compares two records of one Hi. Equal hashes are equal keys, or keys
// chosen to collide.
func (m *merger) sameKey(a, b ref) bool { return bytes.Equal(m.key(a), m.key(b)) }

// sort puts refs in order into sorted. The first prefix bits of all hashes are
// equal. Hashes spread evenly, so that one pass by their next bits leaves one or
// two in a bucket: 15 ns a record, against 60 for a comparing sort.
func (m *merger) sort(prefix uint) {
	n := len(m.refs)
	m.sorted = slices.Grow(m.sorted[:0], n)[:n]
	width := min(uint(bits.Len(uint(n))), 16)
	m.starts = slices.Grow(m.starts[:0], 1<<width+1)[:1<<width+1]
	clear(m.starts)
	shift := 64 - width
	for _, r := range m.refs {
		m.starts[r.hi<<prefix>>shift+1]++
	}
	for i := range 1 << width {
		m.starts[i+1] += m.starts[i]
	}
	for _, r := range m.refs {
		to := &m.starts[r.hi<<prefix>>shift]
		m.sorted[*to] = r
		*to++
	}
	from := uint32(0)
	for _, to := range m.starts[:1<<width] { // each is where its bucket ends by now
		switch bucket := m.sorted[from:to]; {
		case len(bucket) < 2:
		case len(bucket) > 32:
			slices.SortFunc(bucket, m.compare)
		default:
			for i := 1; i < len(bucket); i++ {
				r, k := bucket[i], i
				for ; k > 0 && (r.hi < bucket[k-1].hi || r.hi == bucket[k-1].hi && m.compare(r, bucket[k-1]) < 0); k-- {
					bucket[k] = bucket[k-1]
				}
				bucket[k] = r
			}
		}
		from = to
	}
}

// compare orders by hash, key, row and line. What one line says several times lies
// in the order in which it says so, since one worker has read it.
func (m *merger) compare(a, b ref) int {
	if a.hi != b.hi {
		return cmp.Compare(a.hi, b.hi)
	}
	return cmp.Or(
		bytes.Compare(m.key(a), m.key(b)),
		cmp.Compare(a.row, b.row),
		cmp.Compare(m.entry(a).Line, m.entry(b).Line),
		cmp.Compare(a.at, b.at))
}

// entry decodes what a taken record says.
func (m *merger) entry(r ref) format.Entry {
	c := format.Cursor{Rest: m.buf[r.at : r.at+uint32(r.n)]}
	c.Key()
	c.Byte()
	return c.Entry()
}

// join makes the record of one key from those of its sources.
func (m *merger) join(group []ref) {
	key := m.key(group[0])
	forDigest := format.IsDerived(key)
	if format.IsOwner(key) {
		group = group[:1] // that there are entries is all it says
	}
	m.entries = m.entries[:0]
	for _, r := range group {
		e := m.entry(r)
		if e.Reason != 0 {
			e.Reason = m.in.rows[r.row].numbers[e.Reason-1] + 1
		}
		if !m.collect(e) && !forDigest {
			m.counts.duplicates++
		}
	}
	before := len(m.entries)
	if !forDigest {
		m.worth.Count(m.entries)
	}
	m.fit()
	if !forDigest {
		m.counts.dropped += uint64(before - len(m.entries))
	}
	m.counts.Entries += uint64(len(m.entries))
	m.counts.Note(key, len(m.entries))
	for _, e := range m.entries {
		m.counts.expires(e.Expiry)
	}
	at := len(m.buf)
	m.buf = format.AppendRecord(m.buf, key, m.entries, before > len(m.entries))
	m.records = append(m.records, format.Placed{Hi: group[0].hi, At: uint32(at), N: uint32(len(m.buf) - at)})
}

// collect adds e unless its row said the same before: then the first one's line
// and reason stay, and the longer time counts. A row has at most 20 pairs of
// scope and action, so the walk back is short however often a line is repeated.
func (m *merger) collect(e format.Entry) bool {
	for i := len(m.entries) - 1; i >= 0 && m.entries[i].Row == e.Row; i-- {
		if old := &m.entries[i]; old.Scope == e.Scope && old.Action == e.Action {
			if old.Expiry != 0 && (e.Expiry == 0 || e.Expiry > old.Expiry) {
				old.Expiry = e.Expiry
			}
			return false
		}
	}
	m.entries = append(m.entries, e)
	return true
}

// fit leaves the format.MaxSources entries that a record can hold. What goes must change
// no verdict, least of all lose an exception: the needed ones stay, and the rest of the
// room is for the first ones.
func (m *merger) fit() {
	if len(m.entries) <= format.MaxSources {
		return
	}
	count := m.pickNeeded()
	kept := m.entries[:0]
	for i, e := range m.entries {
		switch {
		case m.picks[i]:
		case count < format.MaxSources:
			count++
		default:
			continue
		}
		kept = append(kept, e)
	}
	m.entries = kept
}

// pickNeeded leaves in picks which entries a verdict may need, and returns their number: of
// each scope, action and mode, the first entry that never expires and the one that expires
// last. They are at most 60, since no key has all four scopes.
func (m *merger) pickNeeded() (count int) {
	var needed [4][5][2][2]int // 1 + the entry: by scope, action, mode, expires
	m.picks = append(m.picks[:0], make([]bool, len(m.entries))...)
	for i, e := range m.entries {
		class := &needed[e.Scope][e.Action][m.rows[e.Row].Source.Mode][min(e.Expiry, 1)]
		switch {
		case *class == 0:
			count++
		case e.Expiry > m.entries[*class-1].Expiry:
			m.picks[*class-1] = false
		default:
			continue
		}
		*class, m.picks[i] = i+1, true
	}
	return count
}

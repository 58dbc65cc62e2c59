package index

import (
	"bytes"
	"cmp"
	"slices"
)

// merged counts what became of the records of a build.
type merged struct {
	keys, entries, duplicates, dropped uint64
	bytes                              uint64 // of pages: records and their slots
	expiry                             int64  // the earliest; 0 = none
}

func (m *merged) add(o merged) {
	m.keys += o.keys
	m.entries += o.entries
	m.duplicates += o.duplicates
	m.dropped += o.dropped
	m.bytes += o.bytes
	if o.expiry != 0 && (m.expiry == 0 || o.expiry < m.expiry) {
		m.expiry = o.expiry
	}
}

// merger turns the records of one bucket into one record a key, in order of
// their hash. It keeps its memory from bucket to bucket.
type merger struct {
	hash    hasher
	shadow  []bool // of each row: its list does not count
	refs    []ref
	entries []entry
	picks   []bool
	record  []byte
	spare   spareBlocks
}

// ref is a record with its hash.
type ref struct {
	hi, lo uint64
	spot   spot
}

// merge empties raw and returns its keys, each once, with the entries of all its
// records in the order in which they were added: by row, then by line.
func (m *merger) merge(raw *arena) (arena, merged) {
	m.refs = m.refs[:0]
	for s, record := range raw.all() {
		h := m.hash.sum(recordKey(record))
		m.refs = append(m.refs, ref{h.Hi, h.Lo, s})
	}
	slices.SortFunc(m.refs, func(a, b ref) int {
		if c := cmp.Or(cmp.Compare(a.hi, b.hi), cmp.Compare(a.lo, b.lo)); c != 0 {
			return c
		}
		// Equal hashes are equal keys, or keys chosen to collide.
		return cmp.Or(bytes.Compare(recordKey(raw.at(a.spot)), recordKey(raw.at(b.spot))),
			cmp.Compare(a.spot.block, b.spot.block), cmp.Compare(a.spot.offset, b.spot.offset))
	})
	out := arena{spare: &m.spare}
	var n merged
	for i := 0; i < len(m.refs); {
		key := recordKey(raw.at(m.refs[i].spot))
		m.entries = m.entries[:0]
		dropped := false
		for first := m.refs[i]; i < len(m.refs); i++ {
			record := raw.at(m.refs[i].spot)
			if m.refs[i].hi != first.hi || m.refs[i].lo != first.lo || !bytes.Equal(recordKey(record), key) {
				break
			}
			c := cursor{rest: record}
			c.key()
			count, had := c.sources()
			dropped = dropped || had
			for range count {
				if !m.collect(c.entry()) {
					n.duplicates++
				}
			}
		}
		before := len(m.entries)
		m.fit()
		n.dropped += uint64(before - len(m.entries))
		dropped = dropped || before > len(m.entries)
		m.record = appendRecord(m.record[:0], key, m.entries, dropped)
		out.add(m.record)
		n.keys++
		n.entries += uint64(len(m.entries))
		n.bytes += slotBytes + uint64(len(m.record))
		for _, e := range m.entries {
			if e.expiry != 0 && (n.expiry == 0 || e.expiry < n.expiry) {
				n.expiry = e.expiry
			}
		}
	}
	m.spare.release(raw)
	return out, n
}

// collect adds e unless its row said the same before: then the first one's line
// and reason stay, and the longer time counts. A row has at most 16 pairs of
// scope and action, so the walk back is short however often a line is repeated.
func (m *merger) collect(e entry) bool {
	for i := len(m.entries) - 1; i >= 0 && m.entries[i].row == e.row; i-- {
		if old := &m.entries[i]; old.scope == e.scope && old.action == e.action {
			if old.expiry != 0 && (e.expiry == 0 || e.expiry > old.expiry) {
				old.expiry = e.expiry
			}
			return false
		}
	}
	m.entries = append(m.entries, e)
	return true
}

// fit leaves the maxSources entries that a record can hold. What goes must change
// no verdict, least of all lose an exception: of each scope, action and mode, the
// first entry that never expires and the one that expires last stay, which are
// at most 64; the rest of the room is for the first ones.
func (m *merger) fit() {
	if len(m.entries) <= maxSources {
		return
	}
	m.picks = append(m.picks[:0], make([]bool, len(m.entries))...)
	var needed [4][4][2][2]int // 1 + the entry: by scope, action, shadow, expires
	for i, e := range m.entries {
		class := &needed[e.scope][e.action][bit(m.shadow[e.row])][bit(e.expiry != 0)]
		if *class == 0 || e.expiry > m.entries[*class-1].expiry {
			*class = i + 1
		}
	}
	count := 0
	for _, byAction := range needed {
		for _, byMode := range byAction {
			for _, byExpiry := range byMode {
				for _, i := range byExpiry {
					if i > 0 {
						m.picks[i-1] = true
						count++
					}
				}
			}
		}
	}
	kept := m.entries[:0]
	for i, e := range m.entries {
		switch {
		case m.picks[i]:
		case count < maxSources:
			count++
		default:
			continue
		}
		kept = append(kept, e)
	}
	m.entries = kept
}

func bit(b bool) int {
	if b {
		return 1
	}
	return 0
}

// recordKey is the key of a record that this build has encoded.
func recordKey(record []byte) []byte {
	c := cursor{rest: record}
	return c.key()
}

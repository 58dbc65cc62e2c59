package history

import (
	"bytes"
	"cmp"
	"encoding/binary"
	"math"
	"slices"
	"strings"

	"github.com/zeebo/xxh3"
)

// sums are the counts of one segment, by every group: so that a count over a month reads numbers, and not five million lines, and a search
// only the segments that can have what it looks for. A row has no name, but a keyed hash of it, and where its name stands in the segment.
type sums struct {
	head   sumsHead
	facets []facet
	groups [][]byte // by the order of Groups: rows, by their hashes
	grams  grams    // of the texts of all decisions; nil where they are not wanted
}

// sumsHead is what sums are about.
type sumsHead struct {
	Number         uint64 // of the segment
	Size           int64  // of its file, and
	Written        int64  // when that was written, Unix nanoseconds: with others the sums are of another content
	Oldest, Newest int64  // of its decisions, Unix milliseconds
	Damaged        uint32
	Facets         uint32
	Crowded        uint32    // 1: it has more than mostFacets, and so neither facets nor rows
	Rows           [6]uint32 // of each group
	Grams          uint32    // octets
}

// facet is what decisions have in common that a query may select by.
type facet struct {
	door, outcome, verdict, list string
	decisions                    uint64
}

// sumRow is one name of one facet: 8 octets of its hash, 4 of how many decisions, 4 of where a line with the name begins, 4 of the facet.
const sumRow = 20

// mostFacets bounds the facets of sums. Of a segment with more neither they nor rows are kept.
const mostFacets = 1 << 14

func rowOf(b []byte) (hash uint64, n, line, facet uint32) {
	return binary.LittleEndian.Uint64(b), binary.LittleEndian.Uint32(b[8:]), binary.LittleEndian.Uint32(b[12:]), binary.LittleEndian.Uint32(b[16:])
}

// adder makes sums.
type adder struct {
	sums
	seed uint64
	only int // the group that is wanted; -1: all
	ids  map[facet]uint32
	rows []map[adderKey]adderRow
}

type adderKey struct {
	hash  uint64
	facet uint32
}

type adderRow struct{ n, line uint32 }

func newAdder(seed uint64, only int) *adder {
	a := &adder{seed: seed, only: only, ids: map[facet]uint32{}}
	a.head.Oldest, a.head.Newest = math.MaxInt64, math.MinInt64
	for range Groups() {
		a.rows = append(a.rows, map[adderKey]adderRow{})
	}
	if only < 0 {
		a.grams = make(grams, mostGrams)
	}
	return a
}

// add counts a decision, whose line begins there.
func (a *adder) add(r *Record, line int64) {
	a.head.Oldest, a.head.Newest = min(a.head.Oldest, r.Time.UnixMilli()), max(a.head.Newest, r.Time.UnixMilli())
	f := facet{door: r.Door, outcome: r.Outcome, verdict: r.Verdict, list: r.List}
	id, known := a.ids[f]
	if !known {
		f = facet{door: strings.Clone(f.door), outcome: strings.Clone(f.outcome), verdict: strings.Clone(f.verdict), list: strings.Clone(f.list)}
		id = uint32(len(a.facets))
		a.ids[f], a.facets = id, append(a.facets, f)
	}
	a.facets[id].decisions += r.Times()
	for i, by := range Groups() {
		if a.only >= 0 && i != a.only {
			continue
		}
		name := nameOf(r, by)
		if name == "" {
			continue
		}
		key := adderKey{xxh3.HashStringSeed(name, a.seed), id}
		row, there := a.rows[i][key]
		if !there {
			row.line = uint32(line)
		}
		row.n = uint32(min(uint64(row.n)+r.timesOf(by), math.MaxUint32))
		a.rows[i][key] = row
	}
	if a.grams != nil {
		for _, text := range r.texts() {
			a.grams.add(text, a.seed)
		}
	}
}

// made are the sums of what was added.
func (a *adder) made() *sums {
	a.head.Facets = uint32(len(a.facets))
	for i, rows := range a.rows {
		keys := make([]adderKey, 0, len(rows))
		for key := range rows {
			keys = append(keys, key)
		}
		slices.SortFunc(keys, func(a, b adderKey) int { return cmp.Or(cmp.Compare(a.hash, b.hash), cmp.Compare(a.facet, b.facet)) })
		text := make([]byte, 0, len(keys)*sumRow)
		for _, key := range keys {
			row := rows[key]
			text = binary.LittleEndian.AppendUint64(text, key.hash)
			text = binary.LittleEndian.AppendUint32(text, row.n)
			text = binary.LittleEndian.AppendUint32(text, row.line)
			text = binary.LittleEndian.AppendUint32(text, key.facet)
		}
		a.groups = append(a.groups, text)
		a.head.Rows[i] = uint32(len(keys))
	}
	a.grams = a.grams.fitting()
	a.head.Grams = uint32(len(a.grams))
	return &a.sums
}

// sumOf counts a segment.
func sumOf(s segment, seed uint64, only int, w walker) (*sums, error) {
	a := newAdder(seed, only)
	w.oldest, w.damaged = true, 0
	w.each = func(r *Record) bool {
		a.add(r, w.here.line)
		return true
	}
	if err := w.segment(s); err != nil {
		return nil, err
	}
	a.head.Number, a.head.Size, a.head.Written, a.head.Damaged = s.number, s.size, s.written.UnixNano(), uint32(w.damaged)
	return a.made(), nil
}

// selects reports whether a facet's decisions are among those of the query.
func (f *facet) selects(q *Query) bool {
	return (q.Door == "" || q.Door == f.door) && (q.List == "" || q.List == f.list) && (q.Verdict == "" || q.Verdict == f.verdict) &&
		(q.Outcome == "" || q.Outcome == f.outcome || q.Outcome == Mail && f.outcome != Listed)
}

// summed reports whether sums can answer the query: it selects by facets and times alone.
func (q *Query) summed() bool {
	return q.Text == "" && q.Sender == "" && q.Domain == "" && q.Recipient == "" && !q.Client.IsValid() && q.Ref == "" && q.Entry == ""
}

// crowd leaves out what a segment with too many facets has no room for, so that its file is there, and is not made again and again.
func (s *sums) crowd() {
	s.facets, s.head.Facets, s.head.Crowded = nil, 0, 1
	for i := range s.groups {
		s.groups[i], s.head.Rows[i] = nil, 0
	}
}

// text is the file of sums: a head with a checksum, and then the groups and the grams, each with one.
func (s *sums) text() []byte {
	var facets []byte
	for _, f := range s.facets {
		for _, text := range []string{f.door, f.outcome, f.verdict, f.list} {
			facets = append(binary.AppendUvarint(facets, uint64(len(text))), text...)
		}
		facets = binary.AppendUvarint(facets, f.decisions)
	}
	b := bytes.NewBufferString(sumsHeadText)
	binary.Write(b, binary.LittleEndian, s.head) // fixed sizes, and a Buffer: it cannot fail
	binary.Write(b, binary.LittleEndian, uint32(len(facets)))
	b.Write(facets)
	binary.Write(b, binary.LittleEndian, xxh3.Hash(b.Bytes()))
	parts := append(s.groups[:len(s.groups):len(s.groups)], s.grams)
	for _, part := range parts {
		binary.Write(b, binary.LittleEndian, xxh3.Hash(part))
	}
	for _, part := range parts {
		b.Write(part)
	}
	return b.Bytes()
}

const sumsHeadText = "blockd sums 2\n"

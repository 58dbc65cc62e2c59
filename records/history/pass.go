package history

import (
	"encoding/binary"
	"io"
	"slices"
	"sort"
	"strings"
	"time"

	"github.com/zeebo/xxh3"
)

// passing knows by their sums which finished segments have no decision that a query selects, so that they need not be read. What it is not
// sure of is read: a segment without sums, or with damaged ones, or with those of another content.
type passing struct {
	folder string
	seed   uint64
	q      *Query
	names  []groupName // which decisions must have
	texts  []string    // which they must have somewhere in them
	room   []byte      // reused
}

// groupName is a name, and the group in which it is one, by the order of Groups.
type groupName struct {
	group int
	name  string
}

// passingBy is nil if nothing can be passed over.
func passingBy(folder string, q *Query) *passing {
	seed, err := seedOf(folder, false)
	if err != nil {
		return nil
	}
	p := &passing{folder: folder, seed: seed, q: q, texts: []string{q.Text, q.Ref, q.Entry}}
	name := func(by, name string) {
		if name != "" { // nobody counts what has no name
			p.names = append(p.names, groupName{slices.Index(Groups(), by), name})
		}
	}
	switch {
	case q.Sender == "":
	case q.Sender == "<>", strings.LastIndexByte(q.Sender, '@') > 0:
		name("sender", Lower(q.Sender))
	default:
		name("domain", Lower(strings.TrimPrefix(q.Sender, "@")))
	}
	name("domain", Lower(q.Domain))
	if strings.LastIndexByte(q.Recipient, '@') > 0 {
		name("recipient", Lower(q.Recipient))
	} else if q.Recipient != "<>" {
		p.texts = append(p.texts, strings.TrimPrefix(q.Recipient, "@"))
	}
	if q.Client.IsSingleIP() {
		name("client", q.Client.Addr().String())
	}
	return p
}

// passes reports whether no decision of a segment is selected.
func (p *passing) passes(s segment) bool {
	if p == nil {
		return false
	}
	o, err := openSums(p.folder, s)
	if err != nil {
		return false
	}
	defer o.file.Close()
	if time.UnixMilli(o.head.Newest).Before(p.q.Since) || !p.q.Until.IsZero() && !time.UnixMilli(o.head.Oldest).Before(p.q.Until) {
		return true
	}
	if o.head.Crowded == 0 && !slices.ContainsFunc(o.facets, func(f facet) bool { return f.selects(p.q) }) {
		return true
	}
	if slices.ContainsFunc(p.texts, func(text string) bool { return len(text) >= gramOctets }) {
		if have, err := p.part(o, o.grams, int(o.head.Grams)); err == nil &&
			slices.ContainsFunc(p.texts, func(text string) bool { return !grams(have).may(text, p.seed) }) {
			return true
		}
	}
	return o.head.Crowded == 0 && slices.ContainsFunc(p.names, func(n groupName) bool { return p.lacks(o, n) })
}

// lacks reports whether no decision of sums has a name that the query selects.
func (p *passing) lacks(o *sumsFile, n groupName) bool {
	rows, err := p.part(o, o.groups[n.group], int(o.head.Rows[n.group])*sumRow)
	if err != nil {
		return false
	}
	want, count := xxh3.HashStringSeed(n.name, p.seed), len(rows)/sumRow
	hash := func(i int) uint64 { return binary.LittleEndian.Uint64(rows[i*sumRow:]) }
	for i := sort.Search(count, func(i int) bool { return hash(i) >= want }); i < count && hash(i) == want; i++ {
		if _, _, _, facet := rowOf(rows[i*sumRow:]); int(facet) >= len(o.facets) || o.facets[facet].selects(p.q) {
			return false
		}
	}
	return true
}

// part reads a part of a file of sums, which is valid until the next one is read. A damaged one is an error.
func (p *passing) part(o *sumsFile, at sumsPart, size int) ([]byte, error) {
	p.room = slices.Grow(p.room[:0], size)[:size]
	if _, err := io.ReadFull(io.NewSectionReader(o.file, at.offset, int64(size)), p.room); err != nil || xxh3.Hash(p.room) != at.hash {
		return nil, errSums
	}
	return p.room, nil
}

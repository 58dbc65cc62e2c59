package index

import (
	"math/bits"
	"net/netip"
	"runtime"
	"strings"
	"time"

	"blockd/bloom"
	"blockd/index/internal/format"
	"blockd/lists"
	"blockd/mail/addr"
)

// Match is one entry that covers a sender or a client. It holds copies only,
// nothing of the mapping.
type Match struct {
	Row     int // of Lists(): which source
	Kind    lists.Kind
	Owner   addr.Key     // whose entry it is, of LookupOwned; zero = everybody's
	Key     addr.Key     // of Addr, Domain and Recipient: the entry; its text is the sender's own memory
	Net     netip.Prefix // of IP and CIDR: the entry
	Pattern string       // of Glob and Regexp: the entry, as lint prints it
	Scope   lists.Scope
	Action  lists.Action
	Line    int
	Reason  string

	// NeedsProof: the exception counts only with SPF or DKIM. No index has such entries; package live does.
	NeedsProof bool
}

// Name is the canonical text of the entry, as blockd lint prints it, without its owner.
func (m Match) Name() string {
	return lists.EntryName(m.Kind, m.Key, m.Net, m.Pattern)
}

// usualKeys are enough for an address, its local-part and a domain of ten
// labels. Room for all 129 keys is three KiB, whose clearing costs as much as a
// look-up, so only senders that need it pay for it.
const usualKeys = 12

// usualSuspects of one sender are confirmed together. It rarely has more than one or
// two, and room for all its keys would have to be cleared.
const usualSuspects = 4

// Lookup appends to dst every entry that covers a, and that has not expired at
// now, the most specific first: address, exact name, longest sub or tree name,
// local-part, patterns; between equally specific ones in the order of Lists. It
// does not allocate when nothing matches. An error (wrapping ErrRead) means that the
// store could not be read: the sender is then neither listed nor clear.
func (ix *Index) Lookup(dst []Match, a addr.Addr, now time.Time) ([]Match, error) {
	if strings.Count(a.Domain(), ".") > usualKeys-3 {
		var keys [addr.MaxKeys]addr.Key
		return ix.lookup(dst, a.Keys(keys[:0]), now.Unix())
	}
	var keys [usualKeys]addr.Key
	return ix.lookup(dst, a.Keys(keys[:0]), now.Unix())
}

// lookup asks for the keys of one sender, as addr gives them.
func (ix *Index) lookup(dst []Match, keys []addr.Key, now int64) ([]Match, error) {
	own := localLast(keys)
	found, asked := len(dst), uint64(0)
	var hashes [bloom.BatchSize]bloom.Hash
	var of [bloom.BatchSize]uint8 // which key each belongs to; below addr.MaxKeys
	n := 0
	for i := range keys {
		if ix.file.Kinds&keys[i].KindBit() != 0 { // else no list holds such keys
			hashes[n], of[n] = ix.file.Hash.SumString(keys[i].Text), uint8(i)
			n++
		}
		if n < len(hashes) && i < len(keys)-1 {
			continue
		}
		perhaps, err := ix.perhaps(hashes[:n])
		for err == nil && perhaps != 0 {
			var s [usualSuspects]suspect
			count := 0
			for ; perhaps != 0 && count < len(s); perhaps &= perhaps - 1 {
				i := bits.TrailingZeros32(perhaps)
				ix.fetchPage(hashes[i])
				key := int(of[i])
				s[count] = suspect{hash: hashes[i], key: keys[key], own: key == own}
				count++
			}
			dst, err = ix.confirm(dst, s[:count], now)
		}
		if err != nil {
			return dst[:found], err
		}
		asked += uint64(n)
		n = 0
	}
	if asked > 0 {
		ix.asked.Add(asked)
	}
	if ix.patterns != nil && len(keys) > 0 && keys[0].Kind == addr.Address {
		var err error
		if dst, err = ix.lookupPatterns(dst, keys[0].Text, now); err != nil {
			return dst[:found], err
		}
	}
	runtime.KeepAlive(ix) // else the mapping may go while the last page is read
	return dst, nil
}

// localLast moves the local-part, the least specific of all, behind the other
// keys of a sender. own is the place of the sender's own domain; len(keys) if
// there is none.
func localLast(keys []addr.Key) (own int) {
	if len(keys) > 1 && keys[1].Kind == addr.Local {
		local := keys[1]
		copy(keys[1:], keys[2:])
		keys[len(keys)-1] = local
	}
	for own < len(keys) && keys[own].Kind != addr.Domain {
		own++
	}
	return own
}

// rank orders the scopes of format.Scopes: an exact name is more specific than the same
// name as a tree, while sub and tree of a parent are equally so.
func rank(kind addr.Kind, own bool) [2]uint8 {
	scopes := format.Scopes(kind, own)
	return [2]uint8{scopes & (1 << lists.Exact), scopes &^ (1 << lists.Exact)}
}

// appendMatches appends the entries of a record whose scope is in scopes: each is m
// with what its source says.
func (ix *Index) appendMatches(dst []Match, c record, m Match, scopes uint8, now int64) ([]Match, error) {
	if scopes == 0 {
		return dst, nil
	}
	n, _ := c.Sources()
	for range n {
		e := c.Entry()
		if e.Row >= len(ix.file.Lists) {
			c.Fail()
		}
		if c.Bad || scopes&(1<<e.Scope) == 0 || e.Expiry != 0 && e.Expiry <= now {
			continue
		}
		reasons := ix.present(&c, &e)
		m.Row, m.Scope, m.Action, m.Line, m.Reason = e.Row, e.Scope, e.Action, e.Line, ""
		if e.Reason != 0 {
			text, ok := format.ReasonAt(reasons, e.Reason-1)
			if !ok {
				c.Fail()
				continue
			}
			m.Reason = string(text)
		}
		if ix.held != nil && ix.withheld(&m, &e) {
			continue
		}
		dst = append(dst, m)
	}
	if c.Bad {
		return dst, format.Corrupt(ix.file.Sections[format.SecPages].Offset, "record of %q does not hold together", m.Name())
	}
	return dst, nil
}

// LookupDomain appends to dst the entries that cover every sender at a domain:
// those for the name itself and for its parents, in the order of Lookup. Entries
// for single addresses, local-parts and patterns cover some senders there, and
// are left out.
func (ix *Index) LookupDomain(dst []Match, domain addr.Key, now time.Time) ([]Match, error) {
	var keys [addr.MaxKeys]addr.Key
	return ix.lookup(dst, domain.AndParents(keys[:0]), now.Unix())
}

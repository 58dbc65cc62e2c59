package live

import (
	"bytes"
	"encoding/binary"
	"hash/crc32"
	"net/netip"
	"runtime"
	"time"

	"blockd/lists"
	"blockd/mail/addr"
)

func (s *snapshot) record(i int) []byte { return s.records[i*recordSize : (i+1)*recordSize] }

func (s *snapshot) number(i int) uint64 { return binary.LittleEndian.Uint64(s.record(i)) }

func (s *snapshot) expiry(i int) int64 {
	return int64(binary.LittleEndian.Uint64(s.record(i)[16:]))
}

// textsOf returns the texts of a record: key, why, author. ok is false if they are not where texts are.
func (s *snapshot) textsOf(i int) (text []byte, key, why int, ok bool) {
	le, r := binary.LittleEndian, s.record(i)
	at, key, why := le.Uint64(r[24:]), int(le.Uint16(r[32:])), int(le.Uint16(r[34:]))
	all := uint64(key + why + int(le.Uint16(r[36:])) + s.revised(i))
	if at > uint64(len(s.texts)) || all > uint64(len(s.texts))-at {
		return nil, 0, 0, false
	}
	return s.texts[at : at+all], key, why, true
}

// The flags of a record.
const (
	flagProof    = 1
	flagRevision = 2
)

// revised is how many octets after its texts have the revision of a record: 8 or 0.
func (s *snapshot) revised(i int) int { return 4 * int(s.record(i)[43]&flagRevision) }

// revision returns the revision of a record's entry; 0 = it has none.
func (s *snapshot) revision(i int) uint64 {
	n := s.revised(i)
	text, _, _, ok := s.textsOf(i)
	if n == 0 || !ok || len(text) < n {
		return 0
	}
	return binary.LittleEndian.Uint64(text[len(text)-n:])
}

func (s *snapshot) keyOf(i int) []byte {
	text, key, _, _ := s.textsOf(i)
	return text[:key]
}

// personal reports whether a record is about recipients.
func (s *snapshot) personal(i int) bool { return personal(s.keyOf(i)) }

// owned reports whether a record has an owner.
func (s *snapshot) owned(i int) bool {
	key := s.keyOf(i)
	return len(key) > 0 && key[0] == ownerOpen[0]
}

// proved reports whether a record needs proof.
func (s *snapshot) proved(i int) bool { return s.record(i)[43]&flagProof != 0 }

func (s *snapshot) scope(i int) lists.Scope { return scopeCodes[s.record(i)[39]] }

// intact reports whether a record is as it was written.
func (s *snapshot) intact(i int) bool {
	r := s.record(i)
	text, _, _, ok := s.textsOf(i)
	return ok && crc32.Update(crc32.Checksum(r[:recordSize-4], castagnoli), castagnoli, text) == binary.LittleEndian.Uint32(r[recordSize-4:]) &&
		s.plausible(i)
}

// lastSecond is the end of the year 9999: no text has a time behind it.
const lastSecond = 253402300799

// plausible reports whether a record is one that this package could have written, so far that nothing which is
// done with its entry can fail.
func (s *snapshot) plausible(i int) bool {
	r := s.record(i)
	if r[38] == 0 || int(r[38]) >= len(kindCodes) || r[39] == 0 || int(r[39]) >= len(scopeCodes) || r[40] > byte(lists.Allow) || r[43] > flagProof|flagRevision || s.revised(i) > 0 && s.version < sharedVersion {
		return false
	}
	added, ends := int64(binary.LittleEndian.Uint64(r[8:])), s.expiry(i)
	if added < 0 || added > lastSecond || ends < 0 || ends > lastSecond {
		return false
	}
	owner, key := cutOwned(s.keyOf(i))
	if s.owned(i) {
		if k, err := addr.ParseOwner(string(owner)); err != nil || k.Text != string(owner) || s.version < personalVersion {
			return false
		}
	}
	if r[38] == recipientCode {
		if len(key) == 0 || key[0] != recipientOpen[0] || s.version < personalVersion {
			return false
		}
		key = key[1:]
	}
	if s.proved(i) && (s.personal(i) || s.version < provedVersion || provable(&lists.Item{Kind: kindCodes[r[38]].item, Scope: s.scope(i), Action: lists.Action(r[40])}, true) != nil) {
		return false
	}
	at := bytes.LastIndexByte(key, '@')
	switch kind := kindCodes[r[38]]; {
	case kind.item == lists.IP || kind.item == lists.CIDR:
		n := len(key) - 2
		return (n == 4 && key[0] == 4 || n == 16 && key[0] == 6) && int(key[1]) <= 8*n
	case kind.key == addr.Address:
		return at > 0 && at < len(key)-1
	case kind.key == addr.Local:
		return at > 0 && at == len(key)-1
	}
	return len(key) > 0
}

// item returns what the index knows of an entry.
func (s *snapshot) item(i int) (it lists.Item) {
	defer runtime.KeepAlive(s)
	r := s.record(i)
	owner, key := cutOwned(s.keyOf(i))
	kind := kindCodes[r[38]]
	it = lists.Item{Kind: kind.item, Scope: s.scope(i), Action: lists.Action(r[40])}
	if it.Kind == lists.Recipient && len(key) > 0 {
		key = key[1:]
	}
	if it.Kind != lists.IP && it.Kind != lists.CIDR {
		it.Key = addr.Key{Text: string(key), Kind: kind.key, Labels: r[42]}
		if len(owner) > 0 {
			it.Owner, _ = addr.ParseOwner(string(owner)) // plausible has read it
		}
	} else if len(key) > 2 {
		ip, _ := netip.AddrFromSlice(key[2:])
		it.Net = netip.PrefixFrom(ip, int(key[1]))
	}
	return it
}

// entry returns a record's entry. Two calls give two of them.
func (s *snapshot) entry(i int) *Entry {
	defer runtime.KeepAlive(s)
	le, r := binary.LittleEndian, s.record(i)
	text, key, why, _ := s.textsOf(i)
	author := text[key+why : len(text)-s.revised(i)]
	e := &Entry{Number: le.Uint64(r), Rev: s.revision(i), Item: s.item(i), Why: string(text[key : key+why]), Author: string(author), Forced: r[41] == 1, NeedsProof: s.proved(i),
		Added: time.Unix(int64(le.Uint64(r[8:])), 0).UTC(), key: string(text[:key]), expiry: s.expiry(i)}
	if e.expiry != 0 {
		e.Expires = time.Unix(e.expiry, 0).UTC()
	}
	e.Text, e.reason = e.Item.Plain(), reasonOf(e)
	return e
}

// appendRecord appends a record whose texts begin at an offset.
func (e *Entry) appendRecord(b []byte, at int) []byte {
	from, le := len(b), binary.LittleEndian
	forced, flags := byte(0), byte(0)
	if e.Forced {
		forced = 1
	}
	if e.NeedsProof {
		flags = flagProof
	}
	if e.Rev > 0 {
		flags |= flagRevision
	}
	for _, n := range []uint64{e.Number, uint64(e.Added.Unix()), uint64(e.expiry), uint64(at)} {
		b = le.AppendUint64(b, n)
	}
	b = le.AppendUint16(le.AppendUint16(le.AppendUint16(b, uint16(len(e.key))), uint16(len(e.Why))), uint16(len(e.Author)))
	b = append(b, kindCode(&e.Item), scopeCode(e.Item.Scope), byte(e.Item.Action), forced, e.Item.Key.Labels, flags)
	sum := crc32.Checksum(b[from:], castagnoli)
	for _, text := range e.texts() {
		sum = crc32.Update(sum, castagnoli, []byte(text))
	}
	return le.AppendUint32(b, sum)
}

// texts are those of a record, and the octets of its revision.
func (e *Entry) texts() []string {
	all := []string{e.key, e.Why, e.Author}
	if e.Rev > 0 {
		all = append(all, string(binary.LittleEndian.AppendUint64(nil, e.Rev)))
	}
	return all
}

// moved appends a record of s whose texts are now at another offset.
func (s *snapshot) moved(b []byte, i, at int) []byte {
	from, le := len(b), binary.LittleEndian
	text, _, _, _ := s.textsOf(i)
	b = append(b, s.record(i)[:recordSize-4]...)
	le.PutUint64(b[from+24:], uint64(at))
	return le.AppendUint32(b, crc32.Update(crc32.Checksum(b[from:], castagnoli), castagnoli, text))
}

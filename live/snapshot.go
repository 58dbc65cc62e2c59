package live

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"io/fs"
	"iter"
	"math/bits"
	"net/netip"
	"os"
	"path/filepath"
	"runtime"
	"sort"
	"time"

	"github.com/zeebo/xxh3"
	"golang.org/x/sys/unix"

	"blockd/addr"
	"blockd/digest"
	"blockd/lists"
)

// The snapshot is a file of all entries up to a number. It is mapped and searched where it is, so a
// start reads no entry, and the entries take no memory of the process. The journal goes on from it.
//
// All numbers are little endian. A header of headerSize octets, with its CRC-32C in the last four, is
// followed by
//
//	keys     cells of 8 octets, a power of two: 32 bits of a key's hash, 32 bits of a record's index plus
//	         one; open addressing, at most half of them in use
//	digests  such cells for the digests of addresses, or none
//	ends     4 octets for each entry that ends, its record's index: the first to end comes first
//	records  recordSize octets for each entry, in the order of their numbers; see entry
//	texts    of each record: key, why, author
//
// The header has the CRC-32C of the first three; each record has its own, with its texts. So a
// damaged record is left out and told of, as a damaged line of the journal is.
const (
	snapshotMagic   = "blockd live snap"
	snapshotVersion = 3 // entries may need proof; without one it is one of these, which older programs read
	personalVersion = 2 // entries may have owners, or be about recipients
	plainVersion    = 1
	headerSize      = 512
	recordSize      = 48
)

// errNoSnapshot reports a file that is not a snapshot, or of which the head is damaged.
var errNoSnapshot = errors.New("this is no snapshot of live entries, or its head is damaged; restore it, or move it and the journal away to begin without entries")

// errSnapshotGone reports a journal whose snapshot is missing, or too old for it.
var errSnapshotGone = errors.New("the snapshot that the journal goes on from is missing or older; restore it, or move the journal away too to begin without entries")

func snapshotPath(folder string) string { return filepath.Join(folder, "snapshot") }

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// snapshotHead is what the header says.
type snapshotHead struct {
	version              uint32
	parser               uint32 // lists.ParserVersion of the keys
	count                int
	last, foldedAt, seed uint64
	hashes               digest.Set
	cells, digests, ends int
	texts                int
	kinds                uint64
	lengths              [2][3]uint64
	folds                []fold
	tables               uint32 // the checksum of the tables
}

// snapshot is a mapped snapshot. It never changes, and any number of goroutines may read it. Nothing
// that its methods return points into the mapping, which ends when nothing has the snapshot any more.
type snapshot struct {
	snapshotHead
	info    os.FileInfo // of the file
	keys    []byte
	digests []byte // for the digests that were asked for, from the file or made
	ends    []byte
	records []byte
	texts   []byte
}

// The codes of the file; 0 is none of them.
var (
	kindCodes = [...]struct {
		item lists.Kind
		key  addr.Kind
	}{1: {lists.Addr, addr.Address}, 2: {lists.Addr, addr.Local}, 3: {lists.Domain, addr.Domain}, 4: {lists.IP, 0}, 5: {lists.CIDR, 0}, recipientCode: {lists.Recipient, addr.Address}}
	scopeCodes = [...]lists.Scope{1: lists.Exact, 2: lists.Sub, 3: lists.Tree, 4: lists.Local}
)

// addressCode is the kind of addresses, recipientCode that of recipients.
const (
	addressCode   = 1
	recipientCode = 6
)

func kindCode(it *lists.Item) byte {
	for code, k := range kindCodes {
		if code > 0 && k.item == it.Kind && (it.Kind == lists.IP || it.Kind == lists.CIDR || k.key == it.Key.Kind) {
			return byte(code)
		}
	}
	return 0
}

func scopeCode(s lists.Scope) byte {
	for code, scope := range scopeCodes {
		if code > 0 && scope == s {
			return byte(code)
		}
	}
	return 0
}

// append appends the header to b.
func (h *snapshotHead) append(b []byte) []byte {
	from := len(b)
	le := binary.LittleEndian
	b = append(b, snapshotMagic...)
	b = le.AppendUint32(b, h.version)
	b = le.AppendUint32(b, h.parser)
	for _, n := range []uint64{uint64(h.count), h.last, h.foldedAt, h.seed, uint64(h.hashes), uint64(h.cells), uint64(h.digests), uint64(h.ends), uint64(h.texts), h.kinds} {
		b = le.AppendUint64(b, n)
	}
	for _, family := range h.lengths {
		for _, n := range family {
			b = le.AppendUint64(b, n)
		}
	}
	b = le.AppendUint64(b, uint64(len(h.folds)))
	for i := range keptFolds {
		var f fold
		if i < len(h.folds) {
			f = h.folds[i]
		}
		b = append(le.AppendUint64(le.AppendUint64(b, f.number), f.upTo), f.hash[:]...)
	}
	b = le.AppendUint32(b, h.tables)
	b = append(b, make([]byte, headerSize-4-(len(b)-from))...)
	return le.AppendUint32(b, crc32.Checksum(b[from:], castagnoli))
}

// decode reads a header, and nothing else. size is the file's.
func (h *snapshotHead) decode(b []byte, size int64) error {
	le := binary.LittleEndian
	if len(b) < headerSize || string(b[:16]) != snapshotMagic {
		return errNoSnapshot
	}
	if h.version = le.Uint32(b[16:]); h.version < 1 || h.version > snapshotVersion {
		return fmt.Errorf("a snapshot of version %d; this program reads version %d", h.version, snapshotVersion)
	}
	if crc32.Checksum(b[:headerSize-4], castagnoli) != le.Uint32(b[headerSize-4:]) {
		return errNoSnapshot
	}
	h.parser = le.Uint32(b[20:])
	var n [17]uint64
	for i := range n {
		n[i] = le.Uint64(b[24+8*i:])
	}
	for _, i := range []int{0, 5, 6, 7, 8} {
		if n[i] > 1<<40 {
			return errNoSnapshot
		}
	}
	h.count, h.last, h.foldedAt, h.seed, h.hashes = int(n[0]), n[1], n[2], n[3], digest.Set(n[4])
	h.cells, h.digests, h.ends, h.texts, h.kinds = int(n[5]), int(n[6]), int(n[7]), int(n[8]), n[9]
	copy(h.lengths[0][:], n[10:13])
	copy(h.lengths[1][:], n[13:16])
	if n[16] > keptFolds || h.cells < 2*h.count || bits.OnesCount(uint(h.cells)) != 1 || h.digests > 0 && bits.OnesCount(uint(h.digests)) != 1 || h.ends > h.count {
		return errNoSnapshot
	}
	at := b[24+8*len(n):]
	for range n[16] {
		f := fold{number: le.Uint64(at), upTo: le.Uint64(at[8:])}
		copy(f.hash[:], at[16:32])
		h.folds, at = append(h.folds, f), at[32:]
	}
	h.tables = le.Uint32(b[24+8*len(n)+32*keptFolds:])
	if size != int64(headerSize+h.tablesSize()+h.count*recordSize+h.texts) {
		return fmt.Errorf("%w (it has %d octets)", errNoSnapshot, size)
	}
	return nil
}

func (h *snapshotHead) tablesSize() int { return 8*h.cells + 8*h.digests + 4*h.ends }

// openSnapshot maps the snapshot of a folder, with the digests of hashes; nil if there is none. Each
// octet is checked once. If a part is damaged or an older parser made the keys, it returns no snapshot,
// but the records that are good as rest, which may be empty, and what is damaged.
func openSnapshot(folder string, hashes digest.Set) (s *snapshot, rest *salvage, err error) {
	path := snapshotPath(folder)
	f, err := os.Open(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil, nil
	} else if err != nil {
		return nil, nil, err
	}
	defer f.Close()
	if s, err = mapSnapshot(f); err != nil {
		return nil, nil, fmt.Errorf("%s: %w", path, err)
	}
	if rest = s.check(path); rest != nil {
		return nil, rest, nil
	}
	s.index(hashes)
	return s, nil, nil
}

// mapSnapshot maps a file and checks its head.
func mapSnapshot(f *os.File) (*snapshot, error) {
	s := new(snapshot)
	info, err := f.Stat()
	if err != nil {
		return nil, err
	}
	var head [headerSize]byte
	if _, err := f.ReadAt(head[:], 0); err != nil && err != io.EOF {
		return nil, err
	}
	if err := s.decode(head[:], info.Size()); err != nil {
		return nil, err
	}
	data, err := unix.Mmap(int(f.Fd()), 0, int(info.Size()), unix.PROT_READ, unix.MAP_SHARED|populate)
	if err != nil {
		return nil, fmt.Errorf("map: %w", err)
	}
	runtime.AddCleanup(s, func(data []byte) { unix.Munmap(data) }, data)
	s.info = info
	take := func(n int) (part []byte) {
		part, data = data[:n:n], data[n:]
		return part
	}
	take(headerSize)
	s.keys, s.digests, s.ends, s.records, s.texts = take(8*s.cells), take(8*s.snapshotHead.digests), take(4*s.snapshotHead.ends), take(s.count*recordSize), take(s.snapshotHead.texts)
	return s, nil
}

// salvage is what a snapshot that cannot be served from its mapping has.
type salvage struct {
	snapshotHead
	entries []*Entry
	damage  []Damage
	damaged int
}

// check checks everything behind the head. It returns nil if all is well.
func (s *snapshot) check(path string) *salvage {
	defer runtime.KeepAlive(s)
	sum := crc32.Update(crc32.Update(crc32.Checksum(s.keys, castagnoli), castagnoli, s.digests), castagnoli, s.ends)
	good := sum == s.tables && s.parser == lists.ParserVersion
	var last uint64
	for i := 0; good && i < s.count; i++ {
		number := s.number(i)
		good = s.intact(i) && number > last && number <= s.last
		last = number
	}
	if good {
		return nil
	}
	rest := &salvage{snapshotHead: s.snapshotHead}
	tell := func(line int, why string) {
		if rest.damaged++; len(rest.damage) < shownDamage {
			rest.damage = append(rest.damage, Damage{path, line, why})
		}
	}
	if sum != s.tables {
		tell(0, "the tables are damaged, and are made anew")
	}
	for i := range s.count {
		if !s.intact(i) {
			tell(i+1, "damaged, and left out: wrong checksum")
			continue
		}
		e := s.entry(i)
		again := recordOf(e)
		e, err := again.entry() // as this program's parser reads it
		if err != nil {
			tell(i+1, "left out: "+err.Error())
			continue
		}
		rest.entries = append(rest.entries, e)
	}
	return rest
}

func (s *snapshot) record(i int) []byte { return s.records[i*recordSize : (i+1)*recordSize] }

func (s *snapshot) number(i int) uint64 { return binary.LittleEndian.Uint64(s.record(i)) }

func (s *snapshot) expiry(i int) int64 {
	return int64(binary.LittleEndian.Uint64(s.record(i)[16:]))
}

// textsOf returns the texts of a record: key, why, author. ok is false if they are not where texts are.
func (s *snapshot) textsOf(i int) (text []byte, key, why int, ok bool) {
	le, r := binary.LittleEndian, s.record(i)
	at, key, why := le.Uint64(r[24:]), int(le.Uint16(r[32:])), int(le.Uint16(r[34:]))
	all := uint64(key + why + int(le.Uint16(r[36:])))
	if at > uint64(len(s.texts)) || all > uint64(len(s.texts))-at {
		return nil, 0, 0, false
	}
	return s.texts[at : at+all], key, why, true
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
func (s *snapshot) proved(i int) bool { return s.record(i)[43] == 1 }

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
	if r[38] == 0 || int(r[38]) >= len(kindCodes) || r[39] == 0 || int(r[39]) >= len(scopeCodes) || r[40] > byte(lists.Allow) || r[43] > 1 {
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
	if s.proved(i) && (s.personal(i) || s.version < snapshotVersion || provable(&lists.Item{Kind: kindCodes[r[38]].item, Scope: s.scope(i), Action: lists.Action(r[40])}, true) != nil) {
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
	e := &Entry{Number: le.Uint64(r), Item: s.item(i), Why: string(text[key : key+why]), Author: string(text[key+why:]), Forced: r[41] == 1, NeedsProof: s.proved(i),
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
	forced, proof := byte(0), byte(0)
	if e.Forced {
		forced = 1
	}
	if e.NeedsProof {
		proof = 1
	}
	for _, n := range []uint64{e.Number, uint64(e.Added.Unix()), uint64(e.expiry), uint64(at)} {
		b = le.AppendUint64(b, n)
	}
	b = le.AppendUint16(le.AppendUint16(le.AppendUint16(b, uint16(len(e.key))), uint16(len(e.Why))), uint16(len(e.Author)))
	b = append(b, kindCode(&e.Item), scopeCode(e.Item.Scope), byte(e.Item.Action), forced, e.Item.Key.Labels, proof)
	sum := crc32.Checksum(b[from:], castagnoli)
	for _, text := range []string{e.key, e.Why, e.Author} {
		sum = crc32.Update(sum, castagnoli, []byte(text))
	}
	return le.AppendUint32(b, sum)
}

// moved appends a record of s whose texts are now at another offset.
func (s *snapshot) moved(b []byte, i, at int) []byte {
	from, le := len(b), binary.LittleEndian
	text, _, _, _ := s.textsOf(i)
	b = append(b, s.record(i)[:recordSize-4]...)
	le.PutUint64(b[from+24:], uint64(at))
	return le.AppendUint32(b, crc32.Update(crc32.Checksum(b[from:], castagnoli), castagnoli, text))
}

// cells is a table of the file while it is made.
type cells []byte

func newCells(n int) cells {
	size := 8
	for size < 2*n {
		size *= 2
	}
	return make(cells, 8*size)
}

// put adds record i under a hash.
func (c cells) put(hash uint64, i int) {
	mask := uint64(len(c)/8 - 1)
	at := hash & mask
	for binary.LittleEndian.Uint64(c[8*at:]) != 0 {
		at = (at + 1) & mask
	}
	binary.LittleEndian.PutUint64(c[8*at:], hash>>32<<32|uint64(i+1))
}

// with returns the records that may be of a hash.
func (c cells) with(hash uint64) iter.Seq[int] {
	return func(yield func(int) bool) {
		if len(c) == 0 {
			return
		}
		mask := uint64(len(c)/8 - 1)
		for at, n := hash&mask, uint64(0); n <= mask; at, n = (at+1)&mask, n+1 {
			cell := binary.LittleEndian.Uint64(c[8*at:])
			if cell == 0 || cell>>32 == hash>>32 && uint32(cell) > 0 && !yield(int(uint32(cell))-1) {
				return
			}
		}
	}
}

// find appends the indexes of the records of a key to found, one for each scope. A nil snapshot has none.
func (s *snapshot) find(found []int, key string) []int {
	if s == nil {
		return found
	}
	defer runtime.KeepAlive(s)
	for i := range cells(s.keys).with(xxh3.HashStringSeed(key, s.seed)) {
		if i < s.count && string(s.keyOf(i)) == key {
			found = append(found, i)
		}
	}
	return found
}

// at returns the index of the record with an identity, or -1.
func (s *snapshot) at(id identity) int {
	var room [len(scopeCodes)]int
	for _, i := range s.find(room[:0], id.key) {
		if s.scope(i) == id.scope {
			return i
		}
	}
	return -1
}

// addressOf returns the address with a digest, or "".
func (s *snapshot) addressOf(d digest.Digest) (address string, i int) {
	if s == nil {
		return "", -1
	}
	defer runtime.KeepAlive(s)
	for i := range cells(s.digests).with(xxh3.HashStringSeed(digestKey(d), s.seed)) {
		if i >= s.count {
			continue
		}
		key := string(s.keyOf(i))
		for text := range digest.Texts(key) {
			if digest.Of(d.Algorithm, text) == d {
				return key, i
			}
		}
	}
	return "", -1
}

// index makes the cells of digests if those of the file are others.
func (s *snapshot) index(hashes digest.Set) {
	if s.hashes == hashes {
		return
	}
	defer runtime.KeepAlive(s)
	var all []uint64
	var of []int
	for i := range s.count {
		all = digestHashes(all, hashes, s.record(i)[38], s.keyOf(i), s.seed)
		for len(of) < len(all) {
			of = append(of, i)
		}
	}
	s.digests = nil
	if hashes != 0 {
		c := newCells(len(all))
		for n, hash := range all {
			c.put(hash, of[n])
		}
		s.digests = c
	}
}

// digestHashes appends the hashes of the digests of a key, if its kind is that of addresses.
func digestHashes(all []uint64, hashes digest.Set, kind byte, key []byte, seed uint64) []uint64 {
	if hashes == 0 || kind != addressCode || personal(key) {
		return all
	}
	for text := range digest.Texts(string(key)) {
		for a := range hashes.All() {
			all = append(all, xxh3.HashStringSeed(digestKey(digest.Of(a, text)), seed))
		}
	}
	return all
}

// newerThan returns the index of the first record with a higher number.
func (s *snapshot) newerThan(number uint64) int {
	if s == nil {
		return 0
	}
	defer runtime.KeepAlive(s)
	return sort.Search(s.count, func(i int) bool { return s.number(i) > number })
}

// ending returns the n-th of the records that end, the first to end first.
func (s *snapshot) ending(n int) int {
	return min(int(binary.LittleEndian.Uint32(s.ends[4*n:])), s.count-1)
}

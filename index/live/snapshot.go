package live

import (
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"io/fs"
	"math/bits"
	"os"
	"path/filepath"
	"runtime"

	"golang.org/x/sys/unix"

	"blockd/lists"
	"blockd/mail/addr"
	"blockd/mail/digest"
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
	snapshotVersion = 4 // the highest that is read; one without what is newer has a lower version, which older programs read
	sharedVersion   = 4 // entries may have revisions, and the head has a Cursor
	provedVersion   = 3 // entries may need proof
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
	cursor               Cursor
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
	if h.version >= sharedVersion {
		b = h.cursor.append(b)
	}
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
	at = b[24+8*len(n)+32*keptFolds : headerSize-4]
	h.tables = le.Uint32(at)
	if h.version >= sharedVersion && !h.cursor.decode(at[4:]) {
		return errNoSnapshot
	}
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

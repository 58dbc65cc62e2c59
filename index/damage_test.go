package index

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"math/bits"
	"math/rand/v2"
	"net/netip"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"

	"blockd/bloom"
	"blockd/index/internal/build"
	"blockd/index/internal/format"
	"blockd/internal/testkit"
	"blockd/internal/testkit/race"
	"blockd/mail/addr"
	"blockd/mail/digest"
)

// specimen is an index file to be damaged, with senders and the right answers.
type specimen struct {
	path    string
	data    []byte
	senders []addr.Addr
	answers [][]Match
	clients []netip.Addr
	nets    [][]Match // the answers for clients
	entries []listed
	scratch []Match
	batch   Batch
	seen    struct{ files, atOpen, atLookup, atVerify, unseen int }
	hashed  []hashed
}

// hashed is a digest and its address, null if no list has that.
type hashed struct {
	digest  digest.Digest
	address addr.Addr
}

// tell logs how many files were judged and where their damage was seen.
func (s *specimen) tell(t testing.TB) {
	t.Helper()
	t.Logf("%d damaged files: %d refused by Open, %d an error of look-ups, %d of Verify, %d with the damage where nobody reads; no wrong answer",
		s.seen.files, s.seen.atOpen, s.seen.atLookup, s.seen.atVerify, s.seen.unseen)
}

// newSpecimen has all kinds, scopes and actions, reasons and expiries.
func newSpecimen(t testing.TB, entries int) *specimen {
	t.Helper()
	rng := rand.New(rand.NewPCG(7, 7))
	list := randomEntries(t, rng, 5, entries)
	for i := range list {
		if i%7 == 0 {
			list[i].expiry = testTime.Unix() + 1000
		}
	}
	return newSpecimenOf(t, rng, list)
}

// newFullSpecimen has client addresses and patterns too.
func newFullSpecimen(t testing.TB, entries int) *specimen {
	t.Helper()
	rng := rand.New(rand.NewPCG(8, 8))
	list := randomEntries(t, rng, 5, entries)
	seen := map[string]bool{} // a repeated entry lasts as long as the longest: kept out
	for i := range 60 {
		e := listed{row: i % 5, pattern: nearPattern(rng), line: 1000 + i}
		if i%2 == 0 {
			e = netListed(nearNet(rng), listed{row: i % 5, line: 1000 + i, reason: "net"})
		}
		if what := fmt.Sprint(e.row, e.pattern, e.net); !seen[what] {
			seen[what] = true
			list = append(list, e)
		}
	}
	slices.SortStableFunc(list, func(a, b listed) int { return a.row - b.row })
	return newSpecimenOf(t, rng, list, digest.MD5, digest.SHA256)
}

// header is that of the specimen as it was written.
func (s *specimen) header(t testing.TB) *format.Header {
	t.Helper()
	return testkit.Value(format.DecodeHeader(s.data[:format.PageSize], uint64(len(s.data))))(t)
}

func newSpecimenOf(t testing.TB, rng *rand.Rand, list []listed, hashes ...digest.Algorithm) *specimen {
	t.Helper()
	s := &specimen{entries: list, path: filepath.Join(t.TempDir(), "specimen.bdx")}
	o := seeded(9)
	o.Hashes = digest.SetOf(hashes...)
	publish(t, draftOf(t, s.path, o, build.Hooks{}, rowsNamed(5), list))
	s.data = testkit.Read(t, s.path)
	keys := slices.DeleteFunc(slices.Clone(list), func(e listed) bool { return e.pattern != "" || e.net.IsValid() })
	now, full := testTime.Unix(), len(keys) < len(list)
	for len(s.senders) < 12 {
		a := sender(t, randomSender(rng))
		if full && len(s.senders)%2 == 0 {
			a = sender(t, nearSender(rng))
		}
		s.senders = append(s.senders, a)
		s.answers = append(s.answers, append(model(keys).lookup(a, now), patternModel(list, a, now)...))
	}
	for a := range o.Hashes.All() {
		for _, address := range s.senders {
			key, _ := address.Key()
			h := hashed{digest: digest.Of(a, address.String())}
			if slices.ContainsFunc(keys, func(e listed) bool { return e.key == key }) {
				h.address = address
			}
			s.hashed = append(s.hashed, h)
		}
	}
	for full && len(s.clients) < 6 {
		ip := nearIP(rng)
		s.clients = append(s.clients, ip)
		s.nets = append(s.nets, clientModel(list, ip, now))
	}
	return s
}

// judge opens the file at s.path, whatever it holds by now, and fails unless
// every answer is an error of the promised kind or right. It returns the first
// error, of Open, Lookup or Verify.
func (s *specimen) judge(t testing.TB, what string) error {
	t.Helper()
	s.seen.files++
	ix, err := Open(s.path)
	if err != nil {
		s.seen.atOpen++
		if !errors.Is(err, ErrCorrupt) || !strings.Contains(err.Error(), s.path) || strings.Contains(err.Error(), "\n") {
			t.Fatalf("%s: Open = %v: want one line that wraps ErrCorrupt and names the file", what, err)
		}
		return err
	}
	var first error
	ix.LookupBatch(&s.batch, s.senders, testTime)
	for i, a := range s.senders {
		one, oneErr := ix.Lookup(s.scratch[:0], a, testTime)
		s.scratch = one
		many, manyErr := s.batch.Matches(i)
		for _, got := range []struct {
			matches []Match
			err     error
		}{{one, oneErr}, {many, manyErr}} {
			if got.err != nil && (!errors.Is(got.err, ErrRead) || len(got.matches) > 0 || !strings.Contains(got.err.Error(), s.path)) {
				t.Fatalf("%s: Lookup(%s) = %v, %v: want no match and an error that wraps ErrRead", what, a, got.matches, got.err)
			}
			if got.err == nil && !slices.Equal(got.matches, s.answers[i]) {
				t.Fatalf("%s: wrong verdict: Lookup(%s) = %v, want %v", what, a, got.matches, s.answers[i])
			}
		}
		if (oneErr == nil) != (manyErr == nil) {
			t.Fatalf("%s: Lookup(%s) says %v, LookupBatch %v", what, a, oneErr, manyErr)
		}
		if first == nil {
			first = oneErr
		}
	}
	for _, h := range s.hashed {
		got, found, err := ix.AddressOf(h.digest)
		if err != nil && (!errors.Is(err, ErrRead) || found || !strings.Contains(err.Error(), s.path)) {
			t.Fatalf("%s: AddressOf(%v) = %v, %v: want no address and an error that wraps ErrRead", what, h.digest, got, err)
		}
		if err == nil && (got != h.address || found == got.Null()) {
			t.Fatalf("%s: wrong answer: AddressOf(%v) = %v, %v, want %v", what, h.digest, got, found, h.address)
		}
		if first == nil {
			first = err
		}
	}
	for i, ip := range s.clients {
		got, err := ix.LookupClient(s.scratch[:0], ip, testTime)
		s.scratch = got
		if err != nil && (!errors.Is(err, ErrRead) || len(got) > 0 || !strings.Contains(err.Error(), s.path)) {
			t.Fatalf("%s: LookupClient(%s) = %v, %v: want no match and an error that wraps ErrRead", what, ip, got, err)
		}
		if err == nil && !slices.Equal(got, s.nets[i]) {
			t.Fatalf("%s: wrong verdict: LookupClient(%s) = %v, want %v", what, ip, got, s.nets[i])
		}
		if first == nil {
			first = err
		}
	}
	if first != nil {
		s.seen.atLookup++
		return first
	}
	if first = ix.Verify(t.Context()); first == nil {
		s.seen.unseen++
	} else if s.seen.atVerify++; !errors.Is(first, ErrRead) {
		t.Fatalf("%s: Verify = %v, want ErrRead", what, first)
	}
	return first
}

// inUse tells whether the byte at offset belongs to header or section, not to
// the rest of a section's last page, which nobody reads.
func inUse(h *format.Header, offset uint64) bool {
	if offset < format.PageSize {
		return true
	}
	for _, s := range h.Sections {
		if offset >= s.Offset && offset < s.End() {
			return true
		}
	}
	return false
}

// allBits makes TestEveryFlippedBitIsSeen try every bit, not one of every byte.
const allBits = "BLOCKD_TEST_ALL_BITS"

// One bit of every byte is flipped, another one in each run; with allBits set all
// of them are, which takes 20 s for 330,000.
func TestEveryFlippedBitIsSeen(t *testing.T) {
	race.Skip(t)
	t.Parallel() // the other tests need not wait
	s := newSpecimen(t, 450)
	if len(s.data) < 30_000 || len(s.data) > 50_000 {
		t.Fatalf("specimen of %d bytes", len(s.data))
	}
	h := s.header(t)
	f := testkit.Value(os.OpenFile(s.path, os.O_RDWR, 0))(t)
	defer f.Close()
	step := 7 // in each byte the bit below that of the byte before
	switch {
	case os.Getenv(allBits) != "":
		step = 1
	case testing.Short() || race.Enabled:
		step = 61 // a prime: all bits of all fields get their turn in one run or another
	}
	for n := rand.IntN(step); n < 8*len(s.data); n += step {
		offset, bit := n/8, byte(1)<<(n%8)
		testkit.Value(f.WriteAt([]byte{s.data[offset] ^ bit}, int64(offset)))(t)
		what := fmt.Sprintf("byte %d, bit %d flipped", offset, n%8)
		if err := s.judge(t, what); (err != nil) != inUse(h, uint64(offset)) {
			t.Errorf("%s: error %v", what, err)
		}
		testkit.Value(f.WriteAt(s.data[offset:offset+1], int64(offset)))(t)
		if n%4096 < step {
			runtime.GC() // so that unmapping keeps up
		}
	}
	s.tell(t)
	testkit.IsError(t, "undamaged", s.judge(t, "undamaged"), nil)
}

func TestEveryTruncationIsSeen(t *testing.T) {
	s := newSpecimen(t, 150)
	for size := int64(len(s.data)) - 1; size >= 0; size-- {
		testkit.Must(t, os.Truncate(s.path, size))
		if s.judge(t, fmt.Sprintf("cut to %d bytes", size)) == nil {
			t.Fatalf("cut to %d of %d bytes, and opened", size, len(s.data))
		}
	}
	s.tell(t)
}

func (s *specimen) write(t testing.TB, data []byte) {
	t.Helper()
	testkit.Write(t, s.path, data)
}

// correctSums makes all sums of a damaged file right again, as far as its own
// header says where they are.
func correctSums(data []byte) {
	if len(data) < format.PageSize {
		return
	}
	le := binary.LittleEndian
	within := func(kind int) (b, row []byte) {
		row = data[format.SectionsAt:][:format.SectionBytes]
		for i := 1; i < format.MaxSections && le.Uint32(row) != uint32(kind); i++ {
			row = data[format.SectionsAt+i*format.SectionBytes:][:format.SectionBytes]
		}
		if le.Uint32(row) != uint32(kind) {
			return nil, row
		}
		offset, length := le.Uint64(row[8:]), le.Uint64(row[16:])
		if offset > uint64(len(data)) || length > uint64(len(data))-offset {
			return nil, row
		}
		return data[offset : offset+length], row
	}
	filter, _ := within(format.SecFilter)
	sums, _ := within(format.SecFilterSums)
	for len(filter) > 0 && len(sums) >= 4 {
		n := min(len(filter), format.ChunkBytes)
		le.PutUint32(sums, crc32.Checksum(filter[:n], format.Castagnoli))
		filter, sums = filter[n:], sums[4:]
	}
	pages, _ := within(format.SecPages)
	for n := uint64(0); len(pages) >= format.PageSize; n++ {
		le.PutUint32(pages, format.Page(pages[:format.PageSize]).Sum(le.Uint32(data[24:]), n))
		pages = pages[format.PageSize:]
	}
	for _, kind := range []int{format.SecFilterSums, format.SecDirectory, format.SecLists, format.SecReasons, format.SecNetworks, format.SecPatterns, format.SecWorth} {
		if b, row := within(kind); b != nil {
			le.PutUint32(row[32:], crc32.Checksum(b, format.Castagnoli))
		}
	}
	le.PutUint32(data[format.HeaderSumAt:], crc32.Checksum(data[:format.HeaderSumAt], format.Castagnoli))
}

// A hostile header is in order by its sum and promises whatever it likes.
func TestWildCountsAreRefusedWithoutMemory(t *testing.T) {
	s := newSpecimen(t, 150)
	files, refused := 0, 0
	wild := []uint64{0, 1, 1 << 31, 1 << 32, 1 << 52, 1 << 60, 1 << 63, ^uint64(0), ^uint64(0) - format.PageSize}
	for at := 16; at < format.SectionsAt+format.KnownSections*format.SectionBytes; at += 4 {
		if at >= 24 && at < 56 {
			continue // build id and hash key: any value is a right one
		}
		for _, size := range []int{4, 8} {
			for _, v := range wild {
				data := bytes.Clone(s.data)
				if size == 8 {
					binary.LittleEndian.PutUint64(data[at:], v)
				} else {
					binary.LittleEndian.PutUint32(data[at:], uint32(v))
				}
				binary.LittleEndian.PutUint32(data[format.HeaderSumAt:], crc32.Checksum(data[:format.HeaderSumAt], format.Castagnoli))
				if bytes.Equal(data, s.data) {
					continue
				}
				s.write(t, data)
				files++
				var before, after runtime.MemStats
				runtime.ReadMemStats(&before)
				ix, err := Open(s.path)
				if err == nil { // counts that only Verify can hold against the store, times, kinds
					_, _ = ix.Lookup(nil, s.senders[0], testTime)
					ix.LookupBatch(&s.batch, s.senders, testTime)
					_ = ix.Promote(t.Context())
					_ = ix.Verify(t.Context())
				} else if refused++; !errors.Is(err, ErrCorrupt) {
					t.Fatalf("%d bytes of %x at %d: %v", size, v, at, err)
				}
				runtime.ReadMemStats(&after)
				if grown := after.TotalAlloc - before.TotalAlloc; grown > 1<<20 {
					t.Fatalf("%d bytes of %x at %d: %d bytes are allocated", size, v, at, grown)
				}
			}
		}
	}
	t.Logf("%d files of wild counts: %d refused by Open, the others answered or refused later", files, refused)
	// Four KiB that promise 2^60 of everything.
	data := bytes.Clone(s.data[:format.PageSize])
	for at := 64; at < 104; at += 8 {
		binary.LittleEndian.PutUint64(data[at:], 1<<60)
	}
	binary.LittleEndian.PutUint64(data[16:], format.PageSize)
	binary.LittleEndian.PutUint32(data[format.HeaderSumAt:], crc32.Checksum(data[:format.HeaderSumAt], format.Castagnoli))
	// Octets, not allocations: goroutines that other tests have left behind are
	// counted too, and made eleven of ten one time in CI.
	const runs, bound = 100, 1 << 20 // under 1 KiB a run for the header and the error's text
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	for range runs {
		testkit.Fails(format.DecodeHeader(data, format.PageSize))(t, "2^60 of everything", ErrCorrupt)
	}
	runtime.ReadMemStats(&after)
	if grown := after.TotalAlloc - before.TotalAlloc; grown > bound {
		t.Errorf("2^60 of everything, %d times: %d octets are allocated", runs, grown)
	}
}

func TestDamageIsToldInASentence(t *testing.T) {
	s := newSpecimen(t, 150)
	le := binary.LittleEndian
	section := func(data []byte, kind int) []byte { return data[format.SectionsAt+(kind-1)*format.SectionBytes:] }
	tests := []struct {
		name   string
		damage func(data []byte) []byte
		want   string
	}{
		{"empty file", func([]byte) []byte { return nil }, "damaged index: file ends too early"},
		{"a list instead", func([]byte) []byte { return bytes.Repeat([]byte("bulk.test\n"), 500) }, "damaged index: offset 0: no index file (magic bytes differ)"},
		{"copied in text mode", func(d []byte) []byte { return bytes.Replace(d, []byte("\r\n"), []byte("\n"), 1) }, "damaged index: offset 0: no index file (magic bytes differ)"},
		{"the next version", func(d []byte) []byte { d[8] = 4; return d }, "damaged index: offset 8: format version 4, this program reads 3"},
		{"another page size", func(d []byte) []byte { d[13] = 0x20; return d }, "damaged index: offset 12: page size 8192, want 4096"},
		{"a byte appended", func(d []byte) []byte { return append(d, 0) }, "damaged index: offset 16: header says 32768 bytes, the file has 32769"},
		{"unknown hash", func(d []byte) []byte { d[56] = 3; return d }, "damaged index: offset 56: unknown hash 3"},
		{"unknown filter", func(d []byte) []byte { d[57] = 2; return d }, "damaged index: offset 57: unknown filter 2"},
		{"owners that are none", func(d []byte) []byte { d[60] = 1; return d }, "damaged index: offset 58: 1 owners of the kinds 0 among 110 keys"},
		{"reserved byte", func(d []byte) []byte { d[59] = 1; return d }, "damaged index: offset 58: reserved bytes are set"},
		{"reserved bytes behind the sections", func(d []byte) []byte { d[4000] = 1; return d }, "damaged index: offset 58: reserved bytes are set"},
		{"unknown section that is needed", func(d []byte) []byte {
			row := section(d, 8) // behind the seven that there are
			copy(row, section(d, 6)[:format.SectionBytes])
			row[0] = format.KnownSections + 1
			le.PutUint64(row[8:], uint64(len(d)))
			le.PutUint64(row[16:], 0)
			return d
		}, "damaged index: offset 408: section 13 is unknown to this program and needed"},
		{"sections in disorder", func(d []byte) []byte { section(d, 2)[0] = 1; return d }, "damaged index: offset 168: section 1 behind section 1"},
		{"a section is missing", func(d []byte) []byte {
			copy(section(d, 6), section(d, 7)[:format.SectionBytes])
			clear(section(d, 7)[:format.SectionBytes])
			return d
		}, "damaged index: offset 128: section 6 is missing"},
		{"sections overlap", func(d []byte) []byte { le.PutUint64(section(d, 2)[8:], format.PageSize); return d }, "damaged index: offset 168: section 2 at 4096 of 4 bytes does not fit"},
		{"section off its page", func(d []byte) []byte { d[format.SectionsAt+8]++; return d }, "damaged index: offset 128: section 1 at 4097 of 192 bytes does not fit"},
		{"section behind the end", func(d []byte) []byte {
			row := section(d, 7)
			le.PutUint64(row[16:], le.Uint64(row[16:])+format.PageSize)
			return d
		}, "damaged index: offset 368: section 9 at 28672 of 4336 bytes does not fit"},
		{"three partitions", func(d []byte) []byte {
			d[96] = 3
			le.PutUint64(section(d, 3)[16:], 48)
			le.PutUint64(section(d, 3)[24:], 3)
			return d
		}, "damaged index: offset 96: 3 partitions, want a power of two up to 1048576"},
		{"more pages than the directory has", func(d []byte) []byte { d[3*format.PageSize+8] = 2; return d }, "damaged index: offset 12288: partitions have 2 pages, the header has 1"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			data := tt.damage(bytes.Clone(s.data))
			correctSums(data)
			s.write(t, data)
			_, err := Open(s.path)
			testkit.Equal(t, "Open", fmt.Sprint(err), "index "+s.path+": "+tt.want)
		})
	}
}

// An unknown section without the flag is one that old readers may pass over.
func TestUnknownSectionThatMayBePassedOver(t *testing.T) {
	s := newSpecimen(t, 150)
	data := bytes.Clone(s.data)
	row := data[format.SectionsAt:]
	for binary.LittleEndian.Uint32(row) != 0 {
		row = row[format.SectionBytes:]
	}
	binary.LittleEndian.PutUint32(row, 900)
	binary.LittleEndian.PutUint64(row[8:], uint64(len(data)))
	binary.LittleEndian.PutUint64(row[16:], 5)
	data = append(data, bytes.Repeat([]byte{'x'}, format.PageSize)...)
	binary.LittleEndian.PutUint64(data[16:], uint64(len(data)))
	correctSums(data)
	s.write(t, data)
	testkit.Should(t, s.judge(t, "unknown section 900"))
}

func TestPageInAnotherPlaceIsSeen(t *testing.T) {
	s := newSpecimen(t, 3000)
	h := s.header(t)
	pages := func(d []byte) []byte { return d[h.Sections[format.SecPages].Offset:h.Sections[format.SecPages].End()] }
	testkit.AtLeast(t, "pages", h.Pages, 3)
	swapped := bytes.Clone(s.data)
	copy(pages(swapped), pages(s.data)[format.PageSize:2*format.PageSize])
	copy(pages(swapped)[format.PageSize:], pages(s.data)[:format.PageSize])
	s.write(t, swapped)
	testkit.Equal(t, "two pages swapped: an error", s.judge(t, "two pages swapped") != nil, true)

	other := seeded(9)
	other.Seed.BuildID[0]++ // the same content under the same hash key
	path := filepath.Join(t.TempDir(), "other.bdx")
	d := draftOf(t, path, other, build.Hooks{}, rowsNamed(5), s.entries)
	publish(t, d)
	foreign := testkit.Read(t, path)
	oh := testkit.Value(format.DecodeHeader(foreign[:format.PageSize], uint64(len(foreign))))(t)
	mixed := bytes.Clone(s.data)
	copy(pages(mixed)[:format.PageSize], foreign[oh.Sections[format.SecPages].Offset:])
	s.write(t, mixed)
	testkit.Equal(t, "a page of another build: an error", s.judge(t, "a page of another build") != nil, true)
}

// Pages whose sums are right but whose content is bent, as only a hostile writer
// makes them, cost an error and never a crash.
func TestBentPagesWithRightSums(t *testing.T) {
	t.Parallel()
	s := newSpecimen(t, 400)
	h := s.header(t)
	rng := rand.New(rand.NewPCG(5, 5))
	runs := 3000
	if testing.Short() || race.Enabled {
		runs = 300
	}
	for range runs {
		data := bytes.Clone(s.data)
		for range 1 + rng.IntN(4) {
			at := h.Sections[format.SecPages].Offset + uint64(rng.IntN(int(h.Pages*format.PageSize)))
			data[at] = byte(rng.Uint32())
		}
		correctSums(data)
		s.write(t, data)
		openAndAsk(t, s)
	}
}

// openAndAsk opens a file whose sums are right whatever else it is: there are no
// right answers any more, only promised errors.
func openAndAsk(t testing.TB, s *specimen) {
	t.Helper()
	ix, err := Open(s.path)
	if err != nil {
		if !errors.Is(err, ErrCorrupt) {
			t.Fatalf("Open = %v, want ErrCorrupt", err)
		}
		return
	}
	for _, perhaps := range []bool{false, true} {
		if perhaps {
			allPerhaps(t, ix)
		}
		for _, ip := range s.clients {
			if got, err := ix.LookupClient(nil, ip, testTime); err != nil && (!errors.Is(err, ErrRead) || len(got) > 0) {
				t.Fatalf("LookupClient(%s) = %v, %v, want ErrRead", ip, got, err)
			}
		}
		ix.LookupBatch(&s.batch, s.senders, testTime)
		for i, a := range s.senders {
			got, err := ix.Lookup(nil, a, testTime)
			if many, manyErr := s.batch.Matches(i); (err == nil) != (manyErr == nil) || !slices.Equal(got, many) {
				t.Fatalf("Lookup(%s) = %v, %v; LookupBatch says %v, %v", a, got, err, many, manyErr)
			}
			if err != nil && (!errors.Is(err, ErrRead) || len(got) > 0) {
				t.Fatalf("Lookup(%s) = %v, %v, want ErrRead", a, got, err)
			}
			for _, m := range got {
				if m.Row >= len(ix.Lists()) {
					t.Fatalf("Lookup(%s) names row %d of %d", a, m.Row, len(ix.Lists()))
				}
			}
		}
	}
	if err := ix.Verify(t.Context()); err != nil && !errors.Is(err, ErrRead) {
		t.Fatalf("Verify = %v, want ErrRead", err)
	}
}

// An overflow page that goes on at itself must not keep a look-up for ever.
func TestOverflowPagesInACircle(t *testing.T) {
	ix := indexOf(t, seeded(1), rowsNamed(1), manyDomains(8000))
	path, p := ix.mapping.name, ix.file.Parts[0]
	testkit.MustEqual(t, "partitions", len(ix.file.Parts), 1)
	testkit.AtLeast(t, "overflow pages", p.Overflow, 1)
	data := testkit.Read(t, path)
	number := uint64(0)
	for format.Page(ix.pages[number*format.PageSize:]).Next() == 0 {
		number++
	}
	next := format.Page(ix.pages[number*format.PageSize:]).Next()
	circle := ix.file.PageOffset(p.First + uint64(p.Pages) + uint64(next) - 1)
	binary.LittleEndian.PutUint32(data[circle+8:], next)
	correctSums(data)
	testkit.Write(t, path, data)
	ix = opened(t, path)
	hi, _ := bits.Div64(number, 0, uint64(p.Pages))
	hash := bloom.Hash{Hi: hi&^0xffff + 1<<17 - 1} // on that page, with the highest tag
	testkit.MustEqual(t, fmt.Sprintf("hash %x is of page", hash.Hi), format.PageOf(hash.Hi, 0, uint64(p.Pages)), number)
	if _, _, err := ix.find(hash, "absent"); !errors.Is(err, ErrCorrupt) {
		t.Errorf("find = %v, want ErrCorrupt", err)
	}
	testkit.IsError(t, "Verify", ix.Verify(t.Context()), ErrCorrupt)
}

// FuzzOpen damages the specimen: data is a row of four bytes each, an offset and
// what is xor'ed there. With correct set all sums are made right afterwards.
func FuzzOpen(f *testing.F) {
	s := newFullSpecimen(f, 60)
	f.Add([]byte{}, false)
	f.Add([]byte{0, 0, 8, 1}, false)
	f.Add([]byte{0, 0, 96, 2, 0, 0, 97, 1}, true)
	f.Add([]byte{0, 0x50, 0x04, 0xff}, true)
	f.Fuzz(func(t *testing.T, data []byte, correct bool) {
		damaged := bytes.Clone(s.data)
		for ; len(data) >= 4; data = data[4:] {
			at := int(data[0])<<16 | int(data[1])<<8 | int(data[2])
			damaged[at%len(damaged)] ^= data[3]
		}
		if correct {
			correctSums(damaged)
		}
		s.write(t, damaged)
		if correct {
			openAndAsk(t, s)
		} else {
			s.judge(t, "fuzzed")
		}
	})
}

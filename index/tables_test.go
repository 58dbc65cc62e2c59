package index

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"runtime"
	"strings"
	"testing"

	"blockd/index/internal/format"
	"blockd/internal/testkit"
	"blockd/internal/testkit/race"
)

// Every bit of the tables of networks and patterns is summed.
func TestEveryFlippedBitOfTheTablesIsSeen(t *testing.T) {
	t.Parallel()
	s := newFullSpecimen(t, 60)
	h := s.header(t)
	for _, kind := range []int{format.SecNetworks, format.SecPatterns, format.SecDigests} {
		at := h.Sections[kind]
		if at.Items == 0 {
			t.Fatalf("no section %d", kind)
		}
		step := uint64(1)
		if testing.Short() || race.Enabled {
			step = 61
		}
		for n := 8 * at.Offset; n < 8*at.End(); n += step {
			data := bytes.Clone(s.data)
			data[n/8] ^= 1 << (n % 8)
			s.write(t, data)
			if _, err := Open(s.path); !errors.Is(err, ErrCorrupt) {
				t.Fatalf("section %d: byte %d, bit %d flipped: Open = %v", kind, n/8, n%8, err)
			}
		}
	}
	s.write(t, s.data)
	testkit.Should(t, s.judge(t, "nothing"))
}

// Tables whose sums are right and which say something else, as only a hostile
// writer makes them, cost an error or an answer, little memory and no crash.
func TestBentTablesWithRightSums(t *testing.T) {
	race.Skip(t) // and not parallel: it counts what the whole process allocates
	s := newFullSpecimen(t, 60)
	h := s.header(t)
	for _, kind := range []int{format.SecNetworks, format.SecPatterns, format.SecDigests} {
		for at := h.Sections[kind].Offset; at < h.Sections[kind].End(); at++ {
			for _, v := range []byte{0, 1, 0x7f, 0xff, s.data[at] + 1} {
				data := bytes.Clone(s.data)
				data[at] = v
				correctSums(data)
				s.write(t, data)
				var before, after runtime.MemStats
				runtime.ReadMemStats(&before)
				openAndAsk(t, s)
				runtime.ReadMemStats(&after)
				if grown := after.TotalAlloc - before.TotalAlloc; grown > 8<<20 {
					t.Fatalf("%x at %d: %d bytes are allocated", v, at, grown)
				}
			}
		}
	}
}

func TestDamagedTablesAreToldInASentence(t *testing.T) {
	s := newFullSpecimen(t, 60)
	h := s.header(t)
	le := binary.LittleEndian
	nets, patterns := h.Sections[format.SecNetworks].Offset, h.Sections[format.SecPatterns].Offset
	row := func(d []byte, kind int) []byte { return d[format.SectionsAt+(kind-1)*format.SectionBytes:] } // all sections are there
	tests := []struct {
		name   string
		damage func(d []byte)
		want   string
	}{
		{"unknown family", func(d []byte) { d[nets] = 5 }, fmt.Sprintf("offset %d: networks of family 5 and length %d", nets, s.data[nets+1])},
		{"IPv4 of 33 bits", func(d []byte) { d[nets+1] = 33 }, fmt.Sprintf("offset %d: networks of family 4 and length 33", nets)},
		{"reserved octets", func(d []byte) { d[nets+7] = 1 }, fmt.Sprintf("offset %d: networks of family 4 and length %d", nets, s.data[nets+1])},
		{"lengths in disorder", func(d []byte) { d[nets+format.NetLengthBytes+1] = d[nets+1] }, fmt.Sprintf("offset %d: prefix lengths out of order at /%d", nets, s.data[nets+1])},
		{"more networks than keys", func(d []byte) { le.PutUint64(d[nets+8:], 1<<40) }, fmt.Sprintf("offset %d: 1099511627776 networks of length /%d among %d keys", nets, s.data[nets+1], h.Keys)},
		{"no network", func(d []byte) { le.PutUint64(d[nets+8:], 0) }, fmt.Sprintf("offset %d: 0 networks of length /%d among %d keys", nets, s.data[nets+1], h.Keys)},
		{"lengths by the million", func(d []byte) { le.PutUint64(row(d, format.SecNetworks)[24:], 1<<20) }, fmt.Sprintf("offset 128: section 7 has %d bytes and 1048576 items, want 162 of 16 bytes", h.Sections[format.SecNetworks].Length)},
		{"pattern of no kind", func(d []byte) { d[patterns] = 1 }, fmt.Sprintf("offset %d: pattern 0 is damaged", patterns)},
		{"patterns in disorder", func(d []byte) { d[patterns] = 3 }, fmt.Sprintf("offset %d: pattern 1 is damaged", patterns)},
		{"fewer patterns than it says", func(d []byte) { row(d, format.SecPatterns)[24]++ }, fmt.Sprintf("offset %d: pattern %d is damaged", patterns, h.Sections[format.SecPatterns].Items)},
		{"more patterns than it says", func(d []byte) { row(d, format.SecPatterns)[24]-- }, "behind the last pattern"},
		{"patterns by the million", func(d []byte) { le.PutUint64(row(d, format.SecPatterns)[24:], 1<<20) }, fmt.Sprintf("offset 128: 1048576 patterns in %d bytes", h.Sections[format.SecPatterns].Length)},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			data := bytes.Clone(s.data)
			tt.damage(data)
			correctSums(data)
			s.write(t, data)
			_, err := Open(s.path)
			if err == nil || !errors.Is(err, ErrCorrupt) || !strings.HasSuffix(err.Error(), tt.want) || !strings.Contains(err.Error(), s.path) {
				t.Errorf("Open = %v\nwant %s", err, tt.want)
			}
		})
	}
}

// What the tables leave out would never be looked up: Verify sees it.
func TestVerifyHoldsTheTablesAgainstTheStore(t *testing.T) {
	s := newFullSpecimen(t, 60)
	h := s.header(t)
	nets, patterns := h.Sections[format.SecNetworks], h.Sections[format.SecPatterns]
	stored := testkit.Value(format.DecodePatterns(s.data[patterns.Offset:patterns.End()], patterns.Items))(t)
	last := stored[len(stored)-1]
	size := 3 + len(last.Text) // of its row
	for _, text := range last.Need {
		size += 1 + len(text)
	}
	shorten := func(d []byte, kind int, by uint64) {
		row := d[format.SectionsAt+(kind-1)*format.SectionBytes:]
		binary.LittleEndian.PutUint64(row[16:], h.Sections[kind].Length-by)
		binary.LittleEndian.PutUint64(row[24:], h.Sections[kind].Items-1)
	}
	for name, damage := range map[string]func(d []byte){
		"another number of networks": func(d []byte) { d[nets.Offset+8]++ },
		"a length less":              func(d []byte) { shorten(d, format.SecNetworks, format.NetLengthBytes) },
		"a pattern less":             func(d []byte) { shorten(d, format.SecPatterns, uint64(size)) },
		"another pattern":            func(d []byte) { d[patterns.End()-uint64(size)+2]++ },
	} {
		data := bytes.Clone(s.data)
		damage(data)
		correctSums(data)
		s.write(t, data)
		ix, err := Open(s.path)
		if err != nil {
			t.Errorf("%s: Open = %v", name, err)
			continue
		}
		testkit.IsError(t, fmt.Sprintf("%s: Verify", name), ix.Verify(t.Context()), ErrCorrupt)
	}
}

// A file without the tables, as all were before there were such entries, has none.
func TestFileWithoutTables(t *testing.T) {
	s := newSpecimen(t, 50)
	ix := opened(t, s.path)
	if ix.patterns != nil || ix.file.Networks.V4 != nil || ix.file.Sections[format.SecNetworks] != (format.Section{}) || ix.file.Sections[format.SecPatterns] != (format.Section{}) {
		t.Error("a table without entries")
	}
	testkit.Value(os.Stat(s.path))(t)
}

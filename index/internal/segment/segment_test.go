package segment

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"testing"

	"github.com/zeebo/xxh3"

	"blockd/index/internal/format"
	"blockd/internal/testkit"
	"blockd/lists"
	"blockd/mail/addr"
)

func FuzzSegment(f *testing.F) {
	f.Add([]byte("BDXSEG\r\n"))
	rng := rand.New(rand.NewPCG(1, 2))
	s := segmentOf(f, rng, 2, someEntries(f, rng, 100))
	if data, err := os.ReadFile(s.f.Name()); err == nil {
		f.Add(data)
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		if len(data) < tailSize {
			return
		}
		// With right sums, or none would get further.
		data, tail := bytes.Clone(data), len(data)-tailSize
		le := binary.LittleEndian
		var id [16]byte
		if offset := le.Uint64(data[tail+8:]); offset <= uint64(tail) {
			le.PutUint64(data[tail+24:], xxh3.Hash(data[offset:tail]))
			copy(id[:], data[offset:tail])
		}
		file := testkit.Value(os.Create(filepath.Join(t.TempDir(), "s")))(t)
		defer file.Close()
		if _, err := file.Write(data); err != nil {
			t.Fatal(err)
		}
		m, err := read(file, id)
		if err != nil {
			if !errors.Is(err, ErrDamaged) {
				t.Error(err)
			}
			return
		}
		again := Meta{}
		c := format.Cursor{Rest: m.append(nil)}
		if !again.decode(&c) || fmt.Sprint(again.Summary) != fmt.Sprint(m.Summary) || len(again.Tests) != len(m.Tests) {
			t.Errorf("%+v became %+v", m, again)
		}
		for i, chunk := range m.chunks {
			m.chunks[i].sum = xxh3.Hash(data[chunk.offset:][:chunk.length])
		}
		// Nobody looks at entries again before they are in an index.
		err = m.Each(t.Context(), 1, func(_ int, c *Chunk, entries uint64) error {
			for range entries {
				key, e := c.Entry()
				if !c.Bad && (len(key) == 0 || len(key) > format.MaxStored || e.Line < 0 || e.Action > lists.AllowIfAuth || int(e.Reason) > m.Reasons.Len()) {
					t.Errorf("entry %+v of %q", e, key)
				}
			}
			return nil
		})
		if err != nil && !errors.Is(err, ErrDamaged) {
			t.Error(err)
		}
	})
}

// The senders of self-tests go through a segment as text.
func TestSegmentKeepsSelfTests(t *testing.T) {
	for _, text := range []string{"<>", "x@bulk.test", `"a b"@bulk.test`, "x@[198.51.100.23]", "root"} {
		a := testkit.Value(addr.Parse(text))(t)
		got, err := addr.Parse(a.String())
		if err != nil || got != a {
			t.Errorf("%s becomes %v, %v", text, got, err)
		}
	}
}

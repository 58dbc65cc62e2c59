package format

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"
)

// Page chains are tried apart from whole builds, with groups that no honest hash
// would make: few tags, many equal ones.
func TestPagesFindEveryRecord(t *testing.T) {
	rng := rand.New(rand.NewPCG(3, 3))
	chains := 0
	for range 300 {
		n, tags := 1+rng.IntN(400), 1+rng.IntN(1<<(1+rng.IntN(16)))
		records := make([]Placed, n)
		var buf []byte
		for i := range records {
			key := fmt.Appendf(nil, "%d%s", i, strings.Repeat("k", rng.IntN(30)))
			at := len(buf)
			buf = AppendRecord(buf, key, []Entry{{Line: i}}, false)
			records[i] = Placed{uint64(rng.IntN(tags)), uint32(at), uint32(len(buf) - at)}
		}
		var cutter Cutter
		overflow, err := cutter.Cut(buf, records, 0, 1)
		pages := cutter.Pages
		if err != nil {
			if size := len(pages) / PageSize; size != 1+MaxOverflow {
				t.Fatalf("crowded at %d pages", size)
			}
			continue
		}
		chains += int(overflow)
		for _, r := range records {
			record := buf[r.At : r.At+r.N]
			if line, ok := findInChain(t, pages, r.tag(), string(RecordKey(record))); !ok || string(AppendRecord(nil, RecordKey(record), []Entry{{Line: line}}, false)) != string(record) {
				t.Fatalf("%d records, %d tags: %s is not found", n, tags, RecordKey(record))
			}
		}
		for range 50 {
			if _, ok := findInChain(t, pages, uint16(rng.IntN(tags)), "absent"); ok {
				t.Fatal("a key that is not there is found")
			}
		}
	}
	if chains < 50 {
		t.Errorf("%d overflow pages: this test proves too little", chains)
	}
}

func findInChain(t *testing.T, pages []byte, tag uint16, key string) (line int, found bool) {
	for at := 0; ; {
		page := Page(pages[at*PageSize:][:PageSize])
		c, found, more := page.Find(tag, func(stored []byte) bool { return string(stored) == key })
		if c.Bad {
			t.Fatal("bad page")
		}
		if found {
			c.Sources()
			return c.Entry().Line, true
		}
		if at = int(page.Next()); !more || at == 0 {
			return 0, false
		}
	}
}

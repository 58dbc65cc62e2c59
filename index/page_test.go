package index

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
		records := make([]placed, n)
		var buf []byte
		for i := range records {
			key := fmt.Appendf(nil, "%d%s", i, strings.Repeat("k", rng.IntN(30)))
			at := len(buf)
			buf = appendRecord(buf, key, []entry{{line: i}}, false)
			records[i] = placed{uint64(rng.IntN(tags)), uint32(at), uint32(len(buf) - at)}
		}
		var cutter pageCutter
		overflow, err := cutter.cut(buf, records, 0, 1)
		pages := cutter.pages
		if err != nil {
			if size := len(pages) / pageSize; size != 1+maxOverflow {
				t.Fatalf("crowded at %d pages", size)
			}
			continue
		}
		chains += int(overflow)
		for _, r := range records {
			record := buf[r.at : r.at+r.n]
			if line, ok := findInChain(t, pages, r.tag(), string(recordKey(record))); !ok || string(appendRecord(nil, recordKey(record), []entry{{line: line}}, false)) != string(record) {
				t.Fatalf("%d records, %d tags: %s is not found", n, tags, recordKey(record))
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
		page := page(pages[at*pageSize:][:pageSize])
		c, found, more := page.find(tag, key)
		if c.bad {
			t.Fatal("bad page")
		}
		if found {
			c.sources()
			return c.entry().line, true
		}
		if at = int(page.next()); !more || at == 0 {
			return 0, false
		}
	}
}

package format

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"math/rand/v2"
	"reflect"
	"strings"
	"testing"

	"blockd/internal/testkit"
	"blockd/lists"
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
			testkit.MustEqual(t, "crowded at: pages", len(pages)/PageSize, 1+MaxOverflow)
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

// The flags of an entry hold every action and scope, and nothing else fits there.
func TestAsksIsUndoneByAsked(t *testing.T) {
	seen := map[byte]bool{}
	for a := lists.Block; a <= lists.AllowIfAuth; a++ {
		for s := lists.Exact; s <= lists.Local; s++ {
			flags := Asks(a, s)
			if flags&(FlagReason|FlagExpiry) != 0 || flags&^flagsKnown != 0 || seen[flags] {
				t.Errorf("asks(%s, %s) = %#08b", a, s, flags)
			}
			seen[flags] = true
			if gotA, gotS := Asked(flags | FlagReason | FlagExpiry); gotA != a || gotS != s {
				t.Errorf("asked(asks(%s, %s)) = %s, %s", a, s, gotA, gotS)
			}
		}
	}
	c := Cursor{Rest: []byte{0, 0, 1<<6 | 1}} // action 5
	if c.Entry(); !c.Bad {
		t.Error("an action that there is none was read")
	}
}

func TestReasonTable(t *testing.T) {
	table := NewReasonTable()
	add := func(text string, want uint32) {
		t.Helper()
		if n, ok := table.Add(text); n != want || !ok {
			t.Errorf("add(%q) = %d, %v, want %d", text, n, ok, want)
		}
	}
	add("spam", 0)
	add("", 1)
	add("gr\u00fc\u00dfe", 2)
	add("spam", 0)
	table.Put([]byte("spam")) // whatever is there
	add("spam", 0)

	var section bytes.Buffer
	if err := table.EncodeTo(&section); err != nil || uint64(section.Len()) != table.Size() {
		t.Fatalf("%d bytes, %v, want %d", section.Len(), err, table.Size())
	}
	for n, want := range []string{"spam", "", "gr\u00fc\u00dfe", "spam"} {
		if got, ok := ReasonAt(section.Bytes(), uint32(n)); string(got) != want || !ok {
			t.Errorf("reason %d = %q, %v, want %q", n, got, ok, want)
		}
	}
	if _, ok := ReasonAt(section.Bytes(), 4); ok {
		t.Error("a fifth reason of four")
	}
}

// The section's sum is checked at open only, so each use checks what it uses.
func TestBentReasonsAreNotFollowed(t *testing.T) {
	table := NewReasonTable()
	for i := range 3 {
		table.Add(fmt.Sprint("reason ", i))
	}
	var section bytes.Buffer
	testkit.Must(t, table.EncodeTo(&section))
	for at := 0; at < reasonHead+8*4; at += 8 {
		for _, v := range []uint64{0, 1, 1 << 20, 1 << 40, 1 << 63, 1<<64 - 1} {
			bent := bytes.Clone(section.Bytes())
			binary.LittleEndian.PutUint64(bent[at:], v)
			for n := range uint32(4) {
				if text, ok := ReasonAt(bent, n); ok && len(text) > MaxReason {
					t.Errorf("%d at %d: reason %d has %d octets", v, at, n, len(text))
				}
			}
		}
	}
	for n := range section.Len() {
		ReasonAt(section.Bytes()[:n], 2) // panics if it believes a count
	}
}

func TestDamagedRefusedLinesAreNotRead(t *testing.T) {
	rows := make([]ListInfo, 3)
	rows[1].Summary.Dropped = lists.Dropped{
		Classes: []lists.ClassCount{{Class: lists.IDNA, Lines: 1}, {Class: lists.Syntax, Lines: 2}},
		First:   []lists.DroppedLine{{Line: 7, Class: lists.Syntax, Message: "m", Text: "t"}},
	}
	b, items := EncodeDropped(rows)
	got := make([]ListInfo, 3)
	if err := decodeDropped(b, items, got); err != nil || !reflect.DeepEqual(got, rows) {
		t.Fatalf("%+v, %v", got, err)
	}
	for n := range b {
		if decodeDropped(b[:n], items, got) == nil {
			t.Errorf("the first %d of %d octets are read", n, len(b))
		}
	}
	for _, tt := range []struct {
		name  string
		b     []byte
		items uint64
		rows  int
	}{
		{"row that is not there", b, items, 1},
		{"octets behind the last row", append([]byte(nil), append(b, 0)...), items, 3},
		{"row that is there twice", append([]byte(nil), append(b, b...)...), 2 * items, 3},
		{"classes out of order", []byte("\x00\x02\x01b\x01\x01a\x01\x00"), 1, 3},
		{"more classes than there are", []byte("\x00" + strings.Repeat("\xff", 8) + "\x01"), 1, 3},
		{"more lines than are kept", []byte("\x00\x00\x0b"), 1, 3},
	} {
		if err := decodeDropped(tt.b, tt.items, make([]ListInfo, tt.rows)); err == nil {
			t.Errorf("%s: no error", tt.name)
		}
	}
}

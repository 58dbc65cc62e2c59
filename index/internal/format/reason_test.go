package format

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"testing"
)

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
	if err := table.EncodeTo(&section); err != nil {
		t.Fatal(err)
	}
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

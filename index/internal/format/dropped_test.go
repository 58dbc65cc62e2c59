package format

import (
	"reflect"
	"strings"
	"testing"

	"blockd/lists"
)

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

package format

import (
	"testing"

	"blockd/lists"
)

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

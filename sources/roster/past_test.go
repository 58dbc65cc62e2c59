package roster

import (
	"fmt"
	"testing"
	"time"
)

func TestPast(t *testing.T) {
	var p Past
	now := time.Unix(1_790_000_000, 0)
	one, two := Report{Node: "mx1", Version: "1"}, Report{Node: "mx2", Version: "2", Sequence: 7, Address: "https://mx2.example:8025"}
	if gone := p.Look([]Report{one, two}, true, now); len(gone) != 0 {
		t.Errorf("at first: %+v", gone)
	}
	later := now.Add(Life)
	if gone := p.Look([]Report{one}, false, later); len(gone) != 0 {
		t.Errorf("the others could not be read: %+v", gone)
	}
	if gone := p.Look([]Report{one}, true, later); len(gone) != 1 || gone[0] != (Gone{"mx2", now.UTC(), "2", 7, "https://mx2.example:8025"}) {
		t.Errorf("one has stopped: %+v", gone)
	}
	if gone := p.Look([]Report{one, two}, true, later); len(gone) != 0 {
		t.Errorf("it is back: %+v", gone)
	}
	if gone := p.Look([]Report{one}, true, later.Add(Remember+time.Second)); len(gone) != 0 {
		t.Errorf("a day after: %+v", gone)
	}
}

// Who makes up names takes no memory for it, and hides no node that is there.
func TestPastIsBounded(t *testing.T) {
	var p Past
	now := time.Unix(1_790_000_000, 0)
	real := Report{Node: "real"}
	for turn := range 5 {
		all := []Report{real}
		for i := range MostNodes - 1 {
			all = append(all, Report{Node: fmt.Sprintf("forged%d.%d", turn, i)})
		}
		now = now.Add(Life)
		p.Look(all, true, now)
	}
	if len(p.of) > 2*MostNodes {
		t.Errorf("%d nodes are remembered", len(p.of))
	}
	if gone := p.Look(nil, true, now.Add(Life)); len(gone) != 2*MostNodes || gone[len(gone)-1].Node != "real" {
		t.Errorf("%d are gone, the last %+v", len(gone), gone[len(gone)-1])
	}
}

package snapshot

import (
	"fmt"
	"path/filepath"
	"sync"
	"testing"
	"time"
)

// Three hundred nodes take a sequence in stages, each when its turn says so; a halt brings all back.
func TestThreeHundredNodes(t *testing.T) {
	c := newChannel(t)
	c.add("spam", "a@bulk.example")
	c.publish()
	const count = 300
	nodes := make([]*Node, count)
	folder := t.TempDir()
	all := func(at time.Time) (have map[int64]int) {
		t.Helper()
		have = map[int64]int{}
		var mu sync.Mutex
		var group sync.WaitGroup
		for i, n := range nodes {
			group.Go(func() {
				if err := n.At(t.Context(), at); err != nil {
					t.Errorf("node %d: %v", i, err)
				}
				mu.Lock()
				have[n.Status().Sequence]++
				mu.Unlock()
			})
		}
		group.Wait()
		return have
	}
	for i := range nodes {
		o := c.options()
		o.Folder, o.Node, o.Canary = filepath.Join(folder, fmt.Sprint(i)), fmt.Sprintf("mx%d.example", i), i == 0
		nodes[i] = c.node(o)
	}
	if have := all(time.Now()); have[1] != count {
		t.Fatalf("the first sequence: %v", have)
	}
	c.stages = []PlannedStage{{1, 15 * time.Minute}, {20, 30 * time.Minute}}
	c.add("spam", "b@bulk.example")
	told := c.publish()
	for i, s := range told.Stages[:2] {
		want := 0
		for k := range nodes {
			if k == 0 || Turn("prod", 2, nodes[k].Node) < float64(s.Share) {
				want++
			}
		}
		if have := all(time.Unix(s.From, 0).Add(time.Minute)); have[2] != want || have[1] != count-want {
			t.Errorf("stage %d: %v, want %d", i+1, have, want)
		}
	}
	p := c.publisher()
	if _, err := p.Halt(t.Context(), time.Now().Add(2*time.Hour)); err != nil {
		t.Fatal(err)
	}
	p.Close()
	if have := all(time.Unix(told.Stages[2].From, 0).Add(time.Minute)); have[1] != count {
		t.Errorf("halted: %v", have)
	}
}

package build

import (
	"bytes"
	"errors"
	"math/rand/v2"
	"path/filepath"
	"testing"

	"blockd/internal/testkit"
)

// Blocks are taken and freed at random. None is ever in two hands, all of them can
// be had by any group, and what is dropped is nowhere left.
func TestBlocksAreInOneHandEach(t *testing.T) {
	const block, memory, spare = 4096, 1 << 20, 37
	p := testkit.Value(newBlockPool(block, memory, memory, spare))(t)
	defer p.close()
	if len(p.groups) < 4 {
		t.Fatalf("%d groups: this test proves too little", len(p.groups))
	}
	rng := rand.New(rand.NewPCG(1, 1))
	held := map[uint32]byte{}
	check := func() {
		for number, mark := range held {
			if !bytes.Equal(p.at(number), bytes.Repeat([]byte{mark}, block)) {
				t.Fatalf("block %d was written by somebody else", number)
			}
		}
	}
	take := func(must bool) bool {
		number, _ := p.take(rng.IntN(len(p.groups)), must)
		if number == none {
			return false
		}
		if _, twice := held[number]; twice {
			t.Fatalf("block %d is given out twice", number)
		}
		held[number] = byte(rng.Uint32()) | 1
		copy(p.at(number), bytes.Repeat([]byte{held[number]}, block))
		return true
	}
	for range 20 {
		for take(false) {
		}
		if len(held) < memory/block {
			t.Fatalf("%d blocks of %d can be had", len(held), memory/block)
		}
		check()
		first := uint32(none)
		for number := range held { // in random order
			if rng.IntN(3) > 0 {
				p.next[number], first = first, number
				delete(held, number)
			}
		}
		p.free(first)
	}
	for take(false) {
	}
	for range spare {
		if !take(true) {
			t.Fatal("a spare block is missing")
		}
	}
	if take(false) {
		t.Error("a block beyond the limit")
	}
	check()
	first := uint32(none)
	for number := range held {
		p.next[number], first = first, number
	}
	p.drop(first)
	for i, chunk := range p.chunks {
		if chunk.used != 0 {
			t.Errorf("chunk %d: %d blocks in use", i, chunk.used)
		}
	}
}

func TestDroppedPartIsNotLoaded(t *testing.T) {
	file := newSpillFile(filepath.Join(t.TempDir(), "x.bdx"), Hooks{})
	defer file.close()
	s := testkit.Value(newScatter(1, 1, MinMemory, 0, file))(t)
	defer s.close()
	b := testkit.Value(s.lanes[0].add(1, 3))(t)
	copy(b, "abc")
	testkit.Must(t, s.finish())
	for _, part := range []int{0, 1} {
		if _, err := loadPart(s, part); err != nil {
			t.Error(err)
		}
		s.drop(part)
		if _, err := loadPart(s, part); !errors.Is(err, errDropped) {
			t.Errorf("part %d, dropped: %v", part, err)
		}
	}
}

package milter

import (
	"sync"
	"testing"

	"blockd/internal/testkit/race"
)

// The buffer of a connection that has ended serves the next one, and shows nothing of it.
func TestBufferIsUsedAgain(t *testing.T) {
	if race.Enabled {
		t.Skip("the race detector lets pools forget")
	}
	var spare sync.Pool
	connection := func() {
		p := packets{spare: &spare}
		room := p.room()
		if room[0] != 0 {
			t.Fatal("the buffer shows what an earlier connection held")
		}
		room[0] = 1
		p.release()
	}
	if n := testing.AllocsPerRun(1000, connection); n != 0 {
		t.Errorf("%v allocations of buffers a connection, want none", n)
	}
}

package build

import (
	"context"
	"encoding/binary"
	"errors"
	"path/filepath"
	"sync"
	"testing"

	"golang.org/x/sync/errgroup"

	"blockd/internal/testkit"
)

// loadPart loads one part of a scatter that is finished.
func loadPart(s *scatter, number int) ([]byte, error) {
	r := s.reader(context.Background())
	defer r.end()
	return r.load(nil, number)
}

// spilledScatter has records of 512 octets, numbered from 0 on, record i in part i
// modulo 2^bits, of which most are in the file.
func spilledScatter(t *testing.T, bits uint, records int) *scatter {
	t.Helper()
	file := newSpillFile(filepath.Join(t.TempDir(), "x.bdx"), Hooks{})
	t.Cleanup(file.close)
	s := testkit.Value(newScatter(2, bits, MinMemory, MinMemory, file))(t)
	t.Cleanup(s.close)
	for i := range records {
		b := testkit.Value(s.lanes[i>>bits%2].add(i%(1<<bits), 512))(t)
		clear(b)
		binary.LittleEndian.PutUint32(b, uint32(i))
	}
	testkit.Must(t, s.finish())
	if file.written() == 0 {
		t.Fatal("nothing was spilled")
	}
	return s
}

// Goroutines that take parts in turn get every record once, those of a lane in order,
// however few groups are in memory at a time.
func TestReadAheadGivesEveryRecord(t *testing.T) {
	for _, bits := range []uint{0, 3, 7} {
		const records = 90_000 // 45 MB: groups of 4 MiB
		s := spilledScatter(t, bits, records)
		r := s.reader(t.Context())
		if bits == 7 && len(r.groups) <= aheadGroups {
			t.Fatalf("%d groups: none waits for room", len(r.groups))
		}
		seen := make([]bool, records)
		var mu sync.Mutex // guards next and seen
		next := 0
		var group errgroup.Group
		for range 3 {
			group.Go(func() error {
				for {
					mu.Lock()
					part := next
					next++
					mu.Unlock()
					if part >= 1<<bits {
						return nil
					}
					b, err := r.load(nil, part)
					if err != nil {
						return err
					}
					mu.Lock()
					last := [2]int{-1, -1}
					for ; len(b) > 0; b = b[s.block:] {
						for at := scatterHead; at < blockEnd(b); at += 512 {
							i := int(binary.LittleEndian.Uint32(b[at:]))
							lane := i >> bits % 2
							if i%(1<<bits) != part || seen[i] || i <= last[lane] {
								t.Errorf("record %d in part %d, behind %d", i, part, last[lane])
							}
							seen[i], last[lane] = true, i
						}
					}
					mu.Unlock()
				}
			})
		}
		testkit.Must(t, group.Wait())
		r.end()
		for i, ok := range seen {
			if !ok {
				t.Fatalf("%d bits: record %d is lost", bits, i)
			}
		}
	}
}

// Who gives up in the middle leaves no goroutine that waits for room, and who waits
// for a part learns of it.
func TestReadAheadEnds(t *testing.T) {
	s := spilledScatter(t, 7, 90_000)
	ctx, cancel := context.WithCancel(t.Context())
	r := s.reader(ctx)
	if _, err := r.load(nil, 0); err != nil {
		t.Fatal(err)
	}
	cancel()
	if _, err := r.load(nil, 127); !errors.Is(err, context.Canceled) {
		t.Errorf("load of a part that was never read: %v", err)
	}
	r.end() // returns only when they have ended
}

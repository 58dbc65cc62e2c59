package lists

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"blockd/internal/testkit"
	"blockd/internal/testkit/race"
)

// keepItem copies what of an item holds only until the callback returns.
func keepItem(it *Item) Item {
	c := *it
	c.pattern = nil // of Pattern
	for _, text := range []*string{&c.Key.Text, &c.Pattern, &c.Reason, &c.Message, &c.Text, &c.Origin} {
		*text = strings.Clone(*text)
	}
	return c
}

// readShared reads src with several workers and returns the items in line order,
// each line's as they came.
func readShared(t *testing.T, src *source, s Settings, workers int) ([]Item, Summary, error) {
	t.Helper()
	each := make([]func(*Item) error, workers)
	items := make([][]Item, workers)
	for i := range each {
		each[i] = func(it *Item) error {
			if n := len(items[i]); n > 0 && items[i][n-1].Line > it.Line {
				t.Errorf("worker %d: line %d after line %d", i, it.Line, items[i][n-1].Line)
			}
			items[i] = append(items[i], keepItem(it))
			return nil
		}
	}
	sum, err := read(src, nil, s, each...)
	all := slices.Concat(items...)
	slices.SortStableFunc(all, func(a, b Item) int { return cmp.Compare(a.Line, b.Line) })
	return all, sum, err
}

// checkShared holds a reading by several workers against one in order.
func checkShared(t *testing.T, s Settings, data []byte, block, workers int) {
	t.Helper()
	var want []Item
	wantSum, wantErr := read(sourceOf(data), nil, s, func(it *Item) error {
		want = append(want, keepItem(it))
		return nil
	})
	src := sourceOf(data)
	src.block = block
	got, sum, err := readShared(t, src, s, workers)
	if fmt.Sprint(err) != fmt.Sprint(wantErr) {
		t.Fatalf("%+v, blocks of %d, %d workers: %v, in order %v", s, block, workers, err, wantErr)
	}
	if err != nil {
		return // and what was read until then is dropped
	}
	if !reflect.DeepEqual(sum, wantSum) || len(got) != len(want) {
		t.Fatalf("%+v, blocks of %d, %d workers: %d items, %+v; in order %d, %+v", s, block, workers, len(got), sum, len(want), wantSum)
	}
	for i := range want {
		if !reflect.DeepEqual(got[i], want[i]) {
			t.Fatalf("%+v, blocks of %d, %d workers: item %d is %+v, in order %+v", s, block, workers, i, got[i], want[i])
		}
	}
}

// leastBlock is the smallest size of blocks by which no line of data is a long one
// that is none. A packed file's size says nothing of its lines, nor do the octets of
// UTF-16, of which some become three.
func leastBlock(data []byte) int {
	if bytes.HasPrefix(data, []byte("\x1f\x8b")) || bytes.IndexByte(data, 0) >= 0 ||
		bytes.HasPrefix(data, []byte("\xff\xfe")) || bytes.HasPrefix(data, []byte("\xfe\xff")) {
		return maxLine + 1
	}
	longest, eol := 0, '\n'
	if bytes.IndexByte(data, '\n') < 0 {
		eol = '\r'
	}
	for line := range bytes.FieldsFuncSeq(data, func(c rune) bool { return c == eol }) {
		longest = max(longest, len(line))
	}
	if longest > maxText {
		return maxLine + 1
	}
	return longest + 2
}

// TestBlocksAgreeWithOrder reads every list of the test data, in every format, in
// blocks of every kind of size. One of more than 2 MiB as stored would take the test
// to half a GiB.
func TestBlocksAgreeWithOrder(t *testing.T) {
	guard := testkit.Value(NewGuard(DefaultGuard()))(t)
	files := 0
	for _, dir := range []string{"testdata", testkit.Root(t) + "/testdata/lists", testkit.Root(t) + "/../shared/data/lists"} {
		filepath.WalkDir(dir, func(path string, d os.DirEntry, err error) error {
			if err != nil || !d.Type().IsRegular() || strings.Contains(path, "/fuzz/") {
				return nil
			}
			data := testkit.Read(t, path)
			if len(data) > 2<<20 || race.Enabled && len(data) > 200<<10 {
				return nil
			}
			rng := rand.New(rand.NewPCG(uint64(len(data)), 3))
			names := []string{"", formats[rng.IntN(len(formats))].Name}
			if len(data) < 20_000 {
				for _, f := range formats {
					names = append(names, f.Name)
				}
			}
			for _, name := range names {
				block := leastBlock(data) + rng.IntN(1+rng.IntN(1+len(data)))
				checkShared(t, Settings{Format: name, Guard: guard, Patterns: rng.IntN(2) == 0}, data, block, 2+rng.IntN(3))
			}
			files++
			return nil
		})
	}
	if files < 20 {
		t.Errorf("only %d files", files)
	}
}

// TestBlocksAgreeOnRandomLists joins lines that matter: entries, faults, protected
// domains and self-tests, more than a file may have.
func TestBlocksAgreeOnRandomLists(t *testing.T) {
	g := DefaultGuard()
	g.MaxProtected = 40
	guard := testkit.Value(NewGuard(g))(t)
	lines := []string{"promo@bulk.test", "bulk.test", "*.Mailings.Shop.TEST.  # since May", "198.51.100.23", "", "# people",
		"two words", "!press@bulk.test", "gmail.com", "co.uk", "\xff@bulk.test", "0.0.0.0 ads.bulk.test", "||bulk.test^",
		"blocklist_from *@bulk.test a@bulk.test", "unblocklist_from a@bulk.test", "bücher.test", "a\x00b", "\r", "Ω", "From:bulk.test REJECT"}
	for seed := range uint64(150) {
		rng := rand.New(rand.NewPCG(seed, 4))
		var b bytes.Buffer
		tests := rng.IntN(3) == 0
		for range rng.IntN(3000) {
			if tests && rng.IntN(8) == 0 {
				b.WriteString("#? block" + strings.Repeat(" new@bulk.test", 1+rng.IntN(5)))
			} else {
				b.WriteString(lines[rng.IntN(len(lines))])
			}
			b.WriteString([]string{"\n", "\n", "\r\n"}[rng.IntN(3)])
		}
		if rng.IntN(4) == 0 {
			b.WriteString("last@bulk.test")
		}
		f := formats[rng.IntN(len(formats))]
		checkShared(t, Settings{Format: f.Name, Guard: guard, Reason: strings.Repeat("x", maxReason-1) + " y"}, b.Bytes(), 150+rng.IntN(2000), 1+rng.IntN(4))
	}
}

// TestBlocksOfLongLines has lines about and over the size of a block.
func TestBlocksOfLongLines(t *testing.T) {
	for seed := range uint64(100) {
		rng := rand.New(rand.NewPCG(seed, 5))
		checkShared(t, Settings{Format: "plain"}, []byte(randomText(rng)), maxLine+1+rng.IntN(maxLine), 1+rng.IntN(3))
	}
}

func TestReadBlocksGivesTheSummaryOfReadFile(t *testing.T) {
	path := testkit.File(t, "list.txt", strings.Repeat("promo@bulk.test\nno entry\n", 50_000))
	want, wantErr := ReadFile(t.Context(), path, Settings{Format: "plain"}, func(*Item) error { return nil })
	for _, workers := range []int{-1, 1, 2, 7} {
		var items, wild atomic.Int64
		got, err := ReadBlocks(t.Context(), path, Settings{Format: "plain"}, workers, func(worker int, it *Item) error {
			items.Add(1)
			if worker < 0 || worker >= max(workers, 1) {
				wild.Add(1)
			}
			return nil
		})
		if !reflect.DeepEqual(got, want) || err != nil || wantErr != nil || items.Load() != 100_000 || wild.Load() != 0 {
			t.Errorf("%d workers: %+v, %v and %d items (%d of no worker); in order %+v, %v", workers, got, err, items.Load(), wild.Load(), want, wantErr)
		}
	}
}

func TestReadBlocksEndsWithAnErrorOfEmit(t *testing.T) {
	path := testkit.File(t, "list.txt", strings.Repeat("promo@bulk.test\n", 200_000))
	enough := errors.New("enough")
	for _, workers := range []int{1, 2, 5} {
		var items atomic.Int64
		_, err := ReadBlocks(t.Context(), path, Settings{Format: "plain"}, workers, func(int, *Item) error {
			if items.Add(1) == 10 {
				return enough
			}
			return nil
		})
		if err != enough || workers == 1 && items.Load() != 10 {
			t.Errorf("%d workers: %v after %d items, want %v", workers, err, items.Load(), enough)
		}
	}
}

// TestNoBlockBehindAnError: who leaves with an error ends the text for all.
func TestNoBlockBehindAnError(t *testing.T) {
	enough := errors.New("enough")
	c := newCutter(strings.NewReader(strings.Repeat("bulk.test\n", 1000)), '\n', 100)
	one, other := c.reader(), c.reader()
	one.next()
	other.next()
	one.leave(enough)
	lines := 1
	for _, ok := other.next(); ok; _, ok = other.next() {
		lines++
	}
	if lines != 10 || other.err != enough {
		t.Errorf("%d lines and %v, want the 10 of the block in hand and %v", lines, other.err, enough)
	}
}

func TestReadBlocksEndsWithTheContext(t *testing.T) {
	path := testkit.File(t, "list.txt", strings.Repeat("promo@bulk.test\n", 200_000))
	ctx, cancel := context.WithCancel(t.Context())
	var once sync.Once
	sum, err := ReadBlocks(ctx, path, Settings{Format: "plain"}, 3, func(int, *Item) error {
		once.Do(cancel)
		return nil
	})
	if !errors.Is(err, context.Canceled) || sum.Verdict != Refused {
		t.Errorf("%+v, %v; want %v", sum, err, context.Canceled)
	}
}

// TestBlocksEndWithTheReadersError: what stands whole before a torn octet is read.
func TestBlocksEndWithTheReadersError(t *testing.T) {
	torn := errors.New("torn")
	for seed := range uint64(50) {
		rng := rand.New(rand.NewPCG(seed, 6))
		text := strings.Repeat("bulk.test\n", 20_000) + "half.tes"
		r := newReading(&formats[0], "", Settings{}, func(*Item) error { return nil })
		r.lines = newCutter(&ragged{text, rng, torn}, '\n', 1000).reader()
		err := r.share(&formats[0], []func(*Item) error{r.emit, r.emit})
		if err != torn || r.sum.Lines != 20_000 || r.sum.Entries != 20_000 {
			t.Fatalf("seed %d: %+v, %v", seed, r.sum, err)
		}
	}
	if _, err := readLines(io.MultiReader(strings.NewReader("a\nb"), &ragged{"", rand.New(rand.NewPCG(1, 1)), torn}), '\n'); err != torn {
		t.Error(err)
	}
}

// TestBlocksOfTables: several workers read a table as one does, wherever its quotes are. Where an owner has too many entries they say so.
func TestBlocksOfTables(t *testing.T) {
	rounds := 300
	if testing.Short() {
		rounds = 50
	}
	full := 0
	for round := range rounds {
		rng := rand.New(rand.NewPCG(9, uint64(round)))
		var b strings.Builder
		b.WriteString([]string{"owner,entry,action,reason\n", "\n# a list\nentry,owner,reason,action\n", "reason;entry;owner\n", ""}[min(rng.IntN(20), 3)%4])
		quotes := rng.IntN(3) == 0
		for i := range rng.IntN(300) {
			switch n := rng.IntN(40); {
			case n == 0:
				b.WriteString("\n")
			case n == 1 && quotes:
				fmt.Fprintf(&b, "u%d@here.example,\"a@x%d.example\",block,\"two\nlines\"\n", rng.IntN(9), i)
			case n == 2 && quotes:
				b.WriteString("u1@here.example,\"open\n")
			case n == 3:
				b.WriteString("no owner\n")
			default:
				fmt.Fprintf(&b, "u%d@here.example,a@x%d.example,block,\n", rng.IntN(30), i)
			}
		}
		data := []byte(b.String())
		s := Settings{Format: "csv:entry", PerRecipient: true, MaxPerOwner: 1000}
		if len(data) < 100 {
			continue
		}
		checkShared(t, s, data, max(leastBlock(data), 64+rng.IntN(1000)), 1+rng.IntN(4))
		s = Settings{Format: "csv"}
		checkShared(t, s, data, max(leastBlock(data), 64+rng.IntN(1000)), 1+rng.IntN(4))
		s = Settings{Format: "csv:entry", PerRecipient: true, MaxPerOwner: 5}
		src := sourceOf(data)
		src.block = max(leastBlock(data), 200)
		if _, sum, err := readShared(t, src, s, 3); errors.Is(err, ErrInTurn) {
			full++
		} else if err == nil && sum.Dropped.Count(OwnerFull) > 0 {
			t.Fatalf("round %d: workers have refused lines of their own choice", round)
		}
	}
	if full == 0 {
		t.Error("no owner had too many entries")
	}
}

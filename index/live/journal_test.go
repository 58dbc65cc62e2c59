package live

import (
	"bytes"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"blockd/internal/testkit"
	"blockd/lists"
)

// aJournal has every kind of record, and says what it comes to after each line.
func aJournal(t testing.TB) (text []byte, after []string) {
	t.Helper()
	folder := filepath.Join(t.TempDir(), "live")
	set := open(t, Settings{Folder: folder})
	note := func() {
		now := testkit.Read(t, journalPath(folder))
		for range bytes.Count(now, []byte("\n")) - len(after) {
			after = append(after, sum(held(set)))
		}
		text = now
	}
	note()
	until := time.Now().Add(1000 * time.Hour)
	for _, c := range []Change{
		{Entry: "a@x.example", Why: `phishing — "4711"`, Author: "jo", Expires: until},
		{Entry: "x.example", Action: lists.Allow},
		{Entry: "=x.example"},
		{Entry: "a@x.example", Why: "other"},
		{Entry: "192.0.2.0/24", Force: true},
		{Entry: "x.example", Remove: true, Author: "jo"},
		{Entry: "offers@"},
	} {
		apply(t, set, c)
		note()
	}
	mustFold(t, set)
	note()
	apply(t, set, Change{Entry: "last.example"})
	note()
	return text, after
}

// sum tells all entries with what was said of each.
func sum(entries map[identity]*Entry) string {
	var all []string
	for _, e := range entries {
		all = append(all, fmt.Sprintf("%d %s %s %s %s", e.Number, e.Item.Action, e.Text, e.Item.Scope, e.reason))
	}
	slices.Sort(all)
	return strings.Join(all, "\n")
}

func readText(t testing.TB, text []byte) *contents {
	t.Helper()
	return testkit.Value(readJournal(bytes.NewReader(text), &contents{entries: map[identity]*Entry{}}))(t)
}

// A file that ends anywhere has all whole records, and the rest is cut.
func TestEveryTruncation(t *testing.T) {
	text, after := aJournal(t)
	for n := range len(text) + 1 {
		c := readText(t, text[:n])
		whole, want := bytes.Count(text[:n], []byte("\n")), ""
		if whole > 0 {
			want = after[whole-1]
		}
		if got := sum(c.entries); got != want || c.damaged > 0 {
			t.Fatalf("%d of %d octets: %d damaged, entries\n%s\nwant\n%s", n, len(text), c.damaged, got, want)
		}
		end := bytes.LastIndexByte(text[:n], '\n') + 1
		testkit.MustGot(c.good, c.torn)(t, fmt.Sprintf("good and torn of %d octets", n), int64(end), int64(n-end))
	}
}

// Every bit may flip: the record it is in, and the next one if the line's end is gone,
// are left out and told of. No other entry is lost, and none is there that never was.
func TestEveryBitFlip(t *testing.T) {
	text, _ := aJournal(t)
	lines := bytes.SplitAfter(text, []byte("\n"))
	lines = lines[:len(lines)-1]
	said := map[string]bool{} // every entry of any time
	for n := range lines {
		for _, e := range readText(t, bytes.Join(lines[:n+1], nil)).entries {
			said[fmt.Sprint(e.Number, e.Text, e.reason)] = true
		}
	}
	without := func(gone ...int) string { // what the other lines come to
		var rest [][]byte
		for n := range lines {
			if n == 0 || !slices.Contains(gone, n) {
				rest = append(rest, lines[n])
			}
		}
		return sum(readText(t, bytes.Join(rest, nil)).entries)
	}
	at := 0
	for n, line := range lines {
		alone, withNext := without(n), without(n, n+1)
		for i := range line {
			for bit := range 8 {
				bent := bytes.Clone(text)
				bent[at+i] ^= 1 << bit
				c, err := readJournal(bytes.NewReader(bent), &contents{entries: map[identity]*Entry{}})
				if err != nil {
					t.Fatalf("octet %d, bit %d: %v", at+i, bit, err)
				}
				got := sum(c.entries)
				if got != alone && (i < len(line)-1 || got != withNext) {
					t.Fatalf("octet %d of line %d, bit %d: entries\n%s\nwant\n%s", i, n+1, bit, got, alone)
				}
				if c.damaged == 0 && c.torn == 0 {
					t.Fatalf("octet %d of line %d, bit %d: nobody is told", i, n+1, bit)
				}
				for _, e := range c.entries {
					if !said[fmt.Sprint(e.Number, e.Text, e.reason)] {
						t.Fatalf("octet %d of line %d, bit %d: %v never was", i, n+1, bit, e)
					}
				}
			}
		}
		at += len(line)
	}
}

// A daemon that meets damage serves what is left, says so, and goes on; a torn end is
// cut, and what is added then comes after whole lines.
func TestOpenCutsATornEndAndTellsOfDamage(t *testing.T) {
	text, after := aJournal(t)
	lines := bytes.SplitAfter(text, []byte("\n"))
	folder := filepath.Join(t.TempDir(), "live")
	testkit.Must(t, os.MkdirAll(folder, 0o700))
	bent := bytes.Clone(text)
	bent[len(lines[0])+20] ^= 1 // of the first record
	bent = append(bent, lines[1][:30]...)
	testkit.Write(t, journalPath(folder), bent)
	set := open(t, Settings{Folder: folder})
	if got := sum(held(set)); got != after[len(after)-1] { // line 2 was replaced by line 5
		t.Errorf("entries\n%s\nwant\n%s", got, after[len(after)-1])
	}
	if problems := strings.Join(set.Problems(), "; "); !strings.Contains(problems, "journal:2: damaged, and left out: wrong checksum") {
		t.Errorf("problems: %s", problems)
	}
	testkit.Equal(t, "the torn end is not cut", testkit.Value(os.Stat(journalPath(folder)))(t).Size(), int64(len(text)))
	apply(t, set, Change{Entry: "behind.example"})
	set.Close()
	seen := testkit.Value(Read(folder))(t)
	testkit.Equal(t, "damaged afterwards", seen.damaged, 1)
	testkit.Begins(t, "afterwards", texts(seen), "block behind.example, ")
}

func TestWhatIsNoJournalIsLeftAlone(t *testing.T) {
	for _, text := range []string{"spam@x.example\n", "x", strings.Repeat("x", 3*maxRecord), "\x00\x00\x00\x00", "blockd live entries 3\n"} {
		folder := filepath.Join(t.TempDir(), "live")
		testkit.Must(t, os.MkdirAll(folder, 0o700))
		testkit.Write(t, journalPath(folder), text)
		testkit.Fails(Open(Settings{Folder: folder}))(t, fmt.Sprintf("Open of %.20q", text), errNoJournal)
		if now, _ := os.ReadFile(journalPath(folder)); string(now) != text {
			t.Errorf("%.20q has become %.40q", text, now)
		}
	}
}

// FuzzJournal holds that whatever a file has in it, reading ends, keeps to its bounds,
// and gives entries that are written and read again as the same ones.
func FuzzJournal(f *testing.F) {
	text, _ := aJournal(f)
	f.Add(text)
	f.Add(text[:len(text)-5])
	f.Add([]byte(journalHead))
	f.Add([]byte{})
	f.Add([]byte(journalHead + "00000000 {}\n"))
	f.Fuzz(func(t *testing.T, data []byte) {
		c, err := readJournal(bytes.NewReader(data), &contents{entries: map[identity]*Entry{}})
		if err != nil {
			if !errors.Is(err, errNoJournal) {
				t.Fatalf("refused, but not as errNoJournal: %v", err)
			}
			return
		}
		testkit.MustEqual(t, fmt.Sprintf("%d octets good and %d torn of %d", c.good, c.torn, len(data)), c.good+c.torn, int64(len(data)))
		s := newSet(Settings{}, c)
		back := readText(t, again(c))
		if sum(back.entries) != sum(c.entries) || back.damaged > 0 || back.last != c.last {
			t.Fatalf("written and read again: %d damaged, last %d of %d, entries\n%s\nwant\n%s", back.damaged, back.last, c.last, sum(back.entries), sum(c.entries))
		}
		for id := range maps.Keys(c.entries) {
			if s.view.Load().get(id) != c.entries[id] {
				t.Fatalf("%v is not found", id)
			}
		}
	})
}

// FuzzRecord reaches the code after the checksum, which no chance mutation passes.
func FuzzRecord(f *testing.F) {
	text, _ := aJournal(f)
	for line := range bytes.Lines(text[len(journalHead):]) {
		f.Add(line[9 : len(line)-1])
	}
	f.Fuzz(func(t *testing.T, object []byte) {
		if bytes.IndexByte(object, '\n') >= 0 {
			return
		}
		line := withSum(object)
		c := readText(t, append([]byte(journalHead), line...))
		testkit.MustEqual(t, fmt.Sprintf("%d records and %d damaged lines of one", c.records, c.damaged), c.damaged+c.records, 1)
		if back := readText(t, again(c)); sum(back.entries) != sum(c.entries) || back.damaged > 0 {
			t.Fatalf("%q was read as\n%s\nand again as\n%s", object, sum(c.entries), sum(back.entries))
		}
	})
}

// TestBatchesAreWhole cuts a journal at every octet, and puts zeros in the place of every tail, as a crash of the machine
// may: what is left is what some whole batches came to, and all that were acknowledged before the last write are among them.
func TestBatchesAreWhole(t *testing.T) {
	set := open(t, Settings{})
	type state struct {
		size int
		want map[string]string
	}
	states := []state{{len(journalHead), map[string]string{}}}
	for n := range 6 {
		var changes []Change
		for i := range 1 + 3*(n%3) {
			changes = append(changes, Change{Entry: fmt.Sprintf("x%d@batch%d.example", i, n/2), Why: fmt.Sprint(n), Remove: n == 5 && i == 0})
		}
		apply(t, set, changes...)
		states = append(states, state{len(testkit.Read(t, journalPath(set.folder))), reasons(set)})
	}
	whole := testkit.Read(t, journalPath(set.folder))
	hold := func(what string, n int, text []byte) {
		t.Helper()
		folder := t.TempDir()
		testkit.Write(t, journalPath(folder), text)
		again := testkit.Value(Open(Settings{Folder: folder}))(t)
		defer again.Close()
		at := 0
		for i, s := range states {
			if s.size <= n {
				at = i
			}
		}
		allowed := states[at : at+1]
		if what == "zeros from" && at+1 < len(states) {
			allowed = states[at : at+2] // zeros may fall on nothing but a line's end
		}
		if got := reasons(again); !slices.ContainsFunc(allowed, func(s state) bool { return maps.Equal(s.want, got) }) {
			t.Fatalf("%s %d: %v, want %v", what, n, got, states[at].want)
		}
		apply(t, again, Change{Entry: "goes-on.example"}, Change{Entry: "well.example"})
		seen, err := Read(folder)
		if err != nil || !maps.Equal(reasons(seen), reasons(again)) {
			t.Fatalf("%s %d, read again: %v, %v", what, n, reasons(seen), err)
		}
	}
	for n := len(journalHead); n <= len(whole); n += 1 + n%13 {
		hold("cut at", n, whole[:n])
	}
	last := states[len(states)-2].size // zeros come with the last write alone: those before are on the disk
	for n := last; n < len(whole); n += 11 {
		hold("zeros from", n, append(slices.Clone(whole[:n]), make([]byte, len(whole)-n)...))
	}
	for n := last; n+16 < len(whole); n += 31 {
		text := slices.Clone(whole)
		copy(text[n:], make([]byte, 16)) // a page of the midst that never came
		hold("zeros from", n, text)
	}
}

// A damaged line of an acknowledged batch costs that line alone.
func TestDamageInABatchIsOneLine(t *testing.T) {
	set := open(t, Settings{})
	apply(t, set, Change{Entry: "a.example"}, Change{Entry: "b.example"}, Change{Entry: "c.example"})
	apply(t, set, Change{Entry: "d.example"})
	text := bytes.Replace(testkit.Read(t, journalPath(set.folder)), []byte("b.example"), []byte("B.example"), 1)
	folder := t.TempDir()
	testkit.Write(t, journalPath(folder), text)
	again := open(t, Settings{Folder: folder})
	got := texts(again)
	testkit.Got(got, again.damaged)(t, "entries and damaged", "block d.example, block c.example, block a.example", 1)
}

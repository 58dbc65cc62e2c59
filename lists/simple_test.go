package lists

import (
	"bytes"
	"encoding/csv"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"blockd/internal/testkit"
	"blockd/internal/testkit/race"
)

// readSlow reads data as the plain format without its short way.
func readSlow(data []byte, s Settings) (items []Item, err error) {
	slow := formats[0]
	slow.read = eachLine(plainComment, plainLine)
	return readAs(&slow, data, s)
}

func readAs(f *format, data []byte, s Settings) (items []Item, err error) {
	r := newReading(f, "", s, func(it *Item) error {
		c := keepItem(it)
		c.Test, c.pattern = nil, nil // are others each time
		items = append(items, c)
		it.Class, it.Message = Dup, "as Lint does" // shows in no later item
		return nil
	})
	r.lines = newLineReader(bytes.NewReader(data), '\n')
	err = f.read(r)
	return append(items, Item{Message: fmt.Sprint(r.sum, r.tally)}), err
}

// checkSimple holds the short way of the plain format against the long one: items,
// counts and what the guard refuses.
func checkSimple(t *testing.T, data []byte, s Settings) {
	t.Helper()
	want, wantErr := readSlow(data, s)
	got, err := readAs(&formats[0], data, s)
	if fmt.Sprint(err) != fmt.Sprint(wantErr) || !slices.Equal(got, want) {
		t.Fatalf("%q: %v, %v; the long way %v, %v", data, got, err, want, wantErr)
	}
}

func TestSimpleLinesAgreeWithTheLongWay(t *testing.T) {
	race.Skip(t)
	guard := testkit.Value(NewGuard(DefaultGuard()))(t)
	words := []string{"a", "bulk", "test", "gmail", "com", "co", "uk", "10", "198", "fe80", "0x7f", "mailto", "from", "xn--p1ai", "ab", "K",
		"@", "@", ".", ".", ".", "-", "_", "+", "=", "!", "#", "/", ":", "*", " ", "\t", "\r", "<", ">", "ü", "\x00", "~", "^", ";"}
	no := false
	for seed := range uint64(2000) {
		rng := rand.New(rand.NewPCG(seed, 9))
		var data []byte
		for range 30 {
			for range rng.IntN(9) {
				data = append(data, words[rng.IntN(10+rng.IntN(len(words)-9))]...)
			}
			data = append(data, '\n')
		}
		s := Settings{Reason: "because", Patterns: rng.IntN(2) == 0}
		if rng.IntN(2) == 0 {
			s.Guard = guard
		}
		if rng.IntN(2) == 0 {
			s.Action, s.Subdomains = Allow, &no
		}
		checkSimple(t, data, s)
	}
}

func FuzzSimple(f *testing.F) {
	guard := testkit.Value(NewGuard(DefaultGuard()))(f)
	f.Fuzz(func(t *testing.T, data []byte, patterns bool) {
		checkSimple(t, data, Settings{Guard: guard, Patterns: patterns})
	})
}

// TestReadingAllocatesNothingPerLine: the usual lines, and a hundred thousand of them.
func TestReadingAllocatesNothingPerLine(t *testing.T) {
	for _, text := range []string{"promo@bulk.test\n", "=mail.bulk.test\n", "!press@bulk.test\n", "# people\n", "\n", "198.51.100.23\n"} {
		data := bytes.Repeat([]byte(text), 100_000)
		allocs := testing.AllocsPerRun(2, func() {
			testkit.Value(read(sourceOf(data), nil, Settings{Format: "plain"}, func(*Item) error { return nil }))(t)
		})
		if allocs > 1000 { // one in a hundred lines: the whole process is counted, and the collector of a loaded machine has added 206
			t.Errorf("%q: %v allocations for 100,000 lines", text, allocs)
		}
	}
}

// readOwners reads a table of owners; slowly: without usual, which knows no owner of the line before.
func readOwners(data []byte, s Settings, format string, slowly bool) (items []Item, err error) {
	s.PerRecipient = true
	csv, arg, err := findFormat(format)
	if err != nil {
		return nil, err
	}
	var r *reading
	r = newReading(csv, arg, s, func(it *Item) error {
		items = append(items, keepItem(it))
		it.Class, it.Message = Dup, "as Lint does" // shows in no later item
		if slowly {
			r.lastOwner = ""
		}
		return nil
	})
	r.lines = newLineReader(bytes.NewReader(data), '\n')
	err = readCSV(r)
	return append(items, Item{Message: fmt.Sprint(r.sum, r.tally)}), err
}

func checkOwners(t *testing.T, data []byte, s Settings) {
	t.Helper()
	checkOwnersAs(t, data, s, "csv:entry")
}

func checkOwnersAs(t *testing.T, data []byte, s Settings, format string) {
	t.Helper()
	want, wantErr := readOwners(data, s, format, true)
	got, err := readOwners(data, s, format, false)
	if fmt.Sprint(err) != fmt.Sprint(wantErr) || !slices.Equal(got, want) {
		t.Fatalf("%q: %v, %v; the long way %v, %v", data, got, err, want, wantErr)
	}
}

// TestUsualLinesOfOwnersAgreeWithTheLongWay: whatever stands in the cells, and whatever columns there are.
func TestUsualLinesOfOwnersAgreeWithTheLongWay(t *testing.T) {
	guard := testkit.Value(NewGuard(DefaultGuard()))(t)
	heads := []string{"owner,entry,action,reason", "entry,owner", "owner,id,entry,reason,action", "owner;entry;action", "owner\tentry\taction\treason"}
	owners := []string{"anna@here.example", "bob@here.example", "Bob@here.example", "here.example", "", " anna@here.example", `"anna@here.example"`, "ü"}
	entries := []string{"promo@bulk.example", "bulk.example", "=com", ".com", "offers@", "Promo@Bulk.example", "192.0.2.1", "*", "", "recipient:anna+x@here.example", `"promo@bulk.example"`, "ü"}
	actions := []string{"block", "", "allow", "BLOCK", "tempfail", "x", " block"}
	reasons := []string{"", "enough", " too much ", "\x01", "\xff", "ü", `"a ""b"""`, `a"b`, "\r", "\t"}
	no := false
	for seed := range uint64(1000) {
		rng := rand.New(rand.NewPCG(seed, 11))
		head := heads[rng.IntN(len(heads))]
		one := func(words []string) string { // the first ones are usual
			return words[rng.IntN(1+rng.IntN(len(words)))]
		}
		data := []byte(head + "\n")
		for range 60 {
			sep, cell := "", 0
			for _, b := range []byte(head + "\n") {
				if b >= 'a' && b <= 'z' {
					continue
				}
				words := [][]string{owners, entries, actions, reasons}[cell%4]
				if head[0] == 'e' && cell < 2 {
					words = [][]string{entries, owners}[cell]
				}
				data = append(append(data, sep...), one(words)...)
				sep, cell = string(b), cell+1
			}
			if rng.IntN(8) == 0 { // a line that ends in the midst
				data = data[:len(data)-rng.IntN(len(data)-bytes.LastIndexByte(data, '\n'))]
			}
			data = append(data, []string{"\n", "\n", "\r\n", ",more\n"}[rng.IntN(4)]...)
		}
		s := Settings{MaxPerOwner: rng.IntN(20), Reason: "because"}
		if rng.IntN(2) == 0 {
			s.Guard, s.Subdomains = guard, &no
		}
		if rng.IntN(4) == 0 {
			s.Action = Allow
		}
		checkOwners(t, data, s)
	}
}

// A line that has an owner and no entry teaches nothing about the next one.
func TestLineWithoutAnEntry(t *testing.T) {
	checkOwners(t, []byte("owner,entry\nanna@here.example,b.example\nanna@here.example\nbob@yanna@here.example\n"+
		"anna@here.example,\nanna@here.example,c.example\nanna@here.example,d.example,block\n"), Settings{})
}

// A column that is the entry and something else as well is read the long way alone.
func TestOneColumnOfTwoParts(t *testing.T) {
	for _, column := range []string{"reason", "action", "owner"} {
		data := []byte("owner,reason,action\n")
		for i := range 60 {
			data = fmt.Appendf(data, "anna@here.example,b%d.example,block\n", i)
		}
		checkOwnersAs(t, data, Settings{}, "csv:"+column)
	}
}

func FuzzUsualOwners(f *testing.F) {
	f.Add([]byte("owner,entry,action,reason\na@b.example,c@d.example,block,x\na@b.example,c.example,,\n"))
	f.Fuzz(func(t *testing.T, data []byte) { checkOwners(t, data, Settings{MaxPerOwner: 3}) })
}

// TestRecordsAgreeWithEncodingCSV holds splitRecord against the standard library's
// strict reader, on random text of the characters that matter.
func TestRecordsAgreeWithEncodingCSV(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 0))
	agreed := 0
	for range 200_000 {
		var b strings.Builder
		for range 1 + rng.IntN(10) {
			b.WriteByte("\"\",,ab\n;"[rng.IntN(8)])
		}
		text := b.String()
		model := csv.NewReader(strings.NewReader(text))
		model.FieldsPerRecord = -1
		want, wantErr := model.Read()
		if strings.TrimLeft(text, "\n") != text || wantErr == nil && model.InputOffset() < int64(len(text)) {
			continue // blank lines before the record, or a second one behind it
		}
		cells, err := splitRecord(nil, strings.TrimSuffix(text, "\n"), ',')
		var got []string
		for _, c := range cells {
			got = append(got, c.text)
		}
		if (err == nil) != (wantErr == nil) || err == nil && !slices.Equal(got, want) {
			// Without a quote around it a line end ends the record: that is next's
			// work, and splitRecord never sees one.
			if strings.Contains(text, "\n") {
				continue
			}
			t.Fatalf("%q: %q, %v; encoding/csv: %q, %v", text, got, err, want, wantErr)
		}
		agreed++
	}
	if agreed < 100_000 {
		t.Errorf("only %d cases were compared", agreed)
	}
}

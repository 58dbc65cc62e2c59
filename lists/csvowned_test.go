package lists

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"

	"blockd/internal/testkit"
)

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

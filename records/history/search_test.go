package history

import (
	"bytes"
	"context"
	"fmt"
	"io/fs"
	"math/rand/v2"
	"net/netip"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"blockd/internal/testkit"
	"blockd/internal/testkit/race"
)

// slowly is Search as one would write it down.
func slowly(records []Record, q Query) (found Found) {
	limit := q.Limit
	if limit == 0 {
		limit = MaxFound
	}
	address := func(want, have string) bool {
		want, have = strings.ToLower(want), strings.ToLower(have)
		if want == "" || want == have || want == "<>" && have == "" {
			return true
		}
		if want == "<>" || strings.LastIndex(want, "@") > 0 {
			return false
		}
		parts := strings.Split(have, "@")
		return parts[len(parts)-1] == strings.TrimPrefix(want, "@")
	}
	has := func(r Record) bool {
		return slices.ContainsFunc([]string{r.Sender, r.Recipient, r.Helo, r.Ref, r.List, r.Entry, r.Reason, strings.ReplaceAll(r.Client.String(), "invalid IP", "")},
			func(text string) bool { return strings.Contains(strings.ToLower(text), strings.ToLower(q.Text)) })
	}
	records = slices.Clone(records)
	if !q.Oldest {
		slices.Reverse(records)
	}
	for _, r := range records {
		switch {
		case r.Time.Before(q.Since), !q.Until.IsZero() && !r.Time.Before(q.Until), !has(r):
		case q.Ref != "" && q.Ref != r.Ref, q.List != "" && q.List != r.List, q.Verdict != "" && q.Verdict != r.Verdict, q.Outcome == Mail && r.Outcome == Listed, q.Outcome != "" && q.Outcome != Mail && q.Outcome != r.Outcome:
		case q.Client.IsValid() && (!r.Client.IsValid() || !q.Client.Contains(r.Client)):
		case !address(q.Sender, r.Sender) || !address(q.Recipient, r.Recipient):
		case len(found.Records) == limit:
			found.More = true
			return found
		default:
			found.Records = append(found.Records, r)
		}
	}
	return found
}

func slowlyAll(records []Record, q Query) []Record {
	q.Limit = len(records)
	return slowly(records, q).Records
}

// walk is what all pages of a search have.
func walk(t *testing.T, q Query, page func(Query) (Found, error)) (all []Record) {
	t.Helper()
	for n := 0; ; n++ {
		found, err := page(q)
		if err != nil || n > 20_000 {
			t.Fatalf("page %d of %+v: %v", n, q, err)
		}
		all = append(all, found.Records...)
		if found.Next == "" {
			return all
		}
		q.Cursor = found.Next
	}
}

// A search of bounded work goes on where it has ended, and nothing is there twice or left out.
func TestSearchInParts(t *testing.T) {
	folder, start := t.TempDir(), time.Now().Add(-time.Hour)
	var records []Record
	for i := range 4500 {
		v := clear(i)
		v.Time = start.Add(time.Duration(i) * time.Millisecond).UTC().Truncate(time.Millisecond)
		records = append(records, v)
	}
	write(t, folder, records)
	for _, q := range []Query{{Limit: 7}, {Limit: 1000}, {Text: "somebody.4@"}, {Text: "nobody"}, {Oldest: true, Limit: 450}, {Oldest: true, Text: "somebody.44"}} {
		pages := 0
		have := walk(t, q, func(q Query) (Found, error) {
			pages++
			return search(t.Context(), folder, q, 1) // a segment at a time
		})
		if want := slowlyAll(records, q); !reflect.DeepEqual(have, want) || pages < 5 {
			t.Errorf("%+v: %d records in %d pages, want %d", q, len(have), pages, len(want))
		}
	}
}

// Lines move when the history makes room while it is walked through: some may be shown again, and none is left out.
func TestCursorsOutliveMovedLines(t *testing.T) {
	for _, oldest := range []bool{false, true} {
		folder := t.TempDir()
		var records []Record
		for i := range 900 {
			records = append(records, clear(i))
		}
		write(t, folder, records)
		seen := map[string]bool{}
		q := Query{Limit: 50, Oldest: oldest}
		for n := 0; ; n++ {
			found, err := Search(t.Context(), folder, q)
			if err != nil || n > 100 {
				t.Fatal(n, err)
			}
			for _, r := range found.Records {
				seen[r.Sender] = true
			}
			if q.Cursor = found.Next; q.Cursor == "" {
				break
			}
			if n%4 == 3 { // every third line goes, and so may the one of the cursor
				var left []Record
				for i, r := range records {
					if i%3 > 0 {
						left = append(left, r)
					}
				}
				records = left
				write(t, folder, records)
			}
		}
		for _, r := range records {
			if !seen[r.Sender] {
				t.Errorf("oldest %v: %s was left out", oldest, r.Sender)
			}
		}
	}
}

func TestCursorsThatNoAnswerHad(t *testing.T) {
	folder := t.TempDir()
	write(t, folder, []Record{clear(1), clear(2)})
	for _, cursor := range []string{"1", "x1", "n", "n0", "o", "n-1", "n1-", "n1-2", "n1-2-", "n1--2-00000000", "n1-2-0000000g", "n1-2-00000000-", "o1", strings.Repeat("n", 1000)} {
		testkit.Fails(Search(t.Context(), folder, Query{Cursor: cursor}))(t, cursor, ErrCursor)
	}
	for _, cursor := range []string{"n1", "n9-0-00000000", "n1-0-00000000", "n1-9223372036854775807-00000000"} { // nobody knows whether an answer had it
		testkit.Value(Search(t.Context(), folder, Query{Cursor: cursor}))(t)
	}
}

// TestSearch holds Search against the slow one, over 5,000 records in segments.
func TestSearch(t *testing.T) {
	race.Skip(t)
	r := rand.New(rand.NewPCG(3, 4))
	folder, start := t.TempDir(), time.Now().Add(-time.Hour)
	var records []Record
	for i := range 5000 {
		v := anything(r, start.Add(time.Duration(i)*time.Millisecond))
		if v.List == "" && v.Source == "" {
			v.File, v.Line, v.Entry, v.Scope, v.Action, v.Reason = "", 0, "", "", "", ""
		}
		records = append(records, v)
	}
	write(t, folder, records)
	pick := func(from ...string) string { return from[r.IntN(len(from))] }
	some := 0
	for range 300 {
		q := Query{Limit: pickInt(r, 0, 1, 10, 999)}
		if r.IntN(3) == 0 {
			q.Sender = pick(append(hostile, "@B.example", "B.Example", "nobody@b.example")...)
		}
		if r.IntN(3) == 0 {
			q.Recipient = pick(append(hostile, "bücher.example")...)
		}
		if r.IntN(3) == 0 {
			q.List = pick("own", "other", "none", "ow")
		}
		if r.IntN(4) == 0 {
			q.Ref = pick("k1", "k9")
		}
		if r.IntN(4) == 0 {
			q.Client = netip.MustParsePrefix(pick("192.0.2.0/25", "192.0.2.200/32", "2001:db8::/32", "0.0.0.0/0"))
		}
		if r.IntN(4) == 0 {
			q.Verdict, q.Outcome = pick("", "clear", "blocked"), pick("", "accept", Listed, Mail)
		}
		if r.IntN(3) == 0 {
			q.Since = start.Add(time.Duration(r.IntN(5500)) * time.Millisecond)
		}
		if r.IntN(4) == 0 {
			q.Until = start.Add(time.Duration(r.IntN(5500)) * time.Millisecond)
		}
		if r.IntN(3) == 0 {
			q.Text = pick("EXAMPLE", "b.ex", "192.0", "2001:DB8", "\\", "\n", "ÜNÏ", "own", "a@b@", "\x00\xff", "nowhere", "\u202e")
		}
		q.Oldest = r.IntN(3) == 0
		got, err := Search(t.Context(), folder, q)
		want := slowly(records, q)
		testkit.MustEqual(t, q, got.More, got.Next != "")
		if walked := walk(t, q, func(q Query) (Found, error) { return Search(t.Context(), folder, q) }); !reflect.DeepEqual(walked, slowlyAll(records, q)) {
			t.Fatalf("a walk by %+v has %d records, want %d", q, len(walked), len(slowlyAll(records, q)))
		}
		got.Next, got.Prev = "", ""
		if err != nil || !reflect.DeepEqual(got, want) {
			t.Fatalf("Search(%+v) = %d records, %v, %v, want %d, %v", q, len(got.Records), got.More, err, len(want.Records), want.More)
		}
		if len(want.Records) > 0 {
			some++
		}
	}
	testkit.AtLeast(t, "searches of 300 that found something", some, 100)
}

func pickInt(r *rand.Rand, from ...int) int { return from[r.IntN(len(from))] }

// TestReferenceInCapitals: somebody reads a bounce aloud.
func TestReferenceInCapitals(t *testing.T) {
	l := open(t)
	l.Add(blocked(7))
	found := testkit.Value(l.Search(t.Context(), Query{Ref: "REF0000007"}))(t)
	testkit.MustEqual(t, "found", len(found.Records), 1)
	testkit.Equal(t, "found", found.Records[0], blockedAt(7, found.Records[0].Time))
}

func blockedAt(n int, at time.Time) Record {
	r := blocked(n)
	r.Time = at
	return r
}

// TestBitFlips turns every bit of a segment and holds that nothing is read that was
// not written, and that damage costs the line that it is in, or two where it is the
// end between them.
func TestBitFlips(t *testing.T) {
	folder := t.TempDir()
	want := []Record{clear(1), blocked(2), clear(3)}
	write(t, folder, want)
	path := segmentPath(folder, 1)
	text := testkit.Read(t, path)
	for i := range 8 * len(text) {
		text[i/8] ^= 1 << (i % 8)
		testkit.Write(t, path, text)
		text[i/8] ^= 1 << (i % 8)
		got, damaged := all(t, folder)
		for _, r := range got {
			if !slices.Contains(want, r) {
				t.Fatalf("bit %d of octet %d (%q) makes %+v", i%8, i/8, text[i/8], r)
			}
		}
		atEnd := i/8 == len(text)-1 // a torn end is none that was damaged
		if len(got) < 1 || damaged == 0 && !atEnd {
			t.Fatalf("bit %d of octet %d (%q): %d of 3 read, %d damaged", i%8, i/8, text[i/8], len(got), damaged)
		}
	}
}

// TestForgedLine holds that damage cannot bring a line to life that a client has put
// into a text.
func TestForgedLine(t *testing.T) {
	folder, real := t.TempDir(), clear(1)
	forged := blocked(9)
	real.Helo = string(appendLine([]byte("x\n"), &forged))
	write(t, folder, []Record{real})
	path := segmentPath(folder, 1)
	text := testkit.Read(t, path)
	for i := range text[len(fileHead):] {
		broken := slices.Clone(text)
		broken[len(fileHead)+i] = '\n'
		testkit.Write(t, path, broken)
		if got, _ := all(t, folder); slices.ContainsFunc(got, func(r Record) bool { return r.Ref != "" }) {
			t.Fatalf("a line end at %d makes %+v", i, got)
		}
	}
}

// FuzzSegment reads a file that nobody wrote, and goes on with it as a Log does.
func FuzzSegment(f *testing.F) {
	a, b := clear(1), blocked(2)
	f.Add(appendLine(appendLine([]byte(fileHead), &a), &b))
	f.Add([]byte(fileHead + "\n\n00000000 \n" + strings.Repeat("x", 100)))
	f.Add([]byte("\n"))
	read := func(text []byte) (records []Record, damaged int) {
		w := walker{each: func(r *Record) bool {
			records = append(records, r.clone())
			return true
		}}
		w.lines(text)
		slices.Reverse(records)
		return records, w.damaged
	}
	f.Fuzz(func(t *testing.T, text []byte) {
		before, damaged := read(text)
		if len(before)+damaged > bytes.Count(text, []byte("\n"))+1 {
			t.Fatalf("%d records and %d damaged lines in %q", len(before), damaged, text)
		}
		size, begun, err := wholeLines(text)
		if err != nil {
			return
		}
		if size > len(text) || size < len(fileHead) || size > len(fileHead) && (len(before) == 0 || !begun.Equal(before[0].Time)) {
			t.Fatalf("%d octets from %v are whole of %q", size, begun, text)
		}
		mark := blocked(1 << 20)
		after, still := read(appendLine(slices.Clone(text[:size]), &mark))
		if still != damaged || len(after) != len(before)+1 || !slices.Equal(after[:len(before)], before) || after[len(before)] != mark {
			t.Fatalf("%d records before, %d after one more, %d and %d damaged", len(before), len(after), damaged, still)
		}
	})
}

func TestSearchEnds(t *testing.T) {
	testkit.Fails(Search(t.Context(), filepath.Join(t.TempDir(), "none"), Query{}))(t, "no folder", fs.ErrNotExist)
	folder := t.TempDir()
	write(t, folder, []Record{clear(1)})
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	testkit.Fails(Search(ctx, folder, Query{}))(t, "an ended context", context.Canceled)
	l := open(t)
	for range maxSearches {
		l.searches <- struct{}{}
	}
	testkit.Fails(l.Search(t.Context(), Query{}))(t, fmt.Sprintf("a search beside %d others", maxSearches), ErrBusy)
}

package history

import (
	"bytes"
	"context"
	"errors"
	"io/fs"
	"math/rand/v2"
	"net/netip"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"blockd/internal/race"
	"blockd/internal/testkit"
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
	for _, r := range slices.Backward(records) {
		switch {
		case r.Time.Before(q.Since):
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
		got, err := Search(t.Context(), folder, q)
		want := slowly(records, q)
		if err != nil || !reflect.DeepEqual(got, want) {
			t.Fatalf("Search(%+v) = %d records, %v, %v, want %d, %v", q, len(got.Records), got.More, err, len(want.Records), want.More)
		}
		if len(want.Records) > 0 {
			some++
		}
	}
	if some < 100 {
		t.Errorf("only %d of 300 searches found something", some)
	}
}

func pickInt(r *rand.Rand, from ...int) int { return from[r.IntN(len(from))] }

// TestReferenceInCapitals: somebody reads a bounce aloud.
func TestReferenceInCapitals(t *testing.T) {
	l := open(t)
	l.Add(blocked(7))
	found, err := l.Search(t.Context(), Query{Ref: "REF0000007"})
	if err != nil || len(found.Records) != 1 || found.Records[0] != blockedAt(7, found.Records[0].Time) {
		t.Errorf("found %+v, %v", found, err)
	}
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
	if _, err := Search(t.Context(), filepath.Join(t.TempDir(), "none"), Query{}); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("no folder: %v", err)
	}
	folder := t.TempDir()
	write(t, folder, []Record{clear(1)})
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := Search(ctx, folder, Query{}); !errors.Is(err, context.Canceled) {
		t.Errorf("an ended context: %v", err)
	}
	l := open(t)
	for range maxSearches {
		l.searches <- struct{}{}
	}
	if _, err := l.Search(t.Context(), Query{}); !errors.Is(err, ErrBusy) {
		t.Errorf("a search beside %d others: %v", maxSearches, err)
	}
}

package history

import (
	"bytes"
	"math/rand/v2"
	"net/netip"
	"strings"
	"testing"
	"time"

	"blockd/internal/testkit"
)

// TestLine holds that what is read is what was written, whatever texts there are, and
// that a line is one line.
func TestLine(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	for range 20_000 {
		want := anything(r, time.UnixMilli(r.Int64N(1<<42)))
		line := appendLine(nil, &want)
		if bytes.IndexByte(line, '\n') != len(line)-1 || len(line) > maxLine {
			t.Fatalf("no line: %q", line)
		}
		line = line[:len(line)-1]
		var got Record
		if want.List == "" && want.Source == "" { // of no entry there is nothing
			want.File, want.Line, want.Entry, want.Scope, want.Action, want.Reason = "", 0, "", "", "", ""
		}
		if !summed(line) {
			t.Fatalf("%q does not agree with its checksum", line)
		}
		if err := parseLine(string(line[sumSize:]), &got); err != nil || got != want {
			t.Fatalf("parseLine(%q) =\n%+v, %v, want\n%+v", line, got, err, want)
		}
	}
}

// TestLongTexts holds that texts are cut, and that the longest line has its room.
func TestLongTexts(t *testing.T) {
	long := strings.Repeat("\x01", 3*maxText)
	r := Record{Time: time.UnixMilli(1<<62 - 1), Door: long, Outcome: long, Verdict: long, Helo: long, Sender: long, Recipient: long, Generation: long,
		Ref: long, Source: long, List: long, File: long, Line: 1 << 62, Entry: long, Scope: long, Action: long, Reason: long,
		Exempt: true, Shadow: true, Authenticated: true, FirstSeen: true, Client: clear(1).Client, Repeated: 1 << 62}
	line := appendLine(nil, &r)
	if len(line) > maxLine {
		t.Errorf("a line of %d octets, more than %d", len(line), maxLine)
	}
	var got Record
	if err := parseLine(string(line[sumSize:len(line)-1]), &got); err != nil || got.Sender != long[:maxText] {
		t.Errorf("%d octets of a sender, %v, want %d", len(got.Sender), err, maxText)
	}
}

// FuzzLine reads what nobody wrote: no panic, and what is read is written and read
// alike.
func FuzzLine(f *testing.F) {
	for _, r := range []Record{clear(1), blocked(2)} {
		line := appendLine(nil, &r)
		f.Add(string(line[sumSize : len(line)-1]))
	}
	f.Add("1\t\t\t\t::1%eth0\t\\x0")
	f.Add("-1\t\t\t\t\t\\xff\\x5c")
	f.Fuzz(func(t *testing.T, line string) {
		var r, again Record
		if parseLine(line, &r) != nil {
			return
		}
		for _, text := range []string{r.Door, r.Helo, r.Sender, r.Recipient, r.Reason, r.File, r.Entry} {
			if len(text) > maxText {
				return // it is cut when it is written
			}
		}
		if r.List == "" && r.Source == "" {
			return
		}
		r.Client = r.Client.WithZone("")
		out := appendLine(nil, &r)
		if bytes.IndexByte(out, '\n') != len(out)-1 {
			t.Fatalf("%+v makes no line: %q", r, out)
		}
		if err := parseLine(string(out[sumSize:len(out)-1]), &again); err != nil || again != r {
			t.Fatalf("%q is %+v, and then %+v, %v", line, r, again, err)
		}
	})
}

// TestOctets holds what is done with eight octets at a time against what is done with one.
func TestOctets(t *testing.T) {
	r := rand.New(rand.NewPCG(7, 8))
	letters := [...]string{"abcxyzABCXYZ019@[`{. \t\n\x0b\x09\x7f\x00", "aZ\n\x80\xff\x0a\x8a\x01\x0b", "\n\x0b", "az"}
	for range 20_000 {
		from := letters[r.IntN(len(letters))]
		text := make([]byte, r.IntN(40))
		for i := range text {
			text[i] = from[r.IntN(len(from))]
		}
		if got, want := lastEnd(text), bytes.LastIndexByte(text, '\n'); got != want {
			t.Fatalf("lastEnd(%q) is %d, want %d", text, got, want)
		}
		is := !bytes.ContainsFunc(text, func(c rune) bool { return c >= 0x80 })
		low, ascii := lowered([]byte("x"), text)
		if ascii != is || is && string(low) != "x"+strings.ToLower(string(text)) {
			t.Fatalf("lowered(%q) is %q, %t", text, low, ascii)
		}
	}
}

// BenchmarkPassed looks for what no decision has, among two million, and for what few have.
//
//	go test ./records/history -run '^$' -bench Passed -benchtime 3x
func BenchmarkPassed(b *testing.B) {
	const decisions = 2_000_000
	folder := tenMillion(b, decisions)
	for _, q := range []Query{{Text: "no-such-text"}, {Recipient: "somebody.77@here.example"}, {Client: netip.MustParsePrefix("192.0.2.1/32")}} {
		b.Run(q.Text+q.Recipient+q.Client.String(), func(b *testing.B) {
			for b.Loop() {
				_, err := Search(b.Context(), folder, q)
				testkit.Must(b, err)
			}
			b.ReportMetric(float64(decisions)*float64(b.N)/b.Elapsed().Seconds(), "decisions/s")
		})
	}
}

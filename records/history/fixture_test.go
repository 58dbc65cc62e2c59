package history

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"blockd/internal/testkit"
)

var settings = Settings{Max: MinMax, Keep: 30 * 24 * time.Hour}

// open opens a history in a new folder.
func open(t testing.TB) *Log {
	t.Helper()
	s := settings
	s.Folder = filepath.Join(t.TempDir(), "history")
	return reopen(t, s)
}

func reopen(t testing.TB, s Settings) *Log {
	t.Helper()
	l := testkit.Value(Open(s))(t)
	t.Cleanup(func() { l.Close() })
	return l
}

// finish ends the open segment.
func finish(l *Log) {
	l.writing.Lock()
	defer l.writing.Unlock()
	l.finish()
}

// clear is a decision about mail that no list has anything on, the n-th.
func clear(n int) Record {
	return Record{Time: time.Now().UTC().Truncate(time.Millisecond), Door: "smtp", Outcome: "accept", Verdict: "clear",
		Client: netip.MustParseAddr("192.0.2.77"), Helo: "mx7.there.example", Sender: fmt.Sprintf("somebody.%d@there.example", n),
		Recipient: "somebody.else@here.example", Generation: "0123456789abcdef0123456789abcdef"}
}

// blocked is a refusal, the n-th.
func blocked(n int) Record {
	r := clear(n)
	r.Outcome, r.Verdict, r.Ref = "refuse", "blocked", fmt.Sprintf("ref%07d", n)
	r.List, r.File, r.Line, r.Entry, r.Scope, r.Action, r.Reason = "own", "/etc/blockd/own.txt", 12, "there.example", "tree", "block", "phishing"
	return r
}

// hostile are texts that a client may send, and some that it may not.
var hostile = []string{"", "a@b.example", "A@B.EXAMPLE", "b.example", "x\ty@b.example", "x\n00000000 0@b.example", "\"\\\"\"@b.example",
	`\x0a`, `\`, "\x7f\x00\xff", "ünïcode@bücher.example", "<>", "\r\n.\r\n", "a@b@c.example", "@", "b.example@", "\u202e@b.example"}

// anything draws a record of small sets, so that searches find some.
func anything(r *rand.Rand, at time.Time) Record {
	pick := func(from ...string) string { return from[r.IntN(len(from))] }
	v := Record{Time: at.UTC().Truncate(time.Millisecond), Door: pick("smtp", "milter", "policy"), Outcome: pick("accept", "refuse", "tag", Listed),
		Verdict: pick("clear", "blocked", "allowed"), Helo: pick(hostile...), Sender: pick(hostile...), Recipient: pick(hostile...),
		Generation: pick("g1", "g2"), Exempt: r.IntN(4) == 0, Shadow: r.IntN(4) == 0, Authenticated: r.IntN(4) == 0, FirstSeen: r.IntN(4) == 0}
	if r.IntN(3) > 0 {
		v.Client = netip.MustParseAddr(pick("192.0.2.1", "192.0.2.200", "2001:db8::1"))
	}
	if r.IntN(4) == 0 {
		v.Repeated = 1 + r.IntN(1000)
	}
	if r.IntN(2) == 0 {
		v.Ref, v.List, v.File, v.Line = pick("k1", "k2", "k3"), pick("own", "other"), pick(hostile...), r.IntN(100)
		v.Entry, v.Scope, v.Action, v.Reason = pick(hostile...), "tree", pick("block", "allow"), pick(hostile...)
		v.Source = pick("", "from")
	}
	return v
}

// write makes a folder with segments of these records, a thousand each.
func write(t testing.TB, folder string, all []Record) {
	t.Helper()
	testkit.Must(t, os.MkdirAll(folder, 0o750))
	for n := uint64(1); len(all) > 0; n++ {
		text := []byte(fileHead)
		for i := range all[:min(len(all), 1000)] {
			text = appendLine(text, &all[i])
		}
		all = all[min(len(all), 1000):]
		testkit.Write(t, segmentPath(folder, n), text)
	}
}

// all reads everything, the oldest first.
func all(t testing.TB, folder string) (records []Record, damaged int) {
	t.Helper()
	damaged, err := Walk(t.Context(), folder, time.Time{}, func(r *Record) bool {
		records = append(records, r.clone())
		return true
	})
	testkit.Must(t, err)
	for i, j := 0, len(records)-1; i < j; i, j = i+1, j-1 {
		records[i], records[j] = records[j], records[i]
	}
	return records, damaged
}

// TestLine holds that what is read is what was written, whatever texts there are, and
// that a line is one line.
func TestLine(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	for range 20_000 {
		want := anything(r, time.UnixMilli(r.Int64N(1<<42)))
		line := appendLine(nil, &want)
		testkit.MustEqual(t, fmt.Sprintf("no line: %q", line), bytes.IndexByte(line, '\n'), len(line)-1)
		testkit.AtMost(t, fmt.Sprintf("no line: %q", line), len(line), maxLine)
		line = line[:len(line)-1]
		var got Record
		if want.List == "" && want.Source == "" { // of no entry there is nothing
			want.File, want.Line, want.Entry, want.Scope, want.Action, want.Reason = "", 0, "", "", "", ""
		}
		testkit.MustEqual(t, fmt.Sprintf("%q agrees with its checksum", line), summed(line), true)
		testkit.Must(t, parseLine(string(line[sumSize:]), &got))
		testkit.MustEqual(t, fmt.Sprintf("parseLine(%q)", line), got, want)
	}
}

// TestLongTexts holds that texts are cut, and that the longest line has its room.
func TestLongTexts(t *testing.T) {
	long := strings.Repeat("\x01", 3*maxText)
	r := Record{Time: time.UnixMilli(1<<62 - 1), Door: long, Outcome: long, Verdict: long, Helo: long, Sender: long, Recipient: long, Generation: long,
		Ref: long, Source: long, List: long, File: long, Line: 1 << 62, Entry: long, Scope: long, Action: long, Reason: long,
		Exempt: true, Shadow: true, Authenticated: true, Hearsay: true, FirstSeen: true, Client: clear(1).Client, Repeated: 1 << 62}
	line := appendLine(nil, &r)
	testkit.AtMost(t, "octets of a line", len(line), maxLine)
	var got Record
	testkit.Must(t, parseLine(string(line[sumSize:len(line)-1]), &got))
	testkit.Equal(t, "a sender that is cut off", got.Sender, long[:maxText])
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

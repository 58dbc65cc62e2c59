package history

import (
	"fmt"
	"math/rand/v2"
	"net/netip"
	"os"
	"path/filepath"
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

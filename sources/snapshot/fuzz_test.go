package snapshot

import (
	"bytes"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/klauspost/compress/zstd"

	"blockd/internal/testkit"
	"blockd/lists"
)

func FuzzManifest(f *testing.F) {
	empty := Shard{Plain: strings.Repeat("0", 64), Octets: 18, Object: strings.Repeat("1", 64) + objectEnding, Size: 20, Deltas: []Delta{{strings.Repeat("2", 64), strings.Repeat("3", 64) + objectEnding, 9}}}
	m := Manifest{Blockd: 1, Channel: "prod", Sequence: 4711, Created: 1795330000, Expires: 1795416400, Previous: 4710, Stages: []Stage{{1, 1795330000}, {100, 1795332700}},
		Lists: []List{{Name: "spam", Action: "block", OnMatch: "refuse", Mode: "enforce", Format: "entries"}}, Ask: []Asked{}, Publisher: Maker{Version: "1"}}
	for range shardCount {
		m.Lists[0].Shards = append(m.Lists[0].Shards, empty)
	}
	based := &m.Lists[0].Shards[1]
	based.Base = &Base{based.Deltas[0].From, 17}
	text := encode(m)
	testkit.Value(ParseManifest(text))(f)
	f.Add(text)
	f.Add(encode(m.Latest(text)))
	f.Add(encode(Pin{4710, 1795332700}))
	f.Add([]byte(`{"blockd":1,"Channel":"prod"}`))
	f.Fuzz(func(t *testing.T, text []byte) {
		if m, err := ParseManifest(text); err == nil && !bytes.Equal(encode(m), text) {
			t.Error("a manifest that is written in two ways")
		}
		if l, err := ParseLatest(text); err == nil && !bytes.Equal(encode(l), text) {
			t.Error("a latest that is written in two ways")
		}
		if p, err := ParsePin(text); err == nil && !bytes.Equal(encode(p), text) {
			t.Error("a pin that is written in two ways")
		}
	})
}

func FuzzState(f *testing.F) {
	f.Add(encode(State{Blockd: 1, Channel: "prod"}))
	f.Add(encode(State{Blockd: 1, Channel: "prod", Highest: 4711, Digest: strings.Repeat("a", 64), Lifted: 7, PinEnds: 9}))
	f.Add([]byte(`{"blockd":1,"channel":"prod","highest":-1}`))
	f.Fuzz(func(t *testing.T, text []byte) {
		s, err := ParseState(text)
		if err != nil {
			return
		}
		if !bytes.Equal(encode(s), text) || s.Highest < 0 {
			t.Errorf("%+v of %q", s, text)
		}
	})
}

// FuzzDelta: whatever is said to be a delta, what comes of it is in order and no longer than both together; and the delta of two
// shards makes the one of the other.
func FuzzDelta(f *testing.F) {
	a := head + line("a@bulk.example", lists.Block) + line("c@bulk.example", lists.Block)
	b := head + line("a@bulk.example", lists.Block) + line("b@bulk.example", lists.Allow)
	f.Add([]byte(a), []byte(b))
	f.Add([]byte(a), []byte(head+"-\tc@bulk.example\tb\tx\n"))
	f.Add([]byte(head), []byte(head+"-\tc\n"))
	f.Add([]byte(head), []byte(head[:5]))
	f.Fuzz(func(t *testing.T, one, two []byte) {
		var made bytes.Buffer
		if n, err := apply(&made, bytes.NewReader(one), bytes.NewReader(two)); err == nil {
			if made.Len() > len(one)+len(two) || int64(bytes.Count(made.Bytes(), []byte("\n"))) != n+1 {
				t.Errorf("%d entries in %q", n, made.Bytes())
			}
		}
		if n, err := apply(&bytes.Buffer{}, bytes.NewReader(one), strings.NewReader(head)); err != nil || n == 0 || bytes.Contains(one, []byte("\n-\t")) {
			return
		}
		if _, err := apply(&bytes.Buffer{}, bytes.NewReader(two), strings.NewReader(head)); err != nil || bytes.Contains(two, []byte("\n-\t")) {
			return
		}
		var r renewal
		var again bytes.Buffer
		err := r.begin(one, func([]byte) bool { return true })
		for line := range bytes.Lines(two[len(head):]) {
			err = errors.Join(err, r.put(line))
		}
		if err := errors.Join(err, r.end()); err != nil || !bytes.Equal(r.plain.Bytes(), two) {
			t.Errorf("%v: %q, want %q", err, r.plain.Bytes(), two)
		}
		if _, err := apply(&again, bytes.NewReader(one), &r.delta); err != nil || !bytes.Equal(again.Bytes(), two) {
			t.Errorf("%v: %q, want %q", err, again.Bytes(), two)
		}
	})
}

// FuzzUnpack: no octets make more than is allowed.
func FuzzUnpack(f *testing.F) {
	e := testkit.Value(zstd.NewWriter(nil))(f)
	f.Add(e.EncodeAll(bytes.Repeat([]byte("x"), 1<<20), nil))
	f.Add(e.EncodeAll([]byte("short"), nil))
	f.Fuzz(func(t *testing.T, packed []byte) {
		path := filepath.Join(t.TempDir(), "object")
		testkit.Must(t, os.WriteFile(path, packed, 0o600))
		in, end, err := unpackFile(path, 1000)
		if err != nil {
			return
		}
		defer end()
		var out bytes.Buffer
		if n, _ := out.ReadFrom(in); n > 1000 {
			t.Errorf("%d octets", n)
		}
	})
}

func TestTurnsAreEven(t *testing.T) {
	// 300 nodes, 1000 sequences: the share of turns below 20 is 20 percent, within a point.
	below := 0
	for node := range 300 {
		for sequence := range int64(1000) {
			if Turn("prod", sequence+1, "mx"+string(rune('a'+node%26))+time.Duration(node).String()) < 20 {
				below++
			}
		}
	}
	if share := float64(below) / 3000; share < 19 || share > 21 {
		t.Errorf("%.2f percent", share)
	}
}

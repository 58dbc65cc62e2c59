package live

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"maps"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"blockd/index"
	"blockd/internal/testkit"
	"blockd/internal/testkit/indexes"
	"blockd/lists"
	"blockd/mail/digest"
)

// chance is a random change of one of few entries of all kinds.
func chance(r *rand.Rand) Change {
	n := r.IntN(12)
	text := []string{"s%d@example.com", "d%d.example", "=d%d.example", "l%d@", "192.0.2.%d", "10.%d.0.0/16", "2001:db8:%d::/48", "a%d@bücher.example"}[r.IntN(8)]
	c := Change{Entry: fmt.Sprintf(text, n), Action: lists.Action(r.IntN(2)), Remove: r.IntN(3) == 0, Force: true, Author: strings.Repeat("j", r.IntN(3)),
		Why: strings.Repeat("wü ", r.IntN(20))}
	if r.IntN(3) == 0 {
		c.Expires = time.Now().Add(time.Hour * time.Duration(1+r.IntN(100)))
	}
	return c
}

// equal compares all that two sets tell of their entries.
func equal(t *testing.T, what string, got, want *Set) {
	t.Helper()
	all := func(s *Set) (all []Entry) {
		for e := range s.All() {
			e := *e
			e.Item.Text, e.Item.Line = "", 0 // of the reading
			if got.folder != want.folder {   // each has added it at a second of its own
				e.Added = time.Time{}
			}
			all = append(all, e)
		}
		return all
	}
	if g, w := all(got), all(want); !slices.Equal(g, w) {
		t.Fatalf("%s:\n%s\nwant\n%s", what, texts(got), texts(want))
	}
	if got.Len() != want.Len() || got.last != want.last || got.foldedAt != want.foldedAt || !slices.Equal(got.folds, want.folds) {
		t.Fatalf("%s: %d entries, last %d, folds %v; want %d, %d, %v", what, got.Len(), got.last, got.folds, want.Len(), want.last, want.folds)
	}
}

func copyFolder(t testing.TB, from string) string {
	t.Helper()
	to := filepath.Join(t.TempDir(), "copy")
	testkit.Must(t, os.CopyFS(to, os.DirFS(from)))
	return to
}

// A set that folds its journal all the time answers as one that never does, whatever is asked, and so
// does each process that reads or opens its files.
func TestSnapshotIsNotSeen(t *testing.T) {
	r := rand.New(rand.NewPCG(3, 4))
	hashes := digest.SetOf(digest.SHA1)
	plain, folding := open(t, Settings{compactFrom: 1 << 30, Hashes: hashes}), open(t, Settings{compactFrom: 1, Hashes: hashes})
	base := indexes.Source(t, "l", "other@example.org\n")
	ix := [2]*index.Index{indexes.Build(t, base), indexes.Build(t, base)}
	sets := []*Set{plain, folding}
	senders := []string{"s%d@example.com", "x@d%d.example", "x@y.d%d.example", "l%d@d%d.example", "a%d@xn--bcher-kva.example"}
	for round := range 60 {
		for range r.IntN(30) {
			c := chance(r)
			var said [2]string
			for i, set := range sets {
				o := apply(t, set, c)[0]
				said[i] = fmt.Sprint(o.Entry != nil, o.Was != nil, o.Changed())
			}
			if said[0] != said[1] {
				t.Fatalf("%+v: %v", c, said)
			}
			if r.IntN(4) == 0 {
				testkit.Must(t, folding.Tidy())
			}
		}
		equal(t, "folding", folding, plain)
		if a, b := plain.newer(), folding.newer(); a != b {
			t.Fatalf("the index lacks %d and %d", a, b)
		}
		seen := testkit.Value(Read(folding.folder))(t)
		equal(t, "read", seen, folding)
		if round%5 == 0 {
			again := open(t, Settings{Folder: copyFolder(t, folding.folder), Hashes: digest.SetOf(digest.MD5, digest.SHA1)})
			equal(t, "opened", again, plain)
			again.Close()
		}
		if round%6 == 0 { // the index takes in what there is
			for i, set := range sets {
				mustFold(t, set)
				ix[i] = indexes.Build(t, base, folded(set.folder))
				set.Served(ix[i])
			}
		}
		for n := range 12 {
			for _, text := range senders {
				if strings.Count(text, "%d") == 2 {
					text = fmt.Sprintf(text, n, r.IntN(12))
				} else {
					text = fmt.Sprintf(text, n)
				}
				if a, b := covering(t, plain, ix[0], text), covering(t, folding, ix[1], text); a != b {
					t.Fatalf("%s: %q and %q", text, a, b)
				}
				d := digest.Of(digest.SHA1, text)
				a, _ := plain.AddressOf(d, time.Now())
				b, _ := folding.AddressOf(d, time.Now())
				if a != b {
					t.Fatalf("%s by its digest: %v and %v", text, a, b)
				}
			}
		}
	}
}

// A crash after any step of a fold, while changes come, loses nothing and brings nothing back: each copy
// of the folder, as it is then, opens with all that was acknowledged, and can be folded again.
func TestCrashAtEachStepOfAFold(t *testing.T) {
	r := rand.New(rand.NewPCG(5, 6))
	set := open(t, Settings{compactFrom: 1})
	steps := map[string]int{}
	type crash struct {
		step, folder string
		want         map[string]string
	}
	var crashes []crash
	change := func() {
		c := chance(r)
		c.Expires = time.Time{}
		apply(t, set, c)
	}
	set.step = func(step string) {
		steps[step]++
		if strings.HasPrefix(step, "snapshot created") || step == "snapshot written" {
			change() // the lock is free then
		}
		crashes = append(crashes, crash{step, copyFolder(t, set.folder), reasons(set)})
		if step == "journal written" {
			change()
		}
	}
	for range 12 {
		for range r.IntN(10) + 2 {
			change()
		}
		testkit.Must(t, set.rewrite(true))
	}
	for _, step := range []string{"snapshot created", "snapshot written", "journal written", "snapshot named", "journal named"} {
		testkit.Equal(t, step, steps[step], 12)
	}
	for _, c := range crashes {
		again := testkit.Value(Open(Settings{Folder: c.folder, compactFrom: 1}))(t)
		holds := func(when string) {
			t.Helper()
			if got := reasons(again); !maps.Equal(got, c.want) || again.damaged > 0 {
				t.Fatalf("%s, %s: %v, %v; want %v", c.step, when, again.Problems(), got, c.want)
			}
		}
		holds("opened")
		for range 2 {
			apply(t, again, Change{Entry: "after@the.crash", Why: "x"}, Change{Entry: "after@the.crash", Remove: true})
			testkit.Must(t, again.Tidy())
			holds("folded")
		}
		again.Close()
		again = open(t, Settings{Folder: c.folder})
		holds("opened again")
		again.Close()
	}
}

// A sync that fails (EIO) refuses its change, and from then on all of them, until memory has been written
// anew: whatever the system has dropped of the old file, nothing that was acknowledged is lost.
func TestSyncFails(t *testing.T) {
	set := open(t, Settings{})
	apply(t, set, Change{Entry: "kept@x.example"})
	set.journal.sync = func() error { return &os.PathError{Op: "sync", Path: "journal", Err: syscall.EIO} }
	if _, err := set.Apply(Change{Entry: "lost@x.example"}); !errors.Is(err, ErrUnwritable) || !errors.Is(err, syscall.EIO) {
		t.Fatalf("Apply = %v", err)
	}
	set.journal.sync = set.journal.f.Sync // the next sync of the file says that all is well
	if _, err := set.Apply(Change{Entry: "kept@x.example", Remove: true}); !errors.Is(err, ErrUnwritable) {
		t.Fatalf("a change after a failed sync: %v", err)
	}
	testkit.Has(t, strings.Join(set.Problems(), ""), "input/output error")
	testkit.Must(t, set.Tidy())
	apply(t, set, Change{Entry: "more@x.example"})
	if got := texts(set); got != "block more@x.example, block kept@x.example" || len(set.Problems()) > 0 {
		t.Errorf("%s; %q", got, set.Problems())
	}
	seen := testkit.Value(Read(set.folder))(t)
	equal(t, "in the files", seen, set)
}

// aSnapshot is a folder with a snapshot of twenty entries and a journal of one more.
func aSnapshot(t testing.TB) *Set {
	set := open(t, Settings{Folder: filepath.Join(t.TempDir(), "live"), compactFrom: 1, Hashes: digest.SetOf(digest.MD5)})
	r := rand.New(rand.NewPCG(7, 8))
	for set.Len() < 20 {
		c := chance(r)
		c.Remove = false
		apply(t, set, c)
	}
	testkit.Must(t, set.Tidy())
	apply(t, set, Change{Entry: "tail@x.example"})
	set.Close()
	return set
}

// Every bit may flip: the files are refused, or the record it is in is left out, and either is said. No
// entry is there that never was.
func TestEveryBitFlipOfASnapshot(t *testing.T) {
	set := aSnapshot(t)
	want, folder := reasons(set), copyFolder(t, set.folder)
	text := testkit.Read(t, snapshotPath(folder))
	refused, left := 0, 0
	for i := range text {
		bit := i % 8
		bent := bytes.Clone(text)
		bent[i] ^= 1 << bit
		// By a new file, as the old one is mapped.
		testkit.Must(t, os.Remove(snapshotPath(folder)))
		testkit.Write(t, snapshotPath(folder), bent)
		seen, err := readFolder(folder, digest.SetOf(digest.MD5))
		if err != nil {
			if i >= headerSize || !strings.HasPrefix(err.Error(), snapshotPath(folder)) {
				t.Fatalf("octet %d: %v", i, err)
			}
			refused++
			continue
		}
		s := newSet(Settings{Folder: folder, Hashes: digest.SetOf(digest.MD5)}, seen)
		if len(s.Problems()) == 0 {
			t.Fatalf("octet %d, bit %d: nobody is told", i, bit)
		}
		got := reasons(s)
		if len(got) < len(want)-1 {
			t.Fatalf("octet %d, bit %d: %d entries of %d", i, bit, len(got), len(want))
		}
		for text, why := range got {
			if w, ok := want[text]; !ok || w != why {
				t.Fatalf("octet %d, bit %d: %s never was", i, bit, text)
			}
		}
		if len(got) < len(want) {
			left++
		}
	}
	t.Logf("%d octets: %d times refused, %d times without an entry", len(text), refused, left)
}

// What cannot be the snapshot of a journal stops Open, which changes nothing; a snapshot of which a record
// is damaged serves the others, says so, and is written anew.
func TestForeignAndTornSnapshots(t *testing.T) {
	set := aSnapshot(t)
	text := testkit.Read(t, snapshotPath(set.folder))
	version := bytes.Clone(text)
	binary.LittleEndian.PutUint32(version[16:], snapshotVersion+1)
	for _, tt := range []struct {
		name, words string
		text        []byte
	}{
		{"gone", "is missing or older", nil},
		{"empty", "no snapshot", []byte{}},
		{"torn", "no snapshot", text[:len(text)-1]},
		{"head alone", "no snapshot", text[:headerSize]},
		{"longer", "no snapshot", append(bytes.Clone(text), 0)},
		{"text", "no snapshot", []byte(strings.Repeat("spam@x.example\n", 100))},
		{"another version", "a snapshot of version 5; this program reads version 4", version},
	} {
		folder := copyFolder(t, set.folder)
		os.Remove(snapshotPath(folder))
		if tt.text != nil {
			testkit.Write(t, snapshotPath(folder), tt.text)
		}
		journal := testkit.Read(t, journalPath(folder))
		if _, err := Open(Settings{Folder: folder}); err == nil || !strings.Contains(err.Error(), tt.words) || strings.Contains(err.Error(), "\n") {
			t.Errorf("%s: %v", tt.name, err)
		}
		if now, err := os.ReadFile(snapshotPath(folder)); tt.text != nil && (err != nil || !bytes.Equal(now, tt.text)) || !bytes.Equal(journal, testkit.Read(t, journalPath(folder))) {
			t.Errorf("%s: the files have changed: %v", tt.name, err)
		}
	}
	h := snapshotHead{}
	testkit.Must(t, h.decode(text, int64(len(text))))
	h.parser-- // a program whose parser may have made other keys
	for name, bent := range map[string][]byte{"a damaged record": bytes.Clone(text), "another parser": append(h.append(nil), text[headerSize:]...)} {
		folder := copyFolder(t, set.folder)
		if name == "a damaged record" {
			bent[len(bent)-h.texts-recordSize+1] ^= 1
		}
		os.Remove(snapshotPath(folder))
		testkit.Write(t, snapshotPath(folder), bent)
		again := open(t, Settings{Folder: folder})
		want := set.Len()
		if name == "a damaged record" {
			if want--; !strings.Contains(strings.Join(again.Problems(), ""), "snapshot:20: damaged, and left out") {
				t.Errorf("%q", again.Problems())
			}
		}
		testkit.Must(t, again.Tidy())
		testkit.MustEqual(t, fmt.Sprintf("%s entries", name), again.Len(), want)
		seen, err := Read(folder)
		if err != nil || seen.view.Load().base == nil || len(seen.Problems()) > 0 {
			t.Fatalf("%s: not written anew: %v, %q", name, err, seen.Problems())
		}
		equal(t, name, seen, again)
		again.Close()
	}
}

// FuzzSnapshot holds that whatever a file has in it, with sums that agree, reading it ends, and so does
// every look-up in it; what can be read from it can be written and read again.
func FuzzSnapshot(f *testing.F) {
	set := aSnapshot(f)
	text := testkit.Read(f, snapshotPath(set.folder))
	f.Add(text)
	f.Add(text[:headerSize])
	f.Fuzz(func(t *testing.T, data []byte) {
		data = bytes.Clone(data)
		le := binary.LittleEndian
		var h snapshotHead
		sum := func() {
			if len(data) >= headerSize {
				le.PutUint32(data[headerSize-4:], crc32.Checksum(data[:headerSize-4], castagnoli))
			}
		}
		sum()
		if h.decode(data, int64(len(data))) == nil {
			at := headerSize + h.tablesSize()
			le.PutUint32(data[24+8*17+32*keptFolds:], crc32.Checksum(data[headerSize:at], castagnoli))
			sum()
			s := &snapshot{snapshotHead: h, records: data[at : at+h.count*recordSize], texts: data[at+h.count*recordSize:]}
			for i := range h.count {
				if text, _, _, ok := s.textsOf(i); ok {
					r := s.record(i)
					le.PutUint32(r[recordSize-4:], crc32.Update(crc32.Checksum(r[:recordSize-4], castagnoli), castagnoli, text))
				}
			}
		}
		folder := t.TempDir()
		testkit.Write(t, snapshotPath(folder), data)
		testkit.Write(t, journalPath(folder), journalHead)
		set, err := Open(Settings{Folder: folder, Hashes: digest.SetOf(digest.MD5), compactFrom: 1})
		if err != nil {
			return
		}
		defer set.Close()
		set.stale = true
		ordered := func(s *Set) []string { // records that agree with their sums may have one number
			return slices.Sorted(slices.Values(strings.Split(texts(s), ", ")))
		}
		before := ordered(set)
		for e := range set.All() {
			set.view.Load().get(e.identity())
			set.AddressOf(digest.Of(digest.MD5, e.Text), time.Now())
		}
		set.InForce()
		testkit.Must(t, set.sweep(time.Now()))
		testkit.Must(t, set.rewrite(true))
		if seen, err := Read(folder); err != nil || !slices.Equal(ordered(seen), before) {
			t.Fatalf("written and read again: %v: %q\nwant\n%q", err, texts(seen), before)
		}
	})
}

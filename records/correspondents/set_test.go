package correspondents

import (
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"blockd/internal/testkit"
	"blockd/internal/testkit/race"
	"blockd/lists"
	"blockd/mail/addr"
)

const year = 365 * 24 * time.Hour

func settings(t *testing.T) Settings {
	return Settings{Path: filepath.Join(t.TempDir(), "a.correspondents"), Keep: year, Own: []string{"here.example"}}
}

func open(t *testing.T, s Settings) *Set {
	t.Helper()
	set, anew, err := Open(s)
	if err != nil || anew != nil {
		t.Fatalf("Open = %v, %v", anew, err)
	}
	t.Cleanup(set.Close)
	return set
}

func parse(t testing.TB, text string) addr.Addr {
	return testkit.Value(addr.Parse(text))(t)
}

func TestWhoIsLearned(t *testing.T) {
	set := open(t, settings(t))
	for _, tt := range []struct {
		sender, recipient string
		want              bool
	}{
		{"anna@here.example", "bob@there.example", true},
		{"anna@here.example", "Bob@Elsewhere.Example", true},
		{"", "reply@there.example", false},                       // an answer by a program
		{"anna@here.example", "carl@here.example", false},        // a user
		{"anna@other.example", "carl@sub.here.example", false},   // below a domain of ours
		{"anna@other.example", "dora@other.example", false},      // a colleague
		{"anna@here.example", "postmaster", false},               // no domain
		{"anna@here.example", "root@[192.0.2.1]", false},         // a machine
		{"anna@here.example", "x@notthere.here.example.", false}, // no address
	} {
		recipient, _ := addr.Parse(tt.recipient)
		sender, _ := addr.Parse(tt.sender)
		got := set.Learn(sender, recipient, time.Now())
		testkit.Got(got, set.Has(recipient))(t, fmt.Sprintf("Learn(%q, %q) Has", tt.sender, tt.recipient), tt.want, tt.want)
	}
	testkit.Equal(t, "to write to one address makes its neighbour a correspondent", set.Has(parse(t, "other@there.example")), false)
	if got := set.Last(parse(t, "bob@elsewhere.example")); got.Format(time.DateOnly) != time.Now().UTC().Format(time.DateOnly) {
		t.Errorf("Last = %v", got)
	}
	var none *Set
	bob := parse(t, "bob@there.example")
	testkit.Got(none.Has(bob), none.Len(), none.Last(bob).IsZero(), none.Save())(t, "of a nil Set", false, 0, true, nil)
}

func TestWhatAnEntryCovers(t *testing.T) {
	set := open(t, settings(t))
	for _, to := range []string{"bob@mail.there.example", "bob@there.example", "eve@far.example"} {
		set.Learn(parse(t, "anna@here.example"), parse(t, to), time.Now())
	}
	for i := range 500 {
		set.Learn(parse(t, "anna@here.example"), parse(t, fmt.Sprintf("u%d@many.example", i)), time.Now())
	}
	for _, tt := range []struct {
		kind  lists.Kind
		scope lists.Scope
		name  string
		want  bool
	}{
		{lists.Addr, lists.Exact, "bob@there.example", true},
		{lists.Addr, lists.Exact, "eve@there.example", false},
		{lists.Addr, lists.Local, "bob@", true},
		{lists.Addr, lists.Local, "anna@", false},
		{lists.Domain, lists.Exact, "there.example", true},
		{lists.Domain, lists.Sub, "there.example", true},
		{lists.Domain, lists.Tree, "example", true},
		{lists.Domain, lists.Exact, "example", false},
		{lists.Domain, lists.Sub, "far.example", false},
		{lists.Domain, lists.Sub, "mail.there.example", false},
		{lists.Domain, lists.Tree, "other.example", false},
		{lists.Glob, lists.Exact, "bob@there.example", false},
	} {
		testkit.Equal(t, fmt.Sprintf("Covered(%v, %v, %s) > 0", tt.kind, tt.scope, tt.name), set.Covered(tt.kind, tt.scope, tt.name) > 0, tt.want)
	}
	if n := set.Covered(lists.Domain, lists.Tree, "many.example"); n < 32 || n > 8192 {
		t.Errorf("of 500 addresses Covered says %d", n)
	}
}

// The table does what a map does.
func TestTableIsAMap(t *testing.T) {
	race.Skip(t)
	var table table
	golden := map[key]state{}
	random := uint64(1)
	next := func() uint64 { random = random*6364136223846793005 + 1442695040888963407; return random >> 11 }
	for range 200_000 {
		k := key(next()%4)<<tagBits | key(next()%700)<<(tagBits-10) | key(next()%3) // crowded: few parts, many neighbours
		switch {
		case next()%3 == 0:
			if _, has := golden[k]; table.remove(k) != has {
				t.Fatalf("remove(%x) != %v", k, has)
			}
			delete(golden, k)
		case golden[k] != 0 || !table.full(k):
			s := state(next()%(1<<stateBits-1) + 1)
			table.put(k, s)
			golden[k] = s
		}
		if k := key(next()%4)<<tagBits | key(next()%700)<<(tagBits-10); table.get(k) != golden[k] {
			t.Fatalf("get(%x) = %x, want %x", k, table.get(k), golden[k])
		}
	}
	all := map[key]state{}
	for n := range parts {
		table.each(n, func(k key, s state) bool { all[k] = s; return true })
	}
	if !maps.Equal(all, golden) || table.keys != len(golden) || table.sum[0]+table.sum[1]+table.sum[2]+table.sum[3] != len(golden) {
		t.Errorf("%d keys, want %d", len(all), len(golden))
	}
}

func TestMillionInTwentyMegabytes(t *testing.T) {
	race.Skip(t)
	heap := func() uint64 {
		runtime.GC()
		var m runtime.MemStats
		runtime.ReadMemStats(&m)
		return m.HeapAlloc
	}
	before := heap()
	set := &Set{settings: Settings{Keep: year}, secret: [2]uint64{1, 2}}
	sender := parse(t, "anna@here.example")
	for i := range 1_200_000 {
		set.Learn(sender, parse(t, fmt.Sprintf("user%d@d%d.example", i, i/5)), time.Now())
	}
	n := set.Len()
	set.changed = nil // at most half a megabyte
	testkit.AtMost(t, fmt.Sprintf("octets that %d correspondents take", n), heap()-before, 20e6)
	testkit.AtLeast(t, "correspondents", n, Most*9/10)
	testkit.AtMost(t, "correspondents", n, Most)
	if allocs := testing.AllocsPerRun(100, func() { set.Has(sender) }); allocs > 0 {
		t.Errorf("Has allocates %v times", allocs)
	}
	runtime.KeepAlive(set)
}

// A user whose password is known to others writes to a million strangers. Those who are written to for real stay.
func TestFloodKeepsOldFriends(t *testing.T) {
	race.Skip(t)
	set := &Set{settings: Settings{Keep: year, most: 4000}, secret: [2]uint64{1, 2}}
	sender, now := parse(t, "anna@here.example"), time.Now()
	day := 24 * time.Hour
	friend := func(i int) addr.Addr { return parse(t, fmt.Sprintf("friend%d@f%d.example", i, i)) }
	once := func(i int) addr.Addr { return parse(t, fmt.Sprintf("once%d@o%d.example", i, i)) }
	for i := range 2000 {
		set.Learn(sender, friend(i), now.Add(-9*day))
		set.Learn(sender, friend(i), now.Add(-3*day))
	}
	for i := range 1500 {
		set.Learn(sender, once(i), now.Add(-2*day))
	}
	for i := range 100_000 {
		set.Learn(sender, parse(t, fmt.Sprintf("stranger%d@s%d.example", i, i)), now)
	}
	friends, others := 0, 0
	for i := range 2000 {
		if set.Has(friend(i)) {
			friends++
		}
	}
	for i := range 1500 {
		if set.Has(once(i)) {
			others++
		}
	}
	if friends != 2000 || others < 400 || set.Len() > 4000 {
		t.Errorf("after a flood %d of 2000 friends are known, %d of 1500 of one day, and %d in all", friends, others, set.Len())
	}
	testkit.AtLeast(t, "newcomers without room", set.refused.Load(), 90_000)
}

func TestKeptThroughRestartAndKill(t *testing.T) {
	s := settings(t)
	set := open(t, s)
	sender, bob, eve := parse(t, "anna@here.example"), parse(t, "bob@there.example"), parse(t, "eve@far.example")
	set.Learn(sender, bob, time.Now())
	if _, err := os.Stat(s.Path); !errors.Is(err, fs.ErrNotExist) {
		t.Fatal("written before it was saved")
	}
	testkit.Must(t, set.Save())
	set.Learn(sender, eve, time.Now())
	testkit.Must(t, set.Save()) // this is appended
	_, _, err := Open(s)
	testkit.IsError(t, "a second process has the set", err, ErrLocked)
	other, err := Read(s)
	if err != nil || !other.Has(bob) || !other.Has(eve) {
		t.Fatalf("Read knows %v, %v: %v", other.Has(bob), other.Has(eve), err)
	}
	set.Close() // as after a kill: not saved again
	f, _ := os.OpenFile(s.Path, os.O_APPEND|os.O_WRONLY, 0)
	f.WriteString("torn by ki")
	f.Close()
	again := open(t, s)
	testkit.MustGot(again.Has(bob), again.Has(eve), again.Len())(t, "after a torn write", true, true, 2)
	again.Learn(sender, parse(t, "new@far.example"), time.Now())
	testkit.Must(t, again.Save())
	again.Close()
	testkit.Equal(t, "correspondents after the torn end was mended", open(t, s).Len(), 3)
	for _, path := range []string{s.Path, s.Path + KeySuffix} {
		info := testkit.Value(os.Stat(path))(t)
		testkit.Equal(t, path, info.Mode().Perm(), 0o600)
		text, _ := os.ReadFile(path)
		testkit.Lacks(t, string(text), "bob", "there")
	}
}

func TestUnreadableFileBeginsAnew(t *testing.T) {
	for name, spoil := range map[string]func(path string){
		"other program": func(path string) { os.WriteFile(path, []byte("something else, and long enough to be read"), 0o600) },
		"other key":     func(path string) { os.WriteFile(path+KeySuffix, []byte(strings.Repeat("0", 32)+"\n"), 0o600) },
		"no key":        func(path string) { os.Remove(path + KeySuffix) },
		"empty":         func(path string) { os.Truncate(path, 0) },
		"torn key":      func(path string) { os.Truncate(path+KeySuffix, 7) },
	} {
		t.Run(name, func(t *testing.T) {
			s := settings(t)
			set := open(t, s)
			set.Learn(parse(t, "anna@here.example"), parse(t, "bob@there.example"), time.Now())
			set.Save()
			set.Close()
			spoil(s.Path)
			again, anew, err := Open(s)
			testkit.MustGot(err, anew != nil, again.Len())(t, "Open", nil, true, 0)
			again.Learn(parse(t, "anna@here.example"), parse(t, "eve@there.example"), time.Now())
			testkit.Must(t, again.Save())
			again.Close()
			testkit.Value(os.Stat(s.Path + AsideSuffix))(t)
			testkit.Equal(t, "correspondents", open(t, s).Len(), 1)
		})
	}
	t.Run("a damaged record", func(t *testing.T) {
		s := settings(t)
		set := open(t, s)
		for i := range 10 {
			set.Learn(parse(t, "anna@here.example"), parse(t, fmt.Sprintf("b%d@d%d.example", i, i)), time.Now())
		}
		set.Save()
		set.Close()
		text, _ := os.ReadFile(s.Path)
		text[headSize+5*recordSize+3] ^= 1
		os.WriteFile(s.Path, text, 0o600)
		again, anew, err := Open(s)
		if err != nil || anew == nil || again.Len() < 9 {
			t.Errorf("%d correspondents: %v, %v", again.Len(), anew, err)
		}
		again.Close()
	})
}

func TestHandingOver(t *testing.T) {
	s := settings(t)
	old := open(t, s)
	sender, bob, eve := parse(t, "anna@here.example"), parse(t, "bob@there.example"), parse(t, "eve@far.example")
	old.Learn(sender, bob, time.Now())
	old.Save()
	next := testkit.Value(Read(s))(t)
	old.Learn(sender, eve, time.Now())
	testkit.Must(t, old.Yield())
	if anew, err := next.Resume(); err != nil || anew != nil || !next.Has(bob) || !next.Has(eve) {
		t.Fatalf("Resume = %v, %v; it knows %d", anew, err, next.Len())
	}
	if _, err := old.Resume(); !errors.Is(err, ErrLocked) {
		t.Fatalf("taken back while another has it: %v", err)
	}
	next.Close()
	old.Learn(sender, parse(t, "carl@far.example"), time.Now())
	testkit.Value(old.Resume())(t)
	testkit.MustEqual(t, "taken back", old.Len(), 3)
	old.Save()
	old.Close()
	testkit.Equal(t, "correspondents", open(t, s).Len(), 3)
}

func TestForget(t *testing.T) {
	s := settings(t)
	set := open(t, s)
	sender, bob := parse(t, "anna@here.example"), parse(t, "bob@there.example")
	set.Learn(sender, bob, time.Now())
	set.Learn(sender, parse(t, "eve@far.example"), time.Now())
	set.Save()
	old, _ := os.ReadFile(s.Path)
	testkit.MustGot(set.Forget(bob))(t, "Forget", true, nil)
	testkit.MustEqual(t, "known when forgotten", set.Has(bob), false)
	testkit.Got(set.Forget(bob))(t, "Forget once more", false, testkit.Any)
	testkit.Equal(t, "the names of a forgotten address are known", set.Covered(lists.Domain, lists.Tree, "there.example")+set.Covered(lists.Addr, lists.Local, "bob@"), 0)
	now, _ := os.ReadFile(s.Path)
	for at := headSize; at < len(now); at += recordSize {
		if !slices.Contains([]int{0}, strings.Index(string(old), string(now[at:at+8]))) && !strings.Contains(string(old), string(now[at:at+8])) {
			t.Error("a record that was not there")
		}
	}
	if len(now) >= len(old) {
		t.Errorf("the file had %d octets and has %d", len(old), len(now))
	}
}

func TestAges(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		set := &Set{settings: Settings{Keep: 30 * 24 * time.Hour}, secret: [2]uint64{1, 2}}
		time.Sleep(27 * year) // the bubble begins in 2000, before day 1
		bob := parse(t, "bob@there.example")
		set.Learn(parse(t, "anna@here.example"), bob, time.Now())
		time.Sleep(29 * 24 * time.Hour)
		testkit.Equal(t, "known after 29 days", set.Has(bob), true)
		time.Sleep(24 * time.Hour)
		testkit.Equal(t, "known after 30 days", set.Has(bob), false)
		if set.age(); set.table.keys != 0 {
			t.Errorf("%d keys are left", set.table.keys)
		}
	})
}

// FuzzFile reads any file of correspondents: as it is, and as records with the right checksums. Each opens, takes a
// person, and has as many after it was saved and opened again.
func FuzzFile(f *testing.F) {
	record := func(k key, is state) []byte {
		return binary.BigEndian.AppendUint32(binary.BigEndian.AppendUint64(nil, uint64(k)), uint32(is))
	}
	f.Add([]byte{}, true)
	f.Add(slices.Concat(record(1, 1), record(2, 1<<20), record(1, 0)), true)
	f.Add(slices.Concat(record(1<<40, 7), record(1<<63, 7), record(3, 1<<31), []byte("torn")), true)
	f.Add([]byte(fileHead), false)
	dir := f.TempDir()
	s := Settings{Path: filepath.Join(dir, "a"), Keep: year, Own: []string{"here.example"}}
	f.Fuzz(func(t *testing.T, octets []byte, sums bool) {
		for _, name := range []string{s.Path, s.Path + AsideSuffix} {
			os.Remove(name)
		}
		text := octets
		if sums {
			head := (&Set{}).head() // of the key below
			text = head[:]
			for record := range slices.Chunk(octets, 12) {
				text = append(text, record...)
				if len(record) == 12 {
					text = binary.BigEndian.AppendUint32(text, crc32.Checksum(record, castagnoli))
				}
			}
		}
		for name, text := range map[string][]byte{s.Path: text, s.Path + KeySuffix: []byte("00000000000000000000000000000000\n")} {
			testkit.Must(t, os.WriteFile(name, text, 0o600))
		}
		set, _, err := Open(s)
		testkit.Must(t, err)
		set.Learn(parse(t, "anna@here.example"), parse(t, "bob@there.example"), time.Now())
		known, has := set.Len(), set.Has(parse(t, "bob@there.example"))
		err = set.Save()
		set.Close()
		testkit.Must(t, err)
		again, anew, err := Open(s)
		if err != nil || anew != nil {
			t.Fatalf("again: %v, %v", anew, err)
		}
		defer again.Close()
		testkit.MustGot(again.Len(), again.Has(parse(t, "bob@there.example")))(t, "after they were saved", known, has)
	})
}

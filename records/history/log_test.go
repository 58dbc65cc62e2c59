package history

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"blockd/internal/testkit"
)

func TestAddAllocatesNothing(t *testing.T) {
	l, r := open(t), clear(1)
	for range 2 { // both buffers
		for range 4000 {
			l.Add(r)
		}
		testkit.Must(t, l.Flush())
	}
	if n := testing.AllocsPerRun(3000, func() { l.Add(r) }); n != 0 {
		t.Errorf("%v allocations", n)
	}
}

func TestNilLogRemembersNothing(t *testing.T) {
	var l *Log
	l.Add(clear(1))
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	found, err := l.Search(ctx, Query{})
	if err = errors.Join(err, l.Flush(), l.Run(ctx, slog.Default()), l.Close()); err != nil || len(found.Records) > 0 || l.Problems() != nil {
		t.Errorf("%+v, %v", found, err)
	}
}

// TestNothingWaitsForTheDisk adds more than the buffer holds while nobody writes.
func TestNothingWaitsForTheDisk(t *testing.T) {
	l := open(t)
	const n = 30_000
	for i := range n {
		l.Add(blocked(i))
	}
	testkit.Must(t, l.Flush())
	got, _ := all(t, l.settings.Folder)
	if lost := l.dropped.Load(); lost == 0 || len(got)+int(lost) != n || l.written.Load() != uint64(len(got)) {
		t.Errorf("%d added, %d written, %d counted as dropped", n, len(got), lost)
	}
	for i, r := range got {
		testkit.MustEqual(t, fmt.Sprintf("record %d is", i), r.Ref, blocked(i).Ref)
	}
}

// TestFloodLeavesRoomForOthers: a network that sends faster than the disk takes it loses its own decisions.
func TestFloodLeavesRoomForOthers(t *testing.T) {
	l := open(t)
	flood := blocked(1)
	flood.Client = netip.MustParseAddr("2001:db8:1::1")
	for range maxBuffer / 100 {
		l.Add(flood)
	}
	lost := l.dropped.Load()
	if lost == 0 {
		t.Fatal("the flood was too small")
	}
	other := blocked(2)
	for n := range 100 { // one of 256 networks may share the counter of the flood's
		if n%2 == 0 {
			other.Door = fmt.Sprint("door", n)
		}
		other.Client = netip.AddrFrom4([4]byte{192, 0, byte(n), 1})
		l.Add(other)
	}
	testkit.AtMost(t, "decisions about others that are lost", l.dropped.Load()-lost, 20)
	testkit.Must(t, l.Flush())
	l.Add(flood)
	testkit.Must(t, l.Flush())
	records, _ := all(t, l.settings.Folder)
	testkit.Equal(t, "kept afterwards", records[len(records)-1].Client, flood.Client)
}

// TestTornTail cuts a segment at every octet and holds that a Log goes on behind the
// last whole line.
func TestTornTail(t *testing.T) {
	folder := t.TempDir()
	want := []Record{clear(1), blocked(2), clear(3)}
	write(t, folder, want)
	path := segmentPath(folder, 1)
	text := testkit.Read(t, path)
	for n := range len(text) + 1 {
		for _, name := range []string{path, segmentPath(folder, 2)} {
			os.Remove(name)
		}
		testkit.Write(t, path, text[:n])
		s := settings
		s.Folder = folder
		l := testkit.Value(Open(s))(t)
		mark := Record{Time: clear(1).Time, Door: "tcp"} // shorter than what may be left of a line
		l.Add(mark)
		testkit.Must(t, l.Close())
		whole := max(bytes.Count(text[:n], []byte("\n"))-1, 0)
		got, damaged := all(t, folder)
		if !slices.Equal(got, append(slices.Clone(want[:whole]), mark)) || damaged > 0 {
			t.Fatalf("%d octets: %d whole records, and %d damaged, want %d and one more", n, len(got), damaged, whole)
		}
	}
}

// TestBounds writes several times what may be kept. The sum of the files is never more,
// and the newest are there.
func TestBounds(t *testing.T) {
	l := open(t)
	const rounds, each = 50, 4000
	for i := range rounds {
		for k := range each {
			l.Add(blocked(i*each + k))
		}
		testkit.Must(t, l.Flush())
		if size := size(t, l.settings.Folder); size > MinMax || size != l.octets.Load() {
			t.Fatalf("%d octets on disk, counted %d, may be %d", size, l.octets.Load(), MinMax)
		}
	}
	got, damaged := all(t, l.settings.Folder)
	if l.dropped.Load() > 0 || damaged > 0 || got[len(got)-1].Ref != blocked(rounds*each-1).Ref {
		t.Errorf("%d dropped, %d damaged, the last is %s", l.dropped.Load(), damaged, got[len(got)-1].Ref)
	}
	testkit.AtLeast(t, "octets that are left", size(t, l.settings.Folder), MinMax*3/4)
	for i := range got[1:] {
		if got[i].Ref >= got[i+1].Ref {
			t.Fatalf("%s before %s", got[i].Ref, got[i+1].Ref)
		}
	}
}

func size(t *testing.T, folder string) (sum int64) {
	t.Helper()
	files := testkit.Value(segments(folder))(t)
	for _, f := range files {
		sum += f.size
	}
	return sum
}

// TestAge holds that what is older than Keep is not found, that its file goes, and that
// a restart does not make a file young.
func TestAge(t *testing.T) {
	s := settings
	s.Folder, s.Keep = t.TempDir(), 48*time.Hour
	old, aging, young := blocked(1), blocked(2), blocked(3)
	old.Time, aging.Time = old.Time.Add(-49*time.Hour), aging.Time.Add(-47*time.Hour)
	write(t, s.Folder, []Record{old, aging})
	testkit.Must(t, os.Chtimes(segmentPath(s.Folder, 1), time.Time{}, aging.Time))
	l := reopen(t, s)
	l.Add(young)
	found := testkit.Value(l.Search(t.Context(), Query{}))(t)
	testkit.EqualSlices(t, "found, of the young and the aging one", found.Records, []Record{young, aging})
	testkit.Value(os.Stat(segmentPath(s.Folder, 2)))(t)
	l.prune(time.Now().Add(2*time.Hour), 0)
	testkit.Fails(os.Stat(segmentPath(s.Folder, 1)))(t, "the old file is there", os.ErrNotExist)
	l.prune(time.Now().Add(segmentAge+s.Keep+time.Hour), 0)
	l.prune(time.Now().Add(segmentAge+2*s.Keep+2*time.Hour), 0)
	files := testkit.Value(segments(s.Folder))(t)
	testkit.Equal(t, "files left after the time of all of them", len(files), 0)
}

// TestFullDisk writes to a file that has no room: that is counted and told of, and ends
// when there is room again.
func TestFullDisk(t *testing.T) {
	full, err := os.OpenFile("/dev/full", os.O_RDWR, 0)
	if err != nil {
		t.Skip("there is no /dev/full: ", err)
	}
	l := open(t)
	l.Add(blocked(1))
	testkit.Must(t, l.Flush())
	l.file.Close()
	l.file = full
	l.Add(blocked(2))
	var told bytes.Buffer
	log := slog.New(slog.NewTextHandler(&told, nil))
	l.write(log)
	if len(l.Problems()) != 1 || l.failed.Load() != 1 || !strings.Contains(told.String(), "no space left") {
		t.Errorf("problems %q, %d failed, log %s", l.Problems(), l.failed.Load(), &told)
	}
	l.Add(blocked(3))
	l.write(log)
	got, damaged := all(t, l.settings.Folder)
	if len(got) != 2 || got[1].Ref != blocked(3).Ref || damaged > 0 || len(l.Problems()) > 0 || !strings.Contains(told.String(), "written again") {
		t.Errorf("%d records, %d damaged, problems %q, log %s", len(got), damaged, l.Problems(), &told)
	}
}

// TestFolderTakenAway: somebody deletes the files of a running daemon.
func TestFolderTakenAway(t *testing.T) {
	l := open(t)
	testkit.Must(t, os.RemoveAll(l.settings.Folder))
	l.Add(blocked(1))
	err := l.Flush()
	testkit.Got(err != nil, len(l.Problems()))(t, fmt.Sprintf("written into nowhere %q", l.Problems()), true, 1)
}

func TestOneWriter(t *testing.T) {
	l := open(t)
	testkit.Fails(Open(l.settings))(t, "a second writer", ErrLocked)
	testkit.Must(t, l.Close())
	l.Add(blocked(1)) // a session that ends late
	testkit.IsError(t, "written after Close", l.Flush(), os.ErrClosed)
	reopen(t, l.settings)
}

// TestModes: who wrote to whom is for nobody else's eyes.
func TestModes(t *testing.T) {
	l := open(t)
	l.Add(clear(1))
	testkit.Must(t, l.Flush())
	for path, want := range map[string]os.FileMode{l.settings.Folder: 0o750, segmentPath(l.settings.Folder, 1): 0o600, filepath.Join(l.settings.Folder, "lock"): 0o600} {
		info := testkit.Value(os.Stat(path))(t)
		testkit.Equal(t, fmt.Sprintf("bits of the mode of %s beyond %v", path, want), info.Mode().Perm()&^want, 0)
	}
}

// TestTogether adds from many goroutines while Run writes and others search, and
// accounts for every record.
func TestTogether(t *testing.T) {
	l := open(t)
	ctx, cancel := context.WithCancel(t.Context())
	var running, adding sync.WaitGroup
	running.Go(func() { l.Run(ctx, slog.New(slog.DiscardHandler)) })
	const writers, each = 4, 5000
	for w := range writers {
		adding.Go(func() {
			for i := range each {
				l.Add(blocked(w*each + i))
			}
		})
	}
	for range 3 {
		running.Go(func() {
			for ctx.Err() == nil {
				if found, err := l.Search(ctx, Query{Ref: "ref0000001"}); found.Damaged > 0 || err != nil && ctx.Err() == nil && !errors.Is(err, ErrBusy) {
					t.Errorf("%d damaged, %v", found.Damaged, err)
				}
			}
		})
	}
	adding.Wait()
	cancel()
	running.Wait()
	testkit.Must(t, l.Close())
	got, damaged := all(t, l.settings.Folder)
	if len(got)+int(l.dropped.Load()) != writers*each || damaged > 0 || l.failed.Load() > 0 {
		t.Errorf("%d of %d are there, %d dropped, %d failed, %d damaged", len(got), writers*each, l.dropped.Load(), l.failed.Load(), damaged)
	}
}

// BenchmarkAdd is what a decision costs a session, with the writing of it.
func BenchmarkAdd(b *testing.B) {
	l, r := open(b), clear(1)
	for b.Loop() {
		l.Add(r)
		if len(l.waiting) > writeFrom {
			l.Flush()
		}
	}
	b.ReportMetric(float64(l.dropped.Load()), "dropped")
}

// TestYield lets two histories, as of two processes, take turns at one folder: each decision is there once, whoever made
// it and whoever had the folder then.
func TestYield(t *testing.T) {
	first := open(t)
	second := (*Log)(nil)
	relay := func(lines []byte) error { second.AddLines(lines); return nil }
	testkit.Must(t, first.Yield(relay))
	second = reopen(t, first.settings)
	random, now := rand.New(rand.NewPCG(1, 2)), time.Now().Add(-time.Hour)
	want := map[Record]int{}
	owner, other := second, first
	for n := range 900 {
		r := anything(random, now.Add(time.Duration(n)*time.Second))
		r.Repeated = n + 1 // no two are alike
		want[r]++
		if random.IntN(2) == 0 {
			owner.Add(r)
		} else {
			other.Add(r)
		}
		switch random.IntN(40) {
		case 0:
			flush(t, other)
		case 1:
			flush(t, owner)
		case 2:
			if err := other.Resume(); !errors.Is(err, ErrLocked) {
				t.Fatalf("two have the history: %v", err)
			}
			flush(t, other)
			to := other
			testkit.Must(t, owner.Yield(func(lines []byte) error { to.AddLines(lines); return nil }))
			testkit.Must(t, other.Resume())
			owner, other = other, owner
		}
	}
	flush(t, other)
	flush(t, owner)
	found := testkit.Value(owner.Search(t.Context(), Query{Limit: MaxFound}))(t)
	for _, r := range found.Records {
		want[r]--
	}
	for r, n := range want {
		testkit.Equal(t, fmt.Sprintf("too few of %+v", r), n, 0)
	}
}

// TestAddLinesDamaged holds that damaged lines cost themselves alone.
func TestAddLinesDamaged(t *testing.T) {
	l := open(t)
	good, bad := clear(1), clear(2)
	lines := appendLine(nil, &good)
	damaged := bytes.Replace(appendLine(nil, &bad), []byte("there"), []byte("three"), 1)
	l.AddLines(slices.Concat(damaged, []byte("\nnonsense"), []byte("\n"), lines, lines[:len(lines)/2]))
	flush(t, l)
	found := testkit.Value(l.Search(t.Context(), Query{Limit: 10}))(t)
	testkit.MustEqual(t, fmt.Sprintf("found %v", found.Records), len(found.Records), 1)
	testkit.Equal(t, fmt.Sprintf("found %v", found.Records), found.Records[0], good)
	testkit.Equal(t, "lines left out", l.failed.Load(), 4)
}

func flush(t *testing.T, l *Log) {
	t.Helper()
	testkit.Must(t, l.Flush())
}

// TestYieldToOneThatEnds holds that decisions are written here once the process that had the history is gone, and wait for
// nobody while it is there and does not take them.
func TestYieldToOneThatEnds(t *testing.T) {
	first := open(t)
	first.Add(clear(1))
	gone := errors.New("broken pipe")
	testkit.Must(t, first.Yield(func([]byte) error { return gone }))
	second := reopen(t, first.settings)
	first.Add(clear(2))
	testkit.IsError(t, "while the other process is there", first.Flush(), gone)
	second.Add(clear(3))
	testkit.Must(t, second.Close())
	first.Add(clear(4))
	flush(t, first)
	found := testkit.Value(first.Search(t.Context(), Query{Limit: 10}))(t)
	testkit.MustEqual(t, fmt.Sprintf("found %+v", found.Records), len(found.Records), 3)
	testkit.Equal(t, fmt.Sprintf("found %+v", found.Records), found.Records[0].Sender, clear(4).Sender)
}

func TestForget(t *testing.T) {
	folder := filepath.Join(t.TempDir(), "history")
	s := Settings{Folder: folder, Max: MinMax, Keep: 24 * time.Hour}
	l := testkit.Value(Open(s))(t)
	add := func(sender, recipient string) {
		l.Add(Record{Time: time.Now(), Door: "smtp", Outcome: "accept", Verdict: "clear", Sender: sender, Recipient: recipient})
	}
	about := func(r *Record) bool { return r.Sender == "bob@there.example" || r.Recipient == "bob@there.example" }
	add("bob@there.example", "anna@here.example")
	add("eve@there.example", "anna@here.example")
	l.Flush()
	add("eve@there.example", "bob@there.example") // waits for the disk
	testkit.MustGot(l.Forget(t.Context(), about))(t, "Forget", 2, nil)
	add("carl@there.example", "anna@here.example")
	testkit.Must(t, l.Close())
	all := ""
	files, _ := os.ReadDir(folder)
	for _, f := range files {
		text, _ := os.ReadFile(filepath.Join(folder, f.Name()))
		all += string(text)
	}
	testkit.Lacks(t, all, "bob@")
	testkit.Has(t, all, "eve@there.example", "carl@there.example")
	testkit.Got(ForgetIn(t.Context(), s, func(r *Record) bool { return r.Sender == "eve@there.example" }))(t, "ForgetIn", 1, nil)
}

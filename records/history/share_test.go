package history

import (
	"context"
	"fmt"
	"hash/maphash"
	"log/slog"
	"math/rand/v2"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"blockd/internal/share"
	"blockd/internal/testkit"
	"blockd/internal/testkit/race"
)

// TestAFloodEvictsItselfAlone has a history of small networks, and then three networks that
// send three times what it holds: all records of the small ones are there, and the newest
// of the flood.
func TestAFloodEvictsItselfAlone(t *testing.T) {
	race.Skip(t)
	l := open(t)
	counter := func(client netip.Addr) uint64 { return maphash.Comparable(l.seed, Network(client)) % shares }
	floods := []uint64{counter(netip.AddrFrom4([4]byte{203, 0, 113, 1})), counter(netip.AddrFrom4([4]byte{203, 0, 114, 1})),
		counter(netip.MustParseAddr("2001:db8:9::1"))}
	small := map[string]bool{}
	for n := range 5000 {
		r := clear(n)
		r.Client = netip.AddrFrom4([4]byte{10, byte(n % 50), byte(n % 7), byte(n)})
		if !slices.Contains(floods, counter(r.Client)) { // by chance, in one of sixty runs: then they have one share
			small[r.Sender] = true
		}
		l.Add(r)
	}
	testkit.Must(t, l.Flush())
	rng, shared, last := rand.New(rand.NewPCG(1, 2)), 0, ""
	for n := range 200_000 {
		r := blocked(n)
		r.Sender = fmt.Sprintf("x%d@flood.example", n)
		switch n % 3 {
		case 0:
			r.Client = netip.AddrFrom4([4]byte{203, 0, 113, byte(rng.Uint32())})
		case 1:
			r.Client = netip.AddrFrom4([4]byte{203, 0, 114, byte(rng.Uint32())})
		default: // another /64 each time
			r.Client = netip.AddrFrom16([16]byte{0x20, 1, 0xd, 0xb8, 0, 9, byte(rng.Uint32()), byte(rng.Uint32())})
		}
		last = r.Sender
		if l.Add(r); n%2000 == 1999 && flushed(t, l) {
			shared++
		}
	}
	records, damaged := all(t, l.settings.Folder)
	if damaged > 0 || shared == 0 {
		t.Errorf("%d damaged lines, shared %d times", damaged, shared)
	}
	flood := 0
	for i, r := range records {
		if small[r.Sender] {
			delete(small, r.Sender)
		} else if strings.HasSuffix(r.Sender, "@flood.example") {
			flood++
		}
		if i > 0 && r.Time.Before(records[i-1].Time) {
			t.Fatalf("record %d is out of order", i)
		}
	}
	testkit.Equal(t, "records of others, of 5000, that are gone", len(small), 0)
	testkit.Equal(t, "the last record", records[len(records)-1].Sender, last)
	testkit.AtLeast(t, "records of the flood", flood, 20_000)
	if n := l.octets.Load(); n > l.settings.Max || n != size(t, l.settings.Folder) {
		t.Errorf("%d octets counted, %d on disk, at most %d", n, size(t, l.settings.Folder), l.settings.Max)
	}
	again := reopenAs(t, l)
	if got, _ := all(t, again.settings.Folder); len(got) != len(records) {
		t.Errorf("%d records after a start, %d before", len(got), len(records))
	}
}

// TestWhatProgramsWereToldEvictsNoMail has a door that programs ask about addresses of all
// networks: mail of a few networks stays.
func TestWhatProgramsWereToldEvictsNoMail(t *testing.T) {
	race.Skip(t)
	l := open(t)
	const mail = 2000
	for n := range mail {
		r := blocked(n)
		r.Client = netip.AddrFrom4([4]byte{10, byte(n % 2), 0, 1})
		l.Add(r)
	}
	for n := range 200_000 {
		r := blocked(n)
		r.Door, r.Outcome = "dns", Listed
		r.Client = netip.AddrFrom4([4]byte{byte(20 + n%60), byte(n >> 8), byte(n), 1})
		if n%2000 == 0 { // of networks that send mail, too
			r.Client = netip.AddrFrom4([4]byte{10, byte(n / 2000 % 2), 0, 2})
		}
		if l.Add(r); n%2000 == 1999 {
			flushed(t, l)
		}
	}
	records, _ := all(t, l.settings.Folder)
	kept := 0
	for _, r := range records {
		if r.Outcome != Listed {
			kept++
		}
	}
	if told := len(records) - kept; kept != mail || told < 20_000 {
		t.Errorf("%d of %d records of mail are left, and %d of what programs were told", kept, mail, told)
	}
}

// flushed writes what waits, and makes room if there is none, as Run has another goroutine do.
func flushed(t *testing.T, l *Log) (shared bool) {
	t.Helper()
	testkit.Must(t, l.Flush())
	select {
	case <-l.crowded:
		testkit.Must(t, l.share(t.Context()))
		return true
	default:
		return false
	}
}

func reopenAs(t *testing.T, l *Log) *Log {
	t.Helper()
	s := l.settings
	testkit.Must(t, l.Close())
	return reopen(t, s)
}

// TestSharingWhileMuchComes writes, searches and makes room at once: no line is torn, and
// the bound holds.
func TestSharingWhileMuchComes(t *testing.T) {
	l := open(t)
	ctx, stop := context.WithCancel(t.Context())
	var running sync.WaitGroup
	running.Go(func() { l.Run(ctx, slog.New(slog.DiscardHandler)) })
	for n := range 120_000 {
		r := blocked(n)
		r.Client = netip.AddrFrom4([4]byte{198, 51, byte(n % 9), 1})
		l.Add(r)
		if n%20_000 == 0 {
			testkit.Value(l.Search(t.Context(), Query{Ref: r.Ref}))(t)
		}
	}
	stop()
	running.Wait()
	if _, damaged := all(t, l.settings.Folder); damaged > 0 {
		t.Errorf("%d damaged lines", damaged)
	}
	if n := size(t, l.settings.Folder); n > l.settings.Max || n != l.octets.Load() {
		t.Errorf("%d octets on disk, %d counted", n, l.octets.Load())
	}
}

func TestLevel(t *testing.T) {
	for _, c := range []struct {
		have []int64
		most int64
		want int64
	}{
		{[]int64{1, 2, 3}, 6, 6},
		{[]int64{1, 2, 300}, 6, 3},
		{[]int64{100, 100, 100}, 100, 33},
		{[]int64{0, 5, 1000, 1000}, 1005, 500},
		{nil, 10, 10},
	} {
		testkit.Equal(t, fmt.Sprintf("Level(%v, %d)", c.have, c.most), share.Level(slices.Values(c.have), c.most), c.want)
	}
}

// BenchmarkShare makes room in a full history of the default size.
func BenchmarkShare(b *testing.B) {
	s := settings
	s.Max, s.Folder = 256<<20, b.TempDir()
	l := reopen(b, s)
	rng := rand.New(rand.NewPCG(1, 2))
	for b.Loop() {
		b.StopTimer()
		for l.octets.Load() <= s.Max/8*sharesFrom {
			for n := range 8000 {
				r := clear(n)
				r.Client = netip.AddrFrom4([4]byte{10, byte(rng.ExpFloat64() * 10), byte(rng.ExpFloat64() * 10), 1})
				l.Add(r)
			}
			testkit.Must(b, l.Flush())
		}
		b.StartTimer()
		begun := time.Now()
		testkit.Must(b, l.share(b.Context()))
		b.ReportMetric(time.Since(begun).Seconds(), "s/share")
	}
}

// TestDoorsHaveShares: a door at which whoever asks names any client, or any address, evicts no mail of another door,
// and leaves of the mail of one busy network all but an eighth of what there is room for.
func TestDoorsHaveShares(t *testing.T) {
	l := open(t)
	flood := func(change func(r *Record, n int)) {
		for n := range 200_000 {
			r := blocked(n)
			change(&r, n)
			if l.Add(r); n%2000 == 1999 {
				flushed(t, l)
			}
		}
	}
	kept := func(of func(*Record) bool) (octets, records int) {
		t.Helper()
		all, _ := all(t, l.settings.Folder)
		for i := range all {
			if of(&all[i]) {
				octets, records = octets+len(appendLine(nil, &all[i])), records+1
			}
		}
		return octets, records
	}
	const own = 10_000
	for n := range own {
		l.Add(blocked(n))
		if n%2000 == 1999 {
			flushed(t, l)
		}
	}
	flood(func(r *Record, n int) { // each from a network of its own
		r.Door, r.Client = "policy", netip.AddrFrom4([4]byte{10, byte(n >> 8), byte(n), 1})
	})
	_, records := kept(func(r *Record) bool { return r.Door == "smtp" })
	testkit.Equal(t, "decisions of the SMTP filter", records, own)

	l = open(t)
	flood(func(*Record, int) {}) // a server whose mail all comes from one network
	flood(func(r *Record, n int) {
		r.Door, r.Outcome, r.Sender = "dns", Listed, strings.Repeat("x", 300)
	})
	octets, _ := kept(func(r *Record) bool { return r.Door == "smtp" })
	testkit.AtLeast(t, "octets of mail", int64(octets), l.settings.Max/8*(sharesTo-toldShare-1)) // whole lines and files
	told, _ := kept(func(r *Record) bool { return r.Door == "dns" })
	testkit.AtLeast(t, "octets of what programs were told", int64(told), l.settings.Max/8*toldShare/2)
}

package reload

import (
	"fmt"
	"math/rand/v2"
	"net/netip"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"blockd/internal/testkit"
	"blockd/mail/addr"
)

func parsed(t testing.TB, sender string) addr.Addr {
	t.Helper()
	return testkit.Value(addr.Parse(sender))(t)
}

// clientOf is an address in the n-th client network.
func clientOf(n int) netip.Addr {
	return netip.AddrFrom4([4]byte{byte(11 + n>>16), byte(n >> 8), byte(n), 9})
}

const oneDay = 24 * time.Hour

// wrote are the domains of r, and on how many days each wrote.
func wrote(r *Recent) map[string]int {
	all := map[string]int{}
	for _, w := range r.writers() {
		all[registered(w.senders[0].address)] = w.days
	}
	return all
}

// regulars make r remember n domains that wrote on so many days, each by a network of its
// own, up to yesterday.
func regulars(t *testing.T, r *Recent, n, days int) {
	for range days {
		for i := range n {
			r.Add(parsed(t, fmt.Sprintf("anna@regular%d.example", i)), clientOf(i))
		}
		time.Sleep(oneDay)
	}
}

// TestStrangersHardlyCount is what strangers can send, as messages that the next server
// accepts, and what comes of it.
func TestStrangersHardlyCount(t *testing.T) {
	tests := []struct {
		rule    string
		known   int // regulars
		room    int
		attack  func(send func(sender string, client netip.Addr))
		newcome int // domains that are remembered beside the regulars, at most
	}{
		{"one network, 10,296 domains", 500, 1000, func(send func(string, netip.Addr)) {
			for i := range 10_296 {
				send(fmt.Sprintf("x@throwaway%d.example", i), netip.AddrFrom4([4]byte{192, 0, 2, byte(i)}))
			}
		}, networkADay},
		{"one network of IPv6", 500, 1000, func(send func(string, netip.Addr)) {
			for i := range 10_296 {
				a := netip.MustParseAddr("2001:db8:1::").As16()
				a[7], a[15] = byte(i), byte(i>>8)
				send(fmt.Sprintf("x@throwaway%d.example", i), netip.AddrFrom16(a))
			}
		}, networkADay},
		{"clients without an address", 500, 1000, func(send func(string, netip.Addr)) {
			for i := range 10_296 {
				send(fmt.Sprintf("x@throwaway%d.example", i), netip.Addr{})
			}
		}, networkADay},
		{"one domain, 10,296 local-parts and names", 500, 1000, func(send func(string, netip.Addr)) {
			for i := range 10_296 {
				send(fmt.Sprintf("x%d@host%d.throwaway.example", i, i), clientOf(1000+i))
			}
		}, 1},
		{"a botnet of 10,296 networks, where all is full", 900, 1000, func(send func(string, netip.Addr)) {
			for i := range 10_296 {
				send(fmt.Sprintf("x@throwaway%d.example", i), clientOf(1000+i))
			}
		}, 1000},
	}
	for _, tt := range tests {
		t.Run(tt.rule, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r := NewRecent(tt.room)
				regulars(t, r, tt.known, 2)
				tt.attack(func(sender string, client netip.Addr) {
					r.Add(parsed(t, sender), client)
					time.Sleep(27 * time.Second / 10_296)
				})
				all := wrote(r)
				for i := range tt.known {
					testkit.MustEqual(t, fmt.Sprintf("regular%d.example wrote on: days", i), all[fmt.Sprintf("regular%d.example", i)], 2)
				}
				if got := len(all) - tt.known; got < 1 || got > tt.newcome {
					t.Errorf("%d domains more, want 1 to %d", got, tt.newcome)
				}
				if len(r.senders) > tt.room {
					t.Errorf("%d senders where there is room for %d", len(r.senders), tt.room)
				}
			})
		})
	}
}

// TestBurstsLeaveThoseOfOneDay: even senders seen on one day alone keep three quarters of
// the room against the burst of a day.
func TestBurstsLeaveThoseOfOneDay(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := NewRecent(1000)
		regulars(t, r, 1000, 1)
		for i := range 5000 {
			r.Add(parsed(t, fmt.Sprintf("x@throwaway%d.example", i)), clientOf(2000+i))
		}
		left := 0
		for name := range wrote(r) {
			if strings.HasPrefix(name, "regular") {
				left++
			}
		}
		if left != 750 || len(r.senders) != 1000 {
			t.Errorf("%d of 1000 are left, of %d senders, want 750 of 1000", left, len(r.senders))
		}
	})
}

// TestDaysOfADomain: a domain counts once a day, and is forgotten after keepDays.
func TestDaysOfADomain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := NewRecent(10)
		for day := range 40 {
			for i := range 5 {
				r.Add(parsed(t, fmt.Sprintf("news-%d-%d@mail.letter.example", day, i)), clientOf(i))
			}
			if got, want := wrote(r)["letter.example"], min(day+1, keepDays); got != want {
				t.Fatalf("after %d days it wrote on %d, want %d", day+1, got, want)
			}
			time.Sleep(oneDay)
		}
		if len(r.senders) > sendersEach {
			t.Errorf("%d senders of one domain", len(r.senders))
		}
		time.Sleep((keepDays - 2) * oneDay)
		testkit.Equal(t, "it wrote on: days", wrote(r)["letter.example"], 1)
		time.Sleep(oneDay)
		testkit.Equal(t, "domains", len(wrote(r)), 0)
	})
}

// TestRecentIsBounded holds every bound after days of everything, and the memory to what
// NewRecent says of senders as long as they can be.
func TestRecentIsBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const room = 2000
		var before, after runtime.MemStats
		runtime.GC()
		runtime.ReadMemStats(&before)
		r, rng := NewRecent(room), rand.New(rand.NewPCG(1, 2))
		label := strings.Repeat("x", 60)
		for range 6 {
			for range 5 * room {
				n := rng.IntN(10 * room)
				r.Add(parsed(t, fmt.Sprintf("%s@%s.%s.d%07d.example", label, label, label, n)), clientOf(rng.IntN(1<<18)))
			}
			time.Sleep(oneDay)
		}
		runtime.GC()
		runtime.ReadMemStats(&after)
		took := int64(after.HeapAlloc) - int64(before.HeapAlloc)
		t.Logf("%d senders, %d domains, %d networks: %d octets each", len(r.senders), len(r.domains), len(r.networks), took/room)
		if len(r.senders) > room || len(r.domains) > len(r.senders) || len(r.networks) > 5*room/4 || took > 1200*room {
			t.Errorf("%d senders, %d domains, %d networks, %d octets", len(r.senders), len(r.domains), len(r.networks), took)
		}
		for _, d := range r.domains {
			if len(d.senders) == 0 || len(d.senders) > sendersEach {
				t.Fatalf("%s has %d senders", d.name, len(d.senders))
			}
		}
	})
}

func TestRecentRemembersNobody(t *testing.T) {
	r := NewRecent(0)
	r.Add(parsed(t, "a@bulk.example"), clientOf(1))
	if r != nil || r.writers() != nil || r.Wants(parsed(t, "a@bulk.example"), clientOf(1)) {
		t.Errorf("%+v remembers", r)
	}
	r = NewRecent(3)
	r.Add(addr.Addr{}, clientOf(1))
	r.Add(parsed(t, "nobody"), clientOf(1))
	if got := r.writers(); len(got) > 0 {
		t.Errorf("senders without a domain are remembered: %v", got)
	}
}

func TestRecentCostsNothingForWhoIsKnown(t *testing.T) {
	r, sender := NewRecent(10), parsed(t, "a@bulk.example")
	r.Add(sender, clientOf(1))
	if n := testing.AllocsPerRun(100, func() { r.Add(sender, clientOf(1)) }); n > 0 {
		t.Errorf("%v allocations", n)
	}
}

func TestRecentIsSafeForAllSessions(t *testing.T) {
	r := NewRecent(50)
	path := filepath.Join(t.TempDir(), "recent")
	var all sync.WaitGroup
	for g := range 8 {
		all.Go(func() {
			for i := range 1000 {
				r.Add(parsed(t, fmt.Sprintf("s@bulk%d.example", (g*i)%200)), clientOf(i))
				if i%100 == 0 && (len(r.writers()) > 50 || r.Save(path) != nil) {
					t.Error("more than there is room for, or not saved")
				}
			}
		})
	}
	all.Wait()
}

// TestRecentOutlivesRestarts: what was saved is there again, with what networks have used
// up of their day.
func TestRecentOutlivesRestarts(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		path, log := filepath.Join(t.TempDir(), "lists.bdx"+RecentSuffix), &testkit.Log{}
		r := OpenRecent(path, 100, log.Logger())
		regulars(t, r, 20, 3)
		r.Add(parsed(t, `"odd one"@quoted.example`), netip.Addr{})
		r.Add(parsed(t, "x@[192.0.2.1]"), netip.MustParseAddr("2001:db8::1"))
		for i := range networkADay {
			r.Add(parsed(t, fmt.Sprintf("x@used%d.example", i)), clientOf(99))
		}
		testkit.Must(t, r.Save(path))
		want := r.text(today())
		again := OpenRecent(path, 100, log.Logger())
		if got := wrote(again); len(got) != 25 || got["regular7.example"] != 3 || got["quoted.example"] != 1 {
			t.Errorf("after a restart %v", got)
		}
		if again.Wants(parsed(t, "x@more.example"), clientOf(99)) {
			t.Error("a network counts again after a restart")
		}
		if got := again.text(today()); len(got) != len(want) {
			t.Errorf("after a restart\n%s, want\n%s", got, want)
		}
		testkit.Equal(t, "senders where there is room for 10", len(OpenRecent(path, 10, log.Logger()).senders), 10)
		testkit.Equal(t, fmt.Sprintf("log:\n%s", log), log.String(), "")
	})
}

// TestTornRecentBeginsAnew cuts the file everywhere, and turns octets of it.
func TestTornRecentBeginsAnew(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		path := filepath.Join(t.TempDir(), "lists.bdx"+RecentSuffix)
		r := NewRecent(100)
		regulars(t, r, 3, 2)
		testkit.Must(t, r.Save(path))
		whole := testkit.Read(t, path)
		for i := range whole {
			turned := []byte(string(whole))
			turned[i] ^= 1
			for _, text := range [][]byte{whole[:i], turned} {
				testkit.Write(t, path, text)
				log := &testkit.Log{}
				r := OpenRecent(path, 100, log.Logger())
				if len(r.senders) != 0 || !strings.Contains(log.String(), "learned anew") {
					t.Fatalf("octet %d: %d senders, log %q", i, len(r.senders), log)
				}
				r.Add(parsed(t, "a@bulk.example"), clientOf(1))
				testkit.MustEqual(t, "it does not begin anew", len(r.writers()), 1)
			}
		}
	})
}

// FuzzRecentFile: whatever stands above a right sum, nothing is remembered beyond the
// bounds, and what was taken is saved and taken again.
func FuzzRecentFile(f *testing.F) {
	f.Add("blockd-recent 1 20000\ndomain 20000 3 there.example\nsender 20000 3 192.0.2.7 a@there.example\nnetwork 1 192.0.2.0/24\n")
	f.Add("blockd-recent 1 20000\ndomain 20000 3 there.example\nsender 99999999 ffffffff - a@there.example\nnetwork 9 -\n")
	f.Fuzz(func(t *testing.T, text string) {
		r := NewRecent(5)
		if r.parse(text) != nil {
			return
		}
		again := NewRecent(5)
		saved := r.text(today())
		if err := again.parse(saved[:strings.LastIndex(saved, "sum ")]); err != nil || len(again.senders) > len(r.senders) || len(r.senders) > 5 {
			t.Errorf("%v: %d senders, then %d", err, len(r.senders), len(again.senders))
		}
		r.Add(parsed(t, "a@bulk.example"), clientOf(1))
	})
}

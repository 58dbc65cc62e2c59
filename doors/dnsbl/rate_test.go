package dnsbl

import (
	"fmt"
	"math/rand/v2"
	"net/netip"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/miekg/dns"

	"blockd/internal/testkit"
)

func TestLimiterCountsNetworks(t *testing.T) {
	l := newLimiter(3)
	for _, row := range []struct {
		client string
		second int64
		want   uint32
	}{
		{"192.0.2.1", 7, 0}, {"192.0.2.2", 7, 0}, {"::ffff:192.0.2.3", 7, 0}, {"192.0.2.4", 7, 1}, {"192.0.2.5", 7, 2},
		{"192.0.3.1", 7, 0},
		{"192.0.2.1", 8, 0},
		{"2001:db8:0:100::1", 9, 0}, {"2001:db8:0:1ff::1", 9, 0}, {"2001:db8:0:1aa::2", 9, 0}, {"2001:db8:0:101::3", 9, 1},
		{"2001:db8:0:200::1", 9, 0},
	} {
		testkit.Equal(t, fmt.Sprintf("beyond(%s, %d)", row.client, row.second), l.beyond(netip.MustParseAddr(row.client), row.second), row.want)
	}
}

// A network that asks a lot stays bounded while a hundred thousand others ask, and of those few
// are taken for it.
func TestLimiterUnderForgedAddresses(t *testing.T) {
	const most = 10
	l, client := newLimiter(most), netip.MustParseAddr("192.0.2.1")
	random := rand.New(rand.NewPCG(1, 2))
	answered, wrong := 0, 0
	for i := range 100_000 {
		if l.beyond(client, 1) == 0 {
			answered++
		}
		other := netip.AddrFrom4([4]byte{10, byte(random.Uint32()), byte(i >> 8), 1})
		if l.beyond(other, 1) > most {
			wrong++
		}
	}
	if answered > most || wrong > 0 {
		t.Errorf("%d answers to one network, want %d; %d others were refused", answered, most, wrong)
	}
}

func TestLimiterCountsEachAnswerOnce(t *testing.T) {
	l := newLimiter(500)
	var answered atomic.Int64
	var wg sync.WaitGroup
	for range 8 {
		wg.Go(func() {
			for range 200 {
				if l.beyond(netip.MustParseAddr("192.0.2.1"), 1) == 0 {
					answered.Add(1)
				}
			}
		})
	}
	wg.Wait()
	testkit.Equal(t, "answers", answered.Load(), 500)
}

func TestAdmit(t *testing.T) {
	r := newRig(t, func(r *rig) {
		r.settings.MaxRate, r.settings.AllowFrom = 2, []netip.Prefix{netip.MustParsePrefix("192.0.2.0/24")}
	})
	inside, outside := "", ""
	for range 6 {
		h, drop := r.server.admit(netip.MustParseAddr("192.0.2.7"), 1)
		inside += fmt.Sprint(h, drop, " ")
		h, drop = r.server.admit(netip.MustParseAddr("198.51.100.7"), 1)
		outside += fmt.Sprint(h, drop, " ")
	}
	testkit.Equal(t, "a client of ours", inside, "0 false 0 false 0 true 2 false 0 true 2 false ")
	testkit.Equal(t, "another", outside, "1 false 1 false 1 true 1 true 1 true 1 true ")
}

// A message counts as what happens to it.
func TestCountersOfLimits(t *testing.T) {
	r := newRig(t, nil)
	q := new(dns.Msg)
	q.SetQuestion("bulk.example.dbl.here.example.", dns.TypeA)
	plain := pack(t, q)
	q.SetQuestion("bulk.example.dbl.here.example.", dns.TypeAAAA)
	other := pack(t, q)
	q.Response = true
	answer := pack(t, q)
	for _, row := range []struct {
		query    []byte
		how      how
		answered bool
		name     string
		why      []string
	}{
		{plain, refusing, true, "blockd_dnsbl_refused_total", []string{"peer"}},
		{other, refusing, true, "blockd_dnsbl_refused_total", []string{"peer"}},
		{answer, refusing, false, "blockd_dnsbl_dropped_total", []string{"no-query"}},
		{plain, slipping, true, "blockd_dnsbl_slipped_total", nil},
		{other, slipping, false, "blockd_dnsbl_dropped_total", []string{"rate"}},
	} {
		sum := func() float64 {
			return r.count("blockd_dnsbl_refused_total") + r.count("blockd_dnsbl_dropped_total") + r.count("blockd_dnsbl_slipped_total")
		}
		before, all := r.count(row.name, row.why...), sum()
		got := r.worker().reply(nil, row.query, row.how, maxUDP)
		if (len(got) > 0) != row.answered || r.count(row.name, row.why...) != before+1 || sum() != all+1 {
			t.Errorf("%x, %d: answer %x; want it counted once, in %s %v", row.query, row.how, got, row.name, row.why)
		}
	}
}

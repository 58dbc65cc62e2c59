package server

import (
	"encoding/binary"
	"fmt"
	"net/netip"
	"testing"
	"time"

	"blockd/internal/testkit"
)

func TestRateOfNewConnections(t *testing.T) {
	a, b := netip.MustParsePrefix("192.0.2.1/32"), netip.MustParsePrefix("192.0.2.2/32")
	r := newRates(4)
	now := time.Unix(1e9, 0)
	steps := []struct {
		name   string
		after  time.Duration
		client netip.Prefix
		want   bool
	}{
		{"a minute's number at once", 0, a, true}, {"second", 0, a, true}, {"third", 0, a, true}, {"fourth", 0, a, true},
		{"fifth", 0, a, false},
		{"another client", 0, b, true},
		{"before the next is due", 14 * time.Second, a, false},
		{"when it is due", time.Second, a, true},
		{"and no more", 0, a, false},
		{"one refused has not counted", 15 * time.Second, a, true},
		{"after a long while all again", time.Hour, a, true}, {"second again", 0, a, true}, {"third again", 0, a, true},
		{"fourth again", 0, a, true}, {"fifth again", 0, a, false},
	}
	for _, s := range steps {
		now = now.Add(s.after)
		testkit.MustEqual(t, fmt.Sprintf("%s: allowed", s.name), r.allow(s.client, now), s.want)
	}
	if off := newRates(0); !off.allow(a, now) || off.due != nil {
		t.Error("no rate: refused, or remembered")
	}
}

// Whoever has a /32 of IPv6 comes from a new /64 each time. That must neither
// grow the table nor make blockd forget a client that is over its rate.
func TestRatesAreBounded(t *testing.T) {
	r := newRates(10)
	r.most = 1000
	now := time.Unix(1e9, 0)
	loud := netip.MustParsePrefix("192.0.2.1/32")
	for range 10 {
		r.allow(loud, now)
	}
	for i := range uint32(50_000) {
		var ip [16]byte
		copy(ip[:], []byte{0x20, 0x01, 0x0d, 0xb8})
		binary.BigEndian.PutUint32(ip[4:], i)
		if !r.allow(netip.PrefixFrom(netip.AddrFrom16(ip), 64), now) {
			t.Fatal("a client's first connection is refused")
		}
		if i%1000 == 0 && r.allow(loud, now) {
			t.Fatalf("after %d others a client is forgotten that is over its rate", i)
		}
	}
	if len(r.due) > r.most {
		t.Errorf("%d clients are remembered, want at most %d", len(r.due), r.most)
	}
}

// The rate agrees with a plain list of times: never more than the number in any
// minute begun by a burst, and never fewer than one each distance.
func TestRateNeverRefusesWhoKeepsTheDistance(t *testing.T) {
	client := netip.MustParsePrefix("192.0.2.1/32")
	for _, perMinute := range []int{1, 7, 60, 1000} {
		r := newRates(perMinute)
		now := time.Unix(1e9, 0)
		for i := range 10 * perMinute {
			if !r.allow(client, now) {
				t.Fatalf("%d a minute: connection %d refused", perMinute, i)
			}
			now = now.Add(time.Minute/time.Duration(perMinute) + 1)
		}
		allowed := 0
		for range 3 * perMinute {
			if r.allow(client, now) {
				allowed++
			}
		}
		if allowed > perMinute {
			t.Errorf("%d a minute: %d at once", perMinute, allowed)
		}
	}
}

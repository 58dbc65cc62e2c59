package httpapi

import (
	"fmt"
	"math/rand/v2"
	"net/http"
	"net/netip"
	"path/filepath"
	"testing"
	"testing/synctest"
	"time"

	"blockd/internal/testkit"
)

// TestRateAgreesWithABucket holds the one time a caller against the plain form of a
// token bucket, which fills by the rate and holds a second of it.
func TestRateAgreesWithABucket(t *testing.T) {
	type bucket struct {
		level float64
		at    time.Time
	}
	for seed := range uint64(20) {
		rng := rand.New(rand.NewPCG(seed, 0))
		rate := 1 << rng.IntN(9) // so that a cell is a whole number of nanoseconds
		l, model, now := newLimiter(rate), map[callerKey]*bucket{}, time.Unix(1e9, 0)
		for i := range 3000 {
			now = now.Add(time.Duration(rng.IntN(3*int(time.Second)/rate) + 1))
			k := callerKey{token: fmt.Sprint(rng.IntN(3))}
			b := model[k]
			if b == nil {
				b = &bucket{float64(rate), now}
				model[k] = b
			}
			b.level = min(float64(rate), b.level+now.Sub(b.at).Seconds()*float64(rate))
			b.at = now
			want := b.level >= 1-1e-6 // the model adds up fractions
			if want {
				b.level--
			}
			wait := l.admit(k, now)
			if (wait == 0) != want && (b.level < 0.99 || b.level > 1.01) {
				t.Fatalf("seed %d, request %d at %d/s: admit = %v, the bucket holds %v", seed, i, rate, wait, b.level)
			}
			if due := time.Duration((1 - b.level) / float64(rate) * float64(time.Second)); wait > 0 && (wait-due).Abs() > time.Microsecond {
				t.Fatalf("seed %d, request %d at %d/s: it may come back in %v, and the bucket has room in %v", seed, i, rate, wait, due)
			}
		}
	}
}

func TestRateRemembersSoManyCallers(t *testing.T) {
	l, now := newLimiter(1), time.Unix(1e9, 0)
	l.most = 100
	key := func(i int) callerKey { return clientKey(netip.AddrFrom4([4]byte{10, 0, byte(i >> 8), byte(i)})) }
	for i := range 100 {
		l.admit(key(i), now)
	}
	testkit.Equal(t, "the first beyond them waits", l.admit(key(100), now), 0)
	if wait := l.admit(key(101), now); wait == 0 {
		t.Error("the second has one of its own")
	}
	if wait := l.admit(key(7), now); wait == 0 {
		t.Error("a caller who is known has got a new allowance")
	}
	if n := len(l.due); n > 101 {
		t.Errorf("%d callers, want 100 and the common one", n)
	}
	if wait := l.admit(key(102), now.Add(2*time.Second)); wait != 0 || len(l.due) != 1 {
		t.Errorf("after all have been silent: wait %v, %d callers remembered", wait, len(l.due))
	}
}

func TestClientsThatAreOne(t *testing.T) {
	for _, tt := range []struct {
		name, a, b string
		one        bool
	}{
		{"two IPv4 addresses", "192.0.2.1", "192.0.2.2", false},
		{"an IPv4 address in IPv6", "::ffff:192.0.2.1", "192.0.2.1", true},
		{"a /64", "2001:db8::1", "2001:db8::ffff:1", true},
		{"two /64", "2001:db8::1", "2001:db8:0:1::1", false},
		{"zones", "fe80::1%eth0", "fe80::2%eth1", true},
	} {
		testkit.Equal(t, fmt.Sprintf("%s: one client", tt.name), clientKey(netip.MustParseAddr(tt.a)) == clientKey(netip.MustParseAddr(tt.b)), tt.one)
	}
}

func TestTooManyRequests(t *testing.T) {
	path := filepath.Join(t.TempDir(), "tokens")
	monitor := newToken(t, path, "monitor", Read)
	f := newFixture(t, Settings{MaxRate: 2, Token: "0123456789abcdef", Tokens: path}, "bad.example\n")
	synctest.Test(t, func(t *testing.T) {
		const target = "/v1/check?sender=a@bad.example"
		ask := func(header string) int {
			w := f.ask("GET", target, "", header)
			if w.Code == http.StatusTooManyRequests {
				testkit.Equal(t, "Retry-After", w.Header().Get("Retry-After"), "1")
				wantProblem(t, w, http.StatusTooManyRequests, "more than 2 requests a second")
			}
			return w.Code
		}
		bare, wrong := "Authorization: Bearer 0123456789abcdef", "Authorization: Bearer no"
		for _, step := range []struct {
			header string
			want   int
		}{
			{monitor, 200}, {monitor, 200}, {monitor, 429},
			{bare, 200}, {bare, 200}, {bare, 429}, // another token, another allowance
			{wrong, 401}, {wrong, 401}, {wrong, 429}, // the address'; so tokens are guessed slowly
			{monitor, 429},
		} {
			testkit.Equal(t, fmt.Sprintf("%.25s…", step.header), ask(step.header), step.want)
		}
		time.Sleep(time.Second)
		testkit.Equal(t, "a second later", ask(monitor), 200)
		for range 5 {
			f.gives(t, http.StatusOK, "GET", "/healthz", "")
		}
	})
}

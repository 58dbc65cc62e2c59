package msgauth

import (
	"context"
	"fmt"
	"net"
	"net/netip"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/miekg/dns"
	"golang.org/x/sync/semaphore"

	"blockd/internal/testkit"
	"blockd/internal/testkit/nameserver"
)

func txt(ctx context.Context, r *Resolver, name string) answer {
	return r.lookup(ctx, netip.Prefix{}, name, dns.TypeTXT)
}

func TestAnswersAreRemembered(t *testing.T) {
	s := nameserver.Serve(t, zone{"TXT a.test": {"text"}, "TXT broken.test": {"!SERVFAIL"}})
	for _, tt := range []struct {
		name  string
		until time.Duration // 300 s is what the server says
		want  outcome
	}{{"a.test", 300 * time.Second, records}, {"none.test", time.Minute, none}, {"broken.test", 5 * time.Second, failed}} {
		r := resolverOf(t, s)
		now := time.Now()
		r.cache.now = func() time.Time { return now }
		before := s.Asked()["TXT "+tt.name]
		asked := func() int {
			if a := txt(t.Context(), r, strings.ToUpper(tt.name)); a.outcome != tt.want {
				t.Fatalf("%s: %+v", tt.name, a)
			}
			return s.Asked()["TXT "+tt.name] - before
		}
		first := asked()
		now = now.Add(tt.until - time.Millisecond)
		testkit.Equal(t, fmt.Sprintf("%s: asked again before %s", tt.name, tt.until), asked(), first)
		now = now.Add(time.Millisecond)
		if n := asked(); n == first {
			t.Errorf("%s: not asked again after %s", tt.name, tt.until)
		}
	}
}

func TestTimesToLiveAreClamped(t *testing.T) {
	for ttl, want := range map[uint32]time.Duration{0: time.Minute, 59: time.Minute, 600: 10 * time.Minute, 1 << 31: time.Hour} {
		a := answer{outcome: records, ttl: ttl}
		testkit.Equal(t, fmt.Sprintf("TTL %d is kept for", ttl), a.keep(), want)
	}
}

func TestCacheIsBounded(t *testing.T) {
	c := newCache()
	for i := range maxAnswers + 500 {
		c.put(question{fmt.Sprint(i), dns.TypeTXT}, answer{outcome: none})
	}
	testkit.Equal(t, "answers", len(c.answers), maxAnswers)
	const size = 8 << 10
	large := strings.Repeat("x", size)
	for i := range 2 * maxOctets / size {
		c.put(question{fmt.Sprint("large", i), dns.TypeTXT}, answer{outcome: records, records: []record{{text: large}}})
	}
	sum := 0
	for q, a := range c.answers {
		sum += a.size(q)
	}
	if c.octets > maxOctets || c.octets != sum {
		t.Errorf("%d octets of at most %d, and they sum up to %d", c.octets, maxOctets, sum)
	}
}

func TestOneFlightForManyWhoAsk(t *testing.T) {
	hold := make(chan struct{})
	s := nameserver.ServeFunc(t, func(m *dns.Msg) *dns.Msg {
		<-hold
		reply := new(dns.Msg).SetReply(m)
		reply.Answer = []dns.RR{nameserver.Record(m.Question[0].Name, "TXT", "text")}
		return reply
	})
	r := resolverOf(t, s)
	var group sync.WaitGroup
	var good atomic.Int32
	for range 100 {
		group.Go(func() {
			if a := txt(t.Context(), r, "a.test"); a.outcome == records {
				good.Add(1)
			}
		})
	}
	testkit.Eventually(t, "100 wait", func() bool {
		r.mu.Lock()
		defer r.mu.Unlock()
		f := r.flights[question{"a.test", dns.TypeTXT}]
		return f != nil && f.waiters == 100
	})
	close(hold)
	group.Wait()
	testkit.Equal(t, "of 100 are answered, by queries", fmt.Sprint(good.Load(), " ", s.Count()), "100 1")
}

func TestWhoGoesAwayCancelsTheQuery(t *testing.T) {
	s := nameserver.ServeFunc(t, func(*dns.Msg) *dns.Msg { return nil })
	r := resolverOf(t, s)
	before := runtime.NumGoroutine()
	gone := func() time.Duration {
		ctx, cancel := context.WithCancel(t.Context())
		answers, asked := make(chan answer), s.Count()
		go func() { answers <- txt(ctx, r, "a.test") }()
		testkit.Eventually(t, "the query has gone out", func() bool { return s.Count() > asked })
		began := time.Now()
		cancel()
		if a := <-answers; a.outcome != failed {
			t.Errorf("%+v", a)
		}
		testkit.Eventually(t, "nothing is left", func() bool {
			r.mu.Lock()
			defer r.mu.Unlock()
			return len(r.flights)+len(r.shares) == 0
		})
		return time.Since(began)
	}
	took := gone()
	for again := 0; took > tryTimeout/2 && again < 5; again++ { // a loaded machine is slow now and then
		took = gone()
	}
	if took > tryTimeout/2 {
		t.Errorf("the query went on for %s", took)
	}
	testkit.Eventually(t, "no goroutine is left", func() bool { return runtime.NumGoroutine() <= before })
	r.mu.Lock()
	defer r.mu.Unlock()
	if _, cached := r.cache.get(question{"a.test", dns.TypeTXT}); cached {
		t.Error("that nobody waited is remembered as a failure")
	}
}

// TestOneNetworkWaitsForItsTurn: what one network asks beyond its share waits, is answered
// in the end, and keeps nobody else.
func TestOneNetworkWaitsForItsTurn(t *testing.T) {
	var now, most atomic.Int32
	hold := make(chan struct{})
	s := nameserver.ServeFunc(t, func(m *dns.Msg) *dns.Msg {
		reply := new(dns.Msg).SetReply(m)
		reply.Answer = []dns.RR{nameserver.Record(m.Question[0].Name, "TXT", "text")}
		if m.Question[0].Name == "other.test." {
			return reply
		}
		n := now.Add(1)
		for old := most.Load(); n > old && !most.CompareAndSwap(old, n); old = most.Load() {
		}
		<-hold
		now.Add(-1)
		return reply
	})
	r := newResolver(t, Settings{Server: s.Address, Timeout: time.Minute})
	bad, good := networkOf(netip.MustParseAddr("192.0.2.7")), networkOf(netip.MustParseAddr("198.51.100.7"))
	var group sync.WaitGroup
	var answered atomic.Int32
	for i := range 100 {
		group.Go(func() {
			if a := r.lookup(t.Context(), bad, fmt.Sprintf("n%d.test", i), dns.TypeTXT); a.outcome == records {
				answered.Add(1)
			}
		})
	}
	testkit.Eventually(t, "ten are asked and the rest wait", func() bool {
		r.mu.Lock()
		defer r.mu.Unlock()
		return now.Load() == maxShare && r.shares[bad] != nil && r.shares[bad].users == 100
	})
	testkit.Equal(t, "another network", r.lookup(t.Context(), good, "other.test", dns.TypeTXT).outcome, records)
	close(hold)
	group.Wait()
	testkit.Equal(t, "answered", answered.Load(), 100)
	testkit.Equal(t, "queries at one time", most.Load(), maxShare)
}

// TestNoRoomIsNoAnswer: whose turn does not come in time, with all places of his network or all
// queries taken, knows nothing, and neither does the cache.
func TestNoRoomIsNoAnswer(t *testing.T) {
	client := netip.MustParseAddr("192.0.2.7")
	for name, all := range map[string]bool{"of the network": false, "of all": true} {
		r := newResolver(t, Settings{Server: nameserver.Serve(t, zone{}).Address, Timeout: 50 * time.Millisecond})
		if all {
			r.slots = full(t, maxQueries)
		} else {
			r.shares[networkOf(client)] = &share{places: full(t, maxShare), users: 1}
		}
		f := r.SPF(t.Context(), client, "helo.test", "a@x.test")
		testkit.Equal(t, name+": SPF "+f.Reason, f.Proof, Short)
		testkit.Equal(t, name+": a name of the address", r.Reverse(t.Context(), client, true), Short)
		m := testkit.Value(r.Message(t.Context(), client, strings.NewReader(newSigner(t).sign(t, letter, "bank.test"))))(t)
		testkit.Equal(t, name+": DKIM", m.DKIM("bank.test"), Short)
		testkit.Equal(t, name+": remembered", len(r.cache.answers), 0)
	}
}

// TestTimeSpentInTheQueue: where an earlier look-up has waited for a place of ours, what comes too late behind it is our shortage, and
// no silence of DNS.
func TestTimeSpentInTheQueue(t *testing.T) {
	s := nameserver.ServeFunc(t, func(*dns.Msg) *dns.Msg { return nil })
	r := newResolver(t, Settings{Server: s.Address, Timeout: time.Hour})
	for name, want := range map[string]outcome{"queued.test": short, "silent.test": failed} {
		budget, cancel := r.budget(t.Context())
		defer cancel()
		if want == short {
			hasToQueue(budget)
		}
		rest, cancel := context.WithTimeout(budget, time.Millisecond) // of an hour, the rest of which a queue has had
		defer cancel()
		if got := r.lookup(rest, netip.Prefix{}, name, dns.TypeTXT).outcome; got != want {
			t.Errorf("%s: %d, want %d", name, got, want)
		}
	}
}

// full is a semaphore that is taken.
func full(t *testing.T, n int64) *semaphore.Weighted {
	w := semaphore.NewWeighted(n)
	testkit.Must(t, w.Acquire(t.Context(), n))
	return w
}

func TestAtMostSoManyQueriesAtOneTime(t *testing.T) {
	var now, most atomic.Int32
	release := make(chan struct{})
	s := nameserver.ServeFunc(t, func(m *dns.Msg) *dns.Msg {
		n := now.Add(1)
		for old := most.Load(); n > old && !most.CompareAndSwap(old, n); old = most.Load() {
		}
		<-release
		now.Add(-1)
		return new(dns.Msg).SetRcode(m, dns.RcodeNameError)
	})
	r := resolverOf(t, s)
	var group sync.WaitGroup
	for i := range 3 * maxQueries {
		network := netip.PrefixFrom(netip.AddrFrom4([4]byte{10, 0, byte(i), 0}), 24)
		group.Go(func() { r.lookup(t.Context(), network, fmt.Sprintf("n%d.test", i), dns.TypeTXT) })
	}
	testkit.Eventually(t, "all slots are taken", func() bool { return now.Load() == maxQueries })
	close(release)
	group.Wait()
	testkit.Equal(t, "queries at one time", most.Load(), maxQueries)
}

// TestChaos has servers that do what servers should not, each with what is known
// afterwards.
func TestChaos(t *testing.T) {
	text := func(m *dns.Msg, texts ...string) *dns.Msg {
		reply := new(dns.Msg).SetReply(m)
		for _, text := range texts {
			reply.Answer = append(reply.Answer, nameserver.Record(m.Question[0].Name, "TXT", text))
		}
		return reply
	}
	tests := []struct {
		name  string
		reply func(*dns.Msg) *dns.Msg
		want  outcome
		text  string
	}{
		{"an answer too long for UDP", func(m *dns.Msg) *dns.Msg { return text(m, strings.Repeat("x", 4000)) }, records, strings.Repeat("x", 4000)},
		{"no EDNS", func(m *dns.Msg) *dns.Msg {
			if m.IsEdns0() != nil {
				return new(dns.Msg).SetRcode(m, dns.RcodeFormatError)
			}
			return text(m, "plain")
		}, records, "plain"},
		{"a record of 60 KB", func(m *dns.Msg) *dns.Msg { return text(m, strings.Repeat("x", 60_000)) }, records, strings.Repeat("x", 60_000)},
		{"501 records", func(m *dns.Msg) *dns.Msg { return text(m, numbered(maxRecords+1)...) }, beyond, ""},
		{"records of another name", func(m *dns.Msg) *dns.Msg {
			reply := new(dns.Msg).SetReply(m)
			reply.Answer = []dns.RR{nameserver.Record("other.test", "TXT", "forged")}
			return reply
		}, none, ""},
		{"records of another type", func(m *dns.Msg) *dns.Msg {
			reply := new(dns.Msg).SetReply(m)
			reply.Answer = []dns.RR{nameserver.Record(m.Question[0].Name, "A", "192.0.2.1")}
			return reply
		}, none, ""},
		{"an alias of itself", func(m *dns.Msg) *dns.Msg {
			reply := new(dns.Msg).SetReply(m)
			reply.Answer = []dns.RR{nameserver.Record(m.Question[0].Name, "CNAME", m.Question[0].Name)}
			return reply
		}, beyond, ""},
		{"octets that are escaped", func(m *dns.Msg) *dns.Msg { return text(m, "a\"b\\c\x01d\xffe") }, records, "a\"b\\c\x01d\xffe"},
		{"refused", func(m *dns.Msg) *dns.Msg { return new(dns.Msg).SetRcode(m, dns.RcodeRefused) }, failed, ""},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			a := txt(t.Context(), resolverOf(t, nameserver.ServeFunc(t, tt.reply)), "a.test")
			if a.outcome != tt.want || tt.text != "" && (len(a.records) != 1 || a.records[0].text != tt.text) {
				t.Errorf("%d %s, want %d: %d records", a.outcome, a.fault, tt.want, len(a.records))
			}
		})
	}
}

// numbered are n texts.
func numbered(n int) (all []string) {
	for i := range n {
		all = append(all, fmt.Sprint("text ", i))
	}
	return all
}

// serveUDP is a name server that answers each question by respond, and says nothing by TCP.
func serveUDP(t *testing.T, respond func(m *dns.Msg, send func([]byte))) *Resolver {
	t.Helper()
	conn := testkit.Value(net.ListenPacket("udp", "127.0.0.1:0"))(t)
	t.Cleanup(func() { conn.Close() })
	go func() {
		buf := make([]byte, 4096)
		for {
			n, from, err := conn.ReadFrom(buf)
			if err != nil {
				return
			}
			if m := new(dns.Msg); m.Unpack(buf[:n]) == nil {
				respond(m, func(wire []byte) { conn.WriteTo(wire, from) })
			}
		}
	}()
	return newResolver(t, Settings{Server: conn.LocalAddr().String()})
}

// TestForgedRepliesArePassedOver has a server from which, before each right reply,
// others come: as if somebody guessed.
func TestForgedRepliesArePassedOver(t *testing.T) {
	r := serveUDP(t, func(m *dns.Msg, send func([]byte)) {
		reply := func(text string, change func(*dns.Msg)) {
			reply := new(dns.Msg).SetReply(m)
			reply.Answer = []dns.RR{nameserver.Record(m.Question[0].Name, "TXT", text)}
			change(reply)
			if wire, err := reply.Pack(); err == nil {
				send(wire)
			}
		}
		reply("forged", func(r *dns.Msg) { r.Id++ })
		reply("forged", func(r *dns.Msg) { r.Question[0].Name = "other.test." })
		reply("forged", func(r *dns.Msg) { r.Question[0].Qtype = dns.TypeA })
		reply("forged", func(r *dns.Msg) { r.Question = nil })
		reply("forged", func(r *dns.Msg) { r.Response = false })
		send([]byte("garbage"))
		send(nil)
		reply("right", func(*dns.Msg) {})
	})
	if a := txt(t.Context(), r, "a.test"); a.outcome != records || a.records[0].text != "right" {
		t.Errorf("%+v", a)
	}
}

// TestAnswerByUDPThatIsLargerThanAskedFor comes from a server that does not look at what
// size was offered.
func TestAnswerByUDPThatIsLargerThanAskedFor(t *testing.T) {
	want := strings.Repeat("x", 3000)
	r := serveUDP(t, func(m *dns.Msg, send func([]byte)) {
		reply := new(dns.Msg).SetReply(m)
		reply.Answer = []dns.RR{nameserver.Record(m.Question[0].Name, "TXT", want)}
		if wire, err := reply.Pack(); err == nil {
			send(wire)
		}
	})
	if a := txt(t.Context(), r, "a.test"); a.outcome != records || a.records[0].text != want {
		t.Errorf("%s: %s", a.outcome, a.fault)
	}
}

// TestFloodOfNames is what a spammer with a million names and a dead name server
// does: every check ends in its time, and nothing is left.
func TestFloodOfNames(t *testing.T) {
	s := nameserver.ServeFunc(t, func(*dns.Msg) *dns.Msg { return nil })
	r := newResolver(t, Settings{Server: s.Address, Timeout: 200 * time.Millisecond})
	before := runtime.NumGoroutine()
	var group sync.WaitGroup
	var slowest atomic.Int64
	for i := range 2000 {
		client := netip.AddrFrom4([4]byte{10, byte(i >> 8), byte(i), 1})
		group.Go(func() {
			began := time.Now()
			f := r.SPF(t.Context(), client, "helo.test", fmt.Sprintf("a@n%d.test", i))
			if f.Proof != Unknown && f.Proof != Short {
				t.Errorf("%+v", f)
			}
			for took := int64(time.Since(began)); ; {
				if old := slowest.Load(); took <= old || slowest.CompareAndSwap(old, took) {
					return
				}
			}
		})
	}
	group.Wait()
	if took := time.Duration(slowest.Load()); took > 20*time.Second {
		t.Errorf("the slowest of 2,000 checks took %s, and has 200 ms", took)
	}
	testkit.Eventually(t, "nothing is left of the queries", func() bool {
		r.mu.Lock()
		defer r.mu.Unlock()
		return len(r.flights)+len(r.shares) == 0
	})
	testkit.Eventually(t, "no goroutine is left", func() bool { return runtime.NumGoroutine() <= before })
}

func TestQueriesAreObserved(t *testing.T) {
	s := nameserver.Serve(t, zone{"TXT a.test": {"text"}, "TXT broken.test": {"!SERVFAIL"}})
	var mu sync.Mutex
	seen := map[string]int{}
	r := newResolver(t, Settings{Server: s.Address, Observe: func(q Query) {
		mu.Lock()
		defer mu.Unlock()
		seen[q.Type+" "+q.Outcome]++
		if q.Elapsed <= 0 {
			t.Error("no time has passed")
		}
	}})
	for _, name := range []string{"a.test", "a.test", "none.test", "broken.test", "no..name"} {
		txt(t.Context(), r, name)
	}
	testkit.Equal(t, "fmt.Sprint(seen)", fmt.Sprint(seen), "map[TXT error:1 TXT none:1 TXT records:1]")
}

func TestNewResolverRefusesWhatIsNoServer(t *testing.T) {
	if _, err := NewResolver(Settings{Server: "127.0.0.1"}); err == nil || !strings.Contains(err.Error(), "HOST:PORT") {
		t.Error(err)
	}
}

package dnsbl

import (
	"context"
	"fmt"
	"net"
	"net/netip"
	"path/filepath"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/miekg/dns"
	"github.com/prometheus/client_golang/prometheus"

	"blockd/index"
	"blockd/internal/testkit"
	"blockd/internal/testkit/indexes"
	"blockd/mail/digest"
	"blockd/policy"
	"blockd/policy/rule"
	"blockd/records/history"
)

// rig is a server over lists of a test. Its zones are "dbl.here.example" (domains, all lists),
// "one.dbl.here.example" (domains, the list "one" alone) and "ip.here.example" (addresses) and "sha1.here.example" (digests).
type rig struct {
	t        testing.TB
	settings Settings
	verdicts policy.Settings
	live     atomic.Pointer[index.Index] // nil: the store is broken
	log      testkit.Log
	registry *prometheus.Registry
	mu       sync.Mutex
	told     []history.Record
	server   *Server
}

// testLists are the lists of a rig, by name.
var testLists = map[string]string{
	"one": "bulk.example\nbad.example\n*.sub.example\nspammer@person.example\n!good.bulk.example\n",
	"two": "ads.example\nxn--mller-kva.example\n192.0.2.7\n198.51.100.0/24\n2001:db8::/32\n127.0.0.0/8\n",
}

func newRig(t testing.TB, change func(*rig)) *rig {
	r := &rig{t: t, registry: prometheus.NewRegistry()}
	loopback := func(last byte) netip.Addr { return netip.AddrFrom4([4]byte{127, 0, 0, last}) }
	r.settings = Settings{Host: "mx.here.example", TTL: time.Minute, Zones: []Zone{
		{Name: "dbl.here.example", Kind: Domain, Required: []string{"one", "two"}, Answer: loopback(2)},
		{Name: "one.dbl.here.example", Kind: Domain, Lists: []string{"one"}, Required: []string{"one"}, Answer: loopback(3)},
		{Name: "ip.here.example", Kind: IP, Answer: loopback(4)},
		{Name: "sha1.here.example", Kind: Hash, Hash: digest.SHA1, Answer: loopback(5)},
	}}
	r.verdicts.Lists = map[string]rule.List{}
	r.verdicts.Decided = func(record history.Record) {
		r.mu.Lock()
		defer r.mu.Unlock()
		r.told = append(r.told, record)
	}
	r.load(testLists)
	if change != nil {
		change(r)
	}
	checker := policy.New(r.live.Load, r.verdicts, r.log.Logger(), r.registry)
	r.server = New(r.settings, r.live.Load, checker, r.registry, r.log.Logger())
	r.server.newRef = func() string { return "0123456789" }
	return r
}

// load has other lists serve from now on.
func (r *rig) load(all map[string]string) {
	var sources []index.Source
	for _, name := range []string{"one", "two"} {
		s := indexes.Source(r.t, name, all[name])
		s.Settings.Reason = "why \"" + name + "\" \\ ünd\nmore"
		sources = append(sources, s)
	}
	o := index.Options{Hashes: digest.SetOf(digest.SHA1, digest.SHA256)}
	r.live.Store(indexes.BuildWith(r.t, filepath.Join(r.t.TempDir(), "test.bdx"), o, sources...))
}

func (r *rig) worker() *worker { return &worker{Server: r.server} }

// ask asks by the general way and by the plain one, which must agree where both can.
func (r *rig) ask(name string, qtype uint16) *dns.Msg {
	r.t.Helper()
	q := new(dns.Msg)
	q.SetQuestion(dns.Fqdn(name), qtype)
	return r.exchange(pack(r.t, q), maxMessage)
}

func pack(t testing.TB, m *dns.Msg) []byte {
	t.Helper()
	packed := testkit.Value(m.Pack())(t)
	return packed
}

func (r *rig) exchange(query []byte, most int) *dns.Msg {
	r.t.Helper()
	w := r.worker()
	general := unpack(r.t, w.general(nil, query, byLists, most))
	if plain, ok := w.plain(nil, query, byLists, most); ok {
		if got := unpack(r.t, plain); got.String() != general.String() {
			r.t.Errorf("the plain way answers\n%s\nthe general one\n%s", got, general)
		}
	}
	return general
}

func unpack(t testing.TB, answer []byte) *dns.Msg {
	t.Helper()
	m := new(dns.Msg)
	if err := m.Unpack(answer); err != nil {
		t.Fatalf("answer %x: %v", answer, err)
	}
	return m
}

// serve serves at a port of loopback until the test ends.
func (r *rig) serve(host string) (address string, stop func()) {
	r.t.Helper()
	l, p := listen(r.t, host)
	return l.Addr().String(), testkit.Running(r.t, func(ctx context.Context) {
		testkit.Should(r.t, r.server.Serve(ctx, []net.PacketConn{p}, []net.Listener{l}))
	})
}

// listen opens one port by TCP and UDP.
func listen(t testing.TB, host string) (net.Listener, net.PacketConn) {
	t.Helper()
	for range 100 {
		l, err := net.Listen("tcp", net.JoinHostPort(host, "0"))
		if err != nil {
			t.Skipf("no %s here: %v", host, err)
		}
		p, err := net.ListenPacket("udp", l.Addr().String())
		if err == nil {
			return l, p
		}
		l.Close()
	}
	t.Fatal("no port is free by TCP and UDP")
	return nil, nil
}

// wants asks, and wants an answer.
func (r *rig) wants(want, name string, qtype uint16) {
	r.t.Helper()
	testkit.Equal(r.t, fmt.Sprintf("%s %s", name, dns.TypeToString[qtype]), shown(r.ask(name, qtype)), want)
}

// counts wants a value of a metric.
func (r *rig) counts(want float64, name string, labels ...string) {
	r.t.Helper()
	testkit.Equal(r.t, fmt.Sprintf("%s %q", name, labels), r.count(name, labels...), want)
}

func (r *rig) count(name string, labels ...string) float64 {
	r.t.Helper()
	sum := 0.0
	for _, v := range testkit.Samples(r.t, r.registry, name, labels...) {
		sum += v
	}
	return sum
}

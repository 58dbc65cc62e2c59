package msgauth

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"net/netip"
	"sync"
	"time"

	"github.com/miekg/dns"
)

// The bounds of a Resolver.
const (
	maxQueries = 32 // at one time
	maxWaiting = 10 // look-ups of one client network that are not answered yet

	tryTimeout     = 2 * time.Second
	defaultTimeout = 5 * time.Second

	// Of one name and type. An answer as a whole has at most 64 KiB: TCP's length
	// field says no more.
	maxRecords = 20
	maxRecord  = 8 << 10 // octets
)

// Settings of a Resolver.
type Settings struct {
	Server        string         // HOST:PORT; "" = those of /etc/resolv.conf
	Timeout       time.Duration  // of all queries for one SPF check or one message; 0 = 5 s
	TrustedRelays []netip.Prefix // clients of whom SPF can say nothing: see SPF
	Observe       func(Query)    // told of every query that went out; nil = nobody; must return at once
}

// Query is one question that was put to a server.
type Query struct {
	Type    string // "TXT", "A", "AAAA", "MX" or "PTR"
	Outcome string // "records", "none" or "error"
	Elapsed time.Duration
}

// Resolver asks DNS on behalf of SPF and DKIM, and remembers the answers. It is
// safe for concurrent use and starts no goroutine that outlives its queries.
type Resolver struct {
	settings Settings
	servers  []string
	slots    chan struct{} // one for each query under way

	mu      sync.Mutex
	cache   cache
	flights map[question]*flight
	waiting map[netip.Prefix]int // look-ups under way, by client network
}

// flight is one question under way, and who waits for it.
type flight struct {
	done    chan struct{} // closed when answer is there
	answer  answer
	waiters int
	cancel  context.CancelFunc // when the last of them has gone
	network netip.Prefix       // of the first of them
}

// errBusy is the error of a look-up that a Resolver has no room for.
var errBusy = errors.New("too many look-ups for this client's network")

// NewResolver returns a Resolver. The error tells that the system's list of servers
// cannot be read.
func NewResolver(s Settings) (*Resolver, error) {
	if s.Timeout <= 0 {
		s.Timeout = defaultTimeout
	}
	r := &Resolver{
		settings: s, slots: make(chan struct{}, maxQueries),
		cache: newCache(), flights: map[question]*flight{}, waiting: map[netip.Prefix]int{},
	}
	if s.Server != "" {
		if _, _, err := net.SplitHostPort(s.Server); err != nil {
			return nil, fmt.Errorf("resolver: want HOST:PORT, have %q", s.Server)
		}
		r.servers = []string{s.Server}
		return r, nil
	}
	system, err := dns.ClientConfigFromFile("/etc/resolv.conf")
	if errors.Is(err, fs.ErrNotExist) {
		system = &dns.ClientConfig{}
	} else if err != nil {
		return nil, fmt.Errorf("resolver: %w", err)
	}
	for _, host := range system.Servers {
		r.servers = append(r.servers, net.JoinHostPort(host, system.Port))
	}
	if len(r.servers) == 0 {
		r.servers = []string{"127.0.0.1:53"} // resolv.conf(5)
	}
	return r, nil
}

// question is a name, in canonical form, and a type.
type question struct {
	name string
	kind uint16
}

// budget bounds the time of what belongs together: one check, one message.
func (r *Resolver) budget(ctx context.Context) (context.Context, context.CancelFunc) {
	return context.WithTimeout(ctx, r.settings.Timeout)
}

// lookup answers from the cache, by a query that is under way, or by one of its
// own. network is that of the client for whose sake it asks. When ctx ends so does
// the wait, and the query too, if nobody else waits for it.
func (r *Resolver) lookup(ctx context.Context, network netip.Prefix, name string, kind uint16) answer {
	q := question{canonical(name), kind}
	if q.name == "" {
		return answer{outcome: none, fault: "no name that can be asked for"}
	}
	f, a, ok := r.board(network, q)
	if ok {
		return a
	}
	select {
	case <-f.done:
		a = f.answer
	case <-ctx.Done():
		a = answer{outcome: failed, fault: "no answer in time"}
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if f.waiters--; f.waiters == 0 {
		f.cancel()
		r.land(q, f) // who asks from now on begins anew
	}
	return a
}

// board returns an answer that is there, or the flight to wait for.
func (r *Resolver) board(network netip.Prefix, q question) (*flight, answer, bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if a, ok := r.cache.get(q); ok {
		return nil, a, true
	}
	f := r.flights[q]
	if f == nil {
		if r.waiting[network] >= maxWaiting {
			return nil, answer{outcome: failed, fault: errBusy.Error()}, true
		}
		ctx, cancel := context.WithTimeout(context.Background(), r.settings.Timeout)
		f = &flight{done: make(chan struct{}), cancel: cancel, network: network}
		r.flights[q] = f
		r.waiting[network]++
		go r.fly(ctx, q, f)
	}
	f.waiters++
	return f, answer{}, false
}

// land takes f out, once. It is called under the lock.
func (r *Resolver) land(q question, f *flight) {
	if r.flights[q] == f {
		delete(r.flights, q)
	}
}

// fly asks and remembers. It holds its place among those of its network until it
// has come back, also when nobody waits any more.
func (r *Resolver) fly(ctx context.Context, q question, f *flight) {
	defer f.cancel()
	defer close(f.done)
	f.answer = answer{outcome: failed, fault: "no answer in time"}
	select {
	case r.slots <- struct{}{}:
		began := time.Now()
		f.answer = r.ask(ctx, q)
		<-r.slots
		if r.settings.Observe != nil {
			r.settings.Observe(Query{dns.TypeToString[q.kind], f.answer.outcome.String(), time.Since(began)})
		}
	case <-ctx.Done():
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if !errors.Is(ctx.Err(), context.Canceled) { // nobody waited: nothing was learnt
		r.cache.put(q, f.answer)
	}
	r.land(q, f)
	if r.waiting[f.network]--; r.waiting[f.network] == 0 {
		delete(r.waiting, f.network)
	}
}

// networkOf is the network that shares a place in the queue with client: what one
// customer has. A client that is not known has one with all such.
func networkOf(client netip.Addr) netip.Prefix {
	client = client.WithZone("").Unmap()
	bits := 24
	if client.Is6() {
		bits = 48
	}
	p, err := client.Prefix(bits)
	if err != nil {
		return netip.Prefix{}
	}
	return p
}

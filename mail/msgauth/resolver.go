package msgauth

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"net/netip"
	"sync"
	"sync/atomic"
	"time"

	"github.com/miekg/dns"
	"golang.org/x/sync/semaphore"
)

// The bounds of a Resolver. What is beyond the first two waits for its turn.
const (
	maxQueries = 32 // at one time
	maxShare   = 10 // of them for the clients of one network

	tryTimeout     = 2 * time.Second
	defaultTimeout = 5 * time.Second

	// maxRecords is of one name and type. An answer as a whole, and so a record, has
	// at most 64 KiB: TCP's length field says no more.
	maxRecords = 500
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
	slots    *semaphore.Weighted // one for each query under way

	mu      sync.Mutex
	cache   cache
	flights map[question]*flight
	shares  map[netip.Prefix]*share // by client network; none that nobody uses
}

// flight is one question under way, and who waits for it.
type flight struct {
	done    chan struct{} // closed when answer is there
	answer  answer
	waiters int
	queued  bool               // there was no slot at once
	cancel  context.CancelFunc // when the last of the waiters has gone
}

// share is what one client network may have under way.
type share struct {
	places *semaphore.Weighted
	users  int // who have a place or wait for one
}

// errBusy is the fault of a look-up whose turn did not come in time.
var errBusy = errors.New("too many look-ups at one time")

// NewResolver returns a Resolver. The error tells that the system's list of servers
// cannot be read.
func NewResolver(s Settings) (*Resolver, error) {
	if s.Timeout <= 0 {
		s.Timeout = defaultTimeout
	}
	r := &Resolver{
		settings: s, slots: semaphore.NewWeighted(maxQueries),
		cache: newCache(), flights: map[question]*flight{}, shares: map[netip.Prefix]*share{},
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
	return context.WithTimeout(context.WithValue(ctx, queuedKey{}, new(atomic.Bool)), r.settings.Timeout)
}

// queuedKey is the key of an *atomic.Bool in the context of a budget: one of its look-ups has waited for a place of ours.
// The time for that is missing to those that come after it.
type queuedKey struct{}

// hasQueued reports whether a look-up of a budget has waited for a place of ours.
func hasQueued(budget context.Context) bool {
	queued, ok := budget.Value(queuedKey{}).(*atomic.Bool)
	return ok && queued.Load()
}

// hasToQueue notes that one does.
func hasToQueue(budget context.Context) {
	if queued, ok := budget.Value(queuedKey{}).(*atomic.Bool); ok {
		queued.Store(true)
	}
}

// lookup answers from the cache, by a query that is under way, or by one of its
// own, for which it waits until its turn comes. network is that of the client for whose
// sake it asks. When ctx ends so does the wait, and the query too, if nobody else waits
// for it.
func (r *Resolver) lookup(ctx context.Context, network netip.Prefix, name string, kind uint16) answer {
	q := question{canonicalName(name), kind}
	if q.name == "" {
		return answer{outcome: none, fault: "no name that can be asked for"}
	}
	f, a, ok := r.join(q)
	if ok {
		return a
	}
	waited := false
	if f == nil {
		var done func()
		if done, waited = r.turn(ctx, network); done == nil {
			return answer{outcome: short, fault: errBusy.Error()}
		}
		if f, a, ok = r.start(q, done); ok {
			return a
		}
	}
	select {
	case <-f.done:
		a = f.answer
	case <-ctx.Done():
		a = answer{outcome: failed, fault: "no answer in time"}
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if waited || f.queued {
		hasToQueue(ctx)
	}
	if a.outcome == failed && (waited || f.queued || ctx.Err() != nil && hasQueued(ctx)) { // the time went by in a queue of ours
		a = answer{outcome: short, fault: errBusy.Error()}
	}
	if f.waiters--; f.waiters == 0 {
		f.cancel()
		r.land(q, f) // who asks from now on begins anew
	}
	return a
}

// turn waits for a place among those of network, first come first served, and says
// whether it had to. done gives it back; it is nil if ctx has ended first.
func (r *Resolver) turn(ctx context.Context, network netip.Prefix) (done func(), waited bool) {
	r.mu.Lock()
	s := r.shares[network]
	if s == nil {
		s = &share{places: semaphore.NewWeighted(maxShare)}
		r.shares[network] = s
	}
	s.users++
	r.mu.Unlock()
	leave := func() {
		r.mu.Lock()
		defer r.mu.Unlock()
		if s.users--; s.users == 0 {
			delete(r.shares, network)
		}
	}
	if !s.places.TryAcquire(1) {
		waited = true
		if s.places.Acquire(ctx, 1) != nil {
			leave()
			return nil, waited
		}
	}
	return func() { s.places.Release(1); leave() }, waited
}

// join returns an answer that is there, or the flight to wait for, if there is one.
func (r *Resolver) join(q question) (*flight, answer, bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.joinLocked(q)
}

func (r *Resolver) joinLocked(q question) (*flight, answer, bool) {
	if a, ok := r.cache.get(q); ok {
		return nil, a, true
	}
	f := r.flights[q]
	if f != nil {
		f.waiters++
	}
	return f, answer{}, false
}

// start is join for who has a place, which is given back by done: without a flight it
// begins one.
func (r *Resolver) start(q question, done func()) (*flight, answer, bool) {
	r.mu.Lock()
	f, a, ok := r.joinLocked(q)
	if f == nil && !ok {
		ctx, cancel := context.WithTimeout(context.Background(), r.settings.Timeout)
		f = &flight{done: make(chan struct{}), waiters: 1, cancel: cancel}
		r.flights[q] = f
		go r.fly(ctx, q, f, done)
		done = func() {}
	}
	r.mu.Unlock()
	done()
	return f, a, ok
}

// land takes f out, once. It is called under the lock.
func (r *Resolver) land(q question, f *flight) {
	if r.flights[q] == f {
		delete(r.flights, q)
	}
}

// fly asks and remembers. It holds its place among those of its network until it
// has come back, also when nobody waits any more.
func (r *Resolver) fly(ctx context.Context, q question, f *flight, done func()) {
	defer done()
	defer f.cancel()
	defer close(f.done)
	f.answer = answer{outcome: failed, fault: "no answer in time"}
	if r.slot(ctx, f) {
		began := time.Now()
		f.answer = r.ask(ctx, q)
		r.slots.Release(1)
		if r.settings.Observe != nil {
			r.settings.Observe(Query{dns.TypeToString[q.kind], f.answer.outcome.String(), time.Since(began)})
		}
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if a := f.answer.outcome; a != short && !(a == failed && f.queued) && !errors.Is(ctx.Err(), context.Canceled) {
		r.cache.put(q, f.answer) // else nothing was learnt of the server
	}
	r.land(q, f)
}

// slot waits for one of all queries, and reports whether it has it.
func (r *Resolver) slot(ctx context.Context, f *flight) bool {
	if r.slots.TryAcquire(1) {
		return true
	}
	r.mu.Lock()
	f.queued = true
	r.mu.Unlock()
	return r.slots.Acquire(ctx, 1) == nil
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

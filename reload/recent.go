package reload

import (
	"cmp"
	"maps"
	"math/bits"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"time"

	"blockd/lists"
	"blockd/mail/addr"
)

// Recent remembers the senders of messages that the next server has accepted lately and that
// no list has an entry for. A list that is poisoned, or meant for another purpose, would
// refuse them.
//
// Strangers send such messages too, so the influence of a stranger is kept small:
//   - a registered domain counts once a day, however many local-parts and names it has;
//   - a client network, /24 or /48, counts for networkADay domains a day;
//   - a sender that was seen on one day alone gives way to others; one of several days
//     stays until it has been silent for keepDays;
//   - when there is no room left, newcomers of one day take at most a quarter of it.
//
// All methods may be used from any goroutine. A nil Recent remembers no sender.
type Recent struct {
	mu      sync.RWMutex
	maximum int
	senders map[string]*sender
	domains map[string]*domain
	changed bool // since it was last saved

	day       int                  // of what follows
	networks  map[netip.Prefix]int // domains that each network has counted for
	newcomers int                  // senders that others have made room for
	yielding  []string             // senders that may be forgotten, the first one last
	sorted    bool                 // yielding was made
}

const (
	keepDays    = 30 // a sender or domain that is silent for so long is forgotten
	networkADay = 3  // domains that one client network counts for in a day
	sendersEach = 4  // senders that a domain is remembered by
)

// days are those on which a sender or a domain wrote.
type days struct {
	last int    // the day, by Unix time
	seen uint32 // bit i: i days before last
}

// mark notes a day.
func (d *days) mark(day int) {
	if day > d.last || d.seen == 0 {
		d.seen, d.last = d.seen<<min(day-d.last, 32)|1, day
	}
}

// count returns the number of days within keepDays before day.
func (d days) count(day int) int {
	if ago := day - d.last; ago > 0 {
		d.seen <<= min(ago, 32) // those that fall out of the 32 are older than keepDays
	}
	return bits.OnesCount32(d.seen & (1<<keepDays - 1))
}

// sender is one address, with the client that it last came from.
type sender struct {
	days
	address addr.Addr
	client  netip.Addr
	domain  *domain
}

// domain is a registered domain.
type domain struct {
	days
	name    string
	senders []*sender
}

// NewRecent returns a Recent of at most n senders, nil if n is 0. A sender takes some 400
// octets, at most 1,200.
func NewRecent(n int) *Recent {
	if n <= 0 {
		return nil
	}
	return &Recent{maximum: n, senders: map[string]*sender{}, domains: map[string]*domain{}, networks: map[netip.Prefix]int{}}
}

func today() int { return int(time.Now().Unix() / (24 * 60 * 60)) }

// Add notes the sender and the client of a message that the next server has accepted.
func (r *Recent) Add(a addr.Addr, client netip.Addr) {
	if !r.Wants(a, client) {
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.begin(today())
	r.add(a, client)
}

// Wants reports whether Add may note anything. For a sender that has written today, as nearly
// all have, it is a look-up under a shared lock and does not allocate.
func (r *Recent) Wants(a addr.Addr, client netip.Addr) bool {
	if _, ok := a.Key(); r == nil || !ok { // a sender that no entry can name
		return false
	}
	day := today()
	r.mu.RLock()
	defer r.mu.RUnlock()
	s := r.senders[a.String()]
	if s != nil && s.last >= day {
		return false
	}
	if d := r.domains[registered(a)]; d != nil && d.last >= day {
		return s != nil || len(d.senders) < sendersEach || d.yields(day) >= 0
	}
	return r.day != day || r.networks[network(client)] < networkADay
}

// begin begins a day.
func (r *Recent) begin(day int) {
	if day == r.day {
		return
	}
	r.day, r.newcomers, r.yielding, r.sorted = day, 0, nil, false
	clear(r.networks)
}

func (r *Recent) add(a addr.Addr, client netip.Addr) {
	s, d := r.senders[a.String()], r.domains[registered(a)]
	counted := d != nil && d.last >= r.day
	if !counted && r.networks[network(client)] >= networkADay {
		return
	}
	if s == nil {
		if s = r.admit(a, d); s == nil {
			return
		}
		d = s.domain
	}
	if !counted {
		d.mark(r.day)
		r.networks[network(client)]++
	}
	s.mark(r.day)
	s.client = client
	r.changed = true
}

// admit adds a sender that is not known, of a domain that may be known. It returns nil if there
// is no room.
func (r *Recent) admit(a addr.Addr, d *domain) *sender {
	a, err := addr.Parse(strings.Clone(a.String())) // the text may be a part of a whole command line
	if err != nil {
		return nil // it is canonical, so this cannot be
	}
	s := &sender{address: a, domain: d}
	full := len(r.senders) >= r.maximum
	if d != nil && (full || len(d.senders) == sendersEach) {
		if i := d.yields(r.day); i >= 0 {
			delete(r.senders, d.senders[i].address.String())
			d.senders[i] = s
			r.senders[a.String()] = s
			return s
		}
		if len(d.senders) == sendersEach {
			return nil
		}
	}
	if full {
		if r.newcomers >= max(r.maximum/4, 1) || !r.makeRoom() {
			return nil
		}
		r.newcomers++
	}
	if d == nil {
		d = &domain{name: strings.Clone(registered(a))}
		r.domains[d.name], s.domain = d, d
	}
	d.senders = append(d.senders, s)
	r.senders[a.String()] = s
	return s
}

// yields returns the index of the sender that gives way to another one of its domain: of those
// that were seen on one day alone, and not today, the one that has been silent longest. -1: none.
func (d *domain) yields(day int) int {
	found := -1
	for i, s := range d.senders {
		if s.last < day && s.count(day) <= 1 && (found < 0 || s.last < d.senders[found].last) {
			found = i
		}
	}
	return found
}

// makeRoom forgets the sender that has been silent longest, of those that may be forgotten. It
// reports whether there was one. They are sorted once a day.
func (r *Recent) makeRoom() bool {
	if !r.sorted {
		r.sorted = true
		var all []*sender
		for _, s := range r.senders {
			if s.mayGo(r.day) {
				all = append(all, s)
			}
		}
		slices.SortFunc(all, func(a, b *sender) int {
			return cmp.Or(cmp.Compare(b.last, a.last), strings.Compare(a.address.String(), b.address.String()))
		})
		for _, s := range all {
			r.yielding = append(r.yielding, s.address.String())
		}
	}
	for n := len(r.yielding); n > 0; n = len(r.yielding) {
		s := r.senders[r.yielding[n-1]]
		r.yielding = r.yielding[:n-1]
		if s != nil && s.mayGo(r.day) { // it may have written since
			r.drop(s)
			return true
		}
	}
	return false
}

// mayGo reports whether a sender may be forgotten for one of another domain: it was seen on one
// day alone, and not today, and so was its domain, unless that has other senders.
func (s *sender) mayGo(day int) bool {
	return s.last < day && s.count(day) <= 1 && (s.domain.count(day) <= 1 || len(s.domain.senders) > 1)
}

// drop forgets a sender, and its domain with the last one.
func (r *Recent) drop(s *sender) {
	delete(r.senders, s.address.String())
	d := s.domain
	d.senders = slices.DeleteFunc(d.senders, func(other *sender) bool { return other == s })
	if len(d.senders) == 0 {
		delete(r.domains, d.name)
	}
	r.changed = true
}

// writer is a domain as the gate asks about it.
type writer struct {
	days    int // on which it wrote
	senders []sender
}

// writers returns the domains that wrote within keepDays, in the order of their names.
func (r *Recent) writers() []writer {
	if r == nil {
		return nil
	}
	day := today()
	r.mu.RLock()
	defer r.mu.RUnlock()
	var all []writer
	for _, name := range slices.Sorted(maps.Keys(r.domains)) {
		d := r.domains[name]
		w := writer{days: d.count(day)}
		for _, s := range d.senders {
			if s.count(day) > 0 {
				w.senders = append(w.senders, *s)
			}
		}
		if w.days > 0 && len(w.senders) > 0 {
			all = append(all, w)
		}
	}
	return all
}

// registered returns the registered domain of a sender, or the whole domain if it is an
// address literal or a public suffix.
func registered(a addr.Addr) string {
	if name := lists.RegistrableDomain(a.Domain()); name != "" {
		return name
	}
	return a.Domain()
}

// network returns the network that counts as one client: /24 or /48. Clients without a known
// address are one.
func network(client netip.Addr) netip.Prefix {
	client = client.Unmap().WithZone("")
	n := 48
	if client.Is4() {
		n = 24
	}
	p, _ := client.Prefix(n) // zero for an address that is not valid
	return p
}

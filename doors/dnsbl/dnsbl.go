// Package dnsbl answers questions by DNS: lists of addresses and of domains as in RFC 5782, and of
// senders by digests, as HashBL of SpamAssassin and rbl of rspamd ask for them.
// Package policy judges; this package reads names and writes answers.
//
// An address in an answer means "listed", and mail servers refuse by it. Whatever is wrong is
// SERVFAIL, which every client takes for "not known": an index that cannot be read, lists that
// never loaded, a defect.
package dnsbl

import (
	"cmp"
	"log/slog"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/miekg/dns"
	"github.com/prometheus/client_golang/prometheus"

	"blockd/index"
	"blockd/internal/listener"
	"blockd/mail/digest"
	"blockd/policy"
)

// Settings of a Server. The zero Settings serve no zone to loopback.
type Settings struct {
	Zones     []Zone
	Host      string              // of this server, for NS and SOA: a canonical domain, as addr.DomainKey makes it
	AllowFrom []netip.Prefix      // clients that are answered; none = loopback
	Strangers *listener.Strangers // remembers those that are in no network of AllowFrom; may be nil
	TTL       time.Duration       // of every answer, in whole seconds; 0 = 60 s

	MaxRate        int // UDP answers a second to one network, an IPv4 /24 or an IPv6 /56; 0 = any number
	MaxConnections int // open TCP connections at once, at most half of them from one client; 0 = 256
}

// Zone is a domain whose names are questions.
type Zone struct {
	Name     string           // canonical, as addr.DomainKey makes it; zones may be below each other
	Kind     Kind             // what a name in it stands for
	Hash     digest.Algorithm // of a zone of kind Hash
	Lists    []string         // names of the lists that count; nil = all
	Required []string         // those of them that are not optional: until one was read, the zone is SERVFAIL
	Answer   netip.Addr       // of a listed name; within 127.0.0.0/8
}

// Kind is what the names of a zone stand for.
type Kind string

// The kinds.
const (
	IP     Kind = "ip"     // addresses of clients: reversed octets of IPv4, reversed nibbles of IPv6
	Domain Kind = "domain" // domains of senders
	Hash   Kind = "hash"   // digests of senders
)

func (s Settings) withDefaults() Settings {
	if len(s.AllowFrom) == 0 {
		s.AllowFrom = listener.Loopback()
	}
	s.Host = cmp.Or(s.Host, "localhost")
	s.TTL = cmp.Or(s.TTL, time.Minute)
	s.MaxConnections = cmp.Or(s.MaxConnections, 256)
	return s
}

// Server answers by UDP and TCP. Its methods are safe for concurrent use. Serve is called once.
type Server struct {
	settings Settings
	zones    map[string]*zone // by their names on the wire, in lower case
	depths   []int            // the numbers of labels that zones have, the largest first
	ttl      uint32
	host     []byte // on the wire
	mailbox  []byte // of the person who answers for the zones, as SOA has it

	live    func() *index.Index
	state   atomic.Pointer[state]
	checker *policy.Checker
	listed  *policy.Told  // A and other answers, in the history
	told    *policy.Told  // TXT answers, which name their reference
	newRef  func() string // a reference for a text
	rate    *limiter      // nil: none
	metrics *metrics
	log     *slog.Logger
	calm    *listener.CalmLog

	mu       sync.Mutex // guards what follows
	open     map[*session]netip.Prefix
	clients  map[netip.Prefix]int // sessions of a client
	sessions sync.WaitGroup
}

// New returns a Server over checker. The generation in service is that of live, whose age is
// the serial of every zone. Metrics go to reg, which can hold those of one Server.
func New(s Settings, live func() *index.Index, checker *policy.Checker, reg prometheus.Registerer, log *slog.Logger) *Server {
	s = s.withDefaults()
	srv := &Server{settings: s, zones: map[string]*zone{}, ttl: uint32(s.TTL / time.Second),
		host: wire(s.Host), mailbox: wire("hostmaster." + s.Host),
		live: live, checker: checker, listed: checker.Told("dns"), told: checker.Told("dns"), newRef: checker.NewRef,
		metrics: newMetrics(reg), log: log, calm: listener.NewCalmLog(log),
		open: map[*session]netip.Prefix{}, clients: map[netip.Prefix]int{}}
	if s.MaxRate > 0 {
		srv.rate = newLimiter(uint32(s.MaxRate))
	}
	for i, z := range s.Zones {
		known := &zone{Zone: z, number: i, read: z.reader(), answers: srv.metrics.of(z.Name)}
		if z.Lists != nil {
			known.lists = map[string]bool{}
			for _, name := range z.Lists {
				known.lists[name] = true
			}
		}
		srv.zones[string(wire(z.Name))] = known
		srv.depths = append(srv.depths, strings.Count(z.Name, ".")+1)
	}
	slices.Sort(srv.depths)
	srv.depths = slices.Compact(srv.depths)
	slices.Reverse(srv.depths)
	return srv
}

// wire is a canonical domain on the wire. One that has no room there is the root.
func wire(domain string) []byte {
	var octets [maxName]byte
	n, err := dns.PackDomainName(dns.Fqdn(domain), octets[:], 0, nil, false)
	if err != nil {
		return []byte{0}
	}
	return octets[:n]
}

package listener

import (
	"context"
	"fmt"
	"log/slog"
	"net"
	"net/netip"
	"slices"
	"sync"
	"time"
)

const (
	strangerCalm   = time.Minute // between two lines of one network
	strangerLines  = 8           // lines in that time, of all networks: addresses of UDP may be forged
	strangerMemory = time.Hour   // a network that has not come for so long is forgotten
	maxStrangers   = 32          // networks that are remembered
)

// Strangers are the networks that a door has turned away lately, because they are in none of those that may ask. They are
// told loudly: a mail server whose milter turns it away lets all mail pass, and says nothing. Any number of goroutines may
// use it at once. A nil *Strangers remembers nothing.
type Strangers struct {
	door, key string
	log       *slog.Logger

	mu     sync.Mutex
	known  map[netip.Prefix]*stranger
	window time.Time // since then lines are counted
	lines  int
}

type stranger struct {
	count      uint64    // since it is remembered
	last, said time.Time // when it came, and when a line said so
	unsaid     uint64
}

// NewStrangers returns those of a door that is named so in the log, and whose networks are at key in the configuration.
func NewStrangers(door, key string, log *slog.Logger) *Strangers {
	return &Strangers{door: door, key: key, log: log, known: map[netip.Prefix]*stranger{}}
}

// TurnedAway notes a client of TCP or UDP.
func (s *Strangers) TurnedAway(peer net.Addr) {
	switch a := peer.(type) {
	case *net.TCPAddr:
		s.TurnedAwayIP(a.AddrPort().Addr())
	case *net.UDPAddr:
		s.TurnedAwayIP(a.AddrPort().Addr())
	}
}

// TurnedAwayIP notes a client by its address.
func (s *Strangers) TurnedAwayIP(ip netip.Addr) {
	network := Network(ip)
	if s == nil || !network.IsValid() {
		return
	}
	now := time.Now()
	s.mu.Lock()
	defer s.mu.Unlock()
	one := s.known[network]
	if one == nil {
		if len(s.known) >= maxStrangers {
			s.forget()
		}
		one = &stranger{}
		s.known[network] = one
	}
	one.count++
	one.unsaid++
	one.last = now
	if now.Sub(s.window) >= strangerCalm || now.Before(s.window) { // before: the clock was set back
		s.window, s.lines = now, 0
	}
	if age := now.Sub(one.said); s.lines >= strangerLines || age >= 0 && age < strangerCalm {
		return
	}
	s.lines++
	s.log.LogAttrs(context.Background(), slog.LevelWarn, s.door+" client turned away: it is in no network of "+s.key,
		slog.String("network", shown(network)), slog.Uint64("times", one.unsaid), slog.String("hint", s.hint(network)))
	one.said, one.unsaid = now, 0
}

// forget removes the network that has not come for the longest time.
func (s *Strangers) forget() {
	var oldest netip.Prefix
	for network, one := range s.known {
		if !oldest.IsValid() || one.last.Before(s.known[oldest].last) {
			oldest = network
		}
	}
	delete(s.known, oldest)
}

func (s *Strangers) hint(network netip.Prefix) string {
	return fmt.Sprintf("if it is yours, add %q to %s", shown(network), s.key)
}

// shown is a network as people write it in a list of networks: that of one address without its length.
func shown(network netip.Prefix) string {
	if network.IsSingleIP() {
		return network.Addr().String()
	}
	return network.String()
}

// maxRemarks bounds what Remarks returns of one door.
const maxRemarks = 3

// Remarks are a line for each network that was turned away within the last hour, of those that came last, and one for the
// number of the others. Each begins with the key.
func (s *Strangers) Remarks() (lines []string) {
	if s == nil {
		return nil
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	now := time.Now()
	var networks []netip.Prefix
	for network, one := range s.known {
		if now.Sub(one.last) >= strangerMemory {
			delete(s.known, network)
		} else {
			networks = append(networks, network)
		}
	}
	slices.SortFunc(networks, func(a, b netip.Prefix) int {
		if c := s.known[b].last.Compare(s.known[a].last); c != 0 {
			return c
		}
		return a.Addr().Compare(b.Addr())
	})
	for i, network := range networks {
		if i == maxRemarks {
			lines = append(lines, fmt.Sprintf("%s: clients of %d more networks were turned away", s.key, len(networks)-i))
			break
		}
		one := s.known[network]
		lines = append(lines, fmt.Sprintf("%s: %s was turned away %d times, last at %s; %s", s.key, shown(network), one.count,
			one.last.UTC().Format(time.RFC3339), s.hint(network)))
	}
	return lines
}

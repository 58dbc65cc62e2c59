package verdict

import (
	"encoding/binary"
	"math"
	"net/netip"

	"github.com/dchest/siphash"

	"blockd/lists"
)

// ShareKeySize is that of the key of Shares, in octets.
const ShareKeySize = 16

// Shares say which senders a list counts for that counts for a share of them alone ([[list]] percent). A sender is its
// registered domain, so that all of a company is in or out, and a client, which entries for addresses and networks are
// about, its network, /24 or /48. The place of a sender is a keyed hash of it, and the name of the list turns the places: two lists
// of ten percent do not try themselves on the same senders. More percent add senders and remove none. Shares do not change.
type Shares struct {
	key   [2]uint64
	lists map[string]share
}

type share struct {
	percent float64
	salt    uint64 // of the list's name
	limit   uint64 // places below it are in
}

// NewShares makes those of the lists that have less than 100 percent; nil if there are none.
func NewShares(key [ShareKeySize]byte, percents map[string]float64) *Shares {
	s := &Shares{key: [2]uint64{binary.LittleEndian.Uint64(key[:8]), binary.LittleEndian.Uint64(key[8:])}, lists: map[string]share{}}
	for list, percent := range percents {
		if percent < 100 {
			s.lists[list] = share{percent: percent, salt: s.sum('l', list), limit: uint64(percent / 100 * math.MaxUint64)}
		}
	}
	if len(s.lists) == 0 {
		return nil
	}
	return s
}

// sum is the keyed hash of a text; purpose keeps those of different purposes apart.
func (s *Shares) sum(purpose byte, text string) uint64 {
	return siphash.Hash(s.key[0], s.key[1], append([]byte{purpose}, text...))
}

// Percent is the share of senders that a list counts for: 100 is all.
func (s *Shares) Percent(list string) float64 {
	if s != nil {
		if l, partial := s.lists[list]; partial {
			return l.percent
		}
	}
	return 100
}

// has reports whether a list counts at a place.
func (s *Shares) has(list string, place uint64) bool {
	l, partial := s.lists[list]
	if !partial {
		return true
	}
	var both [16]byte
	binary.LittleEndian.PutUint64(both[:8], place)
	binary.LittleEndian.PutUint64(both[8:], l.salt)
	return siphash.Hash(s.key[0], s.key[1], both[:]) < l.limit
}

// places are where a sender and a client are, for all lists.
type places struct {
	known          bool
	sender, client uint64
}

// place finds them, once: v is about one sender.
func (v *Verdict) place() {
	if v.Shares == nil || v.places.known || len(v.Matches)+len(v.Unasked) == 0 {
		return
	}
	domain := v.Sender.Domain()
	if domain == "" {
		domain = v.Domain.Text
	}
	if name := lists.RegistrableDomain(domain); name != "" {
		domain = name
	}
	v.places = places{known: true, client: v.Shares.sum('c', network(v.Client))}
	if v.places.sender = v.places.client; domain != "" {
		v.places.sender = v.Shares.sum('d', domain)
	}
}

// network is that of a client as a text; clients without a known address are one.
func network(client netip.Addr) string {
	bits := 48
	if client.Is4() {
		bits = 24
	}
	p, err := client.Prefix(bits)
	if err != nil {
		return ""
	}
	return p.String()
}

// outside reports whether a list does not count for the sender, or for the client. Decide has found their places.
func (v *Verdict) outside(list string, client bool) bool {
	if v.Shares == nil {
		return false
	}
	place := v.places.sender
	if client {
		place = v.places.client
	}
	return !v.Shares.has(list, place)
}

// Percent is the share of senders that the list of Matches[i] counts for, 100 for all, and whether the sender or the client
// that it is about is one of them.
func (v *Verdict) Percent(i int) (percent float64, within bool) {
	list := v.ListName(i)
	return v.Shares.Percent(list), !v.outside(list, v.AboutClient(i))
}

// PercentMode is the Mode of a block whose list does not count for this sender.
const PercentMode = "percent"

package dnsbl

import (
	"net/netip"

	"github.com/prometheus/client_golang/prometheus"

	"blockd/mail/digest"
	"blockd/policy"
)

// zone is a Zone that is served.
type zone struct {
	Zone
	number  int             // in Settings
	lists   map[string]bool // nil = all
	read    reader
	answers [answerKinds]prometheus.Counter
}

// subject is what a name below a zone stands for.
type subject struct {
	what what
	// between: the name may have others below it, even if it is not listed. RFC 8020 lets a
	// resolver conclude from "no such name" that there are none, so it must not be said.
	between bool
	ip      netip.Addr // of a question about a client
	size    int        // of another question: octets of the name that are the domain or the digest
}

// what is a kind of name.
type what uint8

const (
	isNothing  what = iota // there can be no such name
	isApex                 // the zone itself
	isTest                 // always listed (RFC 5782, section 5)
	isBetween              // part of longer names, and no question by itself
	isQuestion             // ask the lists
)

// reader reads the first labels of a name, of which there is one at least.
type reader func(n *name, labels int) subject

// reader is what reads the names below z.
func (z Zone) reader() reader {
	switch z.Kind {
	case IP:
		return readIP
	case Domain:
		return readDomain
	}
	return func(n *name, labels int) subject { return readDigest(n, labels, z.Hash) }
}

// zoneOf is the zone that a name belongs to, and the number of labels in front of it; nil if
// there is none.
func (s *Server) zoneOf(n *name) (z *zone, labels int) {
	for _, depth := range s.depths {
		if labels = n.labels - depth; labels < 0 {
			continue
		}
		if z = s.zones[string(n.from(labels))]; z != nil {
			return z, labels
		}
	}
	return nil, 0
}

// The numbers of labels that addresses have.
const (
	octets4  = 4
	nibbles6 = 32
)

// The addresses that test a list (RFC 5782, section 5): one is always listed, and the other
// never is.
var (
	testListed = netip.AddrFrom4([4]byte{127, 0, 0, 2})
	testClear  = netip.AddrFrom4([4]byte{127, 0, 0, 1})
)

// readIP reads reversed octets, or reversed nibbles.
func readIP(n *name, labels int) subject {
	var s subject
	octets, nibbles := allOctets(n, labels), allNibbles(n, labels)
	switch {
	case octets && labels == octets4:
		s.ip, s.between = address4(n), nibbles
	case nibbles && labels == nibbles6:
		s.ip = address6(n)
	case octets && labels < octets4, nibbles && labels < nibbles6:
		return subject{what: isBetween}
	default:
		return subject{}
	}
	s.what = isQuestion
	switch s.ip.Unmap() {
	case testListed:
		s.what = isTest
	case testClear:
		s.what = isNothing
	}
	return s
}

func allOctets(n *name, labels int) bool {
	if labels > octets4 {
		return false
	}
	for i := range labels {
		if _, ok := octet(n.label(i)); !ok {
			return false
		}
	}
	return true
}

func allNibbles(n *name, labels int) bool {
	if labels > nibbles6 {
		return false
	}
	for i := range labels {
		if l := n.label(i); len(l) != 1 || hex(l[0]) < 0 {
			return false
		}
	}
	return true
}

func address4(n *name) netip.Addr {
	var a [4]byte
	for i := range a {
		a[len(a)-1-i], _ = octet(n.label(i))
	}
	return netip.AddrFrom4(a)
}

func address6(n *name) netip.Addr {
	var a [16]byte
	for i := range nibbles6 {
		at := nibbles6 - 1 - i
		a[at/2] |= byte(hex(n.label(i)[0])) << (4 * (1 - at%2))
	}
	return netip.AddrFrom16(a)
}

// octet reads a decimal number without leading zeros.
func octet(label []byte) (value byte, ok bool) {
	if len(label) > 3 || len(label) > 1 && label[0] == '0' {
		return 0, false
	}
	sum := 0
	for _, c := range label {
		if c < '0' || c > '9' {
			return 0, false
		}
		sum = 10*sum + int(c-'0')
	}
	return byte(sum), sum < 256
}

// hex is the value of a hexadecimal digit, or -1.
func hex(c byte) int {
	switch {
	case '0' <= c && c <= '9':
		return int(c - '0')
	case 'a' <= c && c <= 'f':
		return int(c-'a') + 10
	}
	return -1
}

// readDomain reads a domain, of which addr.DomainKey says more. A label may hold any octet,
// and a dot in one must not become a dot between two.
func readDomain(n *name, labels int) subject {
	for i := range labels {
		for _, c := range n.label(i) {
			if !inDomain(c) {
				return subject{}
			}
		}
	}
	s := subject{what: isQuestion, between: labels == 1, size: len(n.octets[:n.size]) - len(n.from(labels))}
	if labels == 1 {
		switch string(n.label(0)) {
		case "test":
			return subject{what: isTest}
		case "invalid":
			return subject{}
		}
	}
	return s
}

// readDigest reads one label, which is a digest by one algorithm.
func readDigest(n *name, labels int, by digest.Algorithm) subject {
	if labels != 1 {
		return subject{}
	}
	label := n.label(0)
	if d, err := digest.Parse(string(label)); err != nil || d.Algorithm != by {
		return subject{}
	}
	return subject{what: isQuestion, size: 1 + len(label)}
}

func inDomain(c byte) bool {
	return 'a' <= c && c <= 'z' || '0' <= c && c <= '9' || c == '-' || c == '_' || c >= 0x80
}

// state is what the zones take from one generation.
type state struct {
	generation string
	serial     uint32
	loaded     []bool // by the number of the zone
}

// serving returns the state of the generation that serves.
func (s *Server) serving() *state {
	ix := s.live()
	now := s.state.Load()
	if now != nil && now.generation == ix.Generation() {
		return now
	}
	// An index is not kept: the state must not hold a former generation in memory.
	now = &state{generation: ix.Generation(), serial: uint32(ix.Built().Unix()), loaded: make([]bool, len(s.settings.Zones))}
	for _, z := range s.zones {
		now.loaded[z.number] = ix.AnyRead(z.Required)
	}
	s.state.Store(now)
	return now
}

// question is what the lists of a zone are asked.
func (w *worker) question(z *zone, s subject) policy.Question {
	q := policy.Question{About: policy.AboutClient, Client: s.ip, Lists: z.lists}
	switch z.Kind {
	case Domain:
		q.About, q.Text = policy.AboutDomain, w.text(s.size)
	case Hash:
		q.About, q.Text = policy.AboutHash, w.text(s.size)
	}
	return q
}

// text is the first octets of the name as a text: with dots in place of lengths. It is cut from
// a block that is never written again, so that the history may keep it.
func (w *worker) text(size int) string {
	if w.texts.Cap()-w.texts.Len() < size {
		w.texts.Reset()
		w.texts.Grow(textBlock)
	}
	start := w.texts.Len()
	for next, i := w.name.octets[0]+1, 1; i < size; i++ {
		c := w.name.octets[i]
		if i == int(next) {
			next += c + 1
			c = '.'
		}
		w.texts.WriteByte(c)
	}
	return w.texts.String()[start:]
}

// textBlock is the size of the blocks that texts are cut from: one for some 200 questions.
const textBlock = 4 << 10

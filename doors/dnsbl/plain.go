package dnsbl

import (
	"encoding/binary"

	"github.com/miekg/dns"
)

// The sizes of messages.
const (
	headerSize = 12
	// maxUDP is the largest answer by UDP: it crosses every network in one packet
	// (https://www.dnsflagday.net/2020/).
	maxUDP     = 1232
	minUDP     = 512   // what every client has room for
	maxMessage = 65535 // by TCP
	optSize    = 11    // of an OPT record without options
)

// The bits of a header's flags.
const (
	flagResponse      = 1 << 15
	flagAuthoritative = 1 << 10
	flagTruncated     = 1 << 9
	flagRD            = 1 << 8
	flagAD            = 1 << 5
	flagCD            = 1 << 4
)

// how is what a message is answered with.
type how uint8

const (
	byLists  how = iota // what it asks for
	refusing            // REFUSED: the client is not one of ours
	slipping            // a truncated answer: the client is to ask again by TCP
)

// plain appends the answer to a message that almost all clients write: one question for A or
// TXT, and perhaps an OPT record without options. It answers as general does, six times as
// fast. ok is false for any other message. most is the largest answer that the client can
// take.
func (w *worker) plain(out, query []byte, h how, most int) (answered []byte, ok bool) {
	q, ok := w.readPlain(query)
	if !ok {
		return out, false
	}
	if most < maxMessage {
		most = min(most, max(int(q.udpSize), minUDP))
	}
	var a answer
	switch h {
	case byLists:
		a = w.answer(q.qtype)
	case refusing:
		w.metrics.refused[badPeer].Inc()
		a.code = dns.RcodeRefused
	case slipping:
		w.metrics.slipped.Inc()
	}
	start := len(out)
	a.truncated = h == slipping
	out = w.appendAnswer(out, query, q, &a)
	if len(out)-start > most {
		a.cut()
		w.metrics.truncated.Inc()
		out = w.appendAnswer(out[:start], query, q, &a)
	}
	return out, true
}

// plainQuery is what readPlain finds.
type plainQuery struct {
	end     int // of the question
	qtype   uint16
	edns    bool
	udpSize uint16 // of edns; else 0
}

// readPlain reads a plain message, and its name into w.name.
func (w *worker) readPlain(query []byte) (q plainQuery, ok bool) {
	if len(query) < headerSize+5 {
		return q, false
	}
	flags, counts := binary.BigEndian.Uint16(query[2:]), binary.BigEndian.Uint64(query[4:])
	if flags&^(flagRD|flagAD|flagCD) != 0 || counts&^1 != 1<<48 || !w.name.set(query[headerSize:]) {
		return q, false
	}
	rest := query[headerSize+w.name.size:]
	if len(rest) < 4 || binary.BigEndian.Uint16(rest[2:]) != dns.ClassINET {
		return q, false
	}
	q.end, q.qtype = len(query)-len(rest)+4, binary.BigEndian.Uint16(rest)
	if q.qtype != dns.TypeA && q.qtype != dns.TypeTXT {
		return q, false
	}
	rest = rest[4:]
	if counts&1 == 0 {
		return q, len(rest) == 0
	}
	// The name is the root, the version 0, and there is no data.
	if len(rest) != optSize || rest[0] != 0 || binary.BigEndian.Uint16(rest[1:]) != dns.TypeOPT || rest[6] != 0 || rest[9] != 0 || rest[10] != 0 {
		return q, false
	}
	q.edns, q.udpSize = true, binary.BigEndian.Uint16(rest[3:])
	return q, true
}

// appendAnswer writes a down.
func (w *worker) appendAnswer(out, query []byte, q plainQuery, a *answer) []byte {
	flags := flagResponse | binary.BigEndian.Uint16(query[2:])&(flagRD|flagCD) | uint16(a.code)
	if a.authoritative() {
		flags |= flagAuthoritative
	}
	if a.truncated {
		flags |= flagTruncated
	}
	var records, authority, additional uint16
	if a.records != 0 {
		records = 1 // of a plain question there is one at most
	}
	if a.negative() {
		authority = 1
	}
	if q.edns {
		additional = 1
	}
	out = append(out, query[0], query[1])
	for _, field := range [...]uint16{flags, 1, records, authority, additional} {
		out = binary.BigEndian.AppendUint16(out, field)
	}
	out = append(out, query[headerSize:q.end]...)
	switch {
	case a.records == recordA:
		ip := a.zone.Answer.As4()
		out = w.appendRecord(out, 0, dns.TypeA, len(ip))
		out = append(out, ip[:]...)
	case a.records == recordTXT:
		out = w.appendRecord(out, 0, dns.TypeTXT, 1+len(a.text))
		out = append(append(out, byte(len(a.text))), a.text...)
	case authority == 1:
		out = w.appendRecord(out, w.name.size-len(w.name.from(a.labels)), dns.TypeSOA, len(w.host)+len(w.mailbox)+5*4)
		out = append(append(out, w.host...), w.mailbox...)
		for _, number := range [...]uint32{a.serial, soaRefresh, soaRetry, soaExpire, w.ttl} {
			out = binary.BigEndian.AppendUint32(out, number)
		}
	}
	if q.edns {
		out = append(out, 0, 0, byte(dns.TypeOPT), byte(maxUDP>>8), byte(maxUDP&0xff), 0, 0, 0, 0, 0, 0)
	}
	return out
}

// appendRecord writes a record but for its data. Its owner is the name of the question, from
// one of its octets on.
func (w *worker) appendRecord(out []byte, owner int, rrtype uint16, size int) []byte {
	out = binary.BigEndian.AppendUint16(out, uint16(0xc000|headerSize+owner))
	out = binary.BigEndian.AppendUint16(out, rrtype)
	out = binary.BigEndian.AppendUint16(out, dns.ClassINET)
	out = binary.BigEndian.AppendUint32(out, w.ttl)
	return binary.BigEndian.AppendUint16(out, uint16(size))
}

// The times of SOA that are for other servers of a zone, of which there are none: an hour, ten
// minutes, a week.
const (
	soaRefresh = 3600
	soaRetry   = 600
	soaExpire  = 604800
)

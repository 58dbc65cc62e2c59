package dnsbl

import (
	"encoding/binary"
	"log/slog"
	"runtime/debug"
	"strings"

	"github.com/miekg/dns"
)

// reply appends the answer to a message; nothing, if it deserves none. A defect of ours is
// SERVFAIL.
func (w *worker) reply(out, query []byte, h how, most int) (answered []byte) {
	defer func() {
		if p := recover(); p != nil {
			w.calm.Warn("dns panicked", slog.Any("panic", p), slog.String("stack", string(debug.Stack())))
			w.metrics.refused[ourDefect].Inc()
			answered = w.fault(out, query, dns.RcodeServerFailure)
		}
	}()
	if answered, ok := w.plain(out, query, h, most); ok {
		return answered
	}
	if h == slipping {
		w.metrics.dropped[overRate].Inc()
		return out
	}
	return w.general(out, query, h, most)
}

// general appends the answer to any message. No answer is ever given to an answer: two servers
// would go on for ever.
func (w *worker) general(out, query []byte, h how, most int) []byte {
	if len(query) < headerSize || binary.BigEndian.Uint16(query[2:])&flagResponse != 0 {
		w.metrics.dropped[noQuery].Inc()
		return out
	}
	var q dns.Msg
	switch opcode := int(query[2]>>3) & 0xf; {
	case h == refusing:
		w.metrics.refused[badPeer].Inc()
		return w.fault(out, query, dns.RcodeRefused)
	case opcode == dns.OpcodeNotify, opcode == dns.OpcodeUpdate:
		w.metrics.refused[badOpcode].Inc()
		return w.fault(out, query, dns.RcodeRefused)
	case opcode != dns.OpcodeQuery:
		w.metrics.refused[badOpcode].Inc()
		return w.fault(out, query, dns.RcodeNotImplemented)
	case q.Unpack(query) != nil || len(q.Question) != 1 || !w.setName(q.Question[0].Name):
		w.metrics.refused[badFormat].Inc()
		return w.fault(out, query, dns.RcodeFormatError)
	}
	var m dns.Msg
	m.SetReply(&q)
	m.Compress = true
	opt, ok := optOf(&q)
	if !ok {
		w.metrics.refused[badFormat].Inc()
		return w.fault(out, query, dns.RcodeFormatError)
	}
	if most < maxMessage {
		most = min(most, sizeOf(opt))
	}
	if opt != nil {
		m.SetEdns0(maxUDP, false)
	}
	w.fill(&m, &q.Question[0], opt)
	if m.Len() > most {
		w.metrics.truncated.Inc()
		m.Truncated, m.Answer, m.Ns = true, nil, nil
	}
	packed, err := m.Pack()
	if err != nil {
		return w.fault(out, query, dns.RcodeServerFailure)
	}
	return append(out, packed...)
}

// setName makes w.name the name of a question, as the library writes it.
func (w *worker) setName(text string) bool {
	var octets [maxName]byte
	n, err := dns.PackDomainName(text, octets[:], 0, nil, false)
	return err == nil && w.name.set(octets[:n])
}

// optOf is the OPT record of a message, nil if it has none. There may be one, and its owner is
// the root (RFC 6891, section 6.1.1).
func optOf(m *dns.Msg) (opt *dns.OPT, ok bool) {
	for _, r := range m.Extra {
		o, is := r.(*dns.OPT)
		if !is {
			continue
		}
		if opt != nil || o.Hdr.Name != "." {
			return nil, false
		}
		opt = o
	}
	return opt, true
}

// sizeOf is the largest answer by UDP that a client has room for.
func sizeOf(opt *dns.OPT) int {
	if opt == nil {
		return minUDP
	}
	return max(int(opt.UDPSize()), minUDP)
}

// fill answers q in m.
func (w *worker) fill(m *dns.Msg, q *dns.Question, opt *dns.OPT) {
	switch {
	case opt != nil && opt.Version() != 0:
		w.metrics.refused[badVersion].Inc()
		m.Rcode = dns.RcodeBadVers
		return
	case q.Qclass != dns.ClassINET:
		w.metrics.refused[badClass].Inc()
		m.Rcode = dns.RcodeRefused
		return
	case q.Qtype == dns.TypeAXFR, q.Qtype == dns.TypeIXFR:
		w.metrics.refused[noTransfer].Inc()
		m.Rcode = dns.RcodeRefused
		return
	}
	a := w.answer(q.Qtype)
	m.Rcode, m.Authoritative = a.code, a.authoritative()
	header := func(name string, rrtype uint16) dns.RR_Header {
		return dns.RR_Header{Name: name, Rrtype: rrtype, Class: dns.ClassINET, Ttl: w.ttl}
	}
	if a.zone == nil {
		return
	}
	zone := q.Name[dns.Split(q.Name)[a.labels]:] // in the case of the question, for 0x20
	soa := func() dns.RR {
		return &dns.SOA{Hdr: header(zone, dns.TypeSOA), Ns: presented(w.host), Mbox: presented(w.mailbox),
			Serial: a.serial, Refresh: soaRefresh, Retry: soaRetry, Expire: soaExpire, Minttl: w.ttl}
	}
	if a.records&recordA != 0 {
		m.Answer = append(m.Answer, &dns.A{Hdr: header(q.Name, dns.TypeA), A: a.zone.Answer.AsSlice()})
	}
	if a.records&recordTXT != 0 {
		m.Answer = append(m.Answer, &dns.TXT{Hdr: header(q.Name, dns.TypeTXT), Txt: []string{escaped(a.text)}})
	}
	if a.records&recordSOA != 0 {
		m.Answer = append(m.Answer, soa())
	}
	if a.records&recordNS != 0 {
		m.Answer = append(m.Answer, &dns.NS{Hdr: header(zone, dns.TypeNS), Ns: presented(w.host)})
	}
	if a.negative() {
		m.Ns = append(m.Ns, soa())
	}
}

// presented is a name of ours as the library writes it.
func presented(name []byte) string {
	text, _, err := dns.UnpackDomainName(name, 0)
	if err != nil {
		return "."
	}
	return text
}

// escaped is a text as the library takes it: what follows a backslash means something else.
func escaped(text string) string { return strings.ReplaceAll(text, `\`, `\\`) }

// fault appends an answer without a question: it may not be readable. The query has a header.
func (w *worker) fault(out, query []byte, code int) []byte {
	flags := flagResponse | binary.BigEndian.Uint16(query[2:])&(0x7800|flagRD) | uint16(code)
	out = append(out, query[0], query[1], byte(flags>>8), byte(flags))
	return append(out, 0, 0, 0, 0, 0, 0, 0, 0)
}

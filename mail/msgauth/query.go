package msgauth

import (
	"context"
	"errors"
	"fmt"
	"net"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/miekg/dns"
)

// outcome is how a look-up ended.
type outcome uint8

const (
	records outcome = iota // there are some
	none                   // there is no such name, or nothing of this type
	failed                 // not now: no answer, or a server's failure
	beyond                 // an answer beyond our bounds: asking again would not help
	short                  // not asked, for want of room here
)

func (o outcome) String() string {
	switch o {
	case records:
		return "records"
	case none:
		return "none"
	}
	return "error"
}

// answer is what is known of a question.
type answer struct {
	outcome outcome
	records []record
	ttl     uint32 // the smallest of the records and aliases, in seconds
	fault   string // unless there are records: why
	exists  bool   // the name does, with records of another type
}

// record is one resource record's datum.
type record struct {
	text string // of TXT the strings joined, of A and AAAA the address, of MX and PTR the name
	pref uint16 // of MX
}

// ask puts q to each server in turn, and to the first a second time.
func (r *Resolver) ask(ctx context.Context, q question) answer {
	a := answer{outcome: failed, fault: "no answer in time"}
	for try := range len(r.servers) + 1 {
		if ctx.Err() != nil {
			break
		}
		reply, err := exchange(ctx, r.servers[try%len(r.servers)], q)
		if err != nil {
			a = answer{outcome: failed, fault: why(err)}
			if ours(err) {
				a.outcome = short
			}
			continue
		}
		switch reply.Rcode {
		case dns.RcodeSuccess:
			return read(reply, q)
		case dns.RcodeNameError:
			return answer{outcome: none, fault: "no such name"}
		}
		a = answer{outcome: failed, fault: "the server says " + dns.RcodeToString[reply.Rcode]}
	}
	return a
}

// why is an error in words that a log line can bear: what a hostile server sent is
// not in it.
func why(err error) string {
	if e := net.Error(nil); errors.As(err, &e) && e.Timeout() {
		return "no answer in time"
	}
	if errors.Is(err, errOdd) {
		return err.Error()
	}
	return "the server cannot be asked: " + err.Error()
}

// ours tells an error by which nothing was asked, since this machine has run out of
// files, memory or ports.
func ours(err error) bool {
	return slices.ContainsFunc([]error{syscall.EMFILE, syscall.ENFILE, syscall.ENOBUFS, syscall.ENOMEM, syscall.EADDRNOTAVAIL},
		func(want error) bool { return errors.Is(err, want) })
}

// errOdd is the error of an answer that cannot be read.
var errOdd = errors.New("an answer that cannot be read")

// exchange asks one server, by UDP and, if the answer does not fit there, by TCP.
func exchange(ctx context.Context, server string, q question) (*dns.Msg, error) {
	reply, err := talk(ctx, "udp", server, q, true)
	if err == nil && reply.Rcode == dns.RcodeFormatError {
		reply, err = talk(ctx, "udp", server, q, false) // a server of before EDNS (RFC 6891, section 7)
	}
	if err == nil && reply.Truncated {
		reply, err = talk(ctx, "tcp", server, q, false)
	}
	return reply, err
}

// udpSize is what an answer by UDP may have: it crosses any network in one piece. Some
// servers send more all the same, up to what RFC 6891, section 6.2.5, begins with.
const udpSize, udpRoom = 1232, 4096

// talk sends one query from a port of its own and waits for the reply to it; what
// else comes is a forgery or late, and is passed over.
func talk(ctx context.Context, network, server string, q question, edns bool) (*dns.Msg, error) {
	ctx, cancel := context.WithTimeout(ctx, tryTimeout)
	defer cancel()
	var d net.Dialer
	c, err := d.DialContext(ctx, network, server)
	if err != nil {
		return nil, err
	}
	conn := &dns.Conn{Conn: c, UDPSize: udpRoom}
	defer conn.Close()
	if until, ok := ctx.Deadline(); ok {
		conn.SetDeadline(until)
	}
	stop := context.AfterFunc(ctx, func() { conn.SetDeadline(time.Unix(1, 0)) })
	defer stop()

	m := new(dns.Msg)
	m.SetQuestion(q.name+".", q.kind) // with an identifier from crypto/rand
	if edns {
		m.SetEdns0(udpSize, false)
	}
	if err := conn.WriteMsg(m); err != nil {
		return nil, err
	}
	for {
		reply, err := conn.ReadMsg()
		if e := net.Error(nil); errors.As(err, &e) || err != nil && network == "tcp" {
			return nil, err
		}
		if reply == nil || reply.Id != m.Id {
			continue
		}
		if err != nil && !reply.Truncated { // a cut answer need not be whole
			return nil, fmt.Errorf("%w: %v", errOdd, err)
		}
		if !reply.Response || len(reply.Question) != 1 || !sameQuestion(reply.Question[0], q) {
			continue
		}
		return reply, nil
	}
}

func sameQuestion(asked dns.Question, q question) bool {
	return asked.Qtype == q.kind && asked.Qclass == dns.ClassINET && strings.EqualFold(asked.Name, q.name+".")
}

// maxAliases bounds a chain of CNAME records.
const maxAliases = 16

// read takes from a reply the records of q, and of the names that q is an alias of.
func read(reply *dns.Msg, q question) answer {
	a := answer{ttl: ^uint32(0)}
	name := q.name + "."
	for range maxAliases {
		next := ""
		for _, rr := range reply.Answer {
			if !strings.EqualFold(rr.Header().Name, name) || rr.Header().Class != dns.ClassINET {
				continue
			}
			if alias, ok := rr.(*dns.CNAME); ok && q.kind != dns.TypeCNAME {
				next = alias.Target
				a.ttl = min(a.ttl, alias.Hdr.Ttl)
			} else if rec, ok := recordOf(rr, q.kind); ok {
				a.records = append(a.records, rec)
				a.ttl = min(a.ttl, rr.Header().Ttl)
			}
		}
		if next == "" || len(a.records) > 0 {
			return a.bounded()
		}
		name = next
	}
	return answer{outcome: beyond, fault: fmt.Sprintf("more than %d aliases", maxAliases)}
}

func recordOf(rr dns.RR, kind uint16) (record, bool) {
	if rr.Header().Rrtype != kind {
		return record{}, false
	}
	switch rr := rr.(type) {
	case *dns.TXT:
		return record{text: unescape(strings.Join(rr.Txt, ""))}, true
	case *dns.A:
		return record{text: rr.A.String()}, rr.A != nil
	case *dns.AAAA:
		return record{text: rr.AAAA.String()}, rr.AAAA != nil
	case *dns.MX:
		return record{text: hostName(rr.Mx), pref: rr.Preference}, true
	case *dns.PTR:
		return record{text: hostName(rr.Ptr)}, true
	}
	return record{}, false
}

// hostName is a name as it is asked for, without the library's escapes and the root's dot; "", which is no name, if a
// label of it may have a dot of its own.
func hostName(name string) string {
	if strings.Contains(name, `\.`) || strings.Contains(name, `\046`) {
		return ""
	}
	return unescape(strings.TrimSuffix(name, "."))
}

// unescape undoes the escapes in which the library shows octets of a TXT record or a name:
// \DDD, and a backslash before others.
func unescape(s string) string {
	if strings.IndexByte(s, '\\') < 0 {
		return s
	}
	b := make([]byte, 0, len(s))
	for i := 0; i < len(s); i++ {
		if s[i] != '\\' || i+1 == len(s) {
			b = append(b, s[i])
			continue
		}
		if i+3 < len(s) && isDigits(s[i+1:i+4]) {
			b = append(b, (s[i+1]-'0')*100+(s[i+2]-'0')*10+s[i+3]-'0')
			i += 3
			continue
		}
		i++
		b = append(b, s[i])
	}
	return string(b)
}

func isDigits(s string) bool { return strings.Trim(s, "0123456789") == "" }

// bounded refuses what nobody publishes in earnest.
func (a answer) bounded() answer {
	switch n := len(a.records); {
	case n == 0:
		return answer{outcome: none, ttl: a.ttl, fault: "no such record", exists: true}
	case n > maxRecords:
		return answer{outcome: beyond, fault: fmt.Sprintf("%d records, more than %d", n, maxRecords)}
	}
	return a
}

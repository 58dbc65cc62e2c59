// Package nameserver is a real name server on loopback, for tests: none of them
// asks another one.
package nameserver

import (
	"fmt"
	"maps"
	"net"
	"strings"
	"sync"
	"testing"

	"github.com/miekg/dns"
)

// Zone is what a server says: records by type and name, such as "TXT bulk.test",
// as in a zone file but without quotes. "!SERVFAIL" is that failure in place of
// records. A name that has no records does not exist.
type Zone map[string][]string

// Server answers by UDP and TCP until the end of the test.
type Server struct {
	Address string

	zone  Zone
	reply func(*dns.Msg) *dns.Msg
	mu    sync.Mutex
	asked map[string]int
	total int
}

// Serve serves a zone.
func Serve(t testing.TB, z Zone) *Server {
	t.Helper()
	udp, tcp := listen(t)
	return serve(t, &Server{zone: z}, udp, tcp)
}

// ServeAt is Serve at an address of the caller's choice, for resolvers that know one
// port only: 53.
func ServeAt(t testing.TB, address string, z Zone) *Server {
	t.Helper()
	udp, err := net.ListenPacket("udp", address)
	if err != nil {
		t.Fatal(err)
	}
	tcp, err := net.Listen("tcp", address)
	if err != nil {
		udp.Close()
		t.Fatal(err)
	}
	return serve(t, &Server{zone: z}, udp, tcp)
}

// ServeFunc serves what reply returns; nil is no answer at all. It is called from
// several goroutines.
func ServeFunc(t testing.TB, reply func(*dns.Msg) *dns.Msg) *Server {
	t.Helper()
	udp, tcp := listen(t)
	return serve(t, &Server{reply: reply}, udp, tcp)
}

func serve(t testing.TB, s *Server, udp net.PacketConn, tcp net.Listener) *Server {
	t.Helper()
	s.asked = map[string]int{}
	s.Address = udp.LocalAddr().String()
	for _, server := range []*dns.Server{{PacketConn: udp}, {Listener: tcp}} {
		started := make(chan struct{})
		server.NotifyStartedFunc = func() { close(started) }
		server.Handler = dns.HandlerFunc(s.handle)
		go server.ActivateAndServe()
		<-started
		t.Cleanup(func() { server.Shutdown() })
	}
	return s
}

// listen finds a port that is free for both protocols.
func listen(t testing.TB) (net.PacketConn, net.Listener) {
	t.Helper()
	for {
		udp, err := net.ListenPacket("udp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		if tcp, err := net.Listen("tcp", udp.LocalAddr().String()); err == nil {
			return udp, tcp
		}
		udp.Close()
	}
}

// Count is the number of queries so far.
func (s *Server) Count() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.total
}

// Asked is that number by type and name.
func (s *Server) Asked() map[string]int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return maps.Clone(s.asked)
}

func (s *Server) handle(w dns.ResponseWriter, m *dns.Msg) {
	if len(m.Question) != 1 {
		return
	}
	q := m.Question[0]
	key := dns.TypeToString[q.Qtype] + " " + strings.TrimSuffix(strings.ToLower(q.Name), ".")
	s.mu.Lock()
	s.asked[key]++
	s.total++
	s.mu.Unlock()
	reply := s.answer(key, m)
	if reply == nil {
		return
	}
	if w.RemoteAddr().Network() == "udp" {
		size := dns.MinMsgSize
		if o := m.IsEdns0(); o != nil {
			size = int(o.UDPSize())
		}
		reply.Truncate(size)
	}
	w.WriteMsg(reply)
}

func (s *Server) answer(key string, m *dns.Msg) *dns.Msg {
	if s.reply != nil {
		return s.reply(m)
	}
	reply := new(dns.Msg).SetReply(m)
	kind, name, _ := strings.Cut(key, " ")
	if alias := s.zone["CNAME "+name]; alias != nil {
		reply.Answer = append(reply.Answer, Record(name, "CNAME", alias[0]))
		name = strings.TrimSuffix(alias[0], ".")
	}
	texts, ok := s.zone[kind+" "+name]
	switch {
	case len(texts) == 1 && strings.HasPrefix(texts[0], "!"):
		reply.Rcode = dns.StringToRcode[texts[0][1:]]
	case ok:
		for _, text := range texts {
			reply.Answer = append(reply.Answer, Record(name, kind, text))
		}
	case len(reply.Answer) == 0:
		reply.Rcode = dns.RcodeNameError
	}
	return reply
}

// Record makes a record that lives five minutes. A long text becomes several
// strings. What is no record is a fault of the test.
func Record(name, kind, text string) dns.RR {
	if kind == "TXT" {
		r := &dns.TXT{Hdr: dns.RR_Header{Name: dns.Fqdn(name), Rrtype: dns.TypeTXT, Class: dns.ClassINET, Ttl: 300}}
		for len(text) > 255 {
			r.Txt, text = append(r.Txt, escape(text[:255])), text[255:]
		}
		r.Txt = append(r.Txt, escape(text))
		return r
	}
	r, err := dns.NewRR(fmt.Sprintf("%s 300 IN %s %s", dns.Fqdn(name), kind, text))
	if err != nil {
		panic(err)
	}
	return r
}

func escape(s string) string {
	return strings.NewReplacer(`\`, `\\`, `"`, `\"`).Replace(s)
}

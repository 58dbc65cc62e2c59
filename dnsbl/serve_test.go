package dnsbl

import (
	"net"
	"testing"
	"time"

	"github.com/miekg/dns"
)

func exchange(t testing.TB, network, address, name string, qtype uint16) *dns.Msg {
	t.Helper()
	q := new(dns.Msg)
	q.SetQuestion(dns.Fqdn(name), qtype)
	c := dns.Client{Net: network, Timeout: time.Minute}
	m, _, err := c.Exchange(q, address)
	if err != nil {
		t.Fatalf("%s %s: %v", network, name, err)
	}
	return m
}

func TestServe(t *testing.T) {
	for _, host := range []string{"127.0.0.1", "::1"} {
		r := newRig(t, nil)
		address, stop := r.serve(host)
		for _, network := range []string{"udp", "tcp"} {
			if got := shown(exchange(t, network, address, "bulk.example.dbl.here.example", dns.TypeA)); got != "NOERROR 127.0.0.2" {
				t.Errorf("%s %s: %s", network, host, got)
			}
		}
		if err := stop(); err != nil {
			t.Error(err)
		}
		if _, err := net.Dial("tcp", address); err == nil {
			t.Error("the listener is still open")
		}
	}
}

// A client takes an answer only from the address that it has asked. A connected socket is
// such a client.
func TestAnswersComeFromTheAddressThatWasAsked(t *testing.T) {
	for _, row := range []struct{ listen, ask string }{{"0.0.0.0", "127.0.0.9"}, {"::", "127.0.0.9"}, {"::", "::1"}} {
		r := newRig(t, nil)
		address, _ := r.serve(row.listen)
		_, port, err := net.SplitHostPort(address)
		if err != nil {
			t.Fatal(err)
		}
		if got := shown(exchange(t, "udp", net.JoinHostPort(row.ask, port), "bulk.example.dbl.here.example", dns.TypeA)); got != "NOERROR 127.0.0.2" {
			t.Errorf("%+v: %s", row, got)
		}
	}
}

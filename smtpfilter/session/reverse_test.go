package session

import (
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/miekg/dns"

	"blockd/internal/nameserver"
	"blockd/internal/script"
)

// TestReverse is the rule on PTR records: whom it refuses, whom it spares, and what it asks.
func TestReverse(t *testing.T) {
	const name = "PTR 7.2.0.192.in-addr.arpa"
	good := nameserver.Zone{name: {"mx.test"}, "A mx.test": {"192.0.2.7"}}
	astray := nameserver.Zone{name: {"mx.test"}, "A mx.test": {"192.0.2.99"}}
	for _, c := range []struct {
		name     string
		settings Settings
		zone     nameserver.Zone
		sender   string
		rcpt     string
		want     string
		queries  int
	}{
		{"off asks nothing", Settings{}, nil, "a@good.example", "bob", "250", 0},
		{"off by its word too", Settings{PTR: "off"}, nil, "a@good.example", "bob", "250", 0},
		{"no name", Settings{PTR: "exists"}, nil, "a@good.example", "bob", "550 5.7.25 Client host rejected: ", 1},
		{"a name", Settings{PTR: "exists"}, astray, "a@good.example", "bob", "250", 1},
		{"a name that leads astray", Settings{PTR: "confirmed"}, astray, "a@good.example", "bob", "550 5.7.25 ", 2},
		{"a name that leads back", Settings{PTR: "confirmed"}, good, "a@good.example", "bob", "250", 2},
		{"DNS is broken", Settings{PTR: "confirmed"}, nameserver.Zone{name: {"!SERVFAIL"}}, "a@good.example", "bob", "250", 2},
		{"null sender", Settings{PTR: "exists"}, nil, "", "bob", "550 5.7.25 ", 1},
		{"exempt recipient", Settings{PTR: "exists"}, nil, "a@good.example", "postmaster", "250", 0},
		{"listed sender", Settings{PTR: "exists"}, nil, "a@bad.example", "bob", "550 5.7.1 ", 0},
		{"trusted client", Settings{PTR: "exists", Trusted: []netip.Prefix{netip.MustParsePrefix("192.0.2.0/24")}}, nil, "a@good.example", "bob", "250", 0},
	} {
		t.Run(c.name, func(t *testing.T) {
			server := nameserver.Serve(t, c.zone)
			r := newRig(&script.Server{}, checkerBy(t, server, 5*time.Second, "bad.example", "", ""), c.settings)
			client := connect(t, r, t.Context())
			client.hello()
			for range 2 { // a session asks once
				client.want("MAIL FROM:<"+c.sender+">", "250")
				client.want("RCPT TO:<"+c.rcpt+"@here.example>", c.want)
				client.want("RSET", "250")
			}
			client.close()
			r.server.Wait()
			if got := server.Count(); got != c.queries {
				t.Errorf("%d queries, want %d: %v", got, c.queries, server.Asked())
			}
			refused := strings.HasPrefix(c.want, "550 5.7.25")
			if got := strings.Contains(r.log.String(), `msg="recipient not taken"`); got != refused {
				t.Errorf("log: %s", r.log)
			}
			for _, line := range r.server.Log() {
				if refused && strings.HasPrefix(line, "RCPT") {
					t.Errorf("upstream has read %q", line)
				}
			}
		})
	}
}

// TestReverseAsksWhileTheClientTalks: who has sent its commands ahead hears the same, in
// order, and upstream has the lines that were checked.
func TestReverseAsksWhileTheClientTalks(t *testing.T) {
	asked, release := make(chan struct{}), make(chan struct{})
	server := nameserver.ServeFunc(t, func(m *dns.Msg) *dns.Msg {
		asked <- struct{}{}
		<-release
		reply := new(dns.Msg).SetReply(m)
		reply.Answer = append(reply.Answer, nameserver.Record(strings.TrimSuffix(m.Question[0].Name, "."), "PTR", "mx.test"))
		return reply
	})
	r := newRig(&script.Server{}, checkerBy(t, server, time.Minute, "bad.example", "", ""), Settings{PTR: "exists"})
	c := connect(t, r, t.Context())
	c.hello()
	c.want("MAIL FROM:<a@good.example>", "250")
	c.send("RCPT TO:<bob@here.example>\r\n")
	<-asked
	c.send("RCPT TO:<carol@here.example>\r\n")
	close(release)
	for _, want := range []string{"250", "250"} {
		if got := c.reply(); !strings.HasPrefix(got, want) {
			t.Errorf("reply %q", got)
		}
	}
	c.close()
	r.server.Wait()
	if got := strings.Join(r.server.Log(), "\n"); !strings.Contains(got, "RCPT TO:<bob@here.example>\nRCPT TO:<carol@here.example>") {
		t.Errorf("upstream has read %s", got)
	}
}

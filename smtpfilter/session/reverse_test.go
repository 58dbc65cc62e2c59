package session

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/miekg/dns"

	"blockd/internal/testkit"
	"blockd/internal/testkit/nameserver"
	"blockd/internal/testkit/script"
)

// TestReverse is the rule on PTR records: which clients it refuses and spares, and what it asks.
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
		{"its EHLO is refused", Settings{PTR: "exists", Helo: "valid"}, nil, "a@good.example", "bob", "550 5.7.1 Helo", 0},
		{"DNS is broken", Settings{PTR: "confirmed"}, nameserver.Zone{name: {"!SERVFAIL"}}, "a@good.example", "bob", "250", 2},
		{"null sender", Settings{PTR: "exists"}, nil, "", "bob", "550 5.7.25 ", 1},
		{"exempt recipient", Settings{PTR: "exists"}, nil, "a@good.example", "postmaster", "250", 0},
		{"listed sender", Settings{PTR: "exists"}, nil, "a@bad.example", "bob", "550 5.7.1 ", 0},
		{"trusted client", Settings{PTR: "exists", Trusted: []netip.Prefix{netip.MustParsePrefix("192.0.2.0/24")}}, nil, "a@good.example", "bob", "250", 0},
		{"this program", Settings{PTR: "exists", Own: func(at netip.AddrPort) bool { return at == testClient }}, nil, "a@bad.example", "bob", "250", 0},
		{"another one", Settings{Own: func(netip.AddrPort) bool { return false }}, nil, "a@bad.example", "bob", "550 5.7.1 ", 0},
	} {
		t.Run(c.name, func(t *testing.T) {
			server := nameserver.Serve(t, c.zone)
			c.settings.Resolver = resolverOf(t, server, 5*time.Second)
			r, client := begin(t, &script.Server{}, checkerBy(t, server, 5*time.Second, "bad.example", "", ""), c.settings)
			if c.settings.Helo != "" {
				client.want("EHLO -", "250")
			}
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
			refused := strings.HasPrefix(c.want, "550 5.7.25") || c.settings.Helo != ""
			testkit.Equal(t, fmt.Sprintf("log: %s", r.log), strings.Contains(r.log.String(), `msg="recipient not taken"`), refused)
			for _, line := range r.server.Log() {
				if refused && strings.HasPrefix(line, "RCPT") {
					t.Errorf("upstream has read %q", line)
				}
			}
		})
	}
}

// TestReverseAmongOthers: the refusal stands in its place among the answers of a
// pipeline, and takes nothing from the recipients before it.
func TestReverseAmongOthers(t *testing.T) {
	for _, tt := range []struct {
		name string
		mode string // [smtp] mail
		mail string // upstream's answer to MAIL
		want []string
		sent int // recipients that upstream has read
	}{
		{"an exempt one before and behind", "lazy", "250 ok", []string{"250", "250", "550 5.7.25", "550 5.7.25", "250", "354"}, 2},
		{"MAIL with the first is refused", "lazy", "550 5.1.8 no", []string{"250", "550 5.1.8", "550 5.7.25", "550 5.7.25", "550 5.1.8", "554"}, 1},
		{"MAIL with the first costs the session", "lazy", "421 4.3.2 bye", []string{"250", "421 4.3.2", ""}, 0},
		{"MAIL in flight is refused", "strict", "550 5.1.8 no", []string{"550 5.1.8", "503", "503", "503", "503", "503"}, 1},
		{"MAIL in flight costs the session", "strict", "421 4.3.2 bye", []string{"421 4.3.2", ""}, 0},
	} {
		t.Run(tt.name, func(t *testing.T) {
			server, names := &script.Server{}, nameserver.Serve(t, nil)
			r, c := begin(t, server, checkerBy(t, names, 5*time.Second, "bad.example", "", ""), Settings{Mail: tt.mode, PTR: "confirmed", Resolver: resolverOf(t, names, 5*time.Second)})
			server.On("MAIL", tt.mail)
			var text strings.Builder
			text.WriteString("MAIL FROM:<a@good.example>\r\n")
			for _, name := range []string{"postmaster", "bob", "carol", "postmaster"} {
				text.WriteString("RCPT TO:<" + name + "@here.example>\r\n")
			}
			go c.send(text.String() + "DATA\r\n")
			for i, want := range tt.want {
				if got := c.reply(); !strings.HasPrefix(got, want) || want == "" && got != "" {
					t.Errorf("reply %d is %q, want %q", i, got, want)
				}
			}
			if tt.want[len(tt.want)-1] == "354" {
				c.want("hello\r\n.", "250")
			}
			c.close()
			r.server.Wait()
			if n := strings.Count(strings.Join(r.server.Log(), "\n"), "RCPT TO:"); n != tt.sent {
				t.Errorf("upstream has read %d recipients, want %d: %q", n, tt.sent, r.server.Log())
			}
		})
	}
}

// TestP1WhatComesWhileDNSIsAskedDoesNotChangeTheLine: the octets that were checked are
// forwarded, and not those that the client has sent since.
func TestP1WhatComesWhileDNSIsAskedDoesNotChangeTheLine(t *testing.T) {
	for _, at := range []string{"rcpt", "mail"} {
		release, asked := make(chan struct{}), make(chan struct{}, 100)
		server := nameserver.ServeFunc(t, func(m *dns.Msg) *dns.Msg {
			asked <- struct{}{}
			<-release
			reply := new(dns.Msg).SetReply(m)
			reply.Answer = append(reply.Answer, nameserver.Record(strings.TrimSuffix(m.Question[0].Name, "."), "TXT", "v=spf1 ip4:192.0.2.0/24 -all"))
			return reply
		})
		r, c := begin(t, &script.Server{}, checkerBy(t, server, 5*time.Second, "x.example", "x.example", "spf"), Settings{RejectAt: at})
		lines := []string{"MAIL FROM:<a@x.example>", "RCPT TO:<bob@here.example>"}
		later := "NOOP\r\nRCPT TO:<eve@elsewhere.example>\r\n"
		if at == "rcpt" {
			c.want(lines[0], "250")
			c.send(lines[1] + "\r\n")
		} else {
			c.send(lines[0] + "\r\n")
			lines[1], later = "RCPT TO:<eve@elsewhere.example>", "RCPT TO:<eve@elsewhere.example>\r\n"
		}
		<-asked
		c.send(later)
		close(release)
		for range strings.Count(later, "\r\n") + 1 {
			c.reply()
		}
		c.close()
		r.server.Wait()
		if log := r.server.Log(); len(log) < 2 || !slices.Equal(log[:2], lines) {
			t.Errorf("reject_at %s: upstream read %q, want %q first", at, log, lines)
		}
	}
}

// TestSessionGoesOnBehindDNS: to end the watch over the client costs it nothing of the
// time for its next command, whatever the limits are.
func TestSessionGoesOnBehindDNS(t *testing.T) {
	p := newPost(t, "x.example", "x.example", "spf")
	_, c := begin(t, &script.Server{}, p.checker, Settings{Limits: Limits{Session: time.Minute, CommandIdle: time.Minute, DataStart: time.Minute, DataBlock: time.Minute}})
	c.mail("a@x.example")
	if p.Count() == 0 {
		t.Fatal("nothing was asked")
	}
	testkit.Begins(t, "answer", c.data("hello\r\n"), "250")
	c.close()
}

package session

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/miekg/dns"

	"blockd/internal/testkit/nameserver"
	"blockd/internal/testkit/script"
)

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
	if got := c.data("hello\r\n"); !strings.HasPrefix(got, "250") {
		t.Errorf("answer %q", got)
	}
	c.close()
}

package session

import (
	"slices"
	"strings"
	"testing"
	"testing/synctest"

	"blockd/internal/testkit/script"
	"blockd/smtpfilter/upstream"
)

// TestUpstreamLearnsOfANewName: a client that greets anew under another name is
// presented anew, and one that repeats its name keeps its connection to upstream.
func TestUpstreamLearnsOfANewName(t *testing.T) {
	checker := listChecker(t)
	synctest.Test(t, func(t *testing.T) {
		server := &script.Server{Caps: []string{"PIPELINING", "XCLIENT ADDR HELO PROTO"}}
		for range 10 {
			server.On("XCLIENT", "220 again")
		}
		r := newRig(server, checker, Settings{})
		r.relay.upstream = upstream.New(upstream.Settings{Dial: server.Dial, Hostname: hostname, ClientInfo: upstream.ClientInfoXCLIENT})
		c := connect(t, r, t.Context())
		c.hello()
		mail := func() {
			c.mail("a@good.example")
		}
		mail()
		c.want("EHLO client.example", "250")
		mail()
		c.want("EHLO other.example", "250")
		mail()
		c.want("HELO other.example", "250")
		mail()
		c.want("QUIT", "221")
		c.close()
		server.Wait()
		var got []string
		for _, line := range server.Log() {
			if _, attributes, ok := strings.Cut(line, "XCLIENT "); ok {
				got = append(got, attributes)
			}
		}
		want := []string{"PROTO=ESMTP HELO=[UNAVAILABLE] ADDR=[UNAVAILABLE]", // the probe
			"PROTO=ESMTP HELO=client.example ADDR=192.0.2.7", "PROTO=ESMTP HELO=other.example ADDR=192.0.2.7",
			"PROTO=SMTP HELO=other.example ADDR=192.0.2.7"}
		if !slices.Equal(got, want) {
			t.Errorf("upstream was told %q, want %q", got, want)
		}
		if faults := server.Faults(); len(faults) > 0 {
			t.Errorf("upstream's view: %q", faults)
		}
	})
}

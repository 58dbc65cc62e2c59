package session

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"blockd/internal/script"
	"blockd/policy"
)

// TestRandomSessions lets a random client talk through the filter to an upstream
// that misbehaves at random, and holds what must be true whatever they do:
//
//   - a message that upstream has accepted is one whose dot the client has sent,
//     octet for octet;
//   - a 250 that the client got for a message means that upstream accepted it;
//   - no line of a listed sender went upstream but for an exempt recipient;
//   - there is one reply a command, until the connection ends.
func TestRandomSessions(t *testing.T) {
	seeds := uint64(600)
	if testing.Short() {
		seeds = 60
	}
	checker := listChecker(t)
	for seed := range seeds {
		synctest.Test(t, func(t *testing.T) { randomSession(t, seed, checker) })
		if t.Failed() {
			t.Fatalf("seed %d", seed)
		}
	}
}

// faults are what a random upstream may answer at each point.
var faults = map[string][]string{
	script.Connect:  {script.Close, script.Hang},
	script.Greeting: {script.Close, script.Hang, "421 busy", "554 no", "hello", "220-a\r\n220 b"},
	"EHLO":          {script.Close, script.Hang, "421 busy", "500 what", "250 upstream.example"},
	"MAIL":          {script.Close, script.Hang, "421 4.3.2 bye", "451 4.1.8 no", "550-5.1.8 a\r\n550 5.1.8 b", "354 what", "2x0", "250 a\r\n250 b"},
	"RCPT":          {script.Close, script.Hang, "421 4.3.2 bye", "450 4.2.0 grey", "550 5.1.1 no", "550 5.1.1 no", "250-a\r\n250 b", "250 a\r\n250 b", "354 go"},
	"DATA":          {script.Close, script.Hang, "421 4.3.2 bye", "451 4.3.0 no", "250 ok", "\r\n"},
	script.Body:     {script.Close, script.Hang, script.Stall, "552 5.3.4 too big", "250 ok already"},
	script.Dot:      {script.Close, script.Accept, script.Hang, "421 4.3.2 bye", "451 4.3.0 no", "554 5.7.1 spam", "354 more", "250-a\r\n251 b"},
	"RSET":          {script.Close, script.Hang, "421 4.3.2 bye", "500 what"},
	"NOOP":          {script.Close, "421 4.3.2 bye", "250 a\r\n250 b"},
}

func randomSession(t *testing.T, seed uint64, checker *policy.Checker) {
	rng := rand.New(rand.NewPCG(seed, 0))
	pick := func(words ...string) string { return words[rng.IntN(len(words))] }
	server := &script.Server{LMTP: rng.IntN(8) == 0}
	if rng.IntN(4) == 0 {
		server.Caps = []string{"8BITMIME", "SIZE 5000"}
	}
	for range rng.IntN(6) {
		point := pick(script.Connect, script.Greeting, "EHLO", "MAIL", "RCPT", "DATA", script.Body, script.Dot, "RSET", "NOOP")
		for range rng.IntN(3) { // let some pass before the fault
			server.On(point, usualAt(point, server.LMTP))
		}
		server.On(point, pick(faults[point]...))
	}
	r := newRig(server, checker, Settings{RejectAt: pick("rcpt", "rcpt", "mail"), Limits: Limits{MessageSize: 200_000}})
	c := connect(t, r, t.Context())
	var sent, accepted []string // bodies whose dot was sent; those with a 250
	c.want("", "220 ")
	c.send("EHLO client.example\r\n")
	// 421: upstream could not be reached for what it offers.
	known := strings.HasPrefix(c.reply(), "250")
	for open := known; open; {
		var batch []string
		switch rng.IntN(8) {
		case 0:
			batch = append(batch, pick("RSET", "NOOP", "VRFY bob", "EHLO again.example", "HELP", "GARBAGE", "MAIL FROM:<", "AUTH PLAIN"))
		default:
			batch = append(batch, fmt.Sprintf("MAIL FROM:<a%d@%s>", rng.IntN(1000), pick("good.example", "bad.example", "sub.bad.example")))
			for range rng.IntN(5) {
				batch = append(batch, fmt.Sprintf("RCPT TO:<%s@here.example>", pick("bob", "carol", "postmaster", "abuse")))
			}
			if rng.IntN(3) > 0 {
				batch = append(batch, "DATA")
			}
		}
		if batch[len(batch)-1] != "DATA" && rng.IntN(20) == 0 {
			batch = append(batch, "QUIT")
		}
		c.send(strings.Join(batch, "\r\n") + "\r\n")
		var last string
		for _, line := range batch {
			if last = c.reply(); last == "" {
				open = false
				break
			}
			if line == "DATA" && strings.HasPrefix(last, "354") {
				var body string
				if body, open = randomBody(rng, c, len(sent)); !open {
					break
				}
				// A server may give up before the dot; else the message is whole.
				sent = append(sent, body)
				if last = c.reply(); strings.HasPrefix(last, "250") {
					accepted = append(accepted, body)
				}
				if last == "" {
					open = false
					break
				}
			}
		}
		if strings.HasPrefix(last, "421") || strings.HasPrefix(last, "221") {
			if extra := c.reply(); extra != "" {
				t.Errorf("behind %q: %q", last, extra)
			}
			open = false
		}
		if rng.IntN(15) == 0 {
			server.HangUp()
		}
	}
	c.close()
	server.HangUp()
	server.Wait()
	checkSession(t, server, r, sent, accepted)
}

// usualAt is what the server says at a point that has no fault.
func usualAt(point string, lmtp bool) string {
	switch point {
	case script.Greeting:
		return "220 ready"
	case "EHLO":
		return "250-upstream.example\r\n250-PIPELINING\r\n250-SIZE 10240000\r\n250-8BITMIME\r\n250-SMTPUTF8\r\n250-DSN\r\n250 ENHANCEDSTATUSCODES"
	case "DATA":
		return "354 go"
	case script.Body:
		return script.Silent
	}
	return "250 ok"
}

// randomBody sends a message, or half of one, and reports whether the dot went out.
func randomBody(rng *rand.Rand, c *client, number int) (body string, whole bool) {
	var b bytes.Buffer
	fmt.Fprintf(&b, "Subject: message %d\r\n\r\n", number)
	for range rng.IntN(1 + rng.IntN(300)) {
		b.WriteString(strings.Repeat("x", rng.IntN(1+rng.IntN(400))))
		b.WriteString([]string{"\r\n", "\r\n..\r\n", "\r\n.x", "\r\n. \r\n"}[rng.IntN(4)])
	}
	b.WriteString("\r\n")
	if rng.IntN(12) == 0 {
		b.WriteString([]string{"\n.\n", "\r.\r", "\x00", "a\nb", "\r\n.\r\r\n"}[rng.IntN(5)])
		b.WriteString("smuggled\r\n")
	}
	if rng.IntN(12) == 0 {
		c.send(b.String())
		if rng.IntN(2) == 0 {
			<-time.After(time.Duration(rng.IntN(400)) * time.Second)
		}
		c.conn.Close()
		return "", false
	}
	b.WriteString(".\r\n")
	body = b.String()
	for rest := body; rest != ""; {
		n := 1 + rng.IntN(len(rest))
		c.send(rest[:n])
		rest = rest[n:]
	}
	return body, true
}

// checkSession holds the invariants.
func checkSession(t *testing.T, server *script.Server, r *rig, sent, accepted []string) {
	t.Helper()
	delivered := map[string]int{}
	for _, m := range server.Messages() {
		delivered[string(m.Data)]++
	}
	for body, n := range delivered {
		if !containsString(sent, body) || n > 1 {
			t.Errorf("upstream accepted, %d times, what the client did not send: %.200q", n, body)
		}
		if strings.Contains(strings.ReplaceAll(body, "\r\n", ""), "\n") || strings.ContainsAny(strings.ReplaceAll(body, "\r\n", ""), "\r\x00") {
			t.Errorf("upstream accepted bare octets: %.200q", body)
		}
	}
	for _, body := range accepted {
		if delivered[body] == 0 {
			t.Errorf("client was told 250 for what upstream has not accepted: %.200q", body)
		}
	}
	checkNoListedSender(t, server.Log())
	for _, fault := range server.Faults() {
		// A connection cut in mid-body may cut a line; and what follows an early
		// reply of the server's own making is its own affair.
		if !strings.HasPrefix(fault, "unfinished line") {
			t.Errorf("upstream's view: %s", fault)
		}
	}
	if log := r.log.String(); strings.Contains(log, "panicked") {
		t.Errorf("log:\n%s", log)
	}
	if t.Failed() {
		t.Logf("upstream read: %.3000q\nlog:\n%.3000s", server.Log(), r.log)
	}
}

// checkNoListedSender walks through upstream's log with a parser of its own.
func checkNoListedSender(t *testing.T, log []string) {
	t.Helper()
	listed := false
	for _, line := range log {
		switch upper := strings.ToUpper(line); {
		case strings.HasPrefix(upper, "MAIL FROM:"):
			listed = strings.Contains(upper, "BAD.EXAMPLE>")
		case strings.HasPrefix(upper, "RCPT TO:") && listed:
			if !strings.Contains(upper, "<POSTMASTER@") && !strings.Contains(upper, "<ABUSE@") {
				t.Errorf("a listed sender reached %s", line)
			}
		}
	}
}

func containsString(all []string, one string) bool {
	for _, s := range all {
		if s == one {
			return true
		}
	}
	return false
}

package program

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"strings"
	"testing"
	"time"

	"blockd/cmd/blockd/e2e"
	"blockd/internal/testkit"
)

// floodRefusals is how many recipients a flood has, and floodBound how many octets of
// log and history it may cost.
const (
	floodRefusals = 10_000
	floodBound    = 2_000_000
)

// TestFloodOfRefusals has one client refused 10,000 times, of one sender and of a new one
// each time, at the SMTP filter and at the policy service. It prints what that costs:
//
//	go test ./cmd/blockd/e2e -run TestFloodOfRefusals -v
func TestFloodOfRefusals(t *testing.T) {
	one := func(int) string { return "x@bad.example" }
	each := func(n int) string { return fmt.Sprintf("x%d@s%d.bad.example", n, n) }
	for _, c := range []struct {
		name   string
		sender func(n int) string
		flood  func(t *testing.T, d *e2e.Daemon, policy string, sender func(n int) string) (first string)
	}{
		{"SMTP, one sender", one, floodSMTP},
		{"SMTP, senders that change", each, floodSMTP},
		{"policy service, one sender", one, floodPolicy},
		{"policy service, senders that change", each, floodPolicy},
	} {
		t.Run(c.name, func(t *testing.T) {
			policy := e2e.FreeAddress(t)
			d := e2e.Serve(t, e2e.Setup{Postfix: fmt.Sprintf("policy_listen = %q", policy), SMTP: "hard_errors = 200000\nmax_recipients = 1000",
				Files: map[string]string{"own.txt": "bad.example\n"}, Lists: "[[list]]\nname = \"own\"\npath = \"own.txt\"\nformat = \"plain\"\n"})
			begun := time.Now()
			first := c.flood(t, d, policy, c.sender)
			took := time.Since(begun)
			if strings.HasPrefix(c.name, "SMTP") {
				d.Counted(t, `blockd_smtp_recipients_total{outcome="refused"}`, fmt.Sprint(floodRefusals))
			}
			out := d.Must(t, "history", "--ref", first)
			if !strings.Contains(out, "r0@here.example") || !strings.Contains(out, "own.txt:1") {
				t.Errorf("the first refusal is not complete:\n%s", out)
			}
			log := d.WholeLog(t)
			past := d.Kept(t)
			t.Logf("%d refusals in %v: %d octets of log, %d of history", floodRefusals, took.Round(time.Millisecond), len(log), len(past))
			if len(log)+len(past) > floodBound {
				t.Errorf("%d octets, want at most %d", len(log)+len(past), floodBound)
			}
			if strings.Count(log, "repeated=") < 1 {
				t.Error("no line has the count")
			}
			refusals := strings.Count(log, `msg="sender blocked" `)
			for line := range strings.Lines(log) {
				var n int
				if _, behind, ok := strings.Cut(line, " repeated="); ok {
					fmt.Sscanf(behind, "%d", &n)
				}
				refusals += n
			}
			if refusals != floodRefusals {
				t.Errorf("the log has %d refusals, want %d", refusals, floodRefusals)
			}
		})
	}
}

// floodSMTP names a thousand recipients of each sender that is the same, and one of each
// other. It returns the reference of the first refusal, and holds that every reference
// that a client was told is found.
func floodSMTP(t *testing.T, d *e2e.Daemon, _ string, sender func(n int) string) (first string) {
	c := e2e.DialSMTP(t, d.SMTP)
	last := ""
	for n := 0; n < floodRefusals; {
		var text strings.Builder
		from, batch := sender(n), 0
		fmt.Fprintf(&text, "RSET\r\nMAIL FROM:<%s>\r\n", from)
		for ; batch < 500 && n < floodRefusals && sender(n) == from; n++ {
			fmt.Fprintf(&text, "RCPT TO:<r%d@here.example>\r\n", n)
			batch++
		}
		c.Write([]byte(text.String()))
		for i := range batch + 2 {
			reply := c.Reply()
			if i < 2 {
				continue
			}
			found := e2e.Reference.FindStringSubmatch(reply)
			if found == nil || !strings.HasPrefix(reply, "550 ") {
				t.Fatalf("refusal %d: %q", n, reply)
			}
			if last = found[1]; first == "" {
				first = last
			}
		}
	}
	c.Conn.Close()
	testkit.Has(t, d.Must(t, "history", "--ref", last), last)
	return first
}

// floodPolicy asks as Postfix does.
func floodPolicy(t *testing.T, d *e2e.Daemon, policy string, sender func(n int) string) (first string) {
	conn := testkit.Value(net.Dial("tcp", policy))(t)
	defer conn.Close()
	conn.SetDeadline(time.Now().Add(2 * time.Minute))
	go func() {
		w := bufio.NewWriter(conn)
		for n := range floodRefusals {
			fmt.Fprintf(w, "request=smtpd_access_policy\nprotocol_state=RCPT\nsender=%s\nrecipient=r%d@here.example\nclient_address=198.51.100.9\nhelo_name=mx.fine.example\ninstance=%d\n\n", sender(n), n, n)
		}
		w.Flush()
	}()
	in := bufio.NewReader(conn)
	for n := range floodRefusals {
		line, err := in.ReadString('\n')
		if err == nil {
			_, err = io.ReadFull(in, make([]byte, 1))
		}
		found := e2e.Reference.FindStringSubmatch(line)
		if err != nil || found == nil {
			t.Fatalf("answer %d: %q, %v", n, line, err)
		}
		if first == "" {
			first = found[1]
		}
	}
	return first
}

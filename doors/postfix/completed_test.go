package postfix

import (
	"net/netip"
	"strings"
	"testing"

	"blockd/internal/testkit"
	"blockd/mail/addr"
)

// TestOnlyRequestsAtTheEndOfAMessageCount: what Postfix asks before it has the message
// proves none, and neither do the tables.
func TestOnlyRequestsAtTheEndOfAMessageCount(t *testing.T) {
	var told []string
	r := newRig(t, testList{name: "bad", text: "bad.example\n"})
	r.verdicts.Completed = func(a addr.Addr, client netip.Addr) { told = append(told, a.String()+" from "+client.String()) }
	client, _, done := r.dial(r.service(Policy))
	ask := func(more ...string) {
		t.Helper()
		testkit.Value(client.Write([]byte(request(more...))))(t)
		answer := make([]byte, 1<<10)
		if n, err := client.Read(answer); err != nil || !strings.HasPrefix(string(answer[:n]), "action=") {
			t.Fatalf("%q, %v", answer[:n], err)
		}
	}
	for range 20 {
		for _, state := range []string{"CONNECT", "EHLO", "MAIL", "RCPT", "DATA", "VRFY", "ETRN"} {
			ask("protocol_state=" + state)
		}
	}
	if len(told) > 0 {
		t.Errorf("told of %q before the end of a message", told)
	}
	ask()
	ask("protocol_state=END-OF-MESSAGE", "size=100", "recipient_count=1")
	ask("protocol_state=END-OF-MESSAGE", "sender=x@bad.example", "instance=2")
	ask("protocol_state=END-OF-MESSAGE", "sender=", "instance=3")
	ask("protocol_state=END-OF-MESSAGE", "sender=b@other.example", "instance=4", "recipient=", "recipient_count=2", "client_address=2001:db8::1")
	client.Close()
	<-done
	stranger, _, ended := r.dialAs(r.service(Policy), false)
	client = stranger
	ask("protocol_state=END-OF-MESSAGE", "sender=mallory@my-spam.example", "instance=5") // as any user of this machine may
	client.Close()
	<-ended
	testkit.Equal(t, "told", strings.Join(told, " "), "a@there.example from 192.0.2.1 b@other.example from 2001:db8::1")
}

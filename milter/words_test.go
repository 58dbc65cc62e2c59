package milter_test

import "testing"

// The mail server tells the client the text and codes of an entry, in ASCII unless the client
// has used SMTPUTF8. A percent sign is two on the wire of a milter.
func TestEntriesOwnWords(t *testing.T) {
	d := open(t, setup{lists: map[string]string{"bad": "bulk.example REJECT 100% bulk – nein\ncode.example 550 5.7.9 ask us\nslow.example 450 4.7.2 later\nlast.example 421 4.7.0 bye\n"}})
	for _, tt := range []struct{ sender, parameters, want string }{
		{"a@bulk.example", "SIZE=100", "550 5.7.1 <a@bulk.example>: Sender address rejected: 100%% bulk - nein"},
		{"a@bulk.example", "SIZE=100 smtputf8", "550 5.7.1 <a@bulk.example>: Sender address rejected: 100%% bulk – nein"},
		{"a@code.example", "SIZE=100", "550 5.7.9 <a@code.example>: Sender address rejected: ask us"},
		{"a@slow.example", "SIZE=100", "450 4.7.2 <a@slow.example>: Sender address rejected: later"},
		{"a@last.example", "SIZE=100", "421 4.7.0 <a@last.example>: Sender address rejected: bye"},
	} {
		m := d.greet("192.0.2.1")
		m.macro('M', "{mail_addr}", tt.sender)
		m.event('M', "<"+tt.sender+">\x00"+tt.parameters+"\x00")
		if got := m.rcpt("bob@here.example"); got != tt.want {
			t.Errorf("%s %s: %q, want %q", tt.sender, tt.parameters, got, tt.want)
		}
	}
}

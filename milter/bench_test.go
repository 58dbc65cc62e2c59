package milter_test

import "testing"

// BenchmarkRoundTrip is a clear sender's message as the mail server waits for it:
// the macros and MAIL out, the answer back, over TCP on loopback.
func BenchmarkRoundTrip(b *testing.B) {
	d := open(b, setup{lists: map[string]string{"bad": "bad.example\n"}})
	m := d.greet("192.0.2.1")
	request := append(packet('D', "M{mail_addr}\x00friend@there.example\x00"), packet('M', "<friend@there.example>\x00SIZE=1000\x00")...)
	b.ReportAllocs()
	for b.Loop() {
		if _, err := m.conn.Write(request); err != nil {
			b.Fatal(err)
		}
		if command, _, ok := m.receive(); !ok || command != 'a' {
			b.Fatalf("answer %q", command)
		}
	}
}

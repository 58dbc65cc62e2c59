package msgauth

import (
	"net/netip"
	"testing"

	"blockd/internal/testkit/nameserver"
)

func TestReverse(t *testing.T) {
	many := make([]string, 12)
	for i := range many {
		many[i] = "elsewhere.test"
	}
	many[11] = "late.test"
	r := resolverOf(t, nameserver.Serve(t, zone{
		"PTR 7.2.0.192.in-addr.arpa":    {"mx.test"},
		"A mx.test":                     {"198.51.100.1", "192.0.2.7"},
		"PTR 8.2.0.192.in-addr.arpa":    {"elsewhere.test", "nowhere.test"},
		"A elsewhere.test":              {"198.51.100.1"},
		"PTR 9.2.0.192.in-addr.arpa":    {"broken.test"},
		"A broken.test":                 {"!SERVFAIL"},
		"PTR 10.2.0.192.in-addr.arpa":   {"!SERVFAIL"},
		"PTR 11.2.0.192.in-addr.arpa":   many,
		"A late.test":                   {"192.0.2.11"},
		"PTR 13.2.0.192.in-addr.arpa":   {"broken.test", "mx13.test"},
		"A mx13.test":                   {"192.0.2.13"},
		"AAAA six.test":                 {"2001:db8::7"},
		"PTR " + six("7"):               {"six.test"},
		"PTR " + six("8"):               {"six.test"},
		"PTR 1.100.51.198.in-addr.arpa": {"."},
	}))
	for _, c := range []struct {
		name, client      string
		exists, confirmed State
	}{
		{"a name that leads back", "192.0.2.7", Pass, Pass},
		{"the same as IPv6 has it", "::ffff:192.0.2.7", Pass, Pass},
		{"names that lead elsewhere", "192.0.2.8", Pass, No},
		{"a name that cannot be asked about now", "192.0.2.9", Pass, Unknown},
		{"DNS is broken", "192.0.2.10", Unknown, Unknown},
		{"no name", "192.0.2.12", No, No},
		{"the eleventh name is not looked at", "192.0.2.11", Pass, No},
		{"one name broken, one that leads back", "192.0.2.13", Pass, Pass},
		{"the root for a name", "198.51.100.1", Pass, No},
		{"IPv6", "2001:db8::7", Pass, Pass},
		{"IPv6, leads to a neighbour", "2001:db8::8", Pass, No},
	} {
		for confirm, want := range map[bool]State{false: c.exists, true: c.confirmed} {
			if got := r.Reverse(t.Context(), netip.MustParseAddr(c.client), confirm); got != want {
				t.Errorf("%s, confirm %v: %s, want %s", c.name, confirm, got, want)
			}
		}
	}
	if got := r.Reverse(t.Context(), netip.Addr{}, false); got != Unknown {
		t.Errorf("no address: %s", got)
	}
}

// six is the reverse name of 2001:db8::N.
func six(n string) string {
	return n + ".0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.8.b.d.0.1.0.0.2.ip6.arpa"
}

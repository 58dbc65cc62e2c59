package msgauth

import (
	"context"
	"fmt"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/miekg/dns"

	"blockd/internal/testkit"
	"blockd/internal/testkit/nameserver"
)

func TestSPF(t *testing.T) {
	z := zone{
		"TXT ip4.test":               {"v=spf1 ip4:192.0.2.0/24 -all", "another text"},
		"TXT ip6.test":               {"v=spf1 ip6:2001:db8::/32 -all"},
		"TXT include.test":           {"v=spf1 include:ip4.test ~all"},
		"TXT redirect.test":          {"v=spf1 redirect=ip4.test"},
		"TXT a.test":                 {"v=spf1 a:host.test -all"},
		"A host.test":                {"192.0.2.7"},
		"AAAA host.test":             {"2001:db8::7"},
		"TXT mx.test":                {"v=spf1 mx -all"},
		"MX mx.test":                 {"10 host.test.", "20 gone.test."},
		"TXT exists.test":            {"v=spf1 exists:%{i}.allowed.test -all"},
		"A 192.0.2.7.allowed.test":   {"127.0.0.2"},
		"TXT ptr.test":               {"v=spf1 ptr:host.test -all"},
		"PTR 7.2.0.192.in-addr.arpa": {"host.test."},
		"TXT alias-target.test":      {"v=spf1 ip4:192.0.2.0/24 -all"},
		"CNAME alias.test":           {"alias-target.test."},
		"TXT xn--bcher-kva.test":     {"v=spf1 ip4:192.0.2.0/24 -all"},
		"TXT soft.test":              {"v=spf1 ~all"},
		"TXT neutral.test":           {"v=spf1 ?all"},
		"TXT fail.test":              {"v=spf1 -all"},
		"TXT other.test":             {"no record of SPF"},
		"TXT all.test":               {"v=spf1 +all"},
		"TXT bare-all.test":          {"v=spf1 all"},
		"TXT include-all.test":       {"v=spf1 include:all.test -all"},
		"TXT redirect-all.test":      {"v=spf1 redirect=all.test"},
		"TXT zero.test":              {"v=spf1 ip4:0.0.0.0/0 -all"},
		"TXT halves.test":            {"v=spf1 ip4:0.0.0.0/1 ip4:128.0.0.0/1 -all"},
		"TXT zero6.test":             {"v=spf1 ip6:::/0 -all"},
		"TXT exists-all.test":        {"v=spf1 exists:host.test -all"},
		"TXT co.uk":                  {"v=spf1 ip4:192.0.2.0/24 -all"},
		"TXT com":                    {"v=spf1 ip4:192.0.2.0/24 -all"},
		"TXT two.test":               {"v=spf1 ip4:192.0.2.7 -all", "v=spf1 -all"},
		"TXT typo.test":              {"v=spf1 ipv4:192.0.2.7 -all"},
		"TXT loop.test":              {"v=spf1 include:loop.test -all"},
		"TXT broken.test":            {"!SERVFAIL"},
		"TXT broken-include.test":    {"v=spf1 include:broken.test ip4:192.0.2.7 -all"},
		"TXT void.test":              {"v=spf1 a:v1.test a:v2.test a:v3.test ip4:192.0.2.7 -all"},
		"TXT v4only.test":            {"v=spf1 a:v4a.test a:v4b.test a:v4c.test ip6:2001:db8::/32 -all"},
		"AAAA v4a.test":              {},
		"AAAA v4b.test":              {},
		"AAAA v4c.test":              {},
		"TXT void6.test":             {"v=spf1 a:v1.test a:v2.test a:v3.test ip6:2001:db8::/32 -all"},
		"TXT oddmx.test":             {"v=spf1 mx -all"},
		"MX oddmx.test":              {`10 odd\032h\195\182st.test.`},
		`A odd\ h\195\182st.test`:    {"192.0.2.7"},
		"TXT dotmx.test":             {"v=spf1 mx -all"},
		"MX dotmx.test":              {`10 ho\.st.test.`},
		"A ho.st.test":               {"192.0.2.7"},
		"TXT local.test":             {"v=spf1 exists:%{l}.users.test -all"},
		"A bob.users.test":           {"127.0.0.2"},
		"TXT long.test":              {"v=spf1 " + strings.Repeat("ip4:198.51.100.1 ", 500) + "ip4:192.0.2.7 -all"},
	}
	many := "v=spf1"
	for i := range 11 {
		name := fmt.Sprintf("d%d.test", i)
		many += " include:" + name
		z["TXT "+name] = []string{"v=spf1 ip4:198.51.100.1 -all"}
	}
	z["TXT many.test"] = []string{many + " ip4:192.0.2.7 -all"}
	z["TXT texts.test"] = append(numbered(24), "v=spf1 ip4:192.0.2.7 -all")
	z["TXT thousand.test"] = append(numbered(999), "v=spf1 ip4:192.0.2.7 -all")
	for i := range 12 {
		z["PTR 9.2.0.192.in-addr.arpa"] = append(z["PTR 9.2.0.192.in-addr.arpa"], fmt.Sprintf("h%d.test.", i))
	}
	z["A h3.test"], z["A h11.test"] = []string{"192.0.2.9"}, []string{"192.0.2.9"}
	z["TXT ptr3.test"], z["TXT ptr11.test"] = []string{"v=spf1 ptr:h3.test -all"}, []string{"v=spf1 ptr:h11.test -all"}

	tests := []struct {
		name, client, sender string
		result               string
		want                 State
		why                  string
	}{
		{"by network", "192.0.2.7", "a@ip4.test", "pass", Pass, "matched ip"},
		{"by network of IPv6", "2001:db8::7", "a@ip6.test", "pass", Pass, ""},
		{"IPv4 in IPv6", "::ffff:192.0.2.7", "a@ip4.test", "pass", Pass, ""},
		{"by include", "192.0.2.7", "a@include.test", "pass", Pass, ""},
		{"by redirect", "192.0.2.7", "a@redirect.test", "pass", Pass, ""},
		{"by address", "192.0.2.7", "a@a.test", "pass", Pass, "matched a"},
		{"by address of IPv6", "2001:db8::7", "a@a.test", "pass", Pass, ""},
		{"by mail exchanger", "192.0.2.7", "a@mx.test", "pass", Pass, "matched mx"},
		{"by existence", "192.0.2.7", "a@exists.test", "pass", Pass, ""},
		{"by reverse name", "192.0.2.7", "a@ptr.test", "pass", Pass, ""},
		{"an alias", "192.0.2.7", "a@alias.test", "pass", Pass, ""},
		{"a name in capitals and UTF-8", "192.0.2.7", "a@BÜCHER.test", "pass", Pass, ""},
		{"a record of many strings", "192.0.2.7", "a@long.test", "pass", Pass, ""},

		{"another client", "198.51.100.1", "a@ip4.test", "fail", No, ""},
		{"softfail", "192.0.2.7", "a@soft.test", "softfail", No, ""},
		{"neutral", "192.0.2.7", "a@neutral.test", "neutral", No, ""},
		{"fail", "192.0.2.7", "a@fail.test", "fail", No, ""},
		{"no record", "192.0.2.7", "a@other.test", "none", No, ""},
		{"no name", "192.0.2.7", "a@absent.test", "none", No, ""},
		{"+all", "192.0.2.7", "a@all.test", "pass", No, "+all"},
		{"all without a sign", "192.0.2.7", "a@bare-all.test", "pass", No, "+all"},
		{"+all behind an include", "192.0.2.7", "a@include-all.test", "pass", No, "+all"},
		{"+all behind a redirect", "192.0.2.7", "a@redirect-all.test", "pass", No, "+all"},
		{"all addresses as one network", "192.0.2.7", "a@zero.test", "pass", No, "everybody"},
		{"all addresses as two networks", "192.0.2.7", "a@halves.test", "pass", No, "everybody"},
		{"all addresses of IPv6", "2001:db8::7", "a@zero6.test", "pass", No, "everybody"},
		{"a name that always exists", "192.0.2.7", "a@exists-all.test", "pass", No, "everybody"},
		{"a public suffix of two labels", "192.0.2.7", "a@co.uk", "", No, "public suffix"},
		{"a top-level domain", "192.0.2.7", "a@com", "", No, "public suffix"},
		{"two records", "192.0.2.7", "a@two.test", "permerror", No, ""},
		{"a record with a typing error", "192.0.2.7", "a@typo.test", "permerror", No, ""},
		{"a record that includes itself", "192.0.2.7", "a@loop.test", "permerror", No, "limit"},
		{"eleven look-ups", "192.0.2.7", "a@many.test", "permerror", No, "limit"},
		{"three look-ups of nothing", "192.0.2.7", "a@void.test", "permerror", No, "void"},
		{"three look-ups of nothing by IPv6", "2001:db8::7", "a@void6.test", "permerror", No, "void"},
		{"three hosts of IPv4 alone", "2001:db8::7", "a@v4only.test", "pass", Pass, "matched ip"},
		{"a mail exchanger of an odd name", "192.0.2.7", "a@oddmx.test", "pass", Pass, "matched mx"},
		{"a mail exchanger with a dot in a label", "192.0.2.7", "a@dotmx.test", "fail", No, ""},
		{"25 records", "192.0.2.7", "a@texts.test", "pass", Pass, ""},
		{"1,000 records", "192.0.2.7", "a@thousand.test", "temperror", Short, "more than 500"},
		{"one of the first ten names", "192.0.2.9", "a@ptr3.test", "pass", Pass, ""},
		{"the twelfth name", "192.0.2.9", "a@ptr11.test", "fail", Short, ""},
		{"a server that fails", "192.0.2.7", "a@broken.test", "temperror", Unknown, "SERVFAIL"},
		{"a server that fails for an include", "192.0.2.7", "a@broken-include.test", "temperror", Unknown, ""},

		{"the local-part in a macro", "192.0.2.7", "bob@local.test", "pass", No, "everybody"},
		{"a hostile local-part in a macro", "192.0.2.7", `"bob.users.test\.x y"@local.test`, "fail", No, ""},
		{"a local-part of 64 octets in a macro", "192.0.2.7", strings.Repeat("a", 64) + "@local.test", "fail", No, ""},
		{"an @ in the local-part", "192.0.2.7", `"x@ip4.test"@fail.test`, "fail", No, "matched all"},
		{"no domain", "192.0.2.7", "root", "", No, "no domain"},
		{"the null sender", "192.0.2.7", "", "", No, "no domain"},
		{"an address literal", "192.0.2.7", "a@[192.0.2.7]", "", No, "no domain"},
		{"no client", "", "a@ip4.test", "", No, "not known"},
		{"a trusted relay", "192.0.2.99", "a@ip4.test", "", No, "trusted relay"},
	}
	s := nameserver.Serve(t, z)
	r := newResolver(t, Settings{Server: s.Address, TrustedRelays: []netip.Prefix{netip.MustParsePrefix("192.0.2.99/32")}})
	for _, tt := range tests {
		client, _ := netip.ParseAddr(tt.client)
		f := r.SPF(t.Context(), client, "helo.test", tt.sender)
		if f.Proof != tt.want || f.Result != tt.result || !strings.Contains(f.Reason, tt.why) {
			t.Errorf("%s: SPF = %+v, want %s by %q, reason %q", tt.name, f, tt.want, tt.result, tt.why)
		}
	}
	for q := range s.Asked() {
		if name := q[strings.IndexByte(q, ' ')+1:]; strings.ContainsAny(name, `\ "@`) && !strings.HasSuffix(name, ".users.test") && !strings.HasPrefix(name, "odd") {
			t.Errorf("a query for %q went out", q)
		}
	}
}

func TestSPFAsksOnceForOneClient(t *testing.T) {
	s := nameserver.Serve(t, zone{"TXT ip4.test": {"v=spf1 ip4:192.0.2.0/24 -all"}})
	r := resolverOf(t, s)
	for range 20 {
		if f := r.SPF(t.Context(), netip.MustParseAddr("192.0.2.7"), "helo.test", "a@ip4.test"); f.Proof != Pass {
			t.Fatal(f)
		}
	}
	testkit.Equal(t, "queries", s.Count(), 1)
}

// The library ends a check at its first failing look-up; what it has found up to
// there must be of use to nobody.
func TestSPFWithASilentServerIsUnknownInTime(t *testing.T) {
	s := nameserver.ServeFunc(t, func(*dns.Msg) *dns.Msg { return nil })
	r := newResolver(t, Settings{Server: s.Address, Timeout: defaultTimeout / 20})
	f := r.SPF(t.Context(), netip.MustParseAddr("192.0.2.7"), "helo.test", "a@ip4.test")
	if f.Proof != Unknown || f.Result != "temperror" {
		t.Errorf("SPF = %+v", f)
	}
}

// TestSPFThatMayPassEverybody: where DNS does not say whether everybody passes, a pass stands: a partner with one dead include
// would be deferred for ever.
func TestSPFThatMayPassEverybody(t *testing.T) {
	s := nameserver.ServeFunc(t, func(m *dns.Msg) *dns.Msg {
		reply := new(dns.Msg).SetReply(m)
		switch name := m.Question[0].Name; name {
		case "slow.test.":
			reply.Answer = []dns.RR{nameserver.Record(name, "TXT", "v=spf1 exists:%{i}.allowed.test -all")}
		case "dead.test.":
			reply.Answer = []dns.RR{nameserver.Record(name, "TXT", "v=spf1 ip4:192.0.2.7 include:silent.test -all")}
		case "broken.test.":
			reply.Answer = []dns.RR{nameserver.Record(name, "TXT", "v=spf1 ip4:192.0.2.7 include:servfail.test -all")}
		case "192.0.2.7.allowed.test.":
			reply.Answer = []dns.RR{nameserver.Record(name, "A", "127.0.0.2")}
		case "servfail.test.":
			reply.Rcode = dns.RcodeServerFailure
		default:
			return nil
		}
		return reply
	})
	r := newResolver(t, Settings{Server: s.Address, Timeout: defaultTimeout / 5})
	for _, domain := range []string{"slow.test", "dead.test", "broken.test"} {
		if f := r.SPF(t.Context(), netip.MustParseAddr("192.0.2.7"), "helo.test", "a@"+domain); f.Proof != Pass || f.Result != "pass" {
			t.Errorf("%s: SPF = %+v", domain, f)
		}
	}
}

// TestSecondQuestionWaitsInTheClientsQueue: whether everybody passes is asked for the client's sake. Where the places of its network are
// taken the client waits, and those of other networks do not.
func TestSecondQuestionWaitsInTheClientsQueue(t *testing.T) {
	client := netip.MustParseAddr("192.0.2.7")
	for _, tt := range []struct {
		name string
		full netip.Addr
		want State
	}{{"its own", client, Short}, {"another's", netip.MustParseAddr("198.51.100.1"), Pass}, {"the invented client's", nobody(client), Pass}} {
		r := resolverOf(t, nameserver.Serve(t, zone{"TXT partner.test": {"v=spf1 ip4:192.0.2.7 include:other.test -all"}, "TXT other.test": {"v=spf1 ip4:198.51.100.9 -all"}}))
		if f := r.SPF(t.Context(), client, "helo.test", "a@partner.test"); f.Proof != Pass {
			t.Fatalf("with room: %+v", f)
		}
		r.mu.Lock()
		r.cache.drop(question{"other.test", dns.TypeTXT}) // so that the second question, and it alone, has to ask
		r.shares[networkOf(tt.full)] = &share{places: full(t, maxShare), users: 1}
		r.mu.Unlock()
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		if f := r.SPF(ctx, client, "helo.test", "a@partner.test"); f.Proof != tt.want {
			t.Errorf("the queue of %s network is full: %+v, want %v", tt.name, f, tt.want)
		}
		cancel()
	}
}

func TestReverse(t *testing.T) {
	var many []string
	for i := range maxReverse {
		many = append(many, fmt.Sprintf("h%d.test", i))
	}
	r := resolverOf(t, nameserver.Serve(t, zone{
		"PTR 7.2.0.192.in-addr.arpa":    {"mx.test"},
		"A mx.test":                     {"198.51.100.1", "192.0.2.7"},
		"PTR 8.2.0.192.in-addr.arpa":    {"elsewhere.test", "nowhere.test"},
		"A elsewhere.test":              {"198.51.100.1"},
		"PTR 9.2.0.192.in-addr.arpa":    {"broken.test"},
		"A broken.test":                 {"!SERVFAIL"},
		"PTR 10.2.0.192.in-addr.arpa":   {"!SERVFAIL"},
		"PTR 11.2.0.192.in-addr.arpa":   append(many[:24:24], "late.test"),
		"PTR 14.2.0.192.in-addr.arpa":   many,
		"PTR 15.2.0.192.in-addr.arpa":   append(many[:maxReverse:maxReverse], "one-more.test"),
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
		{"the twenty-fifth name", "192.0.2.11", Pass, Pass},
		{"none of so many", "192.0.2.14", Pass, No},
		{"none of the first of more", "192.0.2.15", Pass, Short},
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
	testkit.Equal(t, "no address", r.Reverse(t.Context(), netip.Addr{}, false), Unknown)
}

// six is the reverse name of 2001:db8::N.
func six(n string) string {
	return n + ".0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.8.b.d.0.1.0.0.2.ip6.arpa"
}

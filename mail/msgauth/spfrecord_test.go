package msgauth

import (
	"fmt"
	"net/netip"
	"runtime"
	"strings"
	"testing"

	"blockd/internal/testkit"
	"blockd/internal/testkit/nameserver"
)

// TestFaultBehindTheMatchingTerm: a record with a fault proves nothing, wherever the fault
// stands (RFC 7208, section 4.6), and one without proves.
func TestFaultBehindTheMatchingTerm(t *testing.T) {
	for form, want := range map[string]State{
		"-all": Pass, "": Pass, "~all exp=why.%{d}": Pass, "a/24//64": Pass, "mx:%{d}/0//0": Pass, "redirect=x.test": Pass, "x-y.z=%{c}%%%-": Pass,
		"ptr:%{d2}": Pass, "exists:%{ir}.%{l1r+-}._spf.%{d}": Pass, "ip6:::/0": Pass, "ip4:0.0.0.0/0": Pass, "A:x.test MX -ALL": Pass, "moo=": Pass, "v=spf2": Pass,
		"include:%{d}": Pass, "exists:a:b.test": Pass, "a:x-1.test.": Pass, "exists:%{h}%_": Pass, "exists:a/b.test": Pass, "  -all  ": Pass,

		"-all moo": No, "a/33": No, "a/24/24": No, "a//129": No, "a/": No, "a//": No, "a:": No, "a:test": No, "a:x.test/033": No, "a:/24": No, "a:192.0.2.1": No, "mx/33": No,
		"ip4:192.0.2.1/032": No, "ip4:192.0.2.1/33": No, "ip4:192.0.2.01": No, "ip4:192.0.2": No, "ip4": No, "ip4:": No, "ip4:2001:db8::1": No, "ip4:192.0.2.1/": No, "ip4:192.0.2.1//24": No,
		"ip4:192.0.2.1/+24": No, "ip4=192.0.2.1/24": Pass, // a modifier, by its form
		"ip6:192.0.2.1": No, "ip6:2001:db8::1/129": No, "ip6:2001:db8::1/0128": No, "ip6:fe80::1%eth0": No, "ip6:::1::": No, "ip6": No,
		"exp=a.test exp=b.test": No, "redirect=a.test redirect=b.test": No, "exp=": No, "redirect=": No, "exp=a": No, "Redirect=a.test rEDIRECT=b.test": No, "exp:a.test": No,
		"include": No, "include:": No, "include:test": No, "include:x.test/24": No, "exists": No, "exists:": No, "ptr:": No, "ptr/24": No, "all:x.test": No, "all/24": No, "all.": No,
		"-redirect=a.test": No, "?exp=a.test": No, "--all": No, "+": No, "a:%{d": No, "a:%": No, "a:%(d)": No, "a:%{x}": No, "a:%{d0}": No, "a:%{dr2}": No, "a:%{d}%": No, "a:%{c}": No,
		"a:%{d}x": No, "a:x.-y": No, "a:x.y-": No, "a:x.123": No, "a:x..": No, "x=%{": No, "x=%z": No, "a:x.test\t-all": No, "a:x\x00.test": No, "a:x\xe4.test": No, "=x": No, "1x=y": No, "a=b:c": Pass,
		"all-": No, "ipv4:192.0.2.1": No, "a.x.test": No, "m.x": No, "mx:x.test/24//": No, "exists:%{t}.test": No, "exists:%{R}.test": No,
	} {
		z := zone{"TXT bank.test": {"v=spf1 ip4:192.0.2.7 " + form}, "TXT over.test": {"v=spf1 include:bank.test -all"}, "TXT re.test": {"v=spf1 redirect=bank.test"}}
		if strings.ContainsFunc(form, func(c rune) bool { return c < ' ' || c > '~' }) { // which a zone of the test cannot hold
			_, err := parseSPF(z["TXT bank.test"][0])
			testkit.Equal(t, fmt.Sprintf("%q is a fault", form), err != nil, true)
			continue
		}
		r := resolverOf(t, nameserver.Serve(t, z))
		for _, domain := range []string{"bank.test", "over.test", "re.test"} {
			f := r.SPF(t.Context(), netip.MustParseAddr("192.0.2.7"), "helo.test", "a@"+domain)
			if f.Proof != want && !(f.Reason == "the record lets everybody pass") || want == No && f.Result != "permerror" {
				t.Errorf("%q for %s: %+v, want %s", form, domain, f, want)
			}
		}
	}
}

// TestMacros has what the words of a record are expanded to, by the name that is asked for.
func TestMacros(t *testing.T) {
	const local, helo = "Strong-Bad.x", "mx.Host.test"
	z := zone{
		"PTR 7.2.0.192.in-addr.arpa":  {"forged.bank.test.", "mx.bank.test.", "other.test."},
		"A mx.bank.test":              {"192.0.2.7"},
		"A other.test":                {"192.0.2.7"},
		"PTR 8.2.0.192.in-addr.arpa":  {"mx8.bank.test.", "mail.test."},
		"A mx8.bank.test":             {"192.0.2.8"},
		"A mail.test":                 {"192.0.2.8"},
		"PTR 10.2.0.192.in-addr.arpa": {"!SERVFAIL"},
	}
	for _, tt := range []struct{ client, domain, spec, want string }{
		{"192.0.2.7", "mail.test", "%{s}.%{o}", "strong-bad.x@mail.test.mail.test"},
		{"192.0.2.7", "mail.test", "%{l1r-}.%{l-}.%{d1}", "strong.strong.bad.x.test"},
		{"192.0.2.7", "mail.test", "%{L}.%{h}.%{v}.%{i}.%{ir}", "strong-bad.x.mx.host.test.in-addr.192.0.2.7.7.2.0.192"},
		{"2001:db8::cb01", "mail.test", "%{v}.%{ir}.test", "ip6.1.0.b.c.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.8.b.d.0.1.0.0.2.test"},
		{"192.0.2.7", "bank.test", "%{p}.x.test", "mx.bank.test.x.test"},
		{"192.0.2.7", "mx.bank.test", "%{p2r}.x.test", "bank.mx.x.test"},
		{"192.0.2.7", "mail.test", "%{P}.x.test", "mx.bank.test.x.test"},
		{"192.0.2.8", "mail.test", "%{p}.x.test", "mail.test.x.test"},
		{"192.0.2.9", "mail.test", "%{p}.x.test", "unknown.x.test"},
		{"192.0.2.10", "mail.test", "%{p}.x.test", "unknown.x.test"},
		{"192.0.2.7", "mail.test", "a%_b%%c%-d.x.test", `a b%c%20d.x.test`},
		{"192.0.2.7", "mail.test", "%{S}.test", "strong-bad.x%40mail.test.test"},
		{"192.0.2.7", "mail.test", strings.Repeat("a.", 60) + "%{d}" + strings.Repeat(".b", 70), strings.Repeat("a.", 52) + "mail.test" + strings.Repeat(".b", 70)},
	} {
		c := spfCheck{ctx: t.Context(), r: resolverOf(t, nameserver.Serve(t, z)), client: netip.MustParseAddr(tt.client), helo: helo, local: local, domain: tt.domain}
		testkit.Equal(t, tt.client+" "+tt.spec, strings.ToLower(c.expand(tt.spec, tt.domain)), tt.want)
	}
}

// TestMacrosAreBounded: what a record makes of a long local-part is no name, before it fills the memory.
func TestMacrosAreBounded(t *testing.T) {
	c := spfCheck{ctx: t.Context(), client: netip.MustParseAddr("192.0.2.7"), local: strings.Repeat("!", 4000), domain: "bank.test"}
	spec := strings.Repeat("%{L}", 16_000) + ".x.bank.test"
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	name := c.expand(spec, "bank.test")
	runtime.ReadMemStats(&after)
	testkit.Equal(t, "the name", name, "")
	testkit.AtMost(t, "octets allocated", after.TotalAlloc-before.TotalAlloc, 20<<20) // in full it is 190 MiB at the least
	testkit.Equal(t, "one of them", c.expand("%{l}.x.bank.test", "bank.test"), "x.bank.test")
}

// TestNamesOfMacrosAreAsked: a blank, a quote and octets of UTF-8 reach the server as they are,
// and its answer is known again.
func TestNamesOfMacrosAreAsked(t *testing.T) {
	for _, local := range []string{"ann", "o'brien", `"a;b"`, "jörg", `"a\b"`, "a@b"} {
		z := zone{"TXT bank.test": {"v=spf1 exists:%{l}%_x.%{i}.allowed.test -all"},
			`A ` + canonicalName(local+" x.192.0.2.7.allowed.test"): {"127.0.0.2"}}
		c := spfCheck{ctx: t.Context(), r: resolverOf(t, nameserver.Serve(t, z)), client: netip.MustParseAddr("192.0.2.7"), local: local, domain: "bank.test"}
		if result, reason := c.host("bank.test"); result != "pass" {
			t.Errorf("%s: %s, %s", local, result, reason)
		}
	}
}

// TestMacrosOfNamesCount: the names of the client's address are one of the ten look-ups, once.
func TestMacrosOfNamesCount(t *testing.T) {
	for others, want := range map[int]string{7: "pass", 8: "permerror"} {
		z := zone{"A h.test": {"198.51.100.1"}, "PTR 7.2.0.192.in-addr.arpa": {"h.test"},
			"TXT bank.test": {"v=spf1 a:%{p}.h.test a:%{p}.h.test" + strings.Repeat(" a:h.test", others) + " ip4:192.0.2.7 -all"}}
		c := spfCheck{ctx: t.Context(), r: resolverOf(t, nameserver.Serve(t, z)), client: netip.MustParseAddr("192.0.2.7"), domain: "bank.test"}
		result, reason := c.host("bank.test")
		testkit.Equal(t, fmt.Sprint(others, " others: ", reason), result, want)
	}
}

// FuzzSPFRecord gives the reader any record: what it takes must be within the bounds, and no
// check may panic or go on without an end.
func FuzzSPFRecord(f *testing.F) {
	for _, seed := range []string{"v=spf1 a mx/24//64 ip4:192.0.2.0/24 include:%{d} -all", "v=spf1 exists:%{ir}.%{l1r-}.x.test redirect=%{o}", "v=spf1 exp=%{p} ?ptr:x.test"} {
		f.Add(seed)
	}
	r := resolverOf(f, nameserver.Serve(f, zone{}))
	f.Fuzz(func(t *testing.T, text string) {
		record, err := parseSPF(text)
		if err != nil {
			return
		}
		c := spfCheck{ctx: t.Context(), r: r, client: netip.MustParseAddr("192.0.2.7"), helo: "h.test", local: "ann", domain: "bank.test"}
		for _, term := range record.terms {
			if name := c.expand(term.spec, "bank.test"); len(name) > maxName {
				t.Fatalf("%q: %d octets", term.spec, len(name))
			}
		}
	})
}

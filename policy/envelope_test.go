package policy_test

import (
	"errors"
	"net/netip"
	"strings"
	"testing"

	"blockd/internal/testkit"
	"blockd/mail/addr"
	"blockd/policy"
	"blockd/policy/verdict"
)

// client reads the client of a test; "" is an unknown one.
func client(t testing.TB, text string) netip.Addr {
	t.Helper()
	if text == "" {
		return netip.Addr{}
	}
	ip := testkit.Value(netip.ParseAddr(text))(t)
	return ip
}

func TestEnvelope(t *testing.T) {
	tests := []struct {
		name           string
		lists          []list
		client, sender string
		want           verdict.Kind
		by             string
	}{
		{"listed client", []list{block("a", "192.0.2.1")}, "192.0.2.1", "x@good.example", verdict.Blocked, "a:192.0.2.1"},
		{"client in a listed network", []list{block("a", "192.0.2.0/24")}, "192.0.2.1", "x@good.example", verdict.Blocked, "a:192.0.2.0/24"},
		{"client outside of it", []list{block("a", "192.0.2.0/24")}, "192.0.3.1", "x@good.example", verdict.Clear, ""},
		{"IPv6 network", []list{block("a", "2001:db8:1::/48")}, "2001:db8:1::7", "x@good.example", verdict.Blocked, "a:2001:db8:1::/48"},
		{"IPv4 client mapped into IPv6", []list{block("a", "192.0.2.0/24")}, "::ffff:192.0.2.1", "x@good.example", verdict.Blocked, "a:192.0.2.0/24"},
		{"zone of a client", []list{block("a", "fe80::/64")}, "fe80::1%eth0", "x@good.example", verdict.Blocked, "a:fe80::/64"},
		{"unknown client", []list{block("a", "192.0.2.0/24")}, "", "x@good.example", verdict.Clear, ""},
		{"address literal as sender is no client", []list{block("a", "192.0.2.0/24")}, "", "x@[192.0.2.1]", verdict.Clear, ""},

		{"bounce of a listed client", []list{block("a", "192.0.2.1")}, "192.0.2.1", "", verdict.Blocked, "a:192.0.2.1"},
		{"bounce of another client", []list{block("a", "192.0.2.1\nbad.example")}, "192.0.2.2", "<>", verdict.Clear, ""},
		{"no sender, listed client", []list{block("a", "192.0.2.1")}, "192.0.2.1", "no sender", verdict.Blocked, "a:192.0.2.1"},
		{"no sender, allowed client", []list{block("a", "!192.0.2.1")}, "192.0.2.1", "no sender", verdict.Allowed, "a:192.0.2.1"},
		{"no sender, client of a shadow list", []list{block("a", "192.0.2.1").shadow()}, "192.0.2.1", "no sender", verdict.Unknown, "(a:192.0.2.1)"},
		{"no sender, other client", []list{block("a", "192.0.2.1")}, "192.0.2.2", "no sender", verdict.Unknown, ""},

		{"allowed sender of a listed client", []list{block("a", "192.0.2.1"), allow("b", "good.example")},
			"192.0.2.1", "x@good.example", verdict.Allowed, "b:good.example"},
		{"listed sender of an allowed client", []list{block("a", "bad.example"), allow("b", "192.0.2.0/24")},
			"192.0.2.1", "x@bad.example", verdict.Allowed, "b:192.0.2.0/24"},
		{"client excepted from a network", []list{block("a", "192.0.2.0/24\n!192.0.2.1")}, "192.0.2.1", "x@good.example", verdict.Allowed, "a:192.0.2.1"},
		{"allow of a shadow list does not count", []list{block("a", "192.0.2.1"), allow("b", "good.example").shadow()},
			"192.0.2.1", "x@good.example", verdict.Blocked, "a:192.0.2.1"},

		{"glob", []list{block("a", "promo-*@*.example")}, "", "promo-7@good.example", verdict.Blocked, "a:promo-*@*.example"},
		{"regular expression", []list{block("a", "/^promo-[0-9]+@/")}, "", "promo-7@good.example", verdict.Blocked, "a:/^promo-[0-9]+@/"},
		{"excepted by a pattern", []list{block("a", "good.example\n!promo-*@good.example")}, "", "promo-7@good.example", verdict.Allowed, "a:promo-*@good.example"},
		{"patterns are not for bounces", []list{block("a", "/^$/\n/@|^$/")}, "", "", verdict.Clear, ""},
		{"local-part before pattern", []list{block("a", "promo-*@*"), block("b", "promo-7@")}, "", "promo-7@good.example", verdict.Blocked, "b:promo-7@"},
		{"pattern before client", []list{block("a", "192.0.2.1"), block("b", "promo-*@*")}, "192.0.2.1", "promo-7@good.example", verdict.Blocked, "b:promo-*@*"},

		{"sender before client", []list{block("a", "192.0.2.1"), block("b", "bad.example")}, "192.0.2.1", "x@bad.example", verdict.Blocked, "b:bad.example"},
		{"local-part before client", []list{block("a", "192.0.2.1"), block("b", "x@")}, "192.0.2.1", "x@good.example", verdict.Blocked, "b:x@"},
		{"longer prefix before shorter", []list{block("a", "192.0.2.0/24"), block("b", "192.0.2.0/25")}, "192.0.2.1", "x@good.example", verdict.Blocked, "b:192.0.2.0/25"},
		{"first list between equal networks", []list{block("a", "192.0.2.0/24"), block("b", "192.0.2.0/24")}, "192.0.2.1", "", verdict.Blocked, "a:192.0.2.0/24"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			c, _ := checker(t, build(t, tt.lists...), policy.Settings{})
			v := askEnvelope(c, client(t, tt.client), tt.sender)
			if by := decidedBy(v); v.Kind != tt.want || by != tt.by {
				t.Errorf("Envelope(%s, %q) = %s by %q, want %s by %q", tt.client, tt.sender, v.Kind, by, tt.want, tt.by)
			}
			if noSender := errors.As(v.Err, new(*addr.Error)); noSender != (tt.sender == "no sender") || v.Internal() {
				t.Errorf("Err = %v, Internal() = %v", v.Err, v.Internal())
			}
		})
	}
}

func TestClient(t *testing.T) {
	c, reg := checker(t, build(t, block("a", "192.0.2.0/24\n!192.0.2.9\nbad.example"), block("b", "198.51.100.1").shadow()), policy.Settings{})
	for _, tt := range []struct {
		client string
		want   verdict.Kind
		by     string
	}{
		{"192.0.2.1", verdict.Blocked, "a:192.0.2.0/24"},
		{"192.0.2.9", verdict.Allowed, "a:192.0.2.9"},
		{"198.51.100.1", verdict.Clear, "(b:198.51.100.1)"},
		{"203.0.113.1", verdict.Clear, ""},
		{"", verdict.Clear, ""},
	} {
		v := askClient(c, client(t, tt.client))
		if by := decidedBy(v); v.Kind != tt.want || by != tt.by {
			t.Errorf("Client(%s) = %s by %q, want %s by %q", tt.client, v.Kind, by, tt.want, tt.by)
		}
	}
	wantMetric(t, reg, "blockd_client_verdicts_total", `
		blockd_client_verdicts_total{verdict="allowed"} 1
		blockd_client_verdicts_total{verdict="blocked"} 1
		blockd_client_verdicts_total{verdict="clear"} 3
		blockd_client_verdicts_total{verdict="unknown"} 0`)
	wantMetric(t, reg, "blockd_list_hits_total", `blockd_list_hits_total{list="a"} 1`) // the others' envelopes are to come
	wantMetric(t, reg, "blockd_verdicts_total", `
		blockd_verdicts_total{verdict="allowed"} 0
		blockd_verdicts_total{verdict="blocked"} 0
		blockd_verdicts_total{verdict="clear"} 0
		blockd_verdicts_total{verdict="unknown"} 0`)
}

func TestDomain(t *testing.T) {
	tests := []struct {
		name, text, domain string
		want               verdict.Kind
		by                 string
	}{
		{"tree", "bad.example", "bad.example", verdict.Blocked, "a:bad.example"},
		{"exact", "=bad.example", "Bad.Example", verdict.Blocked, "a:bad.example"},
		{"below a tree", "bad.example", "mx.bad.example", verdict.Blocked, "a:bad.example"},
		{"below an exact name", "=bad.example", "mx.bad.example", verdict.Clear, ""},
		{"the name of names below", ".bad.example", "bad.example", verdict.Clear, ""},
		{"names below", ".bad.example", "mx.bad.example", verdict.Blocked, "a:bad.example"},
		{"exception", "bad.example\n!=mx.bad.example", "mx.bad.example", verdict.Allowed, "a:mx.bad.example"},
		{"an address there", "x@bad.example", "bad.example", verdict.Clear, ""},
		{"a local-part", "bad.example@", "bad.example", verdict.Clear, ""},
		{"U-label", "xn--bcher-kva.example", "bücher.example", verdict.Blocked, "a:xn--bcher-kva.example"},
		{"address literal", "@[192.0.2.1]", "[192.0.2.1]", verdict.Blocked, "a:[192.0.2.1]"},
		{"long name", "bad.example", strings.Repeat("a.", 120) + "bad.example", verdict.Blocked, "a:bad.example"},
		{"no domain", "bad.example", "x@bad.example", verdict.Unknown, ""},
		{"nothing", "bad.example", "", verdict.Unknown, ""},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			c, reg := checker(t, build(t, block("a", tt.text)), policy.Settings{})
			v := askDomain(c, tt.domain)
			if by := decidedBy(v); v.Kind != tt.want || by != tt.by || v.Internal() {
				t.Errorf("Domain(%q) = %s by %q, want %s by %q", tt.domain, v.Kind, by, tt.want, tt.by)
			}
			hits := ""
			if tt.by != "" {
				hits = `blockd_list_hits_total{list="a"} 1`
			}
			wantMetric(t, reg, "blockd_list_hits_total", hits)
			wantMetric(t, reg, "blockd_verdicts_total", `
				blockd_verdicts_total{verdict="allowed"} 0
				blockd_verdicts_total{verdict="blocked"} 0
				blockd_verdicts_total{verdict="clear"} 0
				blockd_verdicts_total{verdict="unknown"} 0`) // it is no mail
		})
	}
}

package policy_test

import (
	"bytes"
	"errors"
	"net/netip"
	"path/filepath"
	"strings"
	"testing"

	"blockd/index"
	"blockd/index/live"
	"blockd/internal/testkit"
	"blockd/internal/testkit/indexes"
	"blockd/lists"
	"blockd/mail/addr"
	"blockd/mail/digest"
	"blockd/policy"
	"blockd/policy/verdict"
)

// client reads the client of a test; "" is an unknown one.
func client(t testing.TB, text string) netip.Addr {
	t.Helper()
	if text == "" {
		return netip.Addr{}
	}
	return testkit.Value(netip.ParseAddr(text))(t)
}

func TestEnvelope(t *testing.T) {
	tests := []struct {
		name           string
		lists          []list
		client, sender string
		want           verdict.Kind
		by             string // list:entry of the decider, or of the shadow match in brackets
	}{
		{"no list has it", []list{block("a", "bad.example")}, "", "x@good.example", verdict.Clear, ""},
		{"listed domain", []list{block("a", "bad.example")}, "", "x@bad.example", verdict.Blocked, "a:bad.example"},
		{"subdomain of a listed domain", []list{block("a", "bad.example")}, "", "x@mx.bad.example", verdict.Blocked, "a:bad.example"},
		{"null reverse-path", []list{block("a", "bad.example")}, "", "", verdict.Clear, ""},
		{"path without a domain", []list{block("a", "root@")}, "", "root", verdict.Clear, ""},

		{"allow of a later list wins", []list{block("a", "bad.example"), allow("b", "bad.example")},
			"", "x@bad.example", verdict.Allowed, "b:bad.example"},
		{"allow that is less specific wins", []list{block("a", "x@mx.bad.example"), allow("b", "bad.example")},
			"", "x@mx.bad.example", verdict.Allowed, "b:bad.example"},
		{"exception in the same list wins", []list{block("a", "bad.example\n!x@bad.example")},
			"", "x@bad.example", verdict.Allowed, "a:x@bad.example"},
		{"exception for another mailbox", []list{block("a", "bad.example\n!x@bad.example")},
			"", "y@bad.example", verdict.Blocked, "a:bad.example"},
		{"the most specific of two allows is named", []list{allow("a", "good.example"), allow("b", "x@good.example")},
			"", "x@good.example", verdict.Allowed, "b:x@good.example"},

		{"address before domain", []list{block("a", "bad.example"), block("b", "x@bad.example")},
			"", "x@bad.example", verdict.Blocked, "b:x@bad.example"},
		{"exact name before tree", []list{block("a", "bad.example"), block("b", "=bad.example")},
			"", "x@bad.example", verdict.Blocked, "b:bad.example"},
		{"longer name before shorter", []list{block("a", "example.net"), block("b", "bad.example.net")},
			"", "x@bad.example.net", verdict.Blocked, "b:bad.example.net"},
		{"domain before local-part", []list{block("a", "x@"), block("b", "bad.example")},
			"", "x@bad.example", verdict.Blocked, "b:bad.example"},
		{"local-part at any domain", []list{block("a", "offers@")}, "", "Offers@good.example", verdict.Blocked, "a:offers@"},
		{"first list between equals", []list{block("a", "bad.example"), block("b", "bad.example")},
			"", "x@bad.example", verdict.Blocked, "a:bad.example"},

		{"shadow list does not count", []list{block("a", "bad.example").shadow()}, "", "x@bad.example", verdict.Clear, "(a:bad.example)"},
		{"shadow list is passed over", []list{block("a", "x@bad.example").shadow(), block("b", "bad.example")},
			"", "x@bad.example", verdict.Blocked, "b:bad.example"},
		{"allow of a shadow list does not count", []list{allow("a", "bad.example").shadow(), block("b", "bad.example")},
			"", "x@bad.example", verdict.Blocked, "b:bad.example"},
		{"allow that counts stops a shadow block", []list{block("a", "bad.example").shadow(), allow("b", "bad.example")},
			"", "x@bad.example", verdict.Allowed, "b:bad.example"},
		{"shadow list's own exception excuses its block", []list{block("a", "bad.example\n!x@bad.example").shadow()},
			"", "x@bad.example", verdict.Clear, ""},
		{"another shadow list's allow does not", []list{allow("a", "bad.example").shadow(), block("b", "bad.example").shadow()},
			"", "x@bad.example", verdict.Clear, "(b:bad.example)"},
		{"the most specific shadow block is named", []list{block("a", "bad.example").shadow(), block("b", "x@bad.example").shadow()},
			"", "x@bad.example", verdict.Clear, "(b:x@bad.example)"},

		{"tempfail is a block", []list{block("a", "bad.example 450 later")}, "", "x@bad.example", verdict.Blocked, "a:bad.example"},
		{"discard is a block", []list{block("a", "bad.example DISCARD")}, "", "x@bad.example", verdict.Blocked, "a:bad.example"},

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
		{"below a tree", "bad.example", "mx.bad.example", verdict.Blocked, "a:bad.example"},
		{"exception", "bad.example\n!=mx.bad.example", "mx.bad.example", verdict.Allowed, "a:mx.bad.example"},
		{"U-label", "xn--bcher-kva.example", "bücher.example", verdict.Blocked, "a:xn--bcher-kva.example"},
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

// hashed makes an index that can be asked for digests by md5 and sha1.
func hashed(t *testing.T, path string, all ...list) *index.Index {
	t.Helper()
	return indexes.BuildWith(t, path, index.Options{Hashes: digest.SetOf(digest.MD5, digest.SHA1)}, sourcesOf(t, all)...)
}

func askHash(c *policy.Checker, a digest.Algorithm, text string) verdict.Verdict {
	return c.Ask(policy.Question{About: policy.AboutHash, Text: digest.Of(a, text).String()})
}

// A question by digest is answered as one about the address, if a list names that.
func TestHashes(t *testing.T) {
	for _, tt := range []struct {
		name   string
		lists  []list
		hashed string
		want   verdict.Kind
		by     string
	}{
		{"listed address", []list{block("a", "x@bad.example")}, "x@bad.example", verdict.Blocked, "a:x@bad.example"},
		{"another address", []list{block("a", "x@bad.example")}, "y@bad.example", verdict.Clear, ""},
		{"a domain tells no digest", []list{block("a", "bad.example")}, "x@bad.example", verdict.Clear, ""},
		{"internationalised, as a message in UTF-8 has it", []list{block("a", "x@xn--bcher-kva.example")}, "x@bücher.example", verdict.Blocked, "a:x@xn--bcher-kva.example"},
		{"internationalised, as DNS has it", []list{block("a", "x@bücher.example")}, "x@xn--bcher-kva.example", verdict.Blocked, "a:x@xn--bcher-kva.example"},
		{"exception for the address", []list{block("a", "x@bad.example"), allow("b", "x@bad.example")}, "x@bad.example", verdict.Allowed, "b:x@bad.example"},
		{"exception for the domain", []list{block("a", "x@mx.bad.example"), allow("b", "bad.example")}, "x@mx.bad.example", verdict.Allowed, "b:bad.example"},
		{"exception for the address, block of the domain", []list{block("a", "bad.example"), allow("b", "x@bad.example")}, "x@bad.example", verdict.Allowed, "b:x@bad.example"},
		{"exception of the same list", []list{block("a", "x@bad.example\n!bad.example")}, "x@bad.example", verdict.Allowed, "a:bad.example"},
		{"list in shadow mode", []list{block("a", "x@bad.example").shadow()}, "x@bad.example", verdict.Clear, "(a:x@bad.example)"},
		{"list in shadow mode, block of the domain", []list{block("a", "x@bad.example").shadow(), block("b", "bad.example")}, "x@bad.example", verdict.Blocked, "b:bad.example"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			c, _ := checker(t, hashed(t, filepath.Join(t.TempDir(), "x.bdx"), tt.lists...), policy.Settings{})
			for _, a := range []digest.Algorithm{digest.MD5, digest.SHA1} {
				v := askHash(c, a, tt.hashed)
				by := ""
				if i := v.Told(); i >= 0 {
					by = v.ListName(i) + ":" + v.Matches[i].Name()
				}
				if v.Shadow >= 0 {
					by = "(" + by + ")"
				}
				if v.Kind != tt.want || by != tt.by || v.Err != nil {
					t.Errorf("%v: %s by %q, %v; want %s by %q", a, v.Kind, by, v.Err, tt.want, tt.by)
				}
				if len(v.Matches) > 0 {
					if sender := askSender(c, tt.hashed); sender.Kind != v.Kind || sender.Sender != v.Sender {
						t.Errorf("asked about the sender: %s, %v, by digest %s, %v", sender.Kind, sender.Sender, v.Kind, v.Sender)
					}
				}
			}
		})
	}
}

// What cannot be known is unknown, and never clear or blocked.
func TestUnknownHashes(t *testing.T) {
	path := filepath.Join(t.TempDir(), "x.bdx")
	c, reg := checker(t, hashed(t, path, block("a", "x@bad.example")), policy.Settings{})
	for _, text := range []string{"", "test", "x@bad.example", "bad.example"} {
		if v := c.Ask(policy.Question{About: policy.AboutHash, Text: text}); v.Kind != verdict.Unknown || !errors.Is(v.Err, digest.ErrText) || v.Internal() {
			t.Errorf("%q: %s, %v", text, v.Kind, v.Err)
		}
	}
	if v := askHash(c, digest.SHA256, "x@bad.example"); v.Kind != verdict.Unknown || !errors.Is(v.Err, index.ErrNoDigests) || !v.Internal() {
		t.Errorf("another algorithm: %s, %v", v.Kind, v.Err)
	}
	wantMetric(t, reg, "blockd_internal_errors_total", `
		blockd_internal_errors_total{where="panic"} 0
		blockd_internal_errors_total{where="store"} 1`)

	data := testkit.Read(t, path)
	for at := 0; ; at++ { // in every record
		next := bytes.Index(data[at:], []byte("x@bad.example"))
		if next < 0 {
			break
		}
		at += next
		data[at]++
	}
	ix := testkit.Value(index.Open(testkit.File(t, "damaged.bdx", data)))(t)
	c, _ = checker(t, ix, policy.Settings{})
	if v := askHash(c, digest.SHA1, "x@bad.example"); v.Kind != verdict.Unknown || !errors.Is(v.Err, index.ErrRead) || !v.Internal() {
		t.Errorf("a damaged page: %s, %v", v.Kind, v.Err)
	}
}

// A live entry acts at once on questions by digest too.
func TestLiveEntriesHaveHashes(t *testing.T) {
	set := testkit.Value(live.Open(live.Settings{Folder: t.TempDir(), Hashes: digest.SetOf(digest.SHA1)}))(t)
	defer set.Close()
	c, _ := checker(t, hashed(t, filepath.Join(t.TempDir(), "x.bdx"), block("a", "x@bad.example\nbad.example")), policy.Settings{Live: set})
	apply := func(change live.Change) {
		t.Helper()
		testkit.Value(set.Apply(change))(t)
	}
	want := func(text string, kind verdict.Kind, by string) {
		t.Helper()
		v := askHash(c, digest.SHA1, text)
		list := ""
		if v.Decider >= 0 {
			list = v.ListName(v.Decider)
		}
		if v.Kind != kind || list != by {
			t.Errorf("%s: %s by %q, want %s by %q", text, v.Kind, list, kind, by)
		}
	}
	want("x@bad.example", verdict.Blocked, "a")
	want("new@other.example", verdict.Clear, "")
	apply(live.Change{Entry: "new@other.example"})
	want("new@other.example", verdict.Blocked, live.ListName)
	want("also@other.example", verdict.Clear, "")
	apply(live.Change{Entry: "new@other.example", Remove: true})
	want("new@other.example", verdict.Clear, "")
	apply(live.Change{Entry: "x@bad.example", Action: lists.Allow})
	want("x@bad.example", verdict.Allowed, live.ListName)
	apply(live.Change{Entry: "x@bad.example", Remove: true})
	apply(live.Change{Entry: "bad.example", Action: lists.Allow})
	want("x@bad.example", verdict.Allowed, live.ListName)
}

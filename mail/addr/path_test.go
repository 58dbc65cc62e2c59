package addr

import (
	"bytes"
	"errors"
	"net"
	"regexp"
	"strings"
	"testing"
	"unicode"
	"unicode/utf8"

	"blockd/internal/testkit"
)

// slowPath is the second parser: RFC 5321, section 4.1.2, as one regular
// expression over octets (each octet is one character of its subject), with the
// liberties that ParsePath documents. It judges neither UTF-8 nor IDNA.
var slowPath = func() *regexp.Regexp {
	const (
		atext  = "[A-Za-z0-9!#$%&'*+/=?^_`{|}~\\x{80}-\\x{FF}-]"
		quoted = `"(?:[\x{20}-\x{21}\x{23}-\x{5B}\x{5D}-\x{7E}\x{80}-\x{FF}]|\\[\x{20}-\x{7E}])*"`
		label  = `-*[A-Za-z0-9_\x{80}-\x{FF}][A-Za-z0-9_\x{80}-\x{FF}-]*`
		domain = `(?:` + label + `(?:\.` + label + `)*|\[(?:(?i:IPv6:)[0-9A-Fa-f:.]+|[0-9.]+)\])`
		atoms  = `(?:` + atext + `+(?:\.` + atext + `+)*|` + quoted + `)`
		local  = `(?:(?:\.|` + atext + `)+|` + quoted + `)`
	)
	return regexp.MustCompile(`^<(?:|(@` + domain + `(?:,@` + domain + `)*:)?(?:(` + local + `)@(` + domain + `)|(` + atoms + `)))>`)
}()

// slow splits b by the second parser. sure is false where ParsePath may refuse
// what the expression takes: only Unicode's tables can judge it.
func slow(b []byte) (raw, local, domain string, ok, sure bool) {
	m := slowPath.FindStringSubmatch(testkit.Latin1(b))
	if m == nil {
		return "", "", "", false, true
	}
	raw, route := testkit.Octets(m[0]), m[1]
	local, domain = testkit.Octets(m[2]+m[4]), testkit.Octets(m[3])
	if route != "" && domain == "" || len(raw) > 8192 {
		return "", "", "", false, true
	}
	sure = true
	names := regexp.MustCompile(`\[[^\]]*\]|[^@,\[\]]+`).FindAllString(strings.TrimSuffix(route, ":"), -1)
	for _, name := range append(names, m[3]) {
		if strings.HasPrefix(name, "[") {
			inner := name[1 : len(name)-1]
			v6 := len(inner) > 5 && strings.EqualFold(inner[:5], "IPv6:")
			if v6 {
				inner = inner[5:]
			}
			if net.ParseIP(inner) == nil || v6 != strings.Contains(inner, ":") {
				return "", "", "", false, true
			}
			continue
		}
		name = strings.ToLower(name)
		labels := strings.Split(name, ".")
		last := labels[len(labels)-1]
		if name != "" && regexp.MustCompile(`^([0-9]+|0x[0-9a-f]*)$`).MatchString(last) {
			return "", "", "", false, true
		}
		wide := strings.ContainsFunc(name, func(r rune) bool { return r > 127 })
		for _, l := range labels {
			if len(l) > 63 && !wide {
				return "", "", "", false, true
			}
			sure = sure && !strings.HasPrefix(l, "xn--")
		}
	}
	if strings.ContainsFunc(m[0], func(r rune) bool { return r > 127 }) {
		sure = false
	}
	return raw, local, domain, true, sure
}

func TestParsePathSplitsAndChangesNothing(t *testing.T) {
	tests := []struct{ name, in, raw, local, domain, rest string }{
		{"null", "<>", "<>", "", "", ""},
		{"null with parameters", "<> SIZE=1", "<>", "", "", " SIZE=1"},
		{"plain", "<Promo@Bulk.TEST>", "<Promo@Bulk.TEST>", "Promo", "Bulk.TEST", ""},
		{"rest", "<a@b> BODY=7BIT", "<a@b>", "a", "b", " BODY=7BIT"},
		{"rest without blank", "<a@b>SIZE=1", "<a@b>", "a", "b", "SIZE=1"},
		{"no domain", "<postmaster>", "<postmaster>", "postmaster", "", ""},
		{"route", "<@r.test,@s.test:a@b>", "<@r.test,@s.test:a@b>", "a", "b", ""},
		{"route of literals", "<@[192.0.2.1],@[IPv6:2001:DB8::1]:a@b>", "<@[192.0.2.1],@[IPv6:2001:DB8::1]:a@b>", "a", "b", ""},
		{"quotes are kept", `<"a\b"@c>`, `<"a\b"@c>`, `"a\b"`, "c", ""},
		{"bracket and parameter in quotes", `<"victim@blocked.example> ENVID=a"@good.example>`,
			`<"victim@blocked.example> ENVID=a"@good.example>`, `"victim@blocked.example> ENVID=a"`, "good.example", ""},
		{"escaped quote", `<"a\"> b"@c> SIZE=1`, `<"a\"> b"@c>`, `"a\"> b"`, "c", " SIZE=1"},
		{"literal", "<a@[IPv6:2001:DB8::1]>", "<a@[IPv6:2001:DB8::1]>", "a", "[IPv6:2001:DB8::1]", ""},
		{"UTF-8", "<jörg@bücher.test>", "<jörg@bücher.test>", "jörg", "bücher.test", ""},
		{"underscore and trailing hyphen", "<a@b_c.d-.e>", "<a@b_c.d-.e>", "a", "b_c.d-.e", ""},
		{"domain of more than 253 octets", "<a@" + strings.Repeat("b.", 200) + "c>", "<a@" + strings.Repeat("b.", 200) + "c>",
			"a", strings.Repeat("b.", 200) + "c", ""},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			p, rest, err := ParsePath([]byte(tt.in))
			if err != nil || string(p.Raw) != tt.raw || string(p.Local) != tt.local ||
				string(p.Domain) != tt.domain || string(rest) != tt.rest {
				t.Errorf("ParsePath(%q) = %q %q %q, %q, %v", tt.in, p.Raw, p.Local, p.Domain, rest, err)
			}
			if p.UTF8 != bytes.ContainsFunc(p.Raw, func(r rune) bool { return r > 127 }) {
				t.Errorf("ParsePath(%q): UTF8 = %v", tt.in, p.UTF8)
			}
		})
	}
}

func TestParsePathRefuses(t *testing.T) {
	tests := []struct {
		name, in string
		want     Class
	}{
		{"nothing", "", Syntax},
		{"no brackets", "a@b", Syntax},
		{"blank first", " <a@b>", Syntax},
		{"no closing bracket", "<a@b", Syntax},
		{"bracket alone", "<", Syntax},
		{"blank inside", "< a@b>", Syntax},
		{"blank at the end", "<a@b >", Syntax},
		{"only a blank", "< >", Syntax},
		{"trailing dot", "<a@b.test.>", Syntax},
		{"trailing ideographic dot", "<a@b.test\u3002>", Syntax},
		{"unclosed quote hides the bracket", `<"a@b>`, Syntax},
		{"quote in the middle", `<a"b"@c>`, Syntax},
		{"two @", "<a@b@c>", Syntax},
		{"route without mailbox", "<@a:>", Syntax},
		{"route and no domain", "<@a:b>", Syntax},
		{"numeric domain", "<a@1.2.3.4>", Syntax},
		{"malformed literal", "<a@[1.2.3]>", Syntax},
		{"route literal that holds a bracket and an address", "<@[v@blocked.example> X]:a@good.example>", Syntax},
		{"route literal that holds a command", "<@[x\nRCPT TO:<v@w>]:a@b>", Control},
		{"route literal that holds a NUL", "<@[\x00]:a@b>", NUL},
		{"route literal that is not UTF-8", "<@[\xFF]:a@b>", BadUTF8},
		{"route literal of a name", "<@[r.test]:a@b>", Syntax},
		{"comment", "<a@b(c)>", Syntax},
		{"NUL", "<a\x00@b>", NUL},
		{"CR", "<a@b\r>", Control},
		{"LF in quotes", "<\"a\nb\"@c>", Control},
		{"tab", "<a@b\t>", Syntax},
		{"broken UTF-8", "<\xFF@b>", BadUTF8},
		{"broken UTF-8 in the route", "<@\xFF:a@b>", BadUTF8},
		{"invisible", "<a\u200B@b>", Invisible},
		{"xn-- alone in full width", "<a@\uFF58n--.test>", IDNA},
		{"label of 64", "<a@" + strings.Repeat("x", 64) + ">", LabelTooLong},
		{"more than 8192 octets", "<" + strings.Repeat("a", 8191) + "@b>", TooLong},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			in := []byte(tt.in)
			p, rest, err := ParsePath(in)
			var e *Error
			if !errors.As(err, &e) || e.Class != tt.want || p.Raw != nil || !bytes.Equal(rest, in) {
				t.Errorf("ParsePath(%.60q) = %q, %v, want class %s", tt.in, p.Raw, err, tt.want)
			}
		})
	}
}

// checkPath is the property behind docs/smtp.md, P1: what was read is what is
// forwarded, and a second parser and the look-up see the same address in it.
func checkPath(t *testing.T, b []byte) {
	t.Helper()
	p, rest, err := ParsePath(b)
	raw, local, domain, ok, sure := slow(b)
	if err != nil {
		if ok && sure {
			t.Fatalf("ParsePath(%.200q): %v; the second parser sees %.200q", b, err, raw)
		}
		return
	}
	if !ok || raw != string(p.Raw) || local != string(p.Local) || domain != string(p.Domain) {
		t.Fatalf("ParsePath(%.200q) = %.200q %.200q %.200q; the second parser sees %v %.200q %.200q %.200q",
			b, p.Raw, p.Local, p.Domain, ok, raw, local, domain)
	}
	if !bytes.Equal(append(bytes.Clone(p.Raw), rest...), b) {
		t.Fatalf("ParsePath(%.200q): %.200q and %.200q are not the input", b, p.Raw, rest)
	}
	if bytes.ContainsFunc(p.Raw, unicode.IsControl) || !utf8.Valid(p.Raw) {
		t.Fatalf("ParsePath took %.200q", p.Raw)
	}
	whole, err := Parse(string(p.Raw))
	if err != nil {
		t.Fatalf("ParsePath took %.200q, Parse says %v", p.Raw, err)
	}
	without := string(p.Local)
	if len(p.Domain) > 0 {
		without += "@" + string(p.Domain)
	}
	if parts, err := Parse(without); err != nil || parts != whole {
		t.Fatalf("Parse(%.200q) = %.200q, Parse(%.200q) = %.200q, %v", p.Raw, whole, without, parts, err)
	}
	if len(p.Domain) > 0 && whole.at > 0 {
		if k, err := DomainKey(string(p.Domain)); err == nil && k.Text != whole.Domain() {
			t.Fatalf("DomainKey(%.200q) = %.200q, the sender's is %.200q", p.Domain, k.Text, whole.Domain())
		}
	}
}

func FuzzParsePath(f *testing.F) {
	for _, s := range []string{
		"<>", "<a@b>", "<@r.test,@[192.0.2.1]:a@b.test> SIZE=1", `<"victim@blocked.example> ENVID=a"@good.example>`,
		"<jörg@bücher.test>", "<a@xn--bcher-kva.test>", "<a@[IPv6:::ffff:192.0.2.1]>", "<postmaster>", "<a@b.test.>",
	} {
		f.Add([]byte(s))
	}
	f.Fuzz(checkPath)
}

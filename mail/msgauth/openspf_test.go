package msgauth

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/miekg/dns"
	"go.yaml.in/yaml/v3"

	"blockd/internal/testkit"
	"blockd/internal/testkit/nameserver"
)

// openspf is where suites of SPF are, each with its licence: that of RFC 7208, by those
// who wrote it, and that of another implementation.
const openspf = "testdata/openspf"

// differences are the tests whose result is another one here, and why.
var differences = map[string]string{
	"blitirispf-tests.yml resolution-with-10-lookups": oneLabel,
	"blitirispf-tests.yml lookup-limit-at-10":         oneLabel,
	"blitirispf-tests.yml lookup-limit-at-10-matches": oneLabel,
	"blitirispf-tests.yml void-limit-at-2":            oneLabel,
	"blitirispf-tests.yml mx-resolution-10-terms":     oneLabel,
}

const oneLabel = "a:top and the like are faults: a domain-spec ends with a top-level label behind a dot (RFC 7208, section 7.1)"

// oneOrMore is a text or a list of texts.
type oneOrMore []string

func (o *oneOrMore) UnmarshalYAML(n *yaml.Node) error {
	if n.Kind == yaml.ScalarNode {
		*o = oneOrMore{n.Value}
		return nil
	}
	return n.Decode((*[]string)(o))
}

type openspfSuite struct {
	Description string
	Tests       map[string]struct {
		Helo, Host, MailFrom string
		Result               oneOrMore
	}
	ZoneData map[string][]yaml.Node
}

// reply answers as the zone of a suite has it.
func (s openspfSuite) reply(m *dns.Msg) *dns.Msg {
	q := m.Question[0]
	reply := new(dns.Msg).SetReply(m)
	name := q.Name
	for range 4 {
		next := ""
		found := map[string][]oneOrMore{}
		exists, noTXT := false, false
		for owner, rows := range s.ZoneData {
			if !strings.EqualFold(canonicalName(owner), strings.TrimSuffix(name, ".")) {
				continue
			}
			exists = true
			for _, row := range rows {
				var fields map[string]oneOrMore
				if row.Kind == yaml.ScalarNode {
					found["TIMEOUT"] = append(found["TIMEOUT"], nil)
					continue
				}
				if err := row.Decode(&fields); err != nil {
					panic(err)
				}
				for kind, values := range fields {
					if kind == "TXT" && len(values) == 1 && values[0] == "NONE" {
						noTXT = true
						continue
					}
					found[kind] = append(found[kind], values)
				}
			}
		}
		fails := found["TIMEOUT"] != nil || found["SERVFAIL"] != nil || found["CNAMELOOP"] != nil
		if fails && found[dns.TypeToString[q.Qtype]] == nil {
			return reply.SetRcode(m, dns.RcodeServerFailure)
		}
		if found["TXT"] == nil && !noTXT {
			found["TXT"] = found["SPF"] // the suite is older than the end of that type
		}
		for _, values := range found[dns.TypeToString[q.Qtype]] {
			if rr := recordOfSuite(name, q.Qtype, values); rr != nil {
				reply.Answer = append(reply.Answer, rr)
			}
		}
		if alias := found["CNAME"]; alias != nil {
			next = dns.Fqdn(alias[0][0])
			reply.Answer = append(reply.Answer, nameserver.Record(name, "CNAME", next))
		}
		if next == "" {
			if !exists && len(reply.Answer) == 0 {
				reply.Rcode = dns.RcodeNameError
			}
			return reply
		}
		name = next
	}
	return reply.SetRcode(m, dns.RcodeServerFailure)
}

func recordOfSuite(name string, kind uint16, values []string) dns.RR {
	header := dns.RR_Header{Name: name, Rrtype: kind, Class: dns.ClassINET, Ttl: 300}
	switch kind {
	case dns.TypeTXT:
		if len(values) == 0 {
			return nil
		}
		rr := &dns.TXT{Hdr: header}
		for _, part := range values {
			var b strings.Builder
			for i := range len(part) {
				fmt.Fprintf(&b, `\%03d`, part[i])
			}
			rr.Txt = append(rr.Txt, b.String())
		}
		for i := 0; i < len(rr.Txt); i++ { // of at most 255 octets
			if rest := rr.Txt[i]; len(rest) > 4*255 {
				rr.Txt = slices.Insert(rr.Txt, i+1, rest[4*255:])
				rr.Txt[i] = rest[:4*255]
			}
		}
		return rr
	case dns.TypeMX:
		return nameserver.Record(name, "MX", values[0]+" "+dns.Fqdn(values[1]))
	case dns.TypePTR:
		return nameserver.Record(name, "PTR", dns.Fqdn(values[0]))
	}
	return nameserver.Record(name, dns.TypeToString[kind], values[0])
}

func TestOpenSPF(t *testing.T) {
	files := testkit.Value(filepath.Glob(filepath.Join(openspf, "*.yml")))(t)
	for _, file := range files {
		decoder := yaml.NewDecoder(bytes.NewReader(testkit.Value(os.ReadFile(file))(t)))
		for {
			var suite openspfSuite
			if err := decoder.Decode(&suite); errors.Is(err, io.EOF) {
				break
			} else if err != nil {
				t.Fatal(file, err)
			}
			r := resolverOf(t, nameserver.ServeFunc(t, suite.reply))
			for name, test := range suite.Tests {
				sender := test.MailFrom
				if sender == "" || !strings.Contains(sender, "@") {
					sender = "postmaster@" + test.Helo
				}
				local, domain, _ := strings.Cut(sender, "@")
				if local == "" {
					local = "postmaster"
				}
				c := spfCheck{ctx: t.Context(), r: r, client: netip.MustParseAddr(test.Host).Unmap(), helo: test.Helo, local: local, domain: domain}
				result, reason := "none", "no domain"
				if canonical(domain) != "" && (strings.Contains(domain, ".") || !strings.HasPrefix(filepath.Base(file), "rfc")) {
					result, reason = c.host(domain)
				}
				key := filepath.Base(file) + " " + name
				same := slices.Contains(test.Result, result)
				if why := differences[key]; same == (why != "") {
					t.Errorf("%s: %s (%s), want %s; %s", key, result, reason, test.Result, why)
				}
			}
		}
	}
}

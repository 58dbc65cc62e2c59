package msgauth

import (
	"context"
	"net/netip"
	"strings"

	"github.com/miekg/dns"
)

// The bounds of RFC 7208, section 4.6.4, beyond which a record is at fault; of names of
// an address those behind the first ten are passed over.
const (
	maxTerms = 10 // that need DNS
	maxVoids = 2  // look-ups of terms that find nothing
	maxHosts = 10 // of one "mx"
	maxNames = 10 // of the client's address
)

// spfCheck is one run of check_host (RFC 7208, section 4). The result is a word of
// section 8, and the reason the mechanism that has decided, or the fault.
type spfCheck struct {
	ctx     context.Context
	r       *Resolver
	network netip.Prefix

	client              netip.Addr
	helo, local, domain string // domain is the sender's

	terms, voids int
	short        bool // a look-up came to nothing for want of ours, or more than a bound was there
	reversed     bool
	names        []string // of the client's address, that lead back to it; if reversed
}

func (c *spfCheck) lookup(name string, kind uint16) answer {
	a := c.r.lookup(c.ctx, c.network, name, kind)
	c.short = c.short || a.outcome == short || a.outcome == beyond
	return a
}

// host is check_host for a domain.
func (c *spfCheck) host(domain string) (result, reason string) {
	a := c.lookup(domain, dns.TypeTXT)
	if a.outcome == none {
		return "none", "no record"
	}
	if a.outcome != records {
		return "temperror", a.fault
	}
	text, found := "", 0
	for _, rec := range a.records {
		if isSPF(rec.text) {
			text, found = rec.text, found+1
		}
	}
	switch found {
	case 0:
		return "none", "no record"
	case 1:
	default:
		return "permerror", "more than one record"
	}
	record, err := parseSPF(text)
	if err != nil {
		return "permerror", "a record with a fault: " + err.Error()
	}
	for _, t := range record.terms {
		if c.ctx.Err() != nil {
			c.short = c.short || hasQueued(c.ctx)
			return "temperror", "the time for SPF is over"
		}
		if result, reason := c.term(t, domain); result != "" {
			return result, reason
		}
	}
	if record.redirect == "" {
		return "neutral", "nothing matched"
	}
	if !c.count() {
		return "permerror", overTerms
	}
	if result, reason = c.host(c.expand(record.redirect, domain)); result == "none" {
		return "permerror", "redirect= to a domain without a record"
	}
	return result, reason
}

const overTerms, overVoids = "the limit of 10 look-ups", "the limit of two void look-ups"

// count counts a term that needs DNS, and reports whether it may.
func (c *spfCheck) count() bool {
	c.terms++
	return c.terms <= maxTerms
}

// term returns the result of a term that matches or is at fault, else "".
func (c *spfCheck) term(t spfTerm, domain string) (result, reason string) {
	switch t.name {
	case "all":
		return t.result, matchedAll
	case "ip4", "ip6":
		if t.net.Contains(c.client) {
			return t.result, "matched ip"
		}
		return "", ""
	}
	if !c.count() {
		return "permerror", overTerms
	}
	name := domain
	if t.spec != "" {
		name = c.expand(t.spec, domain)
	}
	if c.terms > maxTerms { // %{p} counts
		return "permerror", overTerms
	}
	matched := false
	switch t.name {
	case "include":
		return c.include(t, name)
	case "ptr":
		for _, known := range c.reverse() {
			matched = matched || isBelow(known, name)
		}
	case "exists":
		a := c.lookup(name, dns.TypeA)
		if result, reason := c.judge(a, dns.TypeA); result != "" {
			return result, reason
		}
		matched = a.outcome == records
	case "a":
		a := c.lookup(name, c.kind())
		if result, reason := c.judge(a, c.kind()); result != "" {
			return result, reason
		}
		matched = c.matches(a, t)
	case "mx":
		hosts := c.lookup(name, dns.TypeMX)
		if result, reason := c.judge(hosts, dns.TypeMX); result != "" {
			return result, reason
		}
		if len(hosts.records) > maxHosts {
			return "permerror", "the limit of 10 mail exchangers"
		}
		for _, host := range hosts.records {
			a := c.lookup(host.text, c.kind())
			if a.outcome != records && a.outcome != none {
				return "temperror", a.fault
			}
			if matched = c.matches(a, t); matched {
				break
			}
		}
	}
	if c.voids > maxVoids {
		return "permerror", overVoids
	}
	if matched {
		return t.result, "matched " + t.name
	}
	return "", ""
}

const matchedAll = "matched all"

func (c *spfCheck) include(t spfTerm, name string) (result, reason string) {
	switch result, reason = c.host(name); result {
	case "pass":
		return t.result, reason
	case "temperror", "permerror":
		return result, reason
	case "none":
		return "permerror", "include: of a domain without a record"
	}
	return "", ""
}

// judge returns the result of a term whose look-up has failed, or is one that found nothing
// too many, else "".
func (c *spfCheck) judge(a answer, asked uint16) (result, reason string) {
	switch a.outcome {
	case records:
		return "", ""
	case none:
		if a.exists && asked == dns.TypeAAAA { // a host of IPv4 alone is no void of its domain's
			return "", ""
		}
		if c.voids++; c.voids > maxVoids {
			return "permerror", overVoids
		}
		return "", ""
	}
	return "temperror", a.fault
}

// kind is the type of the records that can have the client's address.
func (c *spfCheck) kind() uint16 {
	if c.client.Is6() {
		return dns.TypeAAAA
	}
	return dns.TypeA
}

// matches reports whether an address of a is the client's, as far as t compares them.
func (c *spfCheck) matches(a answer, t spfTerm) bool {
	bits := t.v4
	if c.client.Is6() {
		bits = t.v6
	}
	for _, rec := range a.records {
		addr, err := netip.ParseAddr(rec.text)
		if p, err2 := addr.Prefix(bits); err == nil && err2 == nil && p.Contains(c.client) {
			return true
		}
	}
	return false
}

// reverse returns the names of the client's address that lead back to it (RFC 7208,
// section 5.5). It asks once. Errors of DNS are the client's own, and make no name.
func (c *spfCheck) reverse() []string {
	if c.reversed {
		return c.names
	}
	c.reversed = true
	name, err := dns.ReverseAddr(c.client.String())
	if err != nil {
		return nil
	}
	all := c.lookup(name, dns.TypePTR)
	if all.outcome == none {
		c.voids++
	}
	if len(all.records) > maxNames {
		c.short = true // one of those might have been the one
	}
	for _, host := range all.records[:min(len(all.records), maxNames)] {
		if c.matches(c.lookup(host.text, c.kind()), spfTerm{v4: 32, v6: 128}) {
			c.names = append(c.names, strings.ToLower(host.text))
		}
	}
	return c.names
}

// validated is what %{p} means: the domain itself if it is a name of the client, else one
// below it, else any.
func (c *spfCheck) validated(domain string) string {
	if !c.reversed {
		c.count()
	}
	best := "unknown"
	for i, name := range c.reverse() {
		switch {
		case strings.EqualFold(name, strings.TrimSuffix(domain, ".")):
			return name
		case isBelow(name, domain) && !isBelow(best, domain), i == 0:
			best = name
		}
	}
	return best
}

// isBelow reports whether name is domain or below it.
func isBelow(name, domain string) bool {
	name, domain = strings.ToLower(strings.TrimSuffix(name, ".")), strings.ToLower(strings.TrimSuffix(domain, "."))
	return domain != "" && (name == domain || strings.HasSuffix(name, "."+domain))
}

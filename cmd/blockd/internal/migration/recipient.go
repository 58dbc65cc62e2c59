package migration

import (
	"cmp"
	"strings"

	"blockd/lists"
)

// maxRecipients bounds the recipients of all policies; blockd takes no more.
const maxRecipients = 10_000

// recipientPolicies turns exceptions for recipients into policies: the lists that
// are asked behind such an exception do not count for its recipient.
func (pf *postfix) recipientPolicies(p *plan) {
	pf.note(`mail for postmaster and abuse is taken from everybody here; smtp.recipients_exempt = [] in config.toml changes that`)
	r := exempted{pf: pf, plan: p, index: map[*site]map[string]*entry{}, groups: map[string]int{}, seen: map[string]bool{}}
	var kept []*entry
	for _, s := range pf.sites {
		if s.about != recipients {
			continue
		}
		r.tables, r.index[s] = append(r.tables, s), map[string]*entry{}
		for _, e := range s.entries {
			for _, k := range e.keys {
				r.index[s][k.String()] = cmp.Or(r.index[s][k.String()], e)
			}
			switch {
			case e.Outcome == Lost:
			case e.deed != pass && e.deed != stop:
				e.lose("it is about recipients; it stays with Postfix")
			case len(e.keys) == 0 || e.keys[0].isPattern():
				e.lose("a policy names recipients, not expressions")
			default:
				kept = append(kept, e)
			}
		}
	}
	for _, e := range kept {
		if len(kept) > maxRecipients {
			e.lose("more than %d recipients in all tables", maxRecipients)
		} else if e.Outcome != Lost {
			r.policyOf(e)
		}
	}
}

// exempted are the tables of recipients, and the policies made of them so far.
type exempted struct {
	pf     *postfix
	plan   *plan
	tables []*site
	index  map[*site]map[string]*entry
	groups map[string]int // by the names of their lists: a place in Policies
	seen   map[string]bool
}

// policyOf puts the recipient of one entry into the policy of its lists.
func (r *exempted) policyOf(e *entry) {
	k := e.keys[0]
	beaten, exempt, own := r.beaten(e, k)
	names := []string{}
	for _, l := range r.pf.Lists {
		if !beaten[l.site] {
			names = append(names, l.Name)
		}
	}
	freed := len(r.pf.Lists) - len(names)
	switch {
	case e.deed == pass && (!own || freed == 0):
		e.lose("nothing that is carried over is asked behind it")
		if freed == 0 {
			return
		}
	case !exempt:
		e.lose("it does nothing there against what is carried over")
		return
	default:
		e.List = "[[policy]]"
		if len(e.keys) > 1 {
			e.differ(Narrower, "not with an extension behind recipient_delimiter: a policy names recipients as they are written")
		}
	}
	text := policyKey(k)
	if r.seen[text] {
		return
	}
	r.seen[text] = true
	id := strings.Join(names, " ")
	at, ok := r.groups[id]
	if !ok {
		at = len(r.pf.Policies)
		r.groups[id] = at
		r.pf.Policies = append(r.pf.Policies, Policy{Lists: names})
	}
	r.pf.Policies[at].Recipients = append(r.pf.Policies[at].Recipients, text)
}

// beaten returns the sites that do not count for a recipient: some exception of its goes before
// them. exempt is true if there is one, and own if that is one of e.
func (r *exempted) beaten(e *entry, k key) (beaten map[*site]bool, exempt, own bool) {
	beaten = map[*site]bool{}
	for _, t := range r.tables {
		found := lookup(r.index[t], k)
		if found == nil || found.deed != pass || found.Outcome == Lost && found != e {
			continue
		}
		exempt = true
		for _, s := range r.plan.sites {
			if s.name != "" && r.plan.siteOrder(t, s) == first {
				beaten[s] = true
				own = own || found == e
			}
		}
	}
	return beaten, exempt, own
}

// policyKey is a key as [[policy]] has it.
func policyKey(k key) string {
	if k.kind == lists.Domain && k.scope == lists.Exact && !strings.HasPrefix(k.text, "[") {
		return "=" + k.text
	}
	return quoted(k)
}

// lookup finds what an indexed table has for all that a key matches.
func lookup(index map[string]*entry, k key) *entry {
	asked := []string{k.text}
	domain := domainOf(k)
	switch {
	case k.scope == lists.Sub:
		asked = []string{"." + domain, domain}
	case domain != "":
		asked = append(asked, "@"+domain, domain)
	}
	for up, parent, more := strings.Cut(domain, "."); more && up != ""; up, parent, more = strings.Cut(parent, ".") {
		asked = append(asked, "."+parent, parent)
	}
	if k.kind == lists.Addr {
		asked = append(asked, k.text[:strings.LastIndexByte(k.text, '@')+1])
	}
	for _, text := range asked {
		if e := index[text]; e != nil {
			return e
		}
	}
	return nil
}

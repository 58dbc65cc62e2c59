package migration

import (
	"net/netip"
	"slices"
	"strings"
)

// permitNetworks is permit_mynetworks: smtp.trusted here.
func (pf *postfix) permitNetworks(at Place, phase string) {
	if pf.mynets != nil {
		pf.mynets.site.steps = append(pf.mynets.site.steps, pf.step())
		return
	}
	nets, whole := pf.networks()
	var keys []key
	for _, n := range nets {
		keys = append(keys, netKey(n))
	}
	pf.mynets = pf.exempt(clients, pf.find(at, "permit_mynetworks", phase+": let pass clients in mynetworks"), keys...)
	if !whole {
		pf.mynets.differ(Narrower, "not for all of mynetworks: what is left out stands in the notes")
	}
}

// permitLogins is permit_sasl_authenticated: smtp.skip_authenticated here.
func (pf *postfix) permitLogins(at Place, phase string) {
	if pf.logins != nil {
		pf.logins.site.steps = append(pf.logins.site.steps, pf.step())
		return
	}
	pf.logins = pf.exempt(logins, pf.find(at, "permit_sasl_authenticated", phase+": let pass who has logged in"))
}

// networks reads mynetworks. whole is false if some of it is no network here.
func (pf *postfix) networks() (nets []netip.Prefix, whole bool) {
	value, at := pf.params.value("mynetworks"), Place{File: pf.Source}
	if p, said := pf.params.set["mynetworks"]; said {
		at = p.at
	} else {
		pf.note("mynetworks is not set: %s is taken for it, whatever mynetworks_style says", value)
	}
	whole = true
	leave := func(at Place, text, why string) {
		whole = false
		pf.note("%s: mynetworks: %s is not among smtp.trusted: %s", at, shown(text), why)
	}
	var except []netip.Prefix
	add := func(at Place, text string) {
		not := strings.HasPrefix(text, "!")
		n, err := parseCIDR(text)
		switch {
		case err != nil:
			leave(at, text, "it is no network")
		case not:
			except = append(except, n)
			leave(at, text, "an exception, and so is what it is taken from")
		case n.Bits() == 0:
			leave(at, text, "it is everybody")
		case slices.ContainsFunc(except, n.Overlaps):
			leave(at, text, "an exception before it is taken from it")
		default:
			if n = netKey(n).net; !slices.Contains(nets, n) {
				nets = append(nets, n)
			}
		}
	}
	for _, w := range words(value) {
		kind, _, name, table := tableName(w, "")
		if isPath(w) {
			name = w
		}
		switch {
		case isPath(w) || table && (kind == indexedTable || kind == cidrTable):
			path := pf.params.path(name)
			data, err := pf.files.load(path, maxTable)
			if err != nil {
				leave(at, w, unreadable(err))
			}
			lines, _ := logicalLines(data)
			for _, l := range lines {
				for i, text := range words(l.text) {
					if !l.comment && (i == 0 || !table) {
						add(Place{path, l.line}, text)
					}
				}
			}
		case table:
			leave(at, w, "a table of another program")
		default:
			add(at, w)
		}
	}
	return nets, whole
}

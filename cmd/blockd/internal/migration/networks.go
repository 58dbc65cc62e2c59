package migration

import (
	"net/netip"
	"slices"
	"strings"

	"blockd/cmd/blockd/internal/migration/internal/original"
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
	t := trusted{pf: pf, whole: true}
	for _, w := range words(value) {
		switch kind, _, name, table := tableName(w, ""); {
		case isPath(w):
			t.file(at, w, w, false)
		case table && (kind == indexedTable || kind == cidrTable):
			t.file(at, w, name, true)
		case table:
			t.leave(at, w, "a table of another program")
		default:
			t.add(at, w)
		}
	}
	return t.nets, t.whole
}

// trusted gathers the networks of mynetworks.
type trusted struct {
	pf           *postfix
	nets, except []netip.Prefix
	whole        bool
}

func (t *trusted) leave(at Place, text, why string) {
	t.whole = false
	t.pf.note("%s: mynetworks: %s is not among smtp.trusted: %s", at, original.Shown(text), why)
}

// add adds one network.
func (t *trusted) add(at Place, text string) {
	n, err := parseCIDR(text)
	switch {
	case err != nil:
		t.leave(at, text, "it is no network")
	case strings.HasPrefix(text, "!"):
		t.except = append(t.except, n)
		t.leave(at, text, "an exception, and so is what it is taken from")
	case n.Bits() == 0:
		t.leave(at, text, "it is everybody")
	case slices.ContainsFunc(t.except, n.Overlaps):
		t.leave(at, text, "an exception before it is taken from it")
	default:
		if n = netKey(n).net; !slices.Contains(t.nets, n) {
			t.nets = append(t.nets, n)
		}
	}
}

// file adds the networks of a file, or those that are the keys of a table.
func (t *trusted) file(at Place, word, name string, table bool) {
	path := t.pf.params.path(name)
	data, err := t.pf.files.load(path, maxTable)
	if err != nil {
		t.leave(at, word, unreadable(err))
	}
	lines, _ := logicalLines(data)
	for _, l := range lines {
		for i, text := range words(l.text) {
			if !l.comment && (i == 0 || !table) {
				t.add(Place{path, l.line}, text)
			}
		}
	}
}

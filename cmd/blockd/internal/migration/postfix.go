package migration

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"slices"
	"strings"
	"time"

	"blockd/cmd/blockd/internal/migration/internal/original"
)

// postfix is one import from main.cf.
type postfix struct {
	*Result
	postmap  runner
	files    files
	params   parameters
	rules    accessRules
	standard string // default_database_type
	classes  map[string]bool

	mynetworks map[netip.Prefix]network // nil = nobody is let pass by them
	byUse      map[string]*table        // by what it is asked about, and its name
	tables     []*table                 // that become lists, in the order of the restrictions
	order      [][]restriction          // of phases
	inTables   map[string][]restriction
}

// Postfix imports what main.cf and, where it stands beside it, master.cf say about senders and clients. The error is
// ErrTooBig, that of ctx, or says why main.cf itself cannot be read, with the file; what is wrong with a table is a
// Finding.
func Postfix(ctx context.Context, mainCF string, o Options) (*Result, error) {
	return readPostfix(ctx, mainCF, o, postconf.run, postmap.run)
}

func readPostfix(ctx context.Context, mainCF string, o Options, postconf, postmap runner) (r *Result, err error) {
	pf := &postfix{
		Result:  &Result{Program: "Postfix", Source: mainCF, batch: 50_000}, // postmap is started anew for each batch
		postmap: postmap, byUse: map[string]*table{}, classes: map[string]bool{}, inTables: map[string][]restriction{},
	}
	defer func() { err = errors.Join(err, pf.work.close()) }()
	if err := pf.read(ctx, mainCF, postconf); err != nil {
		return nil, err
	}
	pf.settings()
	for _, name := range phases {
		p := pf.params.set[name] // there are no lists in what Postfix does by itself
		w := walk{postfix: pf, phase: name, at: p.at, said: p}
		list, err := w.list(p.value, 0)
		if err != nil {
			return nil, err
		}
		pf.order = append(pf.order, list)
	}
	pf.besides()
	for _, t := range pf.tables {
		if err := t.dump(ctx, pf); err != nil {
			return nil, err
		}
		if _, err := pf.query(ctx, t, []string{nowhere}); err != nil {
			return nil, err
		}
	}
	if err := pf.write(ctx, o); err != nil {
		return nil, err
	}
	pf.recipientPolicies()
	pf.Note("Postfix was asked by postmap: what its tables have for the keys of a mail, in the order of its restrictions; no smtpd was asked")
	pf.Mails, pf.There, pf.ByPolicy = pf.mails, pf.there, pf.byPolicy
	return pf.Result, nil
}

// ask runs postmap. It is given a main.cf that says nothing: the tables alone matter, and the owner's may name what
// this machine does not have.
func (pf *postfix) ask(ctx context.Context, stdin string, args ...string) (string, []string, error) {
	if pf.work.dir == "" {
		main, err := pf.work.write("main.cf", []byte("compatibility_level = 3.6\ninet_interfaces = loopback-only\n"))
		if err != nil {
			return "", nil, err
		}
		hourAgo := time.Now().Add(-time.Hour) // Postfix waits for one that was written just now
		if err := os.Chtimes(main, hourAgo, hourAgo); err != nil {
			return "", nil, err
		}
	}
	return pf.postmap(ctx, pf.work.dir, stdin, append([]string{"-c", "."}, args...)...)
}

// settings reads what the meaning of tables depends on.
func (pf *postfix) settings() {
	p := &pf.params
	pf.rules = accessRules{
		parents:   slices.Contains(words(p.value("parent_domain_matches_subdomains")), "smtpd_access_maps"),
		delimiter: p.value("recipient_delimiter"),
		reject:    code(p.value("access_map_reject_code")),
		defers:    code(p.value("access_map_defer_code")),
		soft:      strings.EqualFold(p.value("soft_bounce"), "yes"),
		early:     strings.EqualFold(p.value("smtpd_delay_reject"), "no"),
	}
	pf.Hostname, pf.standard = p.value("myhostname"), p.value("default_database_type")
	no := false
	pf.SkipAuthenticated = &no
	for _, c := range words(p.value("smtpd_restriction_classes")) {
		pf.classes[c] = true
	}
	if others := p.value("multi_instance_directories"); others != "" {
		pf.Note("multi_instance_directories names other instances of Postfix, each with a main.cf of its own: %s", original.Shown(others))
	}
	pf.Note(`mail for postmaster and abuse is taken from everybody here; smtp.recipients_exempt = [] in config.toml changes that`)
}

// words are those of a value whose words stand between commas and blanks.
func words(text string) []string {
	w, _ := tokens(text, ", \t")
	return w
}

// besides names the parameters beside restrictions that are about senders and clients.
func (pf *postfix) besides() {
	for _, name := range []string{"smtpd_sender_login_maps", "postscreen_access_list", "header_checks", "mime_header_checks", "nested_header_checks", "smtpd_etrn_restrictions"} {
		if p := pf.params.set[name]; p.value != "" {
			pf.Find(p.at, name+" = "+p.value, "").stays("it is about something else than whom mail is taken from; it stays with Postfix")
		}
	}
}

// samples are the mails about an entry, the first ones with the key itself.
func (pf *postfix) samples(t *table, r *row) (all []Mail) {
	add := func(m Mail) {
		m.from = t
		all = append(all, m)
	}
	byAddress := func(addresses []string) {
		for _, a := range addresses {
			if t.about == recipients {
				add(Mail{Sender: nobody, Recipient: a})
			} else {
				add(Mail{Sender: a})
			}
		}
	}
	net := r.network
	if t.kind == indexedTable || t.kind == inlineTable {
		if net, _ = leading(strings.ToLower(r.key)); strings.Contains(r.key, "/") {
			net, _ = parseNet(r.key)
		}
	}
	switch {
	case t.kind == regexpTable && t.about != clients:
		byAddress(matching(r.key, false))
	case t.kind == regexpTable:
		for _, a := range matching(r.key, false) {
			add(Mail{Sender: nobody, Name: a[strings.LastIndexByte(a, '@')+1:]})
		}
	case t.about != clients && t.kind != cidrTable:
		byAddress(Addresses(r.key, pf.rules.delimiter))
	case t.about == clients && net.IsValid():
		for _, a := range hosts(net) {
			add(Mail{Sender: nobody, Client: a})
		}
	case t.about == clients && t.kind != cidrTable:
		for _, name := range []string{r.key, nowhere + "." + strings.TrimPrefix(r.key, ".")} {
			add(Mail{Sender: nobody, Name: name})
		}
	}
	return all
}

// mails yields the mails to ask about.
func (pf *postfix) mails(yield func(Mail) bool) {
	var own []Mail
	if len(pf.Trusted) > 0 {
		own = []Mail{{Client: pf.Trusted[0].Addr()}}
	}
	together(func(yield func(sampled) bool) {
		for _, t := range pf.tables {
			for _, r := range t.rows {
				d := pf.rules.action(r.value).deed
				samples := func() ([]Mail, int) {
					some := pf.samples(t, r)
					return some, pf.itself(t, r, some)
				}
				if !yield(sampled{r.Finding, t, t.about, t.about != recipients && t.why == "" && (d == refuses || d == defers), samples}) {
					return
				}
			}
		}
	}, own, yield)
}

// itself is the first of some mails for which Postfix asks for an entry's own key; 0 if it never does.
func (pf *postfix) itself(t *table, r *row, some []Mail) int {
	return max(0, slices.IndexFunc(some, func(m Mail) bool { return pf.reached(t, r, &m) }))
}

// reached reports whether Postfix asks for an entry's key for a mail, as far as the key tells.
func (pf *postfix) reached(t *table, r *row, m *Mail) bool {
	if t.kind != indexedTable && t.kind != inlineTable {
		return true
	}
	c := m.complete()
	return slices.Contains(pf.rules.asks(t, &c), strings.ToLower(r.key))
}

// network is one of mynetworks.
type network struct {
	at  int  // its place in them: the first one that has a client counts
	not bool // clients in it are taken out
}

// maxNetworks bounds mynetworks.
const maxNetworks = 10_000

// within reports whether a client is in mynetworks.
func (pf *postfix) within(a netip.Addr) bool {
	first := network{at: maxNetworks, not: true}
	for bits := range a.BitLen() + 1 {
		p, _ := a.Prefix(bits) // of no more bits than it has
		if n, ok := pf.mynetworks[p]; ok && n.at < first.at {
			first = n
		}
	}
	return !first.not
}

// trusts reads permit_mynetworks: smtp.trusted here.
func (pf *postfix) trusts() error {
	if pf.mynetworks != nil {
		return nil
	}
	pf.mynetworks = map[netip.Prefix]network{}
	value, at := pf.params.value("mynetworks"), Place{File: pf.Source}
	if p, said := pf.params.set["mynetworks"]; said {
		at = p.at
	} else {
		pf.Note("mynetworks is not set: %s is taken for it, whatever mynetworks_style says", value)
	}
	var taken []netip.Prefix // by "!"
	entries := 0
	add := func(at Place, text string) error {
		if entries++; entries > maxNetworks {
			return fmt.Errorf("%s: mynetworks: %w: more than %d networks", at, ErrTooBig, maxNetworks)
		}
		n, err := parseCIDR(text)
		n, not, why := unmapped(n), strings.HasPrefix(text, "!"), ""
		switch {
		case err != nil:
			why = "it is no network"
		case not:
			why = "an exception; the networks behind it that it is taken from are left out too"
			taken = append(taken, n)
		case n.Bits() == 0:
			why = "it is everybody"
		case slices.ContainsFunc(taken, n.Overlaps):
			why = "an exception before it is taken from it"
		}
		if _, again := pf.mynetworks[n]; err == nil && !again {
			if pf.mynetworks[n] = (network{entries, not}); why == "" {
				pf.Trusted = append(pf.Trusted, n)
			}
		}
		if why != "" {
			pf.Note("%s: mynetworks: %s is not among smtp.trusted: %s", at, original.Shown(text), why)
		}
		return pf.files.count()
	}
	for _, w := range words(value) {
		kind, _, name, table := tableName(w, "")
		if isPath(w) {
			kind, name, table = cidrTable, w, true
		}
		switch {
		case table && (kind == indexedTable || kind == cidrTable):
			path := pf.params.path(name)
			data, err := pf.files.load(path, maxTable)
			if err != nil {
				pf.Note("%s: mynetworks: %s: %s", at, path, unreadable(err))
			}
			lines, _ := logicalLines(data)
			for _, l := range lines {
				for i, text := range words(l.text) {
					if l.comment || i > 0 && !isPath(w) {
						break
					}
					if err := add(Place{path, l.line}, text); err != nil {
						return err
					}
				}
			}
		case table:
			pf.Note("%s: mynetworks: %s is not among smtp.trusted: a table of another program", at, original.Shown(w))
		default:
			if err := add(at, w); err != nil {
				return err
			}
		}
	}
	return nil
}

// unmapped is a network of IPv4 that was written as one of IPv6.
func unmapped(p netip.Prefix) netip.Prefix {
	if p.Addr().Is4In6() && p.Bits() >= 96 {
		p = netip.PrefixFrom(p.Addr().Unmap(), p.Bits()-96)
	}
	return p.Masked()
}

package migration

import (
	"context"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
)

// postfix is one import from main.cf.
type postfix struct {
	*Result
	files    files
	params   parameters
	rules    tableRules
	standard string // default_database_type
	classes  map[string]bool

	sites   []*site
	byTable map[tableUse]*site
	mynets  *entry // permit_mynetworks, once it was met
	logins  *entry // permit_sasl_authenticated
	phase   int
	item    int
}

// tableUse is one table asked about one thing.
type tableUse struct {
	about about
	table string
	warn  bool
}

// Postfix imports what main.cf and, where it stands beside it, master.cf say about
// senders and clients.
func Postfix(ctx context.Context, mainCF string, o Options) (*Result, error) {
	pf := &postfix{
		Result:  &Result{Program: "Postfix", Source: mainCF},
		byTable: map[tableUse]*site{}, classes: map[string]bool{},
	}
	data, err := pf.files.load(mainCF, maxConfig)
	if err != nil {
		return nil, err
	}
	dir, err := filepath.Abs(filepath.Dir(mainCF))
	if err != nil {
		return nil, err
	}
	if rel := filepath.Dir(mainCF); !filepath.IsAbs(mainCF) {
		dir = rel // places are named as the reader knows them
	}
	set, faults := parseMainCF(mainCF, data)
	pf.params = parameters{dir: dir, set: set}
	pf.faults(faults)
	pf.master()
	if err := pf.settings(); err != nil {
		return nil, err
	}
	for i, name := range phases {
		pf.phase = i
		if err := pf.restrictions(name); err != nil {
			return nil, err
		}
	}
	if err := pf.others(); err != nil {
		return nil, err
	}
	// Once to learn which entries no list can hold, and again when it is known which
	// exceptions are left.
	sites := pf.senderSites()
	if err := pf.build(ctx, sites, o); err != nil {
		return nil, err
	}
	plan := newPlan(sites)
	plan.weigh()
	pf.conclude()
	if err := pf.build(ctx, sites, o); err != nil {
		return nil, err
	}
	pf.recipientPolicies(plan)
	return pf.Result, nil
}

// faults notes lines of a configuration that are none.
func (pf *postfix) faults(faults []string) {
	const most = 20
	for i, text := range faults {
		if i == most {
			pf.note("%d more lines are no settings", len(faults)-most)
			return
		}
		pf.note("%s", text)
	}
}

// master takes the overrides of the smtpd that mail comes in by.
func (pf *postfix) master() {
	path := filepath.Join(pf.params.dir, "master.cf")
	data, err := pf.files.load(path, maxConfig)
	if err != nil {
		if !os.IsNotExist(err) {
			pf.note("%s: not read: %s; what it overrides is not known", path, unreadable(err))
		}
		return
	}
	services, faults := parseMasterCF(path, data)
	pf.faults(faults)
	taken := false
	for _, s := range services {
		mine := s.mx && !taken
		if mine {
			taken = true
			pf.params.over = s.options
		}
		for _, name := range s.order {
			if !slices.Contains(phases[:], name) && name != "mynetworks" && !strings.HasPrefix(name, "smtpd_restriction_") {
				continue
			}
			f := pf.find(s.options[name].at, "-o "+name+"="+s.options[name].value, "in place of "+name+" of main.cf, for the service "+s.name)
			if !mine {
				f.lose("blockd stands where mail comes in (port 25); this service keeps its own restrictions")
			} else {
				f.Now = "taken in place of main.cf's"
			}
		}
	}
}

// settings reads what the meaning of tables depends on.
func (pf *postfix) settings() error {
	parents, err := pf.params.value("parent_domain_matches_subdomains")
	if err != nil {
		return err
	}
	pf.rules.parents = slices.Contains(words(parents), "smtpd_access_maps")
	for _, v := range []struct {
		name string
		into *string
	}{{"recipient_delimiter", &pf.rules.delimiter}, {"default_database_type", &pf.standard}, {"myhostname", &pf.Hostname}} {
		if *v.into, err = pf.params.value(v.name); err != nil {
			return err
		}
	}
	classes, err := pf.params.value("smtpd_restriction_classes")
	for _, c := range words(classes) {
		pf.classes[c] = true
	}
	return err
}

// words are those of a value whose words stand between commas and blanks.
func words(text string) []string {
	w, _ := tokens(text, ", \t")
	return w
}

// restrictions walks one list of restrictions.
func (pf *postfix) restrictions(name string) error {
	text, err := pf.params.value(name)
	if err != nil {
		return err
	}
	p, ok := pf.params.lookup(name)
	if !ok {
		return nil // there are no lists in what Postfix does by itself
	}
	pf.item = 0
	w := walk{pf: pf, phase: name, at: p.at, said: p}
	return w.list(text, 0)
}

// walk is one list of restrictions being read.
type walk struct {
	pf    *postfix
	phase string
	at    Place
	said  parameter
	part  int    // of said: where the last word was
	warn  bool   // warn_if_reject stands before the next one
	ended string // the word behind which nothing is asked
}

func (w *walk) list(text string, depth int) error {
	if depth > maxDepth {
		return fmt.Errorf("%s: restriction classes name one another more than %d deep", w.at, maxDepth)
	}
	items, ok := tokens(text, ", \t")
	if !ok {
		return fmt.Errorf("%s: %s: a brace that is not closed", w.at, w.phase)
	}
	for len(items) > 0 {
		word := items[0]
		items = items[1:]
		takes := argued[word] || strings.HasPrefix(word, "check_") && strings.HasSuffix(word, "_access") || word == "check_policy_service"
		arg := ""
		if takes && len(items) > 0 {
			arg, items = items[0], items[1:]
		}
		w.pf.item++
		w.at = w.said.place(word, &w.part)
		if err := w.restriction(word, arg, depth); err != nil {
			return err
		}
		if word != "warn_if_reject" {
			w.warn = false
		}
	}
	return nil
}

// restriction judges one word with its argument.
func (w *walk) restriction(word, arg string, depth int) error {
	pf, text := w.pf, strings.TrimSpace(word+" "+arg)
	if _, _, _, table := tableName(word, ""); table && arg == "" && bare[w.phase] != "" {
		word, arg = bare[w.phase], word
	}
	if w.ended != "" {
		pf.find(w.at, text, w.phase).lose("it is never asked: %q before it %s", w.ended, ends[w.ended])
		return nil
	}
	switch {
	case word == "warn_if_reject":
		w.warn = true
	case word == "permit_mynetworks":
		return pf.permitNetworks(w.at, w.phase)
	case word == "permit_sasl_authenticated":
		pf.permitLogins(w.at, w.phase)
	case word == "check_sender_access":
		return w.table(senders, arg, text)
	case word == "check_client_access":
		return w.table(clients, arg, text)
	case word == "check_recipient_access":
		return w.table(recipients, arg, text)
	case checks[word] != "":
		f := pf.find(w.at, text, w.phase+": asks about "+checks[word])
		f.lose("it stays with Postfix")
		pf.exempt(f)
	case ends[word] != "":
		f := pf.find(w.at, text, w.phase+": "+ends[word])
		if w.warn {
			f.lose("a warning about everything that comes to it")
			return nil
		}
		f.lose("it is not about lists; it stays with Postfix")
		w.ended = word
	case plain[word] || argued[word]:
		f := pf.find(w.at, text, w.phase)
		f.lose("%s", stays(word))
		if strings.HasPrefix(word, "permit_") {
			pf.exempt(f)
		}
	case pf.classes[word]:
		p, ok := pf.params.lookup(word)
		if !ok {
			pf.find(w.at, text, w.phase+": a restriction class").lose("main.cf does not say what it is")
			return nil
		}
		value, err := pf.params.value(word)
		if err != nil {
			return err
		}
		inner := walk{pf: pf, phase: w.phase, at: p.at, said: p, warn: w.warn}
		if err := inner.list(value, depth+1); err != nil {
			return err
		}
		if inner.ended != "" {
			w.ended = inner.ended
		}
	default:
		f := pf.find(w.at, text, w.phase)
		f.lose("no restriction that an import knows")
		pf.exempt(f)
	}
	return nil
}

// step is the place that is being read.
func (pf *postfix) step() step { return step{pf.phase, pf.item} }

// exempt puts an exception into the order of which nobody knows whom it is for.
func (pf *postfix) exempt(f *Finding) {
	s := &site{about: clients, steps: []step{pf.step()}}
	s.add(&entry{Finding: f, deed: pass})
	pf.sites = append(pf.sites, s)
}

// table reads a table that is asked about senders, clients or recipients.
func (w *walk) table(what about, arg, text string) error {
	pf := w.pf
	if arg == "" {
		pf.find(w.at, text, w.phase).lose("no table is named")
		return nil
	}
	if inner, rest, ok := braced(arg); ok && rest == "" { // { inline:… , options }
		if parts := words(inner); len(parts) > 0 {
			arg = parts[0]
		}
	}
	use := tableUse{what, arg, w.warn}
	if s := pf.byTable[use]; s != nil { // asked again
		s.steps = append(s.steps, pf.step())
		return nil
	}
	kind, word, name, ok := tableName(arg, pf.standard)
	lost := func(format string, args ...any) error {
		f := pf.find(w.at, text, w.phase).lose(format, args...)
		pf.exempt(f)
		return nil
	}
	switch {
	case !ok:
		return lost("no table that an import knows")
	case kind == foreignTable:
		return lost("what is in a %s: table is known to other programs only; write its entries into a text, and name that as hash:", word)
	case kind == staticTable:
		w.static(pf.find(w.at, text, w.phase), name)
		return nil
	}
	s := &site{about: what, steps: []step{pf.step()}, warn: w.warn}
	if kind == inlineTable {
		s.name, s.comes = fmt.Sprintf("%s-%d", strings.TrimSuffix(strings.TrimPrefix(w.phase, "smtpd_"), "_restrictions"), pf.item), w.at.String()
		t := tableText{pf: pf, site: s, path: w.at.File, kind: kind, first: map[string]*entry{}}
		t.inline(w.at.Line, name)
	} else {
		path := pf.params.path(name, exists)
		if path != name && filepath.IsAbs(name) {
			pf.note("%s is read in place of %s", path, name)
		}
		data, err := pf.files.load(path, maxTable)
		if err != nil {
			return lost("%s", missing(word, path, err))
		}
		pf.compareAges(kind, path)
		s.name, s.comes = filepath.Base(path), path
		if err := pf.rows(s, kind, path, data); err != nil {
			return err
		}
	}
	pf.byTable[use] = s
	pf.sites = append(pf.sites, s)
	return nil
}

// static is a table that answers the same to everybody.
func (w *walk) static(f *Finding, name string) {
	if inner, rest, ok := braced(name); ok && rest == "" {
		name = inner
	}
	a := parseAction(name)
	f.lose("it is for everybody: no list says that")
	if a.deed == pass && a.lost == "" {
		w.ended = "permit"
	}
}

func exists(path string) bool {
	_, err := os.Stat(path)
	return err == nil
}

// missing says what can be done about a table whose text cannot be read.
func missing(word, path string, err error) string {
	for _, suffix := range []string{".db", ".lmdb", ".cdb", ".pag"} {
		if exists(path + suffix) {
			return fmt.Sprintf("%s: %s; write it anew from %s with: postmap -s %s:%s >%s", path, unreadable(err), filepath.Base(path)+suffix, word, path, path)
		}
	}
	return fmt.Sprintf("%s: %s", path, unreadable(err))
}

// compareAges says when Postfix goes by an older state of a table than its text.
func (pf *postfix) compareAges(kind tableKind, path string) {
	text, err := os.Stat(path)
	if kind != indexedTable || err != nil {
		return
	}
	for _, suffix := range []string{".db", ".lmdb", ".cdb"} {
		if made, err := os.Stat(path + suffix); err == nil && text.ModTime().After(made.ModTime()) {
			pf.note("%s is newer than %s: Postfix goes by the older one until postmap is run; the text is what was read", path, filepath.Base(path)+suffix)
		}
	}
}

// permitNetworks is permit_mynetworks: smtp.trusted here.
func (pf *postfix) permitNetworks(at Place, phase string) error {
	if pf.mynets != nil {
		pf.mynets.site.steps = append(pf.mynets.site.steps, pf.step())
		return nil
	}
	nets, whole, err := pf.networks()
	if err != nil {
		return err
	}
	f := pf.find(at, "permit_mynetworks", phase+": let pass clients in mynetworks")
	s := &site{about: clients, steps: []step{pf.step()}}
	var keys []key
	for _, n := range nets {
		keys = append(keys, netKey(n))
	}
	pf.mynets = s.add(&entry{Finding: f, deed: pass, keys: keys})
	if !whole {
		f.differ(Narrower, "not for all of mynetworks: what is left out stands in the notes")
	}
	pf.sites = append(pf.sites, s)
	return nil
}

// permitLogins is permit_sasl_authenticated: smtp.skip_authenticated here.
func (pf *postfix) permitLogins(at Place, phase string) {
	if pf.logins != nil {
		pf.logins.site.steps = append(pf.logins.site.steps, pf.step())
		return
	}
	s := &site{about: logins, steps: []step{pf.step()}}
	pf.logins = s.add(&entry{Finding: pf.find(at, "permit_sasl_authenticated", phase+": let pass who has logged in"), deed: pass})
	pf.sites = append(pf.sites, s)
}

// senderSites are the sites that are about one mail as a whole: recipients are for
// policies.
func (pf *postfix) senderSites() (sites []*site) {
	for _, s := range pf.sites {
		if s.about != recipients {
			sites = append(sites, s)
		}
	}
	return sites
}

// conclude turns what was decided about mynetworks and logins into settings.
func (pf *postfix) conclude() {
	if e := pf.mynets; e != nil && e.Outcome != Lost {
		for _, k := range e.keys {
			pf.Trusted = append(pf.Trusted, k.net)
		}
		e.List = "smtp.trusted"
	}
	if e := pf.logins; e != nil {
		skip := e.Outcome != Lost
		pf.SkipAuthenticated = &skip
		e.List = "smtp.skip_authenticated"
		if !skip {
			e.List = ""
		}
	}
}

// networks reads mynetworks. whole is false if some of it is no network here.
func (pf *postfix) networks() (nets []netip.Prefix, whole bool, err error) {
	value, err := pf.params.value("mynetworks")
	if err != nil {
		return nil, false, err
	}
	p, said := pf.params.lookup("mynetworks")
	at := p.at
	if !said {
		at = Place{pf.Source, 0}
		pf.note("mynetworks is not set: 127.0.0.0/8 and ::1 are taken for it, whatever mynetworks_style says")
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
		switch {
		case strings.HasPrefix(w, "/") || table && (kind == indexedTable || kind == cidrTable):
			if !table {
				name = w
			}
			path := pf.params.path(name, exists)
			data, err := pf.files.load(path, maxTable)
			if err != nil {
				leave(at, w, unreadable(err))
				continue
			}
			lines, _ := logicalLines(data)
			for _, l := range lines {
				if l.comment {
					continue
				}
				for i, text := range words(l.text) {
					if i > 0 && table {
						break
					}
					add(Place{path, l.line}, text)
				}
			}
		case table:
			leave(at, w, "a table of another program")
		default:
			add(at, w)
		}
	}
	return nets, whole, nil
}

// fromHeader finds rules of header_checks about who a message says it is from.
var fromHeader = regexp.MustCompile(`(?i)\^?\(?(from|reply-to|return-path|sender|x-envelope-from)\b`)

// others reads the parameters beside restrictions that are about senders and clients.
func (pf *postfix) others() error {
	if p, ok := pf.params.lookup("smtpd_sender_login_maps"); ok {
		pf.find(p.at, "smtpd_sender_login_maps = "+p.value, "which login may send as whom").lose("blockd knows no logins; it stays with Postfix")
	}
	if p, ok := pf.params.lookup("postscreen_access_list"); ok {
		pf.find(p.at, "postscreen_access_list = "+p.value, "which clients postscreen refuses or lets pass before smtpd").
			lose("it stays with postscreen")
	}
	for _, name := range []string{"header_checks", "mime_header_checks", "nested_header_checks"} {
		p, ok := pf.params.lookup(name)
		if !ok || p.value == "" {
			continue
		}
		value, err := pf.params.value(name)
		if err != nil {
			return err
		}
		f := pf.find(p.at, name+" = "+value, "rules over header fields")
		f.lose("blockd's lists are about the envelope; it stays with Postfix")
		for _, w := range words(value) {
			if _, _, path, ok := tableName(w, ""); ok {
				if err := pf.headerRules(f, pf.params.path(path, exists)); err != nil {
					return err
				}
			}
		}
	}
	return nil
}

// headerRules names the lines of a header_checks table that are about an author.
func (pf *postfix) headerRules(f *Finding, path string) error {
	data, err := pf.files.load(path, maxTable)
	if err != nil {
		f.Now += fmt.Sprintf(" (%s: %s)", path, unreadable(err))
		return nil
	}
	lines, _ := logicalLines(data)
	rest := 0
	for _, l := range lines {
		if l.comment {
			continue
		}
		if err := pf.files.count(); err != nil {
			return err
		}
		if expr, _, _, ok := cutExpression(l.text); ok && fromHeader.MatchString(expr) {
			pf.find(Place{path, l.line}, l.text, "a rule about the author that the header names").
				lose("a mail's header says who wrote it in any form it likes: list the address itself, if its envelope has it too")
			continue
		}
		rest++
	}
	if rest > 0 {
		f.Now += fmt.Sprintf("; %s of %s are about other fields", entries(rest), path)
	}
	return nil
}

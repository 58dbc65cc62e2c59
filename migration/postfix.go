package migration

import (
	"context"
	"fmt"
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
// senders and clients. The error is ErrTooBig, that of ctx, or says why main.cf itself
// cannot be read, with the file; what is wrong with a table is a Finding.
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
	if err := plan.weigh(); err != nil {
		return nil, err
	}
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
	var soft, delay string
	for _, v := range []struct {
		name string
		into *string
	}{{"access_map_reject_code", &pf.rules.reject}, {"access_map_defer_code", &pf.rules.defers}, {"soft_bounce", &soft}, {"smtpd_delay_reject", &delay}} {
		if *v.into, err = pf.params.value(v.name); err != nil {
			return err
		}
	}
	pf.rules.soft, pf.rules.early = strings.EqualFold(soft, "yes"), strings.EqualFold(delay, "no")
	for _, code := range []*string{&pf.rules.reject, &pf.rules.defers} {
		if n := *code; len(n) != 3 || !digits(n) || n[0] != '4' && n[0] != '5' {
			*code = "450" // Postfix says "450 4.7.1 Service unavailable" then
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

package migration

import (
	"context"
	"fmt"
	"regexp"
	"slices"
	"strings"

	"blockd/cmd/blockd/internal/migration/internal/original"
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
	return readPostfix(ctx, mainCF, o, postconf.run)
}

func readPostfix(ctx context.Context, mainCF string, o Options, ask runner) (*Result, error) {
	pf := &postfix{
		Result:  &Result{Program: "Postfix", Source: mainCF},
		byTable: map[tableUse]*site{}, classes: map[string]bool{},
	}
	if err := pf.ask(ctx, mainCF, ask); err != nil {
		return nil, err
	}
	pf.settings()
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

// settings reads what the meaning of tables depends on.
func (pf *postfix) settings() {
	p := &pf.params
	pf.rules = tableRules{
		parents:   slices.Contains(words(p.value("parent_domain_matches_subdomains")), "smtpd_access_maps"),
		delimiter: p.value("recipient_delimiter"),
		reject:    p.value("access_map_reject_code"),
		defers:    p.value("access_map_defer_code"),
		soft:      strings.EqualFold(p.value("soft_bounce"), "yes"),
		early:     strings.EqualFold(p.value("smtpd_delay_reject"), "no"),
	}
	pf.Hostname, pf.standard = p.value("myhostname"), p.value("default_database_type")
	for _, code := range []*string{&pf.rules.reject, &pf.rules.defers} {
		if n := *code; len(n) != 3 || !digits(n) || n[0] != '4' && n[0] != '5' {
			*code = "450" // Postfix says "450 4.7.1 Service unavailable" then
		}
	}
	for _, c := range words(p.value("smtpd_restriction_classes")) {
		pf.classes[c] = true
	}
	if others := p.value("multi_instance_directories"); others != "" {
		pf.note("multi_instance_directories names other instances of Postfix, each with a main.cf of its own: %s", original.Shown(others))
	}
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
	if p, ok := pf.params.set["smtpd_sender_login_maps"]; ok {
		pf.find(p.at, "smtpd_sender_login_maps = "+p.value, "which login may send as whom").lose("blockd knows no logins; it stays with Postfix")
	}
	if p, ok := pf.params.set["postscreen_access_list"]; ok {
		pf.find(p.at, "postscreen_access_list = "+p.value, "which clients postscreen refuses or lets pass before smtpd").
			lose("it stays with postscreen")
	}
	for _, name := range []string{"header_checks", "mime_header_checks", "nested_header_checks"} {
		p, ok := pf.params.set[name]
		if !ok || p.value == "" {
			continue
		}
		f := pf.find(p.at, name+" = "+p.value, "rules over header fields")
		f.lose("blockd's lists are about the envelope; it stays with Postfix")
		for _, w := range words(p.value) {
			if _, _, path, ok := tableName(w, ""); ok {
				if err := pf.headerRules(f, pf.params.path(path)); err != nil {
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

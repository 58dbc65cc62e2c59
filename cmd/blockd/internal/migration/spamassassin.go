package migration

import (
	"context"
	"fmt"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"blockd/cmd/blockd/internal/migration/internal/original"
	"blockd/lists"
	"blockd/lists/pattern"
)

// spamassassin is one import from local.cf.
type spamassassin struct {
	*Result
	files files
	sites map[string]*site // by the directive whose entries they have
	ifs   []condition
	rest  int // directives that are not about senders or clients
	exact map[string][]*entry
	weak  bool // a match of blocklist_from has too few points to be spam
}

// authors are the addresses that SpamAssassin looks at, as far as blockd does.
var authors = []string{"envelope", "from"}

// proved are the exceptions that count with a proof alone, and what proves them.
var proved = []struct {
	directive, name string
	require         []string
}{
	{"welcomelist_from_dkim", "dkim", []string{"dkim"}},
	{"welcomelist_from_spf", "spf", []string{"spf"}},
	{"welcomelist_auth", "auth", []string{"spf", "dkim"}},
}

// left says of directives about senders, clients and recipients why they are not carried over.
var left = map[string]string{
	"welcomelist_from_rcvd":     noServer,
	"def_welcomelist_from_rcvd": noServer,
	"def_welcomelist_auth":      fewPoints,
	"def_welcomelist_from_dkim": fewPoints,
	"def_welcomelist_from_spf":  fewPoints,
	"blocklist_to":              forRecipients,
	"welcomelist_to":            forRecipients,
	"more_spam_to":              forRecipients,
	"trusted_networks":          believed,
	"internal_networks":         believed,
	"msa_networks":              believed,
	"blocklist_uri_host":        links,
	"welcomelist_uri_host":      links,
	"enlist_uri_host":           links,
	"delist_uri_host":           links,
	"enlist_addrlist":           links,
}

const (
	noServer      = "an exception for senders whose mail comes from a named server; without that condition anybody could use their names"
	fewPoints     = "some points in favour of authors who are proved by SPF or DKIM, too few to outweigh a blocklist"
	forRecipients = "points for a recipient; a [[policy]] chooses lists for recipients"
	believed      = "the servers whose Received fields are believed; smtp.trusted is whom no list is asked about, which is more"
	links         = "links in messages are not blockd's"
)

// condition is an open "if".
type condition struct {
	at    Place
	text  string
	known bool // it can be judged without running SpamAssassin
	holds bool

	negated bool // we are behind its else
}

func (c condition) String() string {
	if c.negated {
		return "not " + c.text
	}
	return c.text
}

// assumedVersion is the SpamAssassin that conditions on its version are judged for.
const assumedVersion = 4.0

// SpamAssassin imports the directives of local.cf that are about senders and clients.
func SpamAssassin(ctx context.Context, localCF string, o Options) (*Result, error) {
	sa := &spamassassin{Result: &Result{Program: "SpamAssassin", Source: localCF}, exact: map[string][]*entry{}}
	all := &site{name: "spamassassin", comes: localCF, match: authors}
	sites := []*site{all}
	sa.sites = map[string]*site{"blocklist_from": all, "welcomelist_from": all}
	for _, p := range proved {
		s := &site{name: "spamassassin-" + p.name, comes: localCF, match: authors, require: p.require}
		sa.sites[p.directive] = s
		sites = append(sites, s)
	}
	if err := sa.file(localCF, 0); err != nil {
		return nil, err
	}
	for _, c := range sa.ifs {
		sa.note("%s: %q has no endif", c.at, c.String())
	}
	for _, e := range all.entries {
		if sa.weak && e.deed == block {
			e.deed = watch
			e.differ(Narrower, "logged alone (mode = \"shadow\"): score gives such mail too few points to be spam")
		}
	}
	if sa.rest > 0 {
		sa.note("%d other directives are not about who sends, and stay with SpamAssassin", sa.rest)
	}
	sa.note("SpamAssassin counts points when it has the message; blockd refuses the sender before there is one")
	return sa.Result, sa.build(ctx, sites, o)
}

// file reads one file of directives.
func (sa *spamassassin) file(path string, depth int) error {
	lines, err := sa.files.lines(path)
	if err != nil {
		return err
	}
	for n, text := range lines {
		if text[0] == '#' {
			if depth == 0 {
				sa.sites["blocklist_from"].lines = append(sa.sites["blocklist_from"].lines, line{comment: text})
			}
		} else if err := sa.directive(Place{path, n}, text, depth); err != nil {
			return err
		}
	}
	return nil
}

// directive judges one line.
func (sa *spamassassin) directive(at Place, text string, depth int) error {
	text = cutHash(text)
	word, rest := cutBlank(text)
	if base, _, ok := strings.Cut(word, "("); ok { // "if(" needs no blank
		word, rest = base, text[len(base):]
	}
	name := strings.ReplaceAll(strings.ToLower(word), "-", "_")
	last := len(sa.ifs) - 1
	switch name {
	case "if", "ifplugin":
		if last+1 == maxDepth {
			return fmt.Errorf("%s: conditions more than %d deep", at, maxDepth)
		}
		sa.ifs = append(sa.ifs, judge(at, text, name, rest))
		return nil
	case "else", "endif":
		switch {
		case last < 0:
			sa.note("%s: %s without if", at, name)
		case name == "endif":
			sa.ifs = sa.ifs[:last]
		default:
			c := &sa.ifs[last]
			c.holds, c.negated = !c.holds, !c.negated
		}
		return nil
	case "include":
		return sa.include(at, text, rest, depth)
	case "score":
		sa.score(rest)
	}
	bare, undo := strings.CutPrefix(name, "un")
	what := strings.NewReplacer("blacklist", "blocklist", "whitelist", "welcomelist").Replace(bare)
	why := left[what]
	if what == "welcomelist_from_dkim" {
		author, signer := cutBlank(rest)
		if i := strings.LastIndexByte(author, '@'); signer != "" && (i < 0 || !strings.EqualFold(signer, author[i+1:])) {
			why = "an exception for a signature of another domain than the author's, which proves nothing of the author here"
		}
		rest = author
	}
	switch {
	case why != "":
		sa.find(at, text, what).lose("%s", why)
		return sa.files.count()
	case what == "all_spam_to":
		return sa.recipients(at, rest)
	case sa.sites[what] == nil:
		sa.rest++
		return nil
	case what == "blocklist_from":
		return sa.senders(sa.sites[what], at, text, rest, block, undo)
	}
	return sa.senders(sa.sites[what], at, text, rest, pass, undo)
}

// cutHash takes a comment off, which "#" begins anywhere but behind a backslash.
func cutHash(text string) string {
	for i := 1; i < len(text); i++ {
		if text[i] == '#' && text[i-1] != '\\' {
			return strings.ReplaceAll(strings.TrimSpace(text[:i]), `\#`, "#")
		}
	}
	return strings.ReplaceAll(text, `\#`, "#")
}

// judge weighs a condition as far as that needs no SpamAssassin: its version, for
// which a current one is assumed.
func judge(at Place, text, name, rest string) condition {
	c := condition{at: at, text: original.Shown(text), holds: true}
	f := strings.Fields(strings.Trim(rest, "() \t"))
	if name != "if" || len(f) != 3 || f[0] != "version" {
		return c
	}
	v, err := strconv.ParseFloat(f[2], 64)
	holds, known := map[string]bool{">=": assumedVersion >= v, ">": assumedVersion > v, "<": assumedVersion < v, "<=": assumedVersion <= v, "==": assumedVersion == v}[f[1]]
	if c.known = known && err == nil; c.known {
		c.holds = holds
	}
	return c
}

// maxIncludes bounds how deep files may include one another.
const maxIncludes = 10

// include reads another file, whose path is relative to the file it stands in.
func (sa *spamassassin) include(at Place, text, rest string, depth int) error {
	if depth >= maxIncludes {
		return fmt.Errorf("%s: files include one another more than %d deep", at, maxIncludes)
	}
	path := rest
	if !filepath.IsAbs(path) {
		path = filepath.Join(filepath.Dir(at.File), path)
	}
	if !exists(path) {
		sa.find(at, text, "more configuration").lose("%s: no such file", path)
		return nil
	}
	return sa.file(path, depth+1)
}

// senders reads the addresses of one line.
func (sa *spamassassin) senders(s *site, at Place, text, rest string, d deed, undo bool) error {
	if rest == "" {
		sa.find(at, text, "").lose("a directive without an address")
		return sa.files.count()
	}
	word, _ := cutBlank(text)
	for _, glob := range strings.Fields(rest) {
		if err := sa.files.count(); err != nil {
			return err
		}
		id := fmt.Sprint(s.name, " ", d, strings.ToLower(glob))
		if undo {
			sa.takeBack(id, sa.find(at, word+" "+glob, "take back the same address of earlier lines"), d)
			continue
		}
		keys, why := globKey(glob)
		meant := "100 points for "
		if d == pass {
			meant = "100 points in favour of "
		}
		e := s.add(&entry{Finding: sa.find(at, word+" "+glob, meant+whom(senders, keys)), action: action{deed: d}, keys: keys})
		if why != "" {
			e.lose("%s", why)
			continue
		}
		sa.exact[id] = append(sa.exact[id], e)
		for _, c := range sa.ifs {
			switch {
			case c.known && !c.holds:
				e.lose("%s does not hold for SpamAssassin 4", c)
			case !c.known:
				e.differ(Wider, "also without the condition of line %d", c.at.Line)
			}
		}
		switch {
		case d == block:
			e.differ(Narrower, "by the envelope sender and From:, not by Resent-From: and its like")
		case len(s.require) == 1 && s.require[0] == "spf":
			e.differ(Narrower, "by the envelope sender: what SPF proves is not of From:")
		default:
			e.differ(Narrower, "by the envelope sender and From: alone")
		}
	}
	return nil
}

// takeBack undoes earlier lines about the same address.
func (sa *spamassassin) takeBack(id string, f *Finding, d deed) {
	if known, holds := sa.conditions(); !holds || !known && d == pass {
		f.lose("it stands in a condition that does not hold, or that cannot be judged: what it takes back stays")
		return
	}
	if len(sa.exact[id]) == 0 {
		f.Now = "there is nothing to take back"
	}
	for _, e := range sa.exact[id] {
		e.lose("taken back by line %d", f.Line)
	}
	delete(sa.exact, id)
}

// conditions tells whether all that are open can be judged, and hold as far as they
// can.
func (sa *spamassassin) conditions() (known, holds bool) {
	known, holds = true, true
	for _, c := range sa.ifs {
		known = known && c.known
		holds = holds && (c.holds || !c.known)
	}
	return known, holds
}

// enough is the score at which SpamAssassin calls a message spam, if nobody says otherwise.
const enough = 5

// score reads what a match of blocklist_from counts: the last of up to four numbers
// is that of a site with all its tests.
func (sa *spamassassin) score(rest string) {
	f := strings.Fields(rest)
	if known, holds := sa.conditions(); len(f) < 2 || f[0] != "USER_IN_BLOCKLIST" && f[0] != "USER_IN_BLACKLIST" || known && !holds {
		return
	}
	if points, err := strconv.ParseFloat(strings.Trim(f[len(f)-1], "()"), 64); err == nil {
		sa.weak = points < enough
	}
}

// globKey reads one address of SpamAssassin: "*" and "?" are wildcards over the whole.
func globKey(glob string) (keys []key, why string) {
	var k key
	var err error
	plain := func(text string) bool { return !strings.ContainsAny(text, "*?") }
	switch {
	case strings.HasPrefix(glob, "*@*.") && plain(glob[4:]):
		k, err = nameKey(glob[4:], lists.Sub)
	case strings.HasPrefix(glob, "*@") && plain(glob[2:]):
		k, err = nameKey(glob[2:], lists.Exact)
	case strings.HasPrefix(glob, "*.") && plain(glob[2:]) && strings.IndexByte(glob, '@') < 0:
		k, err = nameKey(glob[2:], lists.Sub)
	case plain(glob) && strings.IndexByte(glob, '@') > 0:
		k, err = addressKey(glob)
	case plain(glob):
		return nil, "never matched there: it is compared with whole addresses; all senders of a name are *@NAME"
	default:
		k, err = patternKey(pattern.Glob, glob)
	}
	if err != nil {
		return nil, "no address: " + original.Shown(err.Error())
	}
	return []key{k}, ""
}

// recipients reads all_spam_to: whose mail is not filtered.
func (sa *spamassassin) recipients(at Place, rest string) error {
	for _, glob := range strings.Fields(rest) {
		if err := sa.files.count(); err != nil {
			return err
		}
		f := sa.find(at, "all_spam_to "+glob, "100 points in favour of mail for "+original.Shown(glob))
		keys, why := globKey(glob)
		switch {
		case why == "" && keys[0].isPattern():
			why = "a policy names recipients, not patterns"
		case len(sa.ifs) > 0:
			why = "it stands in a condition"
		case why != "":
		case len(sa.Policies) > 0 && len(sa.Policies[0].Recipients) == maxRecipients:
			why = fmt.Sprintf("more than %d recipients", maxRecipients)
		}
		if why != "" {
			f.lose("%s", why)
			continue
		}
		if len(sa.Policies) == 0 {
			sa.Policies = []Policy{{Lists: []string{}}}
		}
		f.List = "[[policy]]"
		if p, name := &sa.Policies[0], policyKey(keys[0]); !slices.Contains(p.Recipients, name) {
			p.Recipients = append(p.Recipients, name)
		}
	}
	return nil
}

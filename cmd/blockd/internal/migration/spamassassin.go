package migration

import (
	"context"
	"fmt"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"blockd/cmd/blockd/internal/migration/internal/original"
)

// spamassassin is one import from local.cf.
type spamassassin struct {
	*Result
	files   files
	shelves map[string]*shelf // by the directive whose entries they have
	globs   []*saGlob
	byText  map[string][]*saGlob // the same, by directive and glob in lower case; of the directive "", those that are asked one by one
	ifs     []condition
	rest    int  // directives that are not about senders or clients
	weak    bool // a match of blocklist_from has too few points to be spam
}

// saGlob is one address of a directive.
type saGlob struct {
	*Finding
	directive, glob string
	match           func(address string) bool
	unsure          bool // it stands in a condition that nobody can judge, or wants a proof
}

// looked are the addresses that SpamAssassin looks at, as far as blockd does.
var looked = []string{"envelope", "from"}

// proved are the exceptions that count with a proof alone, and what proves them.
var proved = []struct {
	directive, name string
	require         []string
}{
	{"welcomelist_from_dkim", "dkim", []string{"dkim"}},
	{"welcomelist_from_spf", "spf", []string{"spf"}},
	{"welcomelist_auth", "auth", []string{"spf", "dkim"}},
}

// left says of directives about senders, clients and recipients, by a part of their names, why they are not carried
// over.
var left = []struct{ part, why string }{
	{"welcomelist_from_rcvd", "an exception for senders whose mail comes from a named server; without that condition anybody could use their names"},
	{"def_welcomelist_", "some points in favour of authors who are proved by SPF or DKIM, too few to outweigh a blocklist"},
	{"uri_host", "links in messages are not blockd's"}, {"enlist_addrlist", "links in messages are not blockd's"},
	{"blocklist_to", forRecipients}, {"welcomelist_to", forRecipients}, {"more_spam_to", forRecipients},
	{"_networks", "the servers whose Received fields are believed; smtp.trusted is whom no list is asked about, which is more"},
}

const forRecipients = "points for a recipient; a [[policy]] chooses lists for recipients"

// condition is an open "if".
type condition struct {
	at    Place
	text  string
	known bool // it can be judged without running SpamAssassin
	holds bool
}

// assumedVersion is the SpamAssassin that conditions on its version are judged for.
const assumedVersion = 4.0

// SpamAssassin imports the directives of local.cf that are about senders and clients.
func SpamAssassin(ctx context.Context, localCF string, o Options) (*Result, error) {
	sa := &spamassassin{Result: &Result{Program: "SpamAssassin", Source: localCF}, shelves: map[string]*shelf{}, byText: map[string][]*saGlob{}}
	newList := func(name string, require []string, directives ...string) *shelf {
		s := newShelf(&List{Name: sa.unique(name), File: name + ".txt", Format: "plain", Comes: localCF, Match: looked, Require: require}, sa.Program)
		for _, d := range directives {
			sa.shelves[d] = s
		}
		return s
	}
	all := []*shelf{newList("spamassassin", nil, "blocklist_from", "welcomelist_from")}
	for _, p := range proved {
		all = append(all, newList("spamassassin-"+p.name, p.require, p.directive))
	}
	if err := sa.file(localCF, 0); err != nil {
		return nil, err
	}
	for _, c := range sa.ifs {
		sa.Note("%s: %q has no endif", c.at, c.text)
	}
	if all[0].Shadow = sa.weak; sa.weak {
		sa.Note("score gives mail of blocklist_from too few points to be spam: its list only logs (mode = \"shadow\")")
	}
	for _, g := range sa.globs {
		sa.put(g)
	}
	for _, s := range all {
		if err := sa.listed(ctx, s, o); err != nil {
			return nil, err
		}
	}
	if sa.rest > 0 {
		sa.Note("%d other directives are not about who sends, and stay with SpamAssassin", sa.rest)
	}
	sa.Note("SpamAssassin counts points when it has the message; blockd refuses the sender before there is one")
	sa.Note("SpamAssassin was asked by the meaning of its globs: of a mail's envelope sender, From: and recipient")
	sa.Mails, sa.There = sa.mails, sa.answers
	return sa.Result, nil
}

// put writes an address into its list.
func (sa *spamassassin) put(g *saGlob) {
	s := sa.shelves[g.directive]
	if s == nil || g.Outcome != NotAsked {
		return
	}
	text, err := plainGlob(saMeant(g.glob))
	if err != nil {
		g.Lose("%s", original.Shown(err.Error()))
		return
	}
	s.Patterns = s.Patterns || text[0] == '/'
	if g.directive != "blocklist_from" {
		text = "!" + text
	}
	s.put(g.Finding, text)
}

// plainGlob is what a list says of an address of SpamAssassin: "*" and "?" are wildcards over the whole.
func plainGlob(glob string) (string, error) {
	plain := func(text string) bool { return !strings.ContainsAny(text, "*?") && text != "" }
	below := strings.TrimPrefix(glob, "*@")
	switch {
	case strings.HasPrefix(glob, "*@") && plain(below):
		return "=" + below, nil
	case strings.HasPrefix(below, "*.") && plain(below[2:]) && !strings.Contains(below, "@"):
		return below[1:], nil
	case plain(glob) && strings.IndexByte(glob, '@') > 0:
		return quoted(glob), nil
	}
	return expression(globExpression(glob))
}

// mails are those to ask about: with an address in the envelope, in From:, and in both.
func (sa *spamassassin) mails(yield func(Mail) bool) {
	refused := nobody
	for _, g := range sa.globs {
		if some := g.samples(); g.directive == "blocklist_from" && g.Outcome == NotAsked && len(some) > 0 {
			refused = some[0]
			break
		}
	}
	for _, g := range sa.globs {
		for _, a := range g.samples() {
			if g.unsure || g.Outcome == Stays {
				continue
			}
			some := []Mail{{Sender: a, Author: a}, {Sender: a}, {Sender: nobody, Author: a}}
			if g.directive == "all_spam_to" {
				some = []Mail{{Sender: refused, Recipient: a}}
			}
			for _, m := range some {
				if m.About = g.Finding; !yield(m) {
					return
				}
			}
		}
	}
}

// SpamAssassinGlob is what SpamAssassin makes of an address of a directive (Conf/Parser.pm, add_to_addrlist): it is
// asked by these rules, and not by the line that a list gets. address is in lower case.
func SpamAssassinGlob(glob string) func(address string) bool {
	glob = strings.ToLower(glob)
	re, err := regexp.Compile("(?s)^" + strings.NewReplacer(`\?`, ".", `\*`, ".*").Replace(regexp.QuoteMeta(saMeant(glob))) + "$")
	return func(address string) bool { return address == glob || err == nil && re.MatchString(address) }
}

// saMeant is a glob with the underscores that SpamAssassin puts in place of some characters.
func saMeant(glob string) string {
	return strings.NewReplacer("\x00", "_", `\`, "_", "(", "_").Replace(glob)
}

// GlobAddresses are addresses that a glob matches, and neighbours of theirs.
func GlobAddresses(glob string) []string { return matching(globExpression(glob), false) }

// samples are addresses to try an entry by.
func (g *saGlob) samples() (all []string) {
	texts := []string{g.glob, saMeant(g.glob)}
	for _, glob := range slices.Compact(texts) {
		all = append(all, GlobAddresses(glob)...)
		if name := strings.TrimLeft(glob, "*@."); !strings.ContainsAny(name, "*?") {
			all = append(all, Addresses(name, "")...)
		}
	}
	return all
}

// answers are SpamAssassin's, by its meaning of the globs.
func (sa *spamassassin) answers(ctx context.Context, mails []Mail) ([]Answer, error) {
	answers := make([]Answer, len(mails))
	for i, m := range mails {
		found := map[string]bool{}
		look := func(address string, directives ...string) {
			address = strings.ToLower(address)
			for _, d := range directives {
				for _, text := range globsOver(address) {
					found[d] = found[d] || slices.ContainsFunc(sa.byText[d+" "+text], (*saGlob).counts)
				}
				for _, g := range sa.byText[d] {
					found[d] = found[d] || g.counts() && g.match(address)
				}
			}
		}
		look(m.Sender, "blocklist_from", "welcomelist_from")
		look(m.Author, "blocklist_from", "welcomelist_from")
		look(m.Recipient, "all_spam_to")
		answers[i].Fate = Passes
		if found["blocklist_from"] && !found["welcomelist_from"] && !found["all_spam_to"] && !sa.weak {
			answers[i].Fate = Refused
		}
	}
	return answers, ctx.Err()
}

// counts reports whether SpamAssassin has the entry.
func (g *saGlob) counts() bool { return g.Outcome != Stays }

// globsOver are the globs of the usual forms that match an address, and the address.
func globsOver(address string) []string {
	all := []string{address}
	_, domain, ok := strings.Cut(address, "@")
	if ok {
		all = append(all, "*@"+domain)
	}
	for ok {
		if _, domain, ok = strings.Cut(domain, "."); ok {
			all = append(all, "*@*."+domain, "*."+domain)
		}
	}
	return all
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
				sa.shelves["blocklist_from"].comment(text)
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
			sa.Note("%s: %s without if", at, name)
		case name == "endif":
			sa.ifs = sa.ifs[:last]
		default:
			c := &sa.ifs[last]
			text, negated := strings.CutPrefix(c.text, "not ")
			if c.holds, c.text = !c.holds, text; !negated {
				c.text = "not " + text
			}
		}
		return nil
	case "include":
		return sa.include(at, text, rest, depth)
	case "score":
		sa.score(rest)
	}
	what, undo := strings.CutPrefix(name, "un")
	what = strings.NewReplacer("blacklist", "blocklist", "whitelist", "welcomelist").Replace(what)
	why := ""
	if i := slices.IndexFunc(left, func(l struct{ part, why string }) bool { return strings.Contains(what, l.part) }); i >= 0 {
		why = left[i].why
	}
	if what == "welcomelist_from_dkim" {
		author, signer := cutBlank(rest)
		if i := strings.LastIndexByte(author, '@'); signer != "" && (i < 0 || !strings.EqualFold(signer, author[i+1:])) {
			why = "an exception for a signature of another domain than the author's, which proves nothing of the author here"
		}
		rest = author
	}
	switch {
	case why != "":
		sa.Find(at, text, what).Lose("%s", why)
		return sa.files.count()
	case what != "all_spam_to" && sa.shelves[what] == nil:
		sa.rest++
		return nil
	}
	return sa.globsOf(what, at, text, rest, undo)
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

// judge weighs a condition as far as that needs no SpamAssassin: its version, for which a current one is assumed.
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
		sa.Find(at, text, "more configuration").Lose("%s: no such file", path)
		return nil
	}
	return sa.file(path, depth+1)
}

// globsOf reads the addresses of one line.
func (sa *spamassassin) globsOf(what string, at Place, text, rest string, undo bool) error {
	if rest == "" {
		sa.Find(at, text, "").stays("a directive without an address")
		return sa.files.count()
	}
	word, _ := cutBlank(text)
	known, holds := sa.conditions()
	for _, glob := range strings.Fields(rest) {
		if err := sa.files.count(); err != nil {
			return err
		}
		f := sa.Find(at, word+" "+glob, what)
		if undo {
			sa.takeBack(what, glob, f, known, holds)
			continue
		}
		g := &saGlob{Finding: f, directive: what, glob: glob}
		if sa.globs = append(sa.globs, g); !holds {
			f.stays("its condition does not hold for SpamAssassin 4")
			continue
		}
		if g.unsure = true; !known {
			f.Remark("whether the condition around it holds is not known; the list has it in any case")
		} else if s := sa.shelves[what]; s != nil && s.Require != nil {
			f.Remark("it wants a proof that only a real message has")
		} else {
			g.unsure = false
		}
		if text, err := plainGlob(glob); err != nil || text[0] == '/' {
			g.match = SpamAssassinGlob(glob)
			sa.byText[what] = append(sa.byText[what], g)
		}
		ids := []string{what + " " + strings.ToLower(glob), what + " " + saMeant(strings.ToLower(glob))}
		for _, id := range slices.Compact(ids) {
			sa.byText[id] = append(sa.byText[id], g)
		}
		if what == "all_spam_to" {
			sa.recipient(g, known)
		}
	}
	return nil
}

// takeBack undoes earlier lines about the same address.
func (sa *spamassassin) takeBack(what, glob string, f *Finding, known, holds bool) {
	if !holds || !known && what != "blocklist_from" {
		f.stays("it stands in a condition that does not hold, or that cannot be judged: what it takes back stays")
		return
	}
	f.stays("there is nothing to take back")
	for _, g := range sa.byText[what+" "+strings.ToLower(glob)] {
		if g.counts() && strings.EqualFold(g.glob, glob) {
			g.stays(fmt.Sprintf("taken back by line %d", f.Line))
			f.Now = fmt.Sprintf("it takes back line %d", g.Line)
		}
	}
}

// conditions tells whether all that are open can be judged, and hold as far as they can.
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

// score reads what a match of blocklist_from counts: the last of up to four numbers is that of a site with all its
// tests.
func (sa *spamassassin) score(rest string) {
	f := strings.Fields(rest)
	if known, holds := sa.conditions(); len(f) < 2 || f[0] != "USER_IN_BLOCKLIST" && f[0] != "USER_IN_BLACKLIST" || known && !holds {
		return
	}
	if points, err := strconv.ParseFloat(strings.Trim(f[len(f)-1], "()"), 64); err == nil {
		sa.weak = points < enough
	}
}

// recipient reads all_spam_to: whose mail is not filtered.
func (sa *spamassassin) recipient(g *saGlob, known bool) {
	text, err := plainGlob(g.glob)
	switch {
	case err != nil || text[0] == '/':
		g.Lose("a policy names recipients, not patterns")
	case !known:
		g.Lose("it stands in a condition")
	case len(sa.Policies) > 0 && len(sa.Policies[0].Recipients) == maxRecipients:
		g.Lose("more than %d recipients", maxRecipients)
	default:
		if len(sa.Policies) == 0 {
			sa.Policies = []Policy{{Lists: []string{}}}
		}
		g.List = "[[policy]]"
		if p := &sa.Policies[0]; !slices.Contains(p.Recipients, text) {
			p.Recipients = append(p.Recipients, text)
		}
	}
}

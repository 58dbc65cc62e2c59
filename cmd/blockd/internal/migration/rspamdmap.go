package migration

import (
	"fmt"
	"strings"

	"blockd/cmd/blockd/internal/migration/internal/original"
	"blockd/lists"
	"blockd/lists/pattern"
)

// mapFile reads the entries of one map.
func (rs *rspamd) mapFile(at Place, s *site, r mapRule, name string) error {
	if kind, rest, ok := strings.Cut(name, ";"); ok && strings.Trim(kind, "abcdefghijklmnopqrstuvwxyz_") == "" {
		name = rest
		r.regexp = r.regexp || strings.HasPrefix(kind, "regexp")
		r.glob = r.glob || strings.HasPrefix(kind, "glob")
	}
	path, remote := rs.path(name)
	if remote {
		rs.remote(at, r, path)
		return nil
	}
	lines, err := rs.files.lines(path)
	if err != nil {
		rs.find(at, name, r.symbol+": the map of the rule").lose("%s: %s", path, unreadable(err))
		return nil
	}
	for n, text := range lines {
		if text[0] == '#' {
			s.lines = append(s.lines, line{comment: text})
			continue
		}
		if err := rs.files.count(); err != nil {
			return err
		}
		rs.entry(Place{path, n}, s, r, text)
	}
	return nil
}

// remote carries a map over that rspamd fetches: a list that blockd fetches.
func (rs *rspamd) remote(at Place, r mapRule, url string) {
	f, why := rs.find(at, url, r.symbol+": a map that is fetched"), ""
	switch {
	case strings.HasPrefix(url, "http://"):
		why = "a list over http:// can be changed by anybody on its way: name it with insecure_http = true if you must"
	case r.filter == "email:user" || r.filter == "email:domain:tld" || strings.HasPrefix(r.filter, "regexp"):
		why = "blockd reads its keys as addresses and names alone, not as " + r.filter
	case r.deed == discard:
		why = "a fetched list cannot have messages dropped"
	}
	if why != "" {
		f.lose("%s", why)
		return
	}
	r.differs(f)
	l := &List{
		Name: listName(strings.ToLower(r.symbol)), Format: "rspamd", Comes: url, URL: url, Patterns: r.regexp || r.glob,
		Shadow: r.deed == watch, Tempfail: r.deed == defers, Allow: r.deed == pass, Tag: r.tag, Match: r.match, Reason: original.Cut(original.Clean(r.reason), 400),
	}
	l.File = l.Name + ".map"
	f.List = l.Name
	rs.fetched = append(rs.fetched, l)
}

// entry reads one line of a map.
func (rs *rspamd) entry(at Place, s *site, r mapRule, text string) {
	name, _ := cutBlank(text)
	var k key
	var why, differ string
	switch {
	case r.kind == "ip":
		p, err := parseNet(name)
		if k = netKey(p); err != nil {
			why = "no address or network of clients"
		}
	case r.regexp:
		k, differ, why = r.expression(text)
	case r.glob && strings.ContainsAny(name, "*?"):
		k, why = r.globKey(name)
	default:
		k, why = r.key(strings.Trim(name, `"`))
	}
	var keys []key
	if why == "" {
		keys = []key{k}
	}
	a := action{deed: r.deed, reason: r.reason}
	f := rs.find(at, text, r.symbol+": "+meaning(a, s.about, keys))
	s.add(&entry{Finding: f, action: a, keys: keys})
	if why != "" {
		f.lose("%s", why)
		return
	}
	r.differs(f)
	if differ != "" {
		f.differ(map[bool]Outcome{true: Wider, false: Narrower}[differ == anyCase], "%s", differ)
	}
}

// differs says what is different of all entries of a rule. rspamd has the whole message before
// it answers, and so does so later.
func (r *mapRule) differs(f *Finding) {
	if r.differ != "" {
		f.differ(Narrower, "%s", r.differ)
	}
	if !r.tag && (r.deed == block || r.deed == defers) {
		f.differ(Reworded, "at RCPT and in blockd's words, not at the end of the message in rspamd's")
	}
}

// whole reports whether a rule compares whole addresses.
func (r *mapRule) whole() bool {
	return r.filter == "" || r.filter == "email" || r.filter == "email:addr"
}

// anyCase is what is said of expressions that tell capital letters from small ones.
const anyCase = "in any case, not only as it is written"

// key reads a key that is compared as it stands.
func (r *mapRule) key(name string) (k key, why string) {
	var err error
	at := strings.LastIndexByte(name, '@')
	switch {
	case r.filter == "email:user", r.filter == "" && at < 0 && strings.IndexByte(name, '.') < 0:
		k, err = localKey(name)
	case at < 0 && (r.filter == "email:domain" || r.filter == ""):
		k, err = nameKey(name, lists.Exact)
	case at < 0 && r.filter == "email:domain:tld":
		if k, err = nameKey(name, lists.Tree); err == nil && lists.RegistrableDomain(k.text) != k.text {
			return k, "never matched there: it is compared with registered domains, and is none"
		}
	case at > 0 && r.whole():
		k, err = addressKey(name)
	case r.filter == "" || strings.HasPrefix(r.filter, "email"):
		return k, "never matched there: what it is compared with never looks so"
	default:
		return k, fmt.Sprintf("the filter %q has no equal", r.filter)
	}
	if err != nil {
		why = "no address or name: " + original.Shown(err.Error())
	}
	return k, why
}

// expression reads /expression/flags, or an expression without slashes.
func (r *mapRule) expression(text string) (k key, differ, why string) {
	if !r.whole() {
		return k, "", fmt.Sprintf("an expression over %s; here they are over whole addresses", r.filter)
	}
	expr, _ := cutBlank(text)
	flags := ""
	if inner, f, _, ok := cutExpression(text); ok && text[0] == '/' {
		expr, flags = inner, f
	}
	if odd := strings.Trim(flags, "imsurOL"); odd != "" {
		return k, "", fmt.Sprintf("the flag %q of the expression", odd[0])
	}
	k, err := patternKey(pattern.Regexp, expr)
	switch {
	case err != nil:
		why = original.Shown(err.Error())
	case r.filter == "" && !strings.Contains(expr, "@") && strings.ContainsAny(expr, "^$"):
		differ = "over the whole address, not over its domain and local-part by themselves"
	case !strings.ContainsRune(flags, 'i'):
		differ = anyCase
	}
	return k, differ, why
}

// globKey reads a key with wildcards.
func (r *mapRule) globKey(name string) (k key, why string) {
	text := name
	switch {
	case r.filter == "email:domain" || r.filter == "" && strings.IndexByte(name, '@') < 0:
		text = "*@" + name
	case !r.whole():
		return k, fmt.Sprintf("a glob over %s; here they are over whole addresses", r.filter)
	}
	k, err := patternKey(pattern.Glob, text)
	if err != nil {
		why = original.Shown(err.Error())
	}
	return k, why
}

package migration

import (
	"fmt"
	"net/netip"
	"strings"

	"blockd/lists"
	"blockd/pattern"
)

// mapFile reads the entries of one map.
func (rs *rspamd) mapFile(at Place, s *site, r mapRule, name string) error {
	for _, kind := range []string{"regexp_multi;", "glob_multi;", "regexp;", "glob;", "radix;", "hash;", "set;", "map;"} {
		if rest, ok := strings.CutPrefix(name, kind); ok {
			name = rest
			r.regexp = r.regexp || strings.HasPrefix(kind, "regexp")
			r.glob = r.glob || strings.HasPrefix(kind, "glob")
		}
	}
	meant := fmt.Sprintf("%s: the map of the rule", r.symbol)
	path, remote := rs.path(name)
	if remote {
		rs.remote(at, r, path)
		return nil
	}
	data, err := rs.files.load(path, maxTable)
	if err != nil {
		rs.find(at, name, meant).lose("%s: %s", path, unreadable(err))
		return nil
	}
	n := 0
	for raw := range strings.Lines(string(data)) {
		n++
		text := strings.TrimSpace(raw)
		switch {
		case text == "":
			continue
		case text[0] == '#':
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
	f := rs.find(at, url, r.symbol+": a map that is fetched")
	switch {
	case strings.HasPrefix(url, "http://"):
		f.lose("a list over http:// can be changed by anybody on its way: name it with insecure_http = true if you must")
		return
	case r.filter == "email:user" || r.filter == "email:domain:tld" || strings.HasPrefix(r.filter, "regexp"):
		f.lose("blockd reads its keys as addresses and names alone, not as %s", r.filter)
		return
	case r.deed == discard:
		f.lose("a fetched list cannot have messages dropped")
		return
	}
	if r.differ != "" {
		f.differ(Narrower, "%s", r.differ)
	}
	r.reworded(f)
	l := &List{
		Name: listName(strings.ToLower(r.symbol)), Format: "rspamd", Comes: url, URL: url, Patterns: r.regexp || r.glob,
		Shadow: r.deed == watch, Tempfail: r.deed == defers, Allow: r.deed == pass, Tag: r.tag, Match: r.match, Reason: cut(clean(r.reason), 400),
	}
	l.File = l.Name + ".map"
	f.List = l.Name
	rs.fetched = append(rs.fetched, l)
}

// entry reads one line of a map.
func (rs *rspamd) entry(at Place, s *site, r mapRule, text string) {
	a := action{deed: r.deed, reason: r.reason}
	name, _ := cutBlank(text)
	var keys []key
	var why, differ string
	switch {
	case r.kind == "ip":
		keys, why = ipKeys(name)
	case r.regexp:
		keys, differ, why = r.expression(text)
	case r.glob && strings.ContainsAny(name, "*?"):
		keys, why = r.globKeys(name)
	default:
		keys, why = r.keys(strings.Trim(name, `"`))
	}
	f := rs.find(at, text, r.symbol+": "+meaning(a, s.about, keys))
	e := s.add(&entry{Finding: f, deed: r.deed, keys: keys, reason: r.reason})
	switch {
	case why != "":
		e.lose("%s", why)
		return
	case r.differ != "":
		e.differ(Narrower, "%s", r.differ)
	}
	r.reworded(f)
	if strings.HasPrefix(differ, "in any case") {
		e.differ(Wider, "%s", differ)
	} else if differ != "" {
		e.differ(Narrower, "%s", differ)
	}
}

// reworded says that rspamd, which has the whole message before it answers, does so later.
func (r *mapRule) reworded(f *Finding) {
	if !r.tag && (r.deed == block || r.deed == defers) && f.Outcome != Lost {
		f.differ(Reworded, "at RCPT and in blockd's words, not at the end of the message in rspamd's")
	}
}

func ipKeys(name string) (keys []key, why string) {
	name = strings.NewReplacer("[", "", "]", "").Replace(name)
	if a, err := netip.ParseAddr(name); err == nil && a.Zone() == "" {
		return []key{netKey(netip.PrefixFrom(a, a.BitLen()))}, ""
	}
	p, err := netip.ParsePrefix(name)
	if err != nil {
		return nil, "no address or network of clients"
	}
	return []key{netKey(p)}, ""
}

// keys reads a key that is compared as it stands.
func (r mapRule) keys(name string) (keys []key, why string) {
	var k key
	var err error
	at := strings.LastIndexByte(name, '@')
	switch {
	case r.filter == "email:user":
		k, err = localKey(name)
	case r.filter == "email:domain" && at < 0:
		k, err = nameKey(name, lists.Exact)
	case r.filter == "email:domain:tld" && at < 0:
		if k, err = nameKey(name, lists.Tree); err == nil && lists.RegistrableDomain(k.text) != k.text {
			return nil, "never matched there: it is compared with registered domains, and is none"
		}
	case r.filter == "" && at < 0 && strings.IndexByte(name, '.') < 0:
		k, err = localKey(name)
	case r.filter == "" && at < 0:
		k, err = nameKey(name, lists.Exact)
	case (r.filter == "" || r.filter == "email" || r.filter == "email:addr") && at > 0:
		k, err = addressKey(name)
	case r.filter == "" || strings.HasPrefix(r.filter, "email"):
		return nil, "never matched there: what it is compared with never looks so"
	default:
		return nil, fmt.Sprintf("the filter %q has no equal", r.filter)
	}
	if err != nil {
		return nil, "no address or name: " + shown(err.Error())
	}
	return []key{k}, ""
}

// expression reads /expression/flags, or an expression without slashes.
func (r mapRule) expression(text string) (keys []key, differ, why string) {
	if r.filter != "" && r.filter != "email" && r.filter != "email:addr" {
		return nil, "", fmt.Sprintf("an expression over %s; here they are over whole addresses", r.filter)
	}
	expr, flags := text, ""
	if inner, f, _, ok := cutExpression(text); ok && text[0] == '/' {
		expr, flags = inner, f
	} else if expr, _ = cutBlank(text); expr == "" {
		return nil, "", "no expression"
	}
	for _, f := range flags {
		if !strings.ContainsRune("imsurOLA", f) || f == 'A' {
			return nil, "", fmt.Sprintf("the flag %q of the expression", f)
		}
	}
	k, err := patternKey(pattern.Regexp, expr)
	if err != nil {
		return nil, "", shown(err.Error())
	}
	switch {
	case r.filter == "" && !strings.Contains(expr, "@") && strings.ContainsAny(expr, "^$"):
		differ = "over the whole address, not over its domain and local-part by themselves"
	case !strings.ContainsRune(flags, 'i'):
		differ = "in any case, not only as it is written"
	}
	return []key{k}, differ, ""
}

// globKeys reads a key with wildcards.
func (r mapRule) globKeys(name string) (keys []key, why string) {
	text := name
	switch {
	case r.filter == "email:domain" || r.filter == "" && strings.IndexByte(name, '@') < 0:
		text = "*@" + name
	case r.filter != "" && r.filter != "email" && r.filter != "email:addr":
		return nil, fmt.Sprintf("a glob over %s; here they are over whole addresses", r.filter)
	}
	k, err := patternKey(pattern.Glob, text)
	if err != nil {
		return nil, shown(err.Error())
	}
	return []key{k}, ""
}

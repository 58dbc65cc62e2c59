package migration

import (
	"cmp"
	"fmt"
	"path/filepath"
	"regexp"
	"slices"
	"strings"

	"blockd/cmd/blockd/internal/migration/internal/original"
	"blockd/lists"
	"blockd/mail/addr"
)

// mapForms are the forms of a map by the prefixes of its name, of which the first that fits counts (lua_maps.lua).
var mapForms = [...][2]string{{"regexp;", "regexp"}, {"re;", "regexp"}, {"regexp_multi;", "regexp"}, {"re_multi;", "regexp"}, {"glob;", "glob"}, {"glob_multi;", "glob"},
	{"radix;", "radix"}, {"ipnet;", "radix"}, {"set;", "set"}, {"hash;", "set"}, {"plain;", "set"}, {"cdb;", "cdb"}, {"cdb:/", "cdb"}}

// formed takes the form off the name of a map, or off a key in its place; "" = what the rule says.
func formed(text string) (form, name string) {
	for _, f := range mapForms {
		if name, ok := strings.CutPrefix(text, f[0]); ok {
			return f[1], name
		}
	}
	return "", text
}

// source takes apart what is opened: the path of a file, or a URL (map.c).
func (rs *rspamd) source(name string) (path string, remote, signed bool) {
	name, signed = unmarked(name)
	if m := sourceScheme.FindString(name); strings.EqualFold(m, "file://") {
		name = name[len(m):]
	} else if m != "" {
		return name, true, signed
	}
	if rest, ok := strings.CutPrefix(name, rs.home+"/"); ok { // places are named as the reader knows them
		return filepath.Join(rs.root, rest), false, signed
	}
	if rest, ok := strings.CutPrefix(filepath.Clean(name), "/etc/rspamd/"); ok {
		if beside := filepath.Join(rs.root, rest); exists(beside) {
			rs.Note("%s is read in place of %s", beside, name)
			return beside, false, signed
		}
	}
	if !filepath.IsAbs(name) {
		name = filepath.Join(rs.dir, name)
	}
	return name, false, signed
}

// unmarked takes the marks of a source off.
func unmarked(name string) (rest string, signed bool) {
	for m := sourceMark.FindString(name); m != ""; m = sourceMark.FindString(name) {
		name, signed = name[len(m):], signed || !strings.EqualFold(m, "fallback+")
	}
	return name, signed
}

var (
	sourceMark   = regexp.MustCompile(`(?i)^(sign\+|fallback\+|key=[^+]*\+)`)
	sourceScheme = regexp.MustCompile(`(?i)^(https?|file)://`)
)

// named is what stands for the map of a rule: the names of maps, or the keys themselves; why is said of what is
// neither.
func (r *mapRule) named(value any) (names, keys []string, why string) {
	object, is := value.(map[string]any)
	if is { // { url = "static"; data = [ … ] }, or a map of upstreams
		if strings.EqualFold(section(object).word("url"), "static") {
			for _, v := range Items(object["data"]) {
				keys = append(keys, fmt.Sprint(v))
			}
			return nil, keys, ""
		}
		value = object["url"]
	}
	form := ""
	for _, v := range Items(value) {
		if text, ok := v.(string); ok {
			f, name := formed(text)
			names, form = append(names, name), cmp.Or(form, f)
		}
	}
	switch {
	case form == "":
	case form == "cdb", (form == "radix") != (r.kind == "ip"):
		return nil, nil, fmt.Sprintf("a map of the form %q is nothing that a list of %s can be made of", form, cmp.Or(r.kind, "nothing"))
	default:
		r.regexp, r.glob = form == "regexp", form == "glob"
	}
	if _, many := value.([]any); !many || is || len(names) == 0 || r.opens(names[0]) {
		return names, nil, ""
	}
	if r.kind != "ip" && !r.regexp && !r.glob {
		r.standing = []string{}
	}
	return nil, names, ""
}

// opens reports whether rspamd takes an array that begins so for the names of files and URLs; else it has keys. Those
// that look like a name behind a mark are none of a sender, and taken for names too.
func (r *mapRule) opens(first string) bool {
	first, _ = unmarked(first)
	if r.kind == "ip" {
		return first == "" || !digits(first[:1])
	}
	return opened.MatchString(first)
}

var opened = regexp.MustCompile(`^(/[A-Za-z]|http)`)

// maps reads the maps of a rule: files, and keys that stand in the rule itself.
func (rs *rspamd) maps(at Place, r *mapRule, l *List, value any, meant string) error {
	names, keys, why := r.named(value)
	if len(names)+len(keys) == 0 {
		rs.Find(at, r.symbol, meant).Lose("%s", cmp.Or(why, "its map is neither a file nor a list of keys"))
		return rs.files.count()
	}
	if r.regexp || r.glob {
		r.settings[map[bool]string{true: "regexp", false: "glob"}[r.regexp]] = true
	}
	l.Patterns = r.regexp || r.glob
	l.Name = rs.unique(l.Name)
	l.File = l.Name + map[string]string{"plain": ".txt", "postfix": ".access"}[l.Format]
	r.shelf = newShelf(l, rs.Program)
	for _, text := range keys {
		at = rs.place(at.Line, func(line string) bool { return strings.Contains(line, text) }) // they stand in order
		if err := rs.entry(at, r, text); err != nil {
			return err
		}
	}
	for _, name := range names {
		if err := rs.mapOf(at, r, l, name); err != nil {
			return err
		}
	}
	if len(r.keys) > 0 {
		rs.rules = append(rs.rules, r)
	}
	return nil
}

// mapOf reads the map of a name.
func (rs *rspamd) mapOf(at Place, r *mapRule, l *List, name string) error {
	path, remote, signed := rs.source(name)
	at = rs.place(at.Line, func(line string) bool { return strings.Contains(line, filepath.Base(name)) })
	switch {
	case signed:
		rs.Find(at, name, r.symbol+": the map of the rule").Lose("rspamd takes it with a signature alone, which an import does not check")
		return rs.files.count()
	case remote:
		rs.remote(at, r, l, path)
		return rs.files.count()
	}
	file, err := rs.files.lines(path)
	if err != nil {
		rs.Find(at, name, r.symbol+": the map of the rule").Lose("%s: %s", path, unreadable(err))
		return rs.files.count()
	}
	for n, text := range file {
		if err := rs.entry(Place{path, n}, r, text); err != nil {
			return err
		}
	}
	return nil
}

// remote carries a map over that rspamd fetches: a list that blockd fetches. Its keys are not known, and not asked
// about.
func (rs *rspamd) remote(at Place, r *mapRule, rule *List, url string) {
	f, why := rs.Find(at, url, r.symbol+": a map that is fetched"), r.lost
	switch {
	case why != "":
	case !strings.HasPrefix(url, "https://"):
		why = "a list over http:// can be changed by anybody on its way: name it with insecure_http = true if you must"
	case r.filter == "email:user" || r.filter == "email:domain:tld" || strings.HasPrefix(r.filter, "regexp"):
		why = "blockd reads its keys as addresses and names alone, not as " + r.filter
	}
	if why != "" {
		f.Lose("%s", why)
		return
	}
	l := *rule
	l.Name, l.Format, l.Comes, l.URL, l.Patterns, l.Allow, l.Excepts = rs.unique(rule.Name), "rspamd", url, url, r.regexp || r.glob, rule.Excepts, false
	l.File = l.Name + ".map"
	f.List, f.Now = l.Name, "nothing is fetched here, so nobody was asked about its keys"
	rs.Lists = append(rs.Lists, &l)
}

// slashed is an expression between slashes.
var slashed = regexp.MustCompile(`^/.*/[A-Za-z]*`)

// entry reads one line of a map.
func (rs *rspamd) entry(at Place, r *mapRule, text string) error {
	if text == "" || text[0] == '#' {
		r.comment(text)
		return nil
	}
	f := rs.Find(at, text, r.symbol)
	key, _ := cutBlank(text)
	line := cmp.Or(slashed.FindString(text), key) // what is behind it may name a symbol of its own
	if r.regexp {
		key = text
	} else if i := strings.IndexByte(key, '#'); i > 0 {
		key = key[:i]
	}
	key = strings.Trim(key, `"`)
	r.keys = append(r.keys, mapKey{f, key, line})
	if r.standing != nil {
		r.standing = append(r.standing, line)
	}
	keys, why := r.plain(key)
	for i, key := range keys {
		if r.regexp || r.glob {
			var err error
			if keys[i], err = expression(key); err != nil {
				why = original.Shown(err.Error())
			} else if r.Discard {
				why = "no list drops mail by a pattern"
			}
		}
	}
	_, name := formed(text)
	if name, _ = unmarked(name); sourceScheme.MatchString(name) || name != "" && name[0] == '/' && !r.regexp {
		why = "the name of a file or a URL where a key should stand: it is not taken over, and nothing is opened or fetched for it"
	}
	if why = cmp.Or(r.lost, why); why != "" {
		f.Lose("%s", why)
		r.comment("Not carried over: " + text)
		return rs.files.count()
	}
	for _, key := range keys {
		if name, exact := strings.CutPrefix(key, "="); r.Discard && exact {
			key = "@" + name
		}
		switch {
		case r.Excepts:
			key = "!" + key
		case r.Discard:
			key += " DISCARD"
		}
		r.put(f, key)
	}
	return rs.files.count()
}

// plain is what a list says of a key: it is compared with the whole address, or what the filter makes of it, and
// without a filter with the domain and the local-part as well. Of patterns these are globs, or the expression, over
// whole addresses.
func (r *mapRule) plain(key string) (keys []string, why string) {
	at := strings.LastIndexByte(key, '@')
	whole := r.filter == "" || r.filter == "email" || r.filter == "email:addr"
	switch {
	case r.kind == "ip":
		p, err := parseNet(key)
		if err != nil {
			return nil, "no address or network of clients"
		}
		return []string{unmapped(p).String()}, ""
	case r.regexp:
		expr, flags, _, ok := cutExpression(key)
		if !ok || key[0] != '/' {
			expr, flags = key, ""
		}
		if odd := strings.Trim(flags, "imsurOL"); odd != "" {
			return nil, fmt.Sprintf("the flag %q of the expression", odd[0])
		} else if !whole {
			return nil, fmt.Sprintf("an expression over %s; here they are over whole addresses", r.filter)
		}
		return []string{expr}, ""
	case r.glob && whole: // it is found anywhere
		return []string{globWithin(key, ".")}, ""
	case r.glob && r.filter == "email:user":
		return []string{globWithin(key, "[^@]") + "[^@]*@"}, ""
	case r.glob && r.filter == "email:domain":
		return []string{"@[^@]*" + globWithin(key, "[^@]")}, ""
	case r.glob:
		return nil, fmt.Sprintf("the filter %q has no equal", r.filter)
	case r.filter == "email:user" || r.filter == "" && at < 0 && !strings.Contains(key, "."):
		keys = []string{quoted(key + "@")}
		if r.filter == "" { // a name of one label, too
			keys = append(keys, "="+key)
		}
		return keys, ""
	case strings.HasPrefix(key, "."):
		return nil, "what it is compared with never looks so"
	case at < 0 && r.filter == "":
		return []string{"=" + key, quoted(key + "@")}, ""
	case at < 0 && r.filter == "email:domain":
		return []string{"=" + key}, ""
	case at < 0 && r.filter == "email:domain:tld":
		if k, err := addr.DomainKey(key); err == nil && lists.RegistrableDomain(k.Text) != k.Text {
			return nil, "it is compared with registered domains, and is none"
		}
		return []string{key}, ""
	case at > 0 && whole:
		return []string{quoted(key)}, ""
	case whole || strings.HasPrefix(r.filter, "email:"):
		return nil, "what it is compared with never looks so"
	}
	return nil, fmt.Sprintf("the filter %q has no equal", r.filter)
}

// globWithin is the expression of a glob that is found anywhere in a text, in which "*" is a run of such characters
// and "?" one.
func globWithin(glob, character string) string {
	return strings.NewReplacer(`\*`, character+"*", `\?`, character).Replace(regexp.QuoteMeta(strings.ToLower(glob)))
}

// mails are those to ask about.
func (rs *rspamd) mails(yield func(Mail) bool) {
	together(func(yield func(sampled) bool) {
		for _, r := range rs.rules {
			for _, k := range r.keys {
				if !yield(sampled{k.Finding, r, r.about, k.Outcome != Lost && !r.Excepts, func() ([]Mail, int) {
					some := r.samples(k.text)
					return some, max(0, slices.IndexFunc(some, func(m Mail) bool { return strings.EqualFold(cmp.Or(m.Author, m.Sender), k.text) }))
				}}) {
					return
				}
			}
		}
	}, nil, yield)
}

// samples are the mails about a key.
func (r *mapRule) samples(key string) (all []Mail) {
	some := Addresses(key, "+")
	switch {
	case r.kind == "ip":
		if p, err := parseNet(key); err == nil {
			for _, a := range hosts(unmapped(p)) {
				all = append(all, Mail{Sender: nobody, Client: a})
			}
		}
		return all
	case r.regexp:
		expr, _, _, ok := cutExpression(key)
		if !ok || key[0] != '/' {
			expr = key
		}
		some = matching(expr, r.filter == "")
	case r.glob:
		some = nil
		for _, glob := range []string{key, "*@" + key, key + "@*"} {
			some = append(some, matching(strings.TrimSuffix(strings.TrimPrefix(globExpression(glob), "^"), "$"), r.filter == "")...)
		}
	case r.filter == "email:user" || r.filter == "" && !strings.ContainsAny(key, "@."):
		some = append(some, Addresses(key+"@", "+")...)
	}
	for _, a := range some { // a map in the rule itself tells capital letters from small ones
		if lower := strings.ToLower(a); lower != a && !slices.Contains(some, lower) {
			some = append(some, lower)
		}
	}
	for _, a := range some {
		m := Mail{Sender: a}
		if r.about == authors {
			m = Mail{Sender: nobody, Author: a, Field: r.field}
		}
		all = append(all, m)
	}
	return all
}

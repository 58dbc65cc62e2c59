package migration

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"blockd/cmd/blockd/internal/migration/internal/original"
	"blockd/lists"
	"blockd/mail/addr"
)

// rspamd is one import from multimap.conf.
type rspamd struct {
	*Result
	files files
	dir   string // of the file
	root  string // the folder that holds local.d and maps.d
	home  string // the same, as rspamd names it
	lines []string

	maprules []*mapRule
	socket   string // of the rspamd that is asked; "" = none runs yet
}

// Rspamd imports the rules of the multimap module that are about envelope senders and
// client addresses.
func Rspamd(ctx context.Context, multimap string, o Options) (*Result, error) {
	return readRspamd(ctx, multimap, o, rspamadm.run)
}

func readRspamd(ctx context.Context, multimap string, o Options, rspamadm runner) (*Result, error) {
	rs := &rspamd{Result: &Result{Program: "rspamd", Source: multimap}, dir: filepath.Dir(multimap)}
	file, err := filepath.Abs(multimap)
	if err != nil {
		return nil, err
	}
	rs.root, rs.home = rs.dir, filepath.Dir(file)
	switch filepath.Base(rs.home) {
	case "local.d", "override.d", "modules.d":
		rs.root, rs.home = filepath.Join(rs.dir, ".."), filepath.Dir(rs.home)
	}
	text, err := rs.files.load(multimap, maxConfig)
	if err != nil {
		return nil, err
	}
	rs.lines = strings.Split(string(text), "\n")
	rules, err := rs.ask(ctx, file, "multimap", rspamadm)
	if err != nil {
		return nil, err
	}
	if err := rs.rules(rules); err != nil {
		return nil, err
	}
	for _, r := range rs.maprules {
		if err := rs.listed(ctx, r.shelf, o); err != nil {
			return nil, err
		}
	}
	rs.Mails, rs.There = rs.mails, rs.scan
	return rs.Result, nil
}

// ask has rspamadm say what the file comes to, with the files that it includes.
//
// rspamadm runs the Lua code and the templates that a whole configuration names. The file may
// come from anybody, so it is read as the section of a configuration that names nothing else,
// and without templates.
func (rs *rspamd) ask(ctx context.Context, file, name string, rspamadm runner) (rules map[string]any, err error) {
	dir, err := os.MkdirTemp("", "blockd-import-")
	if err != nil {
		return nil, err
	}
	defer os.RemoveAll(dir)
	if err := rs.seeIncludes(file); err != nil {
		return nil, err
	}
	section := name + " {\n.include(glob=false) \"$BLOCKD_IMPORT\"\n}\n"
	if err := os.WriteFile(filepath.Join(dir, "rspamd.conf"), []byte(section), 0o600); err != nil {
		return nil, err
	}
	args := []string{"--var=BLOCKD_IMPORT=" + file}
	for _, v := range rs.variablesIn(rs.home) {
		if v[0] != "CURDIR" {
			args = append(args, "--var="+v[0]+"="+v[1])
		}
	}
	out, _, err := rspamadm(ctx, dir, "", append(args, "configdump", "--skip-template", "--compact", "--json", "--config=rspamd.conf", name)...)
	if err != nil {
		return nil, err
	}
	decoder := json.NewDecoder(strings.NewReader(out))
	decoder.UseNumber()
	if err := decoder.Decode(&rules); err != nil {
		return nil, fmt.Errorf("%s: rspamadm says what is no JSON: %w", file, err)
	}
	return rules, nil
}

// RspamdSettings gives what rspamadm says that a file of rspamd's user settings (settings.conf) comes to: its sections
// by
// their names, as JSON has them, with numbers as json.Number.
func RspamdSettings(ctx context.Context, settings string) (map[string]any, error) {
	rs := &rspamd{Result: &Result{Program: "rspamd", Source: settings}, dir: filepath.Dir(settings)}
	file, err := filepath.Abs(settings)
	if err != nil {
		return nil, err
	}
	rs.root, rs.home = rs.dir, filepath.Dir(file)
	if _, err := rs.files.load(settings, maxConfig); err != nil {
		return nil, err
	}
	return rs.ask(ctx, file, "settings", rspamadm.run)
}

// place returns the first line from another one on that is, as far as the file itself has it:
// an included file is not looked into.
func (rs *rspamd) place(from int, is func(line string) bool) Place {
	from = min(from, len(rs.lines))
	if i := slices.IndexFunc(rs.lines[max(from-1, 0):], is); i >= 0 {
		from = max(from, 1) + i
	}
	return Place{rs.Source, from}
}

// begins returns the first line from another one on at which a rule begins.
func (rs *rspamd) begins(symbol string, from int) Place {
	return rs.place(from, func(line string) bool {
		rest, ok := strings.CutPrefix(strings.TrimLeft(line, " \t{\""), symbol)
		return ok && strings.Trim(rest[:min(len(rest), 1)], " \t\r={\":") == ""
	})
}

// section is an object of the configuration.
type section map[string]any

// rules reads the rules in the order in which they stand, and those of sections "multimap".
func (rs *rspamd) rules(all section) error {
	at := map[string]Place{}
	for symbol := range all {
		at[symbol] = rs.begins(symbol, 0)
	}
	inOrder := func(a, b string) int { return cmp.Or(cmp.Compare(at[a].Line, at[b].Line), strings.Compare(a, b)) }
	for _, symbol := range slices.SortedFunc(maps.Keys(all), inOrder) {
		at := at[symbol]
		for i, value := range items(all[symbol]) {
			if i > 0 { // the rule stands again
				at = rs.begins(symbol, at.Line+1)
			}
			v, ok := value.(map[string]any)
			var err error
			switch {
			case !ok:
			case strings.EqualFold(symbol, "multimap"):
				err = rs.rules(v)
			default:
				err = rs.rule(at, symbol, v)
			}
			if err != nil {
				return err
			}
		}
	}
	return nil
}

// items are the values of a key.
func items(value any) []any {
	if many, ok := value.([]any); ok {
		return many
	}
	return []any{value}
}

// word returns the text of a setting, the last one where it stands again, "" if there is none.
func (s section) word(key string) (text string) {
	for _, value := range items(s[key]) {
		switch value.(type) {
		case string, bool, json.Number:
			text = fmt.Sprint(value)
		}
	}
	return text
}

// has reports whether one of some settings is there.
func (s section) has(keys ...string) bool {
	return slices.ContainsFunc(keys, func(key string) bool { return s[key] != nil })
}

// is reports whether a setting is there and not false, as Lua has it.
func (s section) is(key string) bool { return s.has(key) && s.word(key) != "false" }

// path returns the file that a map names. remote: it is a URL.
func (rs *rspamd) path(name string) (path string, remote bool) {
	name = strings.TrimPrefix(name, "fallback+")
	if strings.HasPrefix(name, "http://") || strings.HasPrefix(name, "https://") {
		return name, true
	}
	name = strings.TrimPrefix(name, "file://")
	if rest, ok := strings.CutPrefix(name, rs.home+"/"); ok { // places are named as the reader knows them
		return filepath.Join(rs.root, rest), false
	}
	if rest, ok := strings.CutPrefix(filepath.Clean(name), "/etc/rspamd/"); ok {
		if beside := filepath.Join(rs.root, rest); exists(beside) {
			rs.note("%s is read in place of %s", beside, name)
			return beside, false
		}
	}
	if !filepath.IsAbs(name) {
		name = filepath.Join(rs.dir, name)
	}
	return name, false
}

// fields are the header fields whose addresses lists can be asked about.
var fields = []string{"from", "reply-to", "return-path"}

// mapRule is one rule of multimap.
type mapRule struct {
	*shelf
	symbol, kind, filter string
	action               string // "" = it counts points
	regexp, glob         bool
	accepts              bool
	author               string // the header field that it is about; "" = the envelope
	discards             bool
	lost                 string // why no list has its entries; "" = one has
	asked                map[string]any
	paths                []string // of its maps that are files
	keys                 []mapKey
}

// mapKey is an entry of a rule.
type mapKey struct {
	*Finding
	text string
}

// rule reads one rule.
func (rs *rspamd) rule(at Place, symbol string, v section) error {
	r := &mapRule{symbol: symbol, kind: strings.ToLower(v.word("type")), filter: strings.ToLower(v.word("filter")), regexp: v.is("regexp"), glob: v.is("glob")}
	l := &List{Name: listName(strings.ToLower(symbol)), Format: "plain", Comes: symbol + " of " + at.String()}
	meant := fmt.Sprintf("%s over %s", cmp.Or(v.word("action"), "a score"), cmp.Or(r.kind, "nothing"))
	key, why := "map", ""
	if !v.has(key) {
		key = "maps"
	}
	if field := strings.ToLower(v.word("header")); r.kind == "header" && slices.Contains(fields, field) && strings.HasPrefix(r.filter, "email") {
		r.author, l.Match = v.word("header"), []string{field}
	}
	if v.word("extract_from") == "mime" || v.word("extract_from") == "both" {
		r.author, l.Match = "From", map[string][]string{"mime": {"from"}, "both": {"envelope", "from"}}[v.word("extract_from")]
	}
	switch {
	case r.kind == "":
		why = "it has no type"
	case r.kind != "from" && r.kind != "ip" && r.author == "":
		why = fmt.Sprintf("blockd has no lists for the type %q; it stays with rspamd", r.kind)
	case v.has("enabled") && !v.is("enabled"):
		why = "it is switched off"
	case v.has("require_symbols", "expression", "combined", "selector"):
		why = "it depends on what else was found in the message"
	case v.has("redis", "external") || strings.HasPrefix(v.word(key), "redis"):
		why = "what it asks is another program"
	case !v.has(key):
		why = "it has no map"
	default:
		r.lost = r.deed(l, v) // its keys are asked about all the same
	}
	if why != "" {
		rs.find(at, symbol, meant).Lose("%s", why)
		return rs.files.count()
	}
	r.asked = map[string]any{"score": 0}
	for _, word := range []string{"type", "filter", "regexp", "glob", "multi", "score", "prefilter", "header", "extract_from", "message"} {
		if v.has(word) {
			r.asked[word] = v[word]
		}
	}
	return rs.maps(at, r, l, v[key], meant)
}

// maps reads the maps of a rule: files, and keys that stand in the rule itself (lua_maps.lua).
func (rs *rspamd) maps(at Place, r *mapRule, l *List, value any, meant string) error {
	var names, keys []string
	if object, ok := value.(map[string]any); ok { // { url = "static"; data = [ … ] }, or a map of upstreams
		if section(object).word("url") != "static" && object["url"] != nil {
			value = object["url"]
		} else {
			for _, v := range items(object["data"]) {
				keys = append(keys, fmt.Sprint(v))
			}
			value = nil
		}
	}
	_, many := value.([]any)
	for _, m := range items(value) {
		if name, ok := m.(string); ok {
			names = append(names, name)
		}
	}
	if many && len(names) > 0 && r.standsHere(names) {
		keys, names = names, nil
	}
	if len(names)+len(keys) == 0 {
		rs.find(at, r.symbol, meant).Lose("its map is neither a file nor a list of keys")
		return nil
	}
	lines := func(yield func(Place, string) error) error {
		for _, text := range keys {
			if err := yield(rs.place(at.Line, func(line string) bool { return strings.Contains(line, text) }), text); err != nil {
				return err
			}
		}
		for _, name := range names {
			if kind, rest, ok := strings.Cut(name, ";"); ok && strings.Trim(kind, "abcdefghijklmnopqrstuvwxyz_") == "" {
				name = rest
				r.regexp, r.glob = r.regexp || strings.HasPrefix(kind, "re"), r.glob || strings.HasPrefix(kind, "glob")
			}
			path, remote := rs.path(name)
			at := rs.place(at.Line, func(line string) bool { return strings.Contains(line, filepath.Base(name)) })
			if remote {
				rs.remote(at, r, l, path)
				continue
			}
			file, err := rs.files.lines(path)
			if err != nil {
				rs.find(at, name, r.symbol+": the map of the rule").Lose("%s: %s", path, unreadable(err))
				continue
			}
			if absolute, err := filepath.Abs(path); err == nil {
				r.paths = append(r.paths, absolute)
			}
			for n, text := range file {
				if err := yield(Place{path, n}, text); err != nil {
					return err
				}
			}
		}
		return nil
	}
	rs.prefix(r, names)
	l.Patterns = r.regexp || r.glob
	l.Name = rs.unique(l.Name)
	l.File = l.Name + map[string]string{"plain": ".txt", "postfix": ".access"}[l.Format]
	r.shelf = newShelf(l, rs.Program)
	err := lines(func(at Place, text string) error {
		if text == "" || text[0] == '#' {
			r.comment(text)
			return nil
		}
		rs.entry(at, r, text)
		return rs.files.count()
	})
	switch {
	case len(r.paths) > 0:
		r.asked["map"] = slices.Clone(r.paths)
	case len(keys) > 0:
		bare := []string{}
		for _, key := range keys {
			bare = append(bare, bareKey(key))
		}
		r.asked["map"] = bare
	default:
		return err
	}
	rs.maprules = append(rs.maprules, r)
	return err
}

// mapFile is how the first name of several maps begins that rspamd takes for files and URLs; else they are keys.
var mapFile = regexp.MustCompile(`^(/[A-Za-z]|http)`)

// bareKey is a line of a map without its value, which may name a symbol of its own.
func bareKey(line string) string {
	if m := slashed.FindString(line); m != "" {
		return m
	}
	key, _ := cutBlank(line)
	return key
}

var slashed = regexp.MustCompile(`^/.*/[A-Za-z]*`)

// standsHere reports whether an array has the keys themselves.
func (r *mapRule) standsHere(names []string) bool {
	_, first, typed := strings.Cut(names[0], ";")
	if !typed {
		first = names[0]
	}
	if r.kind == "ip" {
		return first != "" && digits(first[:1])
	}
	return !mapFile.MatchString(first)
}

// prefix reads the kind of the maps that a name begins with.
func (rs *rspamd) prefix(r *mapRule, names []string) {
	for _, name := range names {
		r.regexp = r.regexp || strings.HasPrefix(name, "regexp") && strings.Contains(name, ";") || strings.HasPrefix(name, "re;") || strings.HasPrefix(name, "re_multi;")
		r.glob = r.glob || strings.HasPrefix(name, "glob;") || strings.HasPrefix(name, "glob_multi;")
	}
	if r.regexp {
		r.asked["regexp"] = true
	} else if r.glob {
		r.asked["glob"] = true
	}
}

// deed says what a rule does here; why is said of one that has no equal.
func (r *mapRule) deed(l *List, v section) (why string) {
	r.action = strings.ToLower(strings.NewReplacer("_", " ", "-", " ").Replace(v.word("action")))
	switch r.action {
	case "reject":
	case "soft reject":
		l.Tempfail = true
	case "accept", "no action":
		r.accepts, l.Excepts = true, true
	case "discard":
		r.discards, l.Discard, l.Format = true, true, "postfix"
	case "add header", "rewrite subject":
		l.Tag = true
	case "":
		if score, err := strconv.ParseFloat(v.word("score"), 64); err == nil && score < 0 {
			return "a score that speaks for a mail; as an exception here it would let pass what any list refuses"
		}
		l.Shadow = true
	default:
		return fmt.Sprintf("the action %q is rspamd's own", r.action)
	}
	return ""
}

// remote carries a map over that rspamd fetches: a list that blockd fetches. Its keys are not known, and not asked
// about.
func (rs *rspamd) remote(at Place, r *mapRule, rule *List, url string) {
	f, why := rs.find(at, url, r.symbol+": a map that is fetched"), r.lost
	switch {
	case why != "":
	case strings.HasPrefix(url, "http://"):
		why = "a list over http:// can be changed by anybody on its way: name it with insecure_http = true if you must"
	case r.filter == "email:user" || r.filter == "email:domain:tld" || strings.HasPrefix(r.filter, "regexp"):
		why = "blockd reads its keys as addresses and names alone, not as " + r.filter
	}
	if why != "" {
		f.Lose("%s", why)
		return
	}
	l := *rule
	l.Name, l.Format, l.Comes, l.URL, l.Patterns, l.Allow, l.Excepts = rs.unique(rule.Name), "rspamd", url, url, r.regexp || r.glob, r.accepts, false
	l.File = l.Name + ".map"
	f.List, f.Now = l.Name, "nothing is fetched here, so nobody was asked about its keys"
	rs.Lists = append(rs.Lists, &l)
}

// entry reads one line of a map.
func (rs *rspamd) entry(at Place, r *mapRule, text string) {
	f := rs.find(at, text, r.symbol)
	key, _ := cutBlank(text)
	if r.regexp {
		key = text
	} else if i := strings.IndexByte(key, '#'); i > 0 {
		key = key[:i]
	}
	key = strings.Trim(key, `"`)
	r.keys = append(r.keys, mapKey{f, key})
	keys, why := r.plain(key)
	for i, key := range keys {
		if r.regexp || r.glob {
			var err error
			if keys[i], err = expression(key); err != nil {
				why = original.Shown(err.Error())
			} else if r.discards {
				why = "no list drops mail by a pattern"
			}
		}
	}
	if why = cmp.Or(r.lost, why); why != "" {
		f.Lose("%s", why)
		r.comment("Not carried over: " + text)
		return
	}
	for _, key := range keys {
		if name, exact := strings.CutPrefix(key, "="); r.discards && exact {
			key = "@" + name
		}
		switch {
		case r.accepts:
			key = "!" + key
		case r.discards:
			key += " DISCARD"
		}
		r.put(f, key)
	}
}

// plain is what a list says of a key: it is compared with the whole address, or what the filter makes of it, and
// without
// a filter with the domain and the local-part as well. Of patterns these are globs, or the expression, over whole
// addresses.
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
	var refused []Mail // by rules about senders and about clients, the first of each
	for _, r := range rs.maprules {
		for _, k := range r.keys {
			if some := r.samples(k.text); len(some) > 0 && k.Outcome == NotAsked && !r.accepts && r.author == "" && len(refused) < 2*maxOthers {
				refused = append(refused, some[0])
				break
			}
		}
	}
	for _, r := range rs.maprules {
		for _, k := range r.keys {
			some := r.samples(k.text)
			for _, other := range refused {
				if len(some) == 0 || r.author != "" || (r.kind == "ip") == other.Client.IsValid() {
					continue
				}
				m := some[0]
				if m.pair = true; other.Client.IsValid() {
					m.Client = other.Client
				} else {
					m.Sender = other.Sender
				}
				some = append(some, m)
			}
			for _, m := range some {
				if m.About = k.Finding; !yield(m) {
					return
				}
			}
		}
	}
}

// samples are the mails about a key.
func (r *mapRule) samples(key string) (all []Mail) {
	some := addresses(key, "+")
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
		some = append(some, addresses(key+"@", "+")...)
	}
	for _, a := range some { // a map in the rule itself tells capital letters from small ones
		if lower := strings.ToLower(a); lower != a && !slices.Contains(some, lower) {
			some = append(some, lower)
		}
	}
	for _, a := range some {
		m := Mail{Sender: a}
		if r.author != "" {
			m = Mail{Sender: nobody, Author: a, Field: r.author}
		}
		all = append(all, m)
	}
	return all
}

package migration

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
)

// rspamd is one import from multimap.conf.
type rspamd struct {
	*Result
	files files
	dir   string // of the file
	root  string // the folder that holds local.d and maps.d
	home  string // the same, as rspamd names it
	lines []string
	sites []*site

	accepts, rejects bool // rules of both kinds are there
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
	if rs.accepts && rs.rejects {
		rs.note("where a rule that accepts and one that rejects match the same mail, it is accepted here; rspamd does what was decided last")
	}
	return rs.Result, rs.build(ctx, rs.sites, o)
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
	out, _, err := rspamadm(ctx, dir, append(args, "configdump", "--skip-template", "--compact", "--json", "--config=rspamd.conf", name)...)
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

// RspamdSettings gives what rspamadm says that a file of rspamd's user settings (settings.conf) comes to: its sections by
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
	symbol, kind, filter string
	deed                 deed
	tag                  bool
	differ               string // from what it does there, for every entry
	regexp, glob         bool
	reason               string
	match                []string // which addresses it is about; none = the envelope's
}

// rule reads one rule.
func (rs *rspamd) rule(at Place, symbol string, v section) error {
	r := mapRule{
		symbol: symbol, kind: strings.ToLower(v.word("type")), filter: strings.ToLower(v.word("filter")),
		regexp: v.is("regexp"), glob: v.is("glob"), reason: v.word("message"),
	}
	meant := fmt.Sprintf("%s over %s", cmp.Or(v.word("action"), "a score"), cmp.Or(r.kind, "nothing"))
	extract, field := strings.ToLower(v.word("extract_from")), strings.ToLower(v.word("header"))
	switch {
	case r.kind == "header" && slices.Contains(fields, field) && strings.HasPrefix(r.filter, "email"):
		r.kind, r.match = "from", []string{field}
	case r.kind == "from" && extract == "mime":
		r.match = []string{"from"}
	case r.kind == "from" && extract == "both":
		r.match = []string{"envelope", "from"}
	}
	key, why := "map", ""
	if !v.has(key) {
		key = "maps"
	}
	switch {
	case r.kind == "":
		why = "it has no type"
	case r.kind != "from" && r.kind != "ip":
		why = fmt.Sprintf("blockd has no lists for the type %q; it stays with rspamd", r.kind)
	case v.has("enabled") && !v.is("enabled"):
		why = "it is switched off"
	case v.has("require_symbols", "expression", "combined"):
		why = "it depends on what else was found in the message"
	case v.has("redis", "external", "selector"):
		why = "what it asks is another program"
	default:
		why = rs.deed(&r, v)
	}
	if why == "" && !v.has(key) {
		why = "it has no map"
	}
	if why != "" {
		rs.find(at, symbol, meant).lose("%s", why)
		return rs.files.count()
	}
	s := &site{name: strings.ToLower(symbol), comes: symbol + " of " + at.String(), tag: r.tag, match: r.match}
	if r.kind == "ip" {
		s.about = clients
	}
	for _, m := range items(v[key]) {
		name, ok := m.(string)
		at := rs.place(at.Line, func(line string) bool { return strings.Contains(line, filepath.Base(name)) })
		if !ok {
			rs.find(at, symbol, meant).lose("its map is a section of its own")
		} else if err := rs.mapFile(at, s, r, name); err != nil {
			return err
		}
	}
	if len(s.lines) > 0 {
		rs.sites = append(rs.sites, s)
	}
	return nil
}

// deed says what a rule does here; why is said of one that has no equal.
func (rs *rspamd) deed(r *mapRule, v section) (why string) {
	switch action := strings.ToLower(strings.NewReplacer("_", " ", "-", " ").Replace(v.word("action"))); action {
	case "reject":
		r.deed, rs.rejects = block, true
	case "soft reject":
		r.deed, rs.rejects = defers, true
	case "accept", "no action":
		r.deed, rs.accepts = pass, true
	case "discard":
		r.deed, rs.rejects = discard, true
		r.differ = "dropped at a milter door alone; the policy service and the SMTP filter refuse it"
	case "add header", "rewrite subject":
		r.deed, r.tag = block, true
	case "":
		if score, err := strconv.ParseFloat(v.word("score"), 64); err == nil && score < 0 {
			return "a score that speaks for a mail; as an exception here it would let pass what any list refuses"
		}
		r.deed, r.differ = watch, "logged, not scored (mode = \"shadow\"); mode = \"enforce\" refuses"
	default:
		return fmt.Sprintf("the action %q is rspamd's own", action)
	}
	return ""
}

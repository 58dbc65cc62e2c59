package migration

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"math"
	"net/http"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
)

// rspamd is one import from multimap.conf.
type rspamd struct {
	*Result
	files  files
	dir    string // of the file
	root   string // the folder that holds local.d and maps.d
	home   string // the same, as rspamd names it
	lines  []string
	starts map[string][]int // the lines that begin with a word
	rules  []*mapRule

	client *http.Client // of the rspamd that is asked; nil = none runs yet
}

// Rspamd imports the rules of the multimap module that are about envelope senders and client addresses.
func Rspamd(ctx context.Context, multimap string, o Options) (*Result, error) {
	return readRspamd(ctx, multimap, o, rspamadm.run)
}

func readRspamd(ctx context.Context, multimap string, o Options, rspamadm runner) (r *Result, err error) {
	rs, file, err := newRspamd(multimap)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, rs.work.close()) }()
	switch filepath.Base(rs.home) {
	case "local.d", "override.d", "modules.d":
		rs.root, rs.home = filepath.Join(rs.dir, ".."), filepath.Dir(rs.home)
	}
	if err := rs.dump(ctx, file, "multimap", rspamadm, rs.rule); err != nil {
		return nil, err
	}
	for _, r := range rs.rules {
		if err := rs.listed(ctx, r.shelf, o); err != nil {
			return nil, err
		}
	}
	rs.Mails, rs.There = rs.mails, rs.scan
	return rs.Result, nil
}

func newRspamd(path string) (*rspamd, string, error) {
	dir := filepath.Dir(path)
	file, err := filepath.Abs(path)
	rs := &rspamd{Result: &Result{Program: "rspamd", Source: path}, dir: dir, root: dir, home: filepath.Dir(file)}
	return rs, file, err
}

// dump has rspamadm say what the file comes to, with the files that it includes.
//
// rspamadm runs the Lua code and the templates that a whole configuration names. The file may come from anybody, so it
// is read as the section of a configuration that names nothing else, and without templates.
func (rs *rspamd) dump(ctx context.Context, file, name string, rspamadm runner, each func(at Place, symbol string, v section, again bool) error) error {
	text, err := rs.files.load(rs.Source, maxConfig)
	if err != nil {
		return err
	}
	rs.lines = strings.Split(string(text), "\n")
	if err := rs.seeIncludes(file); err != nil {
		return err
	}
	if _, err := rs.work.write("rspamd.conf", []byte(name+" {\n.include(glob=false) \"$BLOCKD_IMPORT\"\n}\n")); err != nil {
		return err
	}
	args := []string{"--var=BLOCKD_IMPORT=" + file}
	for name, folder := range rs.variables("") {
		if folder != "" {
			args = append(args, "--var="+name+"="+folder)
		}
	}
	out, _, err := rspamadm(ctx, rs.work.dir, "", append(args, "configdump", "--skip-template", "--compact", "--json", "--config=rspamd.conf", name)...)
	if err != nil {
		return err
	}
	var all section
	decoder := json.NewDecoder(strings.NewReader(out))
	decoder.UseNumber()
	if err := decoder.Decode(&all); err != nil {
		return fmt.Errorf("%s: rspamadm says what is no JSON: %w", file, err)
	}
	return rs.read(all, name, each)
}

// RspamdSettings gives what rspamadm says that a file of rspamd's user settings (settings.conf) comes to: each of its
// sections as JSON has it, with numbers as json.Number.
func RspamdSettings(ctx context.Context, settings string, each func(at Place, name string, s map[string]any) error) error {
	rs, file, err := newRspamd(settings)
	if err == nil {
		err = rs.dump(ctx, file, "settings", rspamadm.run, func(at Place, name string, s section, _ bool) error { return each(at, name, s) })
	}
	return errors.Join(err, rs.work.close())
}

// nearby bounds how many lines are looked at for a place: a file may have as many rules as lines.
const nearby = 1000

// place returns the first line from another one on that is, as far as the file itself has it nearby: an included file
// is not looked into.
func (rs *rspamd) place(from int, is func(line string) bool) Place {
	from = min(from, len(rs.lines))
	rest := rs.lines[max(from-1, 0):]
	if i := slices.IndexFunc(rest[:min(len(rest), nearby)], is); i >= 0 {
		from = max(from, 1) + i
	}
	return Place{rs.Source, from}
}

// begins returns the first line from another one on at which a rule begins.
func (rs *rspamd) begins(symbol string, from int) Place {
	if rs.starts == nil {
		rs.starts = map[string][]int{}
		for i, line := range rs.lines {
			word := strings.TrimLeft(line, " \t{\"")
			if end := strings.IndexAny(word, " \t\r={\":"); end >= 0 {
				word = word[:end]
			}
			rs.starts[word] = append(rs.starts[word], i+1)
		}
	}
	at := rs.starts[symbol]
	if i, _ := slices.BinarySearch(at, from); i < len(at) {
		from = at[i]
	}
	return Place{rs.Source, min(from, len(rs.lines))}
}

// section is an object of the configuration.
type section map[string]any

// read gives the sections in the order in which they stand, and those of sections of a name. again: one of the same
// symbol is there.
func (rs *rspamd) read(all section, name string, each func(at Place, symbol string, v section, again bool) error) error {
	at := map[string]Place{}
	for symbol := range all {
		at[symbol] = rs.begins(symbol, 0)
	}
	inOrder := func(a, b string) int { return cmp.Or(cmp.Compare(at[a].Line, at[b].Line), strings.Compare(a, b)) }
	if name == "settings" { // which have priorities, and no order
		inOrder = strings.Compare
	}
	for _, symbol := range slices.SortedFunc(maps.Keys(all), inOrder) {
		at := at[symbol]
		values := Items(all[symbol])
		for i, value := range values {
			if i > 0 { // the rule stands again
				at = rs.begins(symbol, at.Line+1)
			}
			v, ok := value.(map[string]any)
			var err error
			switch {
			case !ok:
			case strings.EqualFold(symbol, name):
				err = rs.read(v, name, each)
			default:
				err = each(at, symbol, v, len(values) > 1)
			}
			if err != nil {
				return err
			}
		}
	}
	return nil
}

// Items are the values of a key of rspamd's, which may stand several times.
func Items(value any) []any {
	if many, ok := value.([]any); ok {
		return many
	}
	return []any{value}
}

// word returns the text of a setting, the last one where it stands again, "" if there is none.
func (s section) word(key string) (text string) {
	for _, value := range Items(s[key]) {
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

// fields are the header fields whose addresses lists can be asked about.
var fields = []string{"from", "reply-to", "return-path"}

// mapRule is one rule of multimap.
type mapRule struct {
	*shelf
	symbol, kind, filter string
	action               string // "" = it counts points
	regexp, glob         bool
	about                about
	field                string         // of authors: the header field
	lost                 string         // why no list has its entries; "" = one has
	settings             map[string]any // of the rule where rspamd is asked: plain words alone
	keys                 []mapKey
	standing             []string // the keys, where the rule itself has them: capital letters are not small ones then; else nil
}

// mapKey is an entry of a rule.
type mapKey struct {
	*Finding
	text string // that is compared
	line string // of the map, without a value
}

// rule reads one rule. again: its symbol stands more than once.
func (rs *rspamd) rule(at Place, symbol string, v section, again bool) error {
	r := &mapRule{symbol: symbol, kind: strings.ToLower(v.word("type")), filter: strings.ToLower(v.word("filter")), regexp: v.is("regexp"), glob: v.is("glob")}
	l := &List{Name: listName(strings.ToLower(symbol)), Format: "plain", Comes: symbol + " of " + at.String()}
	meant := fmt.Sprintf("%s over %s", cmp.Or(v.word("action"), "a score"), cmp.Or(r.kind, "nothing"))
	key, why := "map", ""
	for _, other := range []string{"maps", "url"} {
		if !v.has(key) {
			key = other
		}
	}
	if r.kind == "ip" {
		r.about = clients
	}
	if field := strings.ToLower(v.word("header")); r.kind == "header" && slices.Contains(fields, field) && strings.HasPrefix(r.filter, "email") {
		r.about, r.field, l.Match = authors, v.word("header"), []string{field}
	}
	if from := v.word("extract_from"); from == "mime" || from == "both" {
		r.about, r.field, l.Match = authors, "From", map[string][]string{"mime": {"from"}, "both": {"envelope", "from"}}[from]
	}
	switch {
	case again:
		why = "its symbol stands more than once: rspamd has none of such rules"
	case r.kind == "":
		why = "it has no type"
	case r.kind != "from" && r.kind != "ip" && r.field == "":
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
		rs.Find(at, symbol, meant).Lose("%s", why)
		return rs.files.count()
	}
	r.settings = map[string]any{"score": 0}
	for _, word := range []string{"type", "filter", "header", "extract_from"} {
		if v.has(word) {
			r.settings[word] = v.word(word)
		}
	}
	if points, err := strconv.ParseFloat(v.word("score"), 64); err == nil && !math.IsNaN(points) && !math.IsInf(points, 0) {
		r.settings["score"] = points
	}
	r.settings["multi"] = v.is("multi")
	return rs.maps(at, r, l, v[key], meant)
}

// deed says what a rule does here; why is said of one that has no equal.
func (r *mapRule) deed(l *List, v section) (why string) {
	r.action = strings.ToLower(strings.NewReplacer("_", " ", "-", " ").Replace(v.word("action")))
	switch r.action {
	case "reject":
	case "soft reject":
		l.Tempfail = true
	case "accept", "no action":
		l.Excepts = true
	case "discard":
		l.Discard, l.Format = true, "postfix"
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

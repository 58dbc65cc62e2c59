package migration

import (
	"context"
	"fmt"
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
	sites []*site

	accepts, rejects bool // rules of both kinds are there
}

// maxIncludes bounds how deep files may include one another.
const maxIncludes = 10

// Rspamd imports the rules of the multimap module that are about envelope senders and
// client addresses.
func Rspamd(ctx context.Context, multimap string, o Options) (*Result, error) {
	rs := &rspamd{Result: &Result{Program: "rspamd", Source: multimap}, dir: filepath.Dir(multimap)}
	whole, err := filepath.Abs(rs.dir)
	if err != nil {
		return nil, err
	}
	rs.root = rs.dir
	switch filepath.Base(whole) {
	case "local.d", "override.d", "modules.d":
		rs.root = filepath.Join(rs.dir, "..")
	}
	if err := rs.file(multimap, 0); err != nil {
		return nil, err
	}
	if rs.accepts && rs.rejects {
		rs.note("where a rule that accepts and one that rejects match the same mail, it is accepted here; rspamd does what was decided last")
	}
	return rs.Result, rs.build(ctx, rs.sites, o)
}

// file reads one file of rules.
func (rs *rspamd) file(path string, depth int) error {
	data, err := rs.files.load(path, maxConfig)
	if err != nil {
		return err
	}
	doc, err := parseUCL(string(data))
	if err != nil {
		return fmt.Errorf("%s:%w", path, err)
	}
	return rs.section(path, doc, depth)
}

// section reads the rules of a document, or of its section "multimap".
func (rs *rspamd) section(path string, doc uclValue, depth int) error {
	for _, f := range doc.fields {
		at := Place{path, f.line}
		switch {
		case strings.HasPrefix(f.key, "."):
			if err := rs.include(at, f, depth); err != nil {
				return err
			}
		case strings.EqualFold(f.key, "multimap") && f.value.kind == uclObject:
			if err := rs.section(path, f.value, depth); err != nil {
				return err
			}
		case f.value.kind == uclObject:
			if err := rs.rule(at, f.key, f.value); err != nil {
				return err
			}
		}
	}
	return nil
}

// include follows an .include of a file in the same tree.
func (rs *rspamd) include(at Place, f uclField, depth int) error {
	name := f.value.text
	if !strings.HasPrefix(strings.ToLower(f.key), ".include") {
		return nil
	}
	text := f.key + " " + name
	if depth >= maxIncludes {
		return fmt.Errorf("%s: files include one another more than %d deep", at, maxIncludes)
	}
	path, remote := rs.path(name)
	if remote || strings.ContainsAny(path, "*?[") || !exists(path) {
		rs.find(at, text, "more configuration").lose("it is not followed: no such file, a pattern, or an address")
		return nil
	}
	return rs.file(path, depth+1)
}

// path returns the file that a map or an include names. remote: it is a URL.
func (rs *rspamd) path(name string) (path string, remote bool) {
	for _, v := range []struct{ name, dir string }{
		{"LOCAL_CONFDIR", rs.root}, {"CONFDIR", rs.root}, {"CURDIR", rs.dir}, {"DBDIR", "/var/lib/rspamd"}, {"RSPAMD_CONFDIR", rs.root},
	} {
		name = strings.ReplaceAll(strings.ReplaceAll(name, "${"+v.name+"}", v.dir), "$"+v.name, v.dir)
	}
	name = strings.TrimPrefix(name, "fallback+")
	if strings.HasPrefix(name, "http://") || strings.HasPrefix(name, "https://") {
		return name, true
	}
	name = strings.TrimPrefix(name, "file://")
	const home = "/etc/rspamd/"
	if rest, ok := strings.CutPrefix(filepath.Clean(name), home); ok {
		if beside := filepath.Join(rs.root, rest); filepath.Clean(rs.root) != filepath.Clean(home) && exists(beside) {
			rs.note("%s is read in place of %s", beside, name)
			return beside, false
		}
	}
	if !filepath.IsAbs(name) && filepath.VolumeName(name) == "" && !strings.HasPrefix(name, rs.root) {
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
func (rs *rspamd) rule(at Place, symbol string, v uclValue) error {
	r := mapRule{symbol: symbol, kind: strings.ToLower(v.word("type")), filter: strings.ToLower(v.word("filter")), reason: v.word("message")}
	r.regexp, r.glob = truth(v.word("regexp")), truth(v.word("glob"))
	meant := strings.TrimSpace(fmt.Sprintf("%s over %s", orDash(v.word("action"), "a score"), orDash(r.kind, "nothing")))
	lose := func(format string, args ...any) error {
		rs.find(at, symbol, meant).lose(format, args...)
		return rs.files.count()
	}
	if field := strings.ToLower(v.word("header")); r.kind == "header" && slices.Contains(fields, field) && strings.HasPrefix(r.filter, "email") {
		r.kind, r.match = "from", []string{field}
	}
	switch r.kind {
	case "from", "ip":
	case "":
		return lose("it has no type")
	default:
		return lose("blockd has no lists for the type %q; it stays with rspamd", r.kind)
	}
	extract := strings.ToLower(v.word("extract_from"))
	switch {
	case v.word("enabled") != "" && !truth(v.word("enabled")):
		return lose("it is switched off")
	case has(v, "require_symbols"), has(v, "expression"), has(v, "combined"):
		return lose("it depends on what else was found in the message")
	case has(v, "redis"), has(v, "external"), has(v, "selector"):
		return lose("what it asks is another program")
	}
	if why := rs.deed(&r, v); why != "" {
		return lose("%s", why)
	}
	switch {
	case r.match != nil || r.kind != "from":
	case extract == "mime":
		r.match = []string{"from"}
	case extract == "both":
		r.match = []string{"envelope", "from"}
	}
	maps, ok := v.get("map")
	if !ok {
		maps, ok = v.get("maps")
	}
	var names []uclValue
	switch {
	case !ok:
		return lose("it has no map")
	case maps.kind == uclText:
		names = []uclValue{maps}
	case maps.kind == uclArray:
		names = maps.items
	default:
		return lose("its map is a section of its own")
	}
	s := &site{name: strings.ToLower(symbol), comes: symbol + " of " + at.String(), tag: r.tag, match: r.match}
	if r.kind == "ip" {
		s.about = clients
	}
	for _, m := range names {
		if m.kind != uclText {
			rs.find(Place{at.File, m.line}, symbol, meant).lose("its map is a section of its own")
			continue
		}
		if err := rs.mapFile(Place{at.File, m.line}, s, r, m.text); err != nil {
			return err
		}
	}
	if len(s.lines) > 0 {
		rs.sites = append(rs.sites, s)
	}
	return nil
}

func has(v uclValue, key string) bool {
	_, ok := v.get(key)
	return ok
}

func truth(text string) bool {
	switch strings.ToLower(text) {
	case "true", "yes", "on", "1":
		return true
	}
	return false
}

func orDash(text, otherwise string) string {
	if text == "" {
		return otherwise
	}
	return text
}

// deed says what a rule does here; why is said of one that has no equal.
func (rs *rspamd) deed(r *mapRule, v uclValue) (why string) {
	action := strings.ToLower(strings.NewReplacer("_", " ", "-", " ").Replace(v.word("action")))
	switch action {
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
		return rs.score(r, v.word("score"))
	default:
		return fmt.Sprintf("the action %q is rspamd's own", action)
	}
	return ""
}

// score is deed for a rule that only adds to a score.
func (rs *rspamd) score(r *mapRule, text string) (why string) {
	score, err := strconv.ParseFloat(text, 64)
	if err == nil && score < 0 {
		return "a score that speaks for a mail; as an exception here it would let pass what any list refuses"
	}
	r.deed = watch
	r.differ = "logged, not scored (mode = \"shadow\"); mode = \"enforce\" refuses"
	return ""
}

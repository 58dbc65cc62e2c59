package migration

import (
	"fmt"
	"net/netip"
	"regexp"
	"slices"
	"strings"

	"blockd/cmd/blockd/internal/migration/internal/original"
	"blockd/lists/pattern"
)

// tableKind is how a table type of Postfix is read.
type tableKind uint8

const (
	indexedTable tableKind = iota // postmap(1) made it from a text beside it
	inlineTable
	cidrTable
	regexpTable // POSIX
	pcreTable
	staticTable
	foreignTable // it is asked over a network, or made of other tables
)

// tableKinds are the types of which there is a text beside main.cf, or in it.
var tableKinds = map[string]tableKind{
	"btree": indexedTable, "cdb": indexedTable, "dbm": indexedTable, "hash": indexedTable, "lmdb": indexedTable, "sdbm": indexedTable, "texthash": indexedTable,
	"inline": inlineTable, "cidr": cidrTable, "regexp": regexpTable, "pcre": pcreTable, "static": staticTable,
}

// foreign are the names of other types, such as mysql.
var foreign = regexp.MustCompile(`^[a-z]+$`)

// tableName takes "proxy:hash:/etc/postfix/x" apart. ok is false for what is no table
// at all.
func tableName(text, standard string) (kind tableKind, word, name string, ok bool) {
	text, _ = strings.CutPrefix(text, "proxy:")
	word, name, typed := strings.Cut(text, ":")
	if !typed && isPath(text) {
		word, name = standard, text
	}
	if kind, ok = tableKinds[word]; !ok {
		kind, ok = foreignTable, foreign.MatchString(word)
	}
	return kind, word, name, ok && name != ""
}

// rows reads the lines of a table's text into the site, each with the reader of its
// kind.
func (pf *postfix) rows(s *site, kind tableKind, path string, data []byte) error {
	lines, orphan := logicalLines(data)
	if orphan > 0 {
		pf.find(Place{path, orphan}, "", "nothing: Postfix passes over it").lose("it begins with a blank, but there is no line that it could continue")
	}
	t := tableText{pf: pf, site: s, path: path, kind: kind, first: map[string]*entry{}}
	for _, l := range lines {
		if l.comment {
			s.lines = append(s.lines, line{comment: l.text})
			continue
		}
		if err := pf.files.count(); err != nil {
			return err
		}
		switch kind {
		case indexedTable:
			t.indexed(l.line, l.text)
		case cidrTable:
			s.ordered = true
			t.cidr(l.line, l.text)
		default:
			s.ordered = true
			t.expression(l.line, l.text)
		}
	}
	s.yield()
	return nil
}

// yield has an entry that takes mail free from its table, as it does there, where one that
// refuses is asked behind it, may match the same mail and may go before it here: patterns
// come last here, and in a table whose lines are asked in their order the narrower of two
// goes first. Mail that was taken must not be refused.
func (s *site) yield() {
	var refusing []*entry
	for _, e := range s.entries {
		if e.Outcome != Lost && e.deed.answers() {
			refusing = append(refusing, e)
		}
	}
	for _, e := range slices.Clone(s.entries) {
		if e.Outcome == Lost || e.deed != hold && e.deed != mark || !s.ordered && !slices.ContainsFunc(e.keys, key.isPattern) {
			continue
		}
		if !slices.ContainsFunc(refusing, func(b *entry) bool { return b.rank > e.rank && overlap(e, b) }) {
			continue
		}
		if i := slices.IndexFunc(e.keys, key.isPattern); i > 0 { // an address, and its forms with an extension
			s.add(&entry{Finding: e.Finding, action: action{deed: stop}, keys: e.keys[i:], rank: e.rank})
			e.keys = e.keys[:i:i]
			e.differ(Narrower, "with an extension behind the recipient_delimiter it is let pass")
			continue
		}
		e.other, e.deed, e.Outcome, e.Now = map[deed]string{hold: "HOLD", mark: "PREPEND"}[e.deed], stop, Same, ""
	}
}

// overlap reports whether two entries of one table may match the same mail.
func overlap(a, b *entry) bool {
	return slices.ContainsFunc(a.keys, func(k key) bool {
		return slices.ContainsFunc(b.keys, func(o key) bool {
			if k.net.IsValid() && o.net.IsValid() {
				return k.net.Overlaps(o.net)
			}
			return (&plan{}).keysMeet(k, o)
		})
	})
}

// tableText is one table being read.
type tableText struct {
	pf    *postfix
	site  *site
	path  string
	kind  tableKind
	first map[string]*entry // of an indexed table: who has the key
	n     int               // entries so far: the rank where the order of lines decides
	ifs   []netip.Prefix    // open conditions of a cidr table
	open  int               // open conditions of another kind
}

// entry adds an entry of the table.
func (t *tableText) entry(line int, text string, a action, keys []key, rank int) *entry {
	said := a.reason
	if a = t.pf.rules.words(a); t.site.warn && a.deed.answers() {
		a.deed, a.narrower = watch, ""
	}
	f := t.pf.find(Place{t.path, line}, text, meaning(action{deed: a.deed, reason: said}, t.site.about, keys))
	e := t.site.add(&entry{Finding: f, action: a, keys: keys, rank: rank})
	switch e.deed {
	case block, defers:
		t.pf.rules.reworded(e, said)
	case watch:
		e.reason = said
	case mark:
		e.narrower = "the field is X-Blockd, which names the list, not " + original.Shown(said)
	}
	if a.lost != "" {
		e.lose("%s", a.lost)
	}
	if a.other != "" {
		e.Meant = a.other + ", and " + e.Meant
	}
	if e.narrower != "" {
		e.differ(Narrower, "%s", e.narrower)
	}
	return e
}

// dead adds an entry that nothing matches, or that is not understood: it has no part
// in the order.
func (t *tableText) dead(line int, text, why string) {
	f := t.pf.find(Place{t.path, line}, text, "nothing").lose("%s", why)
	t.site.lines = append(t.site.lines, lineOf(f))
}

func lineOf(f *Finding) line { return line{entry: &entry{Finding: f}} }

// indexed reads "key action" of a table that is asked key by key.
func (t *tableText) indexed(line int, text string) {
	name, value := cutBlank(text)
	if value == "" {
		t.dead(line, text, "a key without an action")
		return
	}
	t.pair(line, text, name, value)
}

func (t *tableText) pair(line int, text, name, value string) {
	a, id := parseAction(value), strings.ToLower(name)
	read := t.pf.rules.senderKeys
	if t.site.about == clients {
		read = clientKeys
	}
	keys, rank, why := read(name)
	switch first := t.first[id]; {
	case why != "" && rank < 0: // a client's name: it is found first, and not carried over
		t.entry(line, text, a, nil, rank).lose("%s", why).Meant = a.says() + " clients named " + original.Shown(name)
		return
	case why != "":
		t.dead(line, text, why)
		return
	case first != nil:
		t.dead(line, text, fmt.Sprintf("never matched there: %s has the same key, and the first line counts", first.Place))
		return
	}
	more, plain := t.pf.rules.extended(keys[0])
	if len(more) > 0 {
		rank++ // asked for without an extension behind the whole
	}
	e := t.entry(line, text, a, append(keys, more...), rank)
	t.first[id] = e
	if !plain {
		e.differ(Narrower, "not with an extension behind the recipient_delimiter %q", t.pf.rules.delimiter)
	}
}

// cidr reads "network action", "!network action", "if network" and "endif".
func (t *tableText) cidr(line int, text string) {
	name, value := cutBlank(text)
	p, err := parseCIDR(name)
	switch strings.ToLower(name) {
	case "endif":
		if t.open > 0 {
			t.open--
		} else if len(t.ifs) > 0 {
			t.ifs = t.ifs[:len(t.ifs)-1]
		}
		return
	case "if":
		if p, err = parseCIDR(value); err != nil || t.open > 0 {
			t.open++ // what is inside is not understood
		} else {
			t.ifs = append(t.ifs, p)
		}
		return
	}
	t.n++
	negated, why := strings.HasPrefix(name, "!"), ""
	for _, in := range t.ifs {
		if !in.Overlaps(p) {
			why = "never matched there: the condition around it is for other addresses"
		} else if in.Bits() > p.Bits() {
			p = in
		}
	}
	switch {
	case t.site.about != clients:
		why = "never matched there: a cidr: table knows addresses of clients, and is asked about mail addresses"
	case err != nil && !negated:
		why = "Postfix passes over it: " + err.Error()
	case negated || t.open > 0:
		t.entry(line, text, parseAction(value), nil, t.n).lose("all but a network, or a condition of that kind, is nothing that a list can say")
		return
	case value == "":
		why = "a network without an action"
	}
	if why != "" {
		t.dead(line, text, why)
		return
	}
	t.entry(line, text, parseAction(value), []key{netKey(p)}, t.n)
}

// parseNet reads an address or a network of clients, in brackets or not.
func parseNet(text string) (netip.Prefix, error) {
	text = strings.TrimSpace(strings.NewReplacer("[", "", "]", "").Replace(text))
	if a, err := netip.ParseAddr(text); err == nil && a.Zone() == "" {
		return netip.PrefixFrom(a, a.BitLen()), nil
	}
	p, err := netip.ParsePrefix(text)
	if err != nil {
		err = fmt.Errorf("no network: %s", original.Shown(text))
	}
	return p, err
}

// parseCIDR reads a network as cidr_table(5) has it: without host bits.
func parseCIDR(text string) (netip.Prefix, error) {
	p, err := parseNet(strings.TrimPrefix(strings.TrimSpace(text), "!"))
	if err == nil && p.Masked() != p {
		err = fmt.Errorf("host bits are set in %s", p)
	}
	return p, err
}

func cutBlank(text string) (word, rest string) {
	i := strings.IndexAny(text, " \t")
	if i < 0 {
		return text, ""
	}
	return text[:i], strings.TrimSpace(text[i:])
}

// expression reads "/expression/flags action", "!/expression/ action", "if
// /expression/" and "endif".
func (t *tableText) expression(line int, text string) {
	word, rest := cutBlank(text)
	switch strings.ToLower(word) {
	case "endif":
		t.open = max(0, t.open-1)
		return
	case "if":
		t.open++
		t.pf.find(Place{t.path, line}, text, "a condition for the lines down to its endif").lose("a condition is nothing that a list can say")
		return
	}
	t.n++
	negated, why := strings.HasPrefix(text, "!"), ""
	expr, flags, value, ok := cutExpression(strings.TrimSpace(strings.TrimPrefix(text, "!")))
	switch {
	case !ok || value == "" || rest == "" && negated:
		t.dead(line, text, "no /expression/ with an action behind it")
		return
	case t.site.about == clients:
		why = "an expression over the client's name or the text of its address: blockd looks no names up"
	case negated:
		why = "all but what an expression matches is nothing that a list can say"
	case t.open > 0:
		why = "it is inside a condition"
	}
	a := parseAction(value)
	if why != "" {
		t.entry(line, text, a, nil, t.n).lose("%s", why)
		return
	}
	parts := strings.Contains(strings.ReplaceAll(value, "$$", ""), "$")
	if a = parseAction(strings.ReplaceAll(value, "$$", "$")); parts {
		a.reason, a.coded = "", false
	}
	e := t.entry(line, text, a, nil, t.n)
	if parts && e.deed.answers() {
		e.differ(Reworded, "without its text, which has parts of the address")
	}
	t.pattern(e, expr, flags)
}

// pattern gives an entry its expression, or says why Go's does not mean the same.
func (t *tableText) pattern(e *entry, expr, flags string) {
	if t.kind == regexpTable {
		if c := posixOnly(expr); c != "" {
			e.lose("%s means something else in Go's expressions than in POSIX", c)
			return
		}
	}
	for _, f := range flags {
		switch {
		case f == 'i':
			e.differ(Wider, "in any case, not only as it is written")
		case f == 'm', f == 's' && t.kind == pcreTable, f == 'U' && t.kind == pcreTable:
		default:
			e.lose("the flag %q of the expression", f)
			return
		}
	}
	k, err := patternKey(pattern.Regexp, expr)
	switch {
	case err != nil:
		e.lose("%s", original.Shown(err.Error()))
		return
	case k.pat.Match("<>"):
		e.differ(Narrower, "not for the null sender: bounces always pass")
	}
	e.keys = []key{k}
	e.Meant = meaning(action{deed: e.deed, reason: e.reason}, t.site.about, e.keys)
}

// cutExpression takes /expression/flags and what follows apart. Any mark may stand
// for the slash.
func cutExpression(text string) (expr, flags, rest string, ok bool) {
	if len(text) < 2 || strings.IndexByte(`!"#$%&'*+,-./:;<=>?@^_|~`+"`", text[0]) < 0 {
		return "", "", "", false
	}
	mark := text[0]
	var b strings.Builder
	for i := 1; i < len(text); i++ {
		switch c := text[i]; {
		case c == '\\' && i+1 < len(text):
			i++
			if text[i] != mark || mark != '/' {
				b.WriteByte(c)
			}
			b.WriteByte(text[i])
		case c == mark:
			flags, rest = cutBlank(text[i+1:])
			return b.String(), flags, rest, b.Len() > 0
		default:
			b.WriteByte(c)
		}
	}
	return "", "", "", false
}

// Parts of POSIX expressions: an escape, or a set with what is in it; escapes that Go reads
// otherwise, and those in sets, where a backslash is a character.
var (
	posixParts = regexp.MustCompile(`\\.|\[\^?(\]?(?:\[[:.=].*?[:.=]\]|[^\]])*)\]?`)
	oddEscapes = regexp.MustCompile(`^\\[0-9<>\x60'ac-rt-vx-zAC-RT-VX-Z]`)
	oddInSets  = regexp.MustCompile(`\\([a-zA-Z]|$)`)
)

// posixOnly returns a part of a POSIX expression that Go reads otherwise, "" if there
// is none.
func posixOnly(expr string) string {
	for _, m := range posixParts.FindAllStringSubmatch(expr, -1) {
		if odd := oddInSets.FindString(m[1]); odd != "" {
			return odd
		} else if oddEscapes.MatchString(m[0]) {
			return m[0]
		}
	}
	return ""
}

// inline reads the entries of inline:{ key=action, {key = action with blanks} }.
func (t *tableText) inline(line int, text string) {
	body := unbraced(text)
	if body == text {
		t.dead(line, text, "inline: wants its entries in braces")
		return
	}
	for _, w := range words(body) {
		w = unbraced(w)
		name, value, ok := strings.Cut(w, "=")
		if !ok {
			t.dead(line, w, "want KEY = ACTION")
			continue
		}
		t.pair(line, w, strings.TrimSpace(name), value)
	}
}

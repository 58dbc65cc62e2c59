package migration

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"blockd/cmd/blockd/internal/migration/internal/original"
)

// tableKind is how a table type of Postfix is read.
type tableKind uint8

const (
	indexedTable tableKind = iota // postmap(1) made it from a text beside it
	inlineTable
	cidrTable
	regexpTable
	staticTable
	foreignTable // it is asked over a network, or made of other tables
)

// tableKinds are the types of which there is a text beside main.cf, or in it.
var tableKinds = map[string]tableKind{
	"btree": indexedTable, "cdb": indexedTable, "dbm": indexedTable, "hash": indexedTable, "lmdb": indexedTable, "sdbm": indexedTable, "texthash": indexedTable,
	"inline": inlineTable, "cidr": cidrTable, "regexp": regexpTable, "pcre": regexpTable, "static": staticTable,
}

// table is one table, asked about one thing, wherever it is asked.
type table struct {
	name  string // of its list
	comes string // from where, for people
	kind  tableKind
	spec  string // as postmap takes it
	about about
	warn  bool // warn_if_reject
	all   bool // what it lets pass, tables behind it in the same restrictions do not see
	rows  []*row
	above []string // comments that no row has yet
	why   string   // it cannot be asked; "" = it can
	open  int      // conditions around the line that is read
	made  string   // what postmap has made of its text; "" = nothing
}

// row is an entry of a table of Postfix.
type row struct {
	*Finding
	key     string       // of an indexed table, and of expressions the expression for Go, "" of one that Go does not know
	network netip.Prefix // of a cidr table
	value   string
	above   []string // the comments before it
}

// tableName takes "proxy:hash:/etc/postfix/x" apart. ok is false for what is no table at all.
func tableName(text, standard string) (kind tableKind, word, name string, ok bool) {
	text, _ = strings.CutPrefix(text, "proxy:")
	word, name, typed := strings.Cut(text, ":")
	if !typed && isPath(text) {
		word, name = standard, text
	}
	if kind, ok = tableKinds[word]; !ok {
		kind, ok = foreignTable, word != "" && strings.Trim(word, "abcdefghijklmnopqrstuvwxyz") == ""
	}
	return kind, word, name, ok && name != ""
}

// table reads the table that a restriction names. Without a finding it is only to be asked. A nil table has nothing to
// say.
func (pf *postfix) table(what about, arg string, w *walk, text string) (*table, error) {
	if inner := unbraced(arg); inner != arg { // { inline:… , options }
		arg = append(words(inner), arg)[0]
	}
	use := fmt.Sprint(what, w.warn, arg)
	if t, known := pf.byUse[use]; known {
		return t, nil
	}
	kind, word, name, ok := tableName(arg, pf.standard)
	lost := func(o Outcome, format string, args ...any) (*table, error) {
		pf.byUse[use] = nil
		if !w.apart {
			f := pf.Find(w.at, text, w.phase).Lose(format, args...)
			f.Outcome = o
		}
		return nil, nil
	}
	switch {
	case !ok:
		return lost(Lost, "no table that an import knows")
	case kind == foreignTable:
		pf.Note("%s: what a %s: table has is not asked for: the answers are those of a Postfix in which it is empty", w.at, word)
		return lost(NotAsked, "what is in a %s: table is known to other programs only: a list can mirror the database itself (docs/sources.md)", word)
	}
	t := &table{kind: kind, about: what, warn: w.warn, spec: word + ":" + name,
		name: fmt.Sprintf("%s-%d", strings.TrimSuffix(strings.TrimPrefix(w.phase, "smtpd_"), "_restrictions"), len(pf.tables)+1), comes: w.at.String()}
	pf.byUse[use] = t
	var err error
	switch {
	case kind == staticTable:
		if !w.apart {
			pf.Find(w.at, text, w.phase).Lose("it is for everybody: no list says that")
		}
		return t, nil
	case strings.HasPrefix(name, "{"):
		err = t.inline(pf, w.at, name)
	default:
		path := pf.params.path(name)
		if path != name && filepath.IsAbs(name) {
			pf.Note("%s is read in place of %s", path, name)
		}
		t.name, t.comes = filepath.Base(path), path
		if err = t.file(pf, word, path, w.apart); errors.Is(err, fs.ErrNotExist) || errors.Is(err, fs.ErrPermission) {
			return lost(Lost, "%s: %s", path, unreadable(err))
		}
	}
	if err == nil && !w.apart {
		pf.tables = append(pf.tables, t)
	}
	return t, err
}

// file reads a table's text, and what postmap made of it.
func (t *table) file(pf *postfix, word, path string, apart bool) error {
	absolute, err := filepath.Abs(path)
	if err != nil {
		return err
	}
	t.spec = word + ":" + absolute
	if suffix := compiledSuffix[word]; suffix != "" && exists(path+suffix) {
		t.made = path + suffix
	} else if t.kind == indexedTable {
		t.spec = "texthash:" + absolute // as a copy without compiled tables has it
	}
	if apart {
		return nil
	}
	data, err := pf.files.load(path, maxTable)
	if err != nil && t.made == "" {
		return err
	}
	lines, orphan := logicalLines(data)
	if orphan > 0 {
		pf.Find(Place{path, orphan}, "", "nothing: Postfix passes over it").stays("it begins with a blank, but there is no line that it could continue")
	}
	for _, l := range lines {
		if err := t.add(pf, Place{path, l.line}, l.text, l.comment); err != nil {
			return err
		}
	}
	return nil
}

// dump adds what postmap made of a table and its text does not have.
func (t *table) dump(ctx context.Context, pf *postfix) error {
	if t.made == "" {
		return nil
	}
	out, _, err := pf.ask(ctx, "", "-s", t.spec)
	switch {
	case ctx.Err() != nil:
		return ctx.Err()
	case err != nil && len(t.rows) == 0:
		pf.Find(Place{File: t.made}, "", "a table").Lose("what it has is not known: %s", original.Shown(err.Error()))
	case err != nil: // a type that cannot say what it has, such as cdb
		pf.Note("%s: what it has beside its text is not known: %s", t.made, original.Shown(err.Error()))
	}
	seen := map[string]bool{}
	for _, r := range t.rows {
		seen[strings.ToLower(r.key)] = true
	}
	for text := range strings.Lines(out) {
		if key, _ := cutBlank(text); err == nil && key != "" && !seen[strings.ToLower(strings.TrimSpace(key))] {
			if err := t.add(pf, Place{t.made, 0}, strings.TrimSpace(text), false); err != nil {
				return err
			}
		}
	}
	return nil
}

// inline reads the entries of inline:{ key=action, {key = action with blanks} }, and of expressions and networks the
// lines.
func (t *table) inline(pf *postfix, at Place, text string) error {
	for _, w := range words(unbraced(text)) {
		w = unbraced(w)
		if name, value, ok := strings.Cut(w, "="); ok && t.kind == inlineTable {
			w = strings.TrimSpace(name) + " " + strings.TrimSpace(value)
		}
		if err := t.add(pf, at, w, false); err != nil {
			return err
		}
	}
	if t.kind == indexedTable {
		t.why = "a table of files in braces"
	}
	return nil
}

// add reads a line.
func (t *table) add(pf *postfix, at Place, text string, comment bool) error {
	if comment {
		t.above = append(t.above, text)
		return nil
	}
	if err := pf.files.count(); err != nil {
		return err
	}
	r := &row{above: t.above}
	t.above = nil
	r.key, r.value = cutBlank(text)
	why := ""
	switch {
	case t.kind == indexedTable || t.kind == inlineTable:
	case strings.EqualFold(r.key, "endif"):
		t.open = max(0, t.open-1)
		return nil
	case strings.EqualFold(r.key, "if"):
		t.open++
		pf.Find(at, text, "a condition for the lines down to its endif").stays("what is inside is said of each line")
		return nil
	case t.open > 0:
		why = "it is inside a condition"
	}
	switch t.kind {
	case cidrTable:
		p, err := parseCIDR(r.key)
		if r.network = p; err != nil {
			why = "Postfix passes over it: " + err.Error()
		} else if r.key[0] == '!' {
			why = "all but a network is nothing that a list can say"
		}
	case regexpTable:
		not := text[0] == '!'
		expr, flags, value, ok := cutExpression(strings.TrimSpace(strings.TrimPrefix(text, "!")))
		if r.key, r.value = expr, value; !ok {
			why = "no /expression/ with an action behind it"
		} else if not {
			why = "all but what an expression matches is nothing that a list can say"
		} else if odd := strings.Trim(flags, "imsxUADEGX"); odd != "" || strings.ContainsRune(flags, 'x') {
			why = fmt.Sprintf("the flags %q of the expression", flags)
		}
		if t.about == clients && why == "" {
			why = "an expression over the client's name or the text of its address"
		}
	}
	a := pf.rules.action(r.value)
	r.Finding = pf.Find(at, text, a.deed.String())
	if r.value == "" {
		r.stays("a key without an action")
	} else if why != "" {
		r.Lose("%s", why)
	}
	t.rows = append(t.rows, r)
	return nil
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

// leading reads what an indexed table matches clients by: the text of an address, or the groups that it begins with.
func leading(text string) (netip.Prefix, bool) {
	if a, err := netip.ParseAddr(text); err == nil {
		return netip.PrefixFrom(a, a.BitLen()), a.Zone() == ""
	}
	if n := 1 + strings.Count(text, "."); n < 4 && !strings.Contains(text, ":") {
		if a, err := netip.ParseAddr(text + strings.Repeat(".0", 4-n)); err == nil {
			return netip.PrefixFrom(a, 8*n), true
		}
	}
	a, err := netip.ParseAddr(text + "::")
	return netip.PrefixFrom(a, 16*(1+strings.Count(text, ":"))), err == nil
}

// looksClient tells what a list would take for an address or a network of clients.
func looksClient(text string) bool {
	_, leads := leading(text)
	_, err := parseNet(text)
	return leads || err == nil && text[0] != '['
}

func cutBlank(text string) (word, rest string) {
	i := strings.IndexAny(text, " \t")
	if i < 0 {
		return text, ""
	}
	return text[:i], strings.TrimSpace(text[i:])
}

// cutExpression takes /expression/flags and what follows apart. Any mark may stand for the slash.
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

func exists(path string) bool {
	_, err := os.Stat(path)
	return err == nil
}

// compiledSuffix is what the name of the file ends in that postmap makes of a text, by the type.
var compiledSuffix = map[string]string{"btree": ".db", "hash": ".db", "lmdb": ".lmdb", "cdb": ".cdb", "dbm": ".pag", "sdbm": ".pag"}

// query asks a table for keys, and returns the values of those that it has. A table that cannot be asked has none from
// then on; the error is that of ctx.
func (pf *postfix) query(ctx context.Context, t *table, keys []string) (map[string]string, error) {
	out, complaints, err := pf.ask(ctx, strings.Join(keys, "\n")+"\n", "-q", "-", t.spec)
	fails := func(text string) bool { return !strings.HasPrefix(text, "postmap: warning: ") && text != "" }
	for _, text := range complaints {
		if text, ok := strings.CutPrefix(text, "postmap: warning: "); ok {
			pf.Note("%s", original.Shown(text))
		}
	}
	values := map[string]string{}
	half := len(keys) / 2
	switch {
	case ctx.Err() != nil:
		return nil, ctx.Err()
	case err == nil, exitCode(err) == 1 && !slices.ContainsFunc(complaints, fails): // it has none of the keys, or some
		for text := range strings.Lines(out) {
			if key, v, ok := strings.Cut(strings.TrimRight(text, "\n"), "\t"); ok {
				values[key] = v
			}
		}
		return values, nil
	case t.why != "":
		return nil, nil
	case errors.Is(err, ErrTooBig) && half > 0:
		for _, some := range [][]string{keys[:half], keys[half:]} {
			more, err := pf.query(ctx, t, some)
			if err != nil || t.why != "" {
				return nil, err
			}
			maps.Copy(values, more)
		}
		return values, nil
	}
	why := original.Shown(strings.TrimPrefix(err.Error(), "postmap: "))
	_, path, _ := strings.Cut(t.spec, ":")
	if text := "texthash:" + path; t.kind == indexedTable && t.spec != text && exists(path) {
		pf.Note("%s cannot be asked: %s; its text is asked in its place", original.Shown(t.spec), why)
		t.spec = text
		return pf.query(ctx, t, keys)
	}
	t.why = why
	pf.Note("%s cannot be asked: %s; the answers are those of a Postfix in which it is empty", original.Shown(t.spec), t.why)
	return nil, nil
}

// there asks Postfix: its tables by postmap, in the order of its restrictions.
func (pf *postfix) there(ctx context.Context, mails []Mail) ([]Answer, error) {
	known := map[*table]map[string]*string{} // nil of a key that the table does not have
	get := func(t *table, keys []string) (value *string, asked bool) {
		for _, key := range keys {
			if value, asked = known[t][key]; value != nil || !asked && t.why == "" {
				return value, asked
			}
		}
		return nil, true
	}
	answers := make([]Answer, len(mails))
	open := make([]int, len(mails))
	for i := range open {
		open[i] = i
	}
	for len(open) > 0 {
		want := map[*table][]string{}
		var waiting []int
		for _, i := range open {
			e := evaluation{postfix: pf, mail: &mails[i], get: get}
			answers[i] = e.run()
			if t := e.missing; t != nil {
				waiting = append(waiting, i)
				for _, key := range pf.rules.asks(t, &mails[i]) {
					if _, asked := known[t][key]; !asked {
						want[t] = append(want[t], key)
					}
				}
			}
		}
		for t, keys := range want {
			if known[t] == nil {
				known[t] = map[string]*string{}
			}
			for _, key := range keys {
				known[t][key] = nil
			}
			slices.Sort(keys)
			values, err := pf.query(ctx, t, slices.Compact(keys))
			if err != nil {
				return nil, err
			}
			for key, v := range values {
				known[t][key] = &v
			}
		}
		open = waiting
	}
	for i, m := range mails {
		if t := m.from; t != nil && t.why != "" {
			answers[i] = Answer{Unknown, "the table cannot be asked: " + t.why}
		}
	}
	return answers, nil
}

package migration

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
)

// restrictions walks one list of restrictions.
func (pf *postfix) restrictions(name string) error {
	p, ok := pf.params.set[name]
	if !ok {
		return nil // there are no lists in what Postfix does by itself
	}
	pf.item = 0
	w := walk{pf: pf, phase: name, at: p.at, said: p}
	return w.list(p.value, 0)
}

// walk is one list of restrictions being read.
type walk struct {
	pf    *postfix
	phase string
	at    Place
	said  parameter
	part  int    // of said: where the last word was
	warn  bool   // warn_if_reject stands before the next one
	ended string // the word behind which nothing is asked
}

// maxWords bounds one list of restrictions with all classes in it: sixty classes that
// name the next one twice never end.
const maxWords = 10_000

func (w *walk) list(text string, depth int) error {
	if depth > maxDepth {
		return fmt.Errorf("%s: restriction classes name one another more than %d deep", w.at, maxDepth)
	}
	items, ok := tokens(text, ", \t")
	if !ok {
		return fmt.Errorf("%s: %s: a brace that is not closed", w.at, w.phase)
	}
	for len(items) > 0 {
		word := items[0]
		items = items[1:]
		takes := argued.MatchString(word) || strings.HasPrefix(word, "check_") && strings.HasSuffix(word, "_access") || word == "check_policy_service"
		arg := ""
		if takes && len(items) > 0 {
			arg, items = items[0], items[1:]
		}
		if w.pf.item++; w.pf.item > maxWords {
			return fmt.Errorf("%s: %s: %w: more than %d words", w.at, w.phase, ErrTooBig, maxWords)
		}
		w.at = w.said.place(word, &w.part)
		if err := w.restriction(word, arg, depth); err != nil {
			return err
		}
		if word != "warn_if_reject" {
			w.warn = false
		}
	}
	return nil
}

// restriction judges one word with its argument.
func (w *walk) restriction(word, arg string, depth int) error {
	pf, text := w.pf, strings.TrimSpace(word+" "+arg)
	if _, _, _, table := tableName(word, ""); table && arg == "" && bare[w.phase] != "" {
		word, arg = bare[w.phase], word
	}
	if w.ended != "" {
		pf.find(w.at, text, w.phase).lose("it is never asked: %q before it %s", w.ended, ends[w.ended])
		return nil
	}
	leave := func(meant, why string) *Finding {
		return pf.find(w.at, text, w.phase+meant).lose("%s", why)
	}
	switch {
	case word == "warn_if_reject":
		w.warn = true
	case word == "permit_mynetworks":
		pf.permitNetworks(w.at, w.phase)
	case word == "permit_sasl_authenticated":
		pf.permitLogins(w.at, w.phase)
	case word == "check_sender_access":
		return w.table(senders, arg, text)
	case word == "check_client_access":
		return w.table(clients, arg, text)
	case word == "check_recipient_access":
		return w.table(recipients, arg, text)
	case asks(word) != "":
		pf.exempt(clients, leave(": asks about "+asks(word), "it stays with Postfix"))
	case ends[word] != "" && w.warn:
		leave(": "+ends[word], "a warning about everything that comes to it")
	case ends[word] != "":
		leave(": "+ends[word], "it is not about lists; it stays with Postfix")
		w.ended = word
	case pf.classes[word]:
		p, ok := pf.params.set[word]
		if !ok {
			leave(": a restriction class", "main.cf does not say what it is")
			return nil
		}
		inner := walk{pf: pf, phase: w.phase, at: p.at, said: p, warn: w.warn}
		err := inner.list(p.value, depth+1)
		w.ended = inner.ended
		return err
	case own.MatchString(word):
		if f := leave("", stays(word)); strings.HasPrefix(word, "permit_") {
			pf.exempt(clients, f)
		}
	default:
		pf.exempt(clients, leave("", "no restriction that an import knows"))
	}
	return nil
}

// step is the place that is being read.
func (pf *postfix) step() step { return step{pf.phase, pf.item} }

// exempt puts an exception that is no table's into the order. Without keys nobody knows whom it
// is for.
func (pf *postfix) exempt(what about, f *Finding, keys ...key) *entry {
	s := &site{about: what, steps: []step{pf.step()}}
	pf.sites = append(pf.sites, s)
	return s.add(&entry{Finding: f, action: action{deed: pass}, keys: keys})
}

// table reads a table that is asked about senders, clients or recipients.
func (w *walk) table(what about, arg, text string) error {
	pf := w.pf
	if arg == "" {
		pf.find(w.at, text, w.phase).lose("no table is named")
		return nil
	}
	if inner := unbraced(arg); inner != arg { // { inline:… , options }
		arg = append(words(inner), arg)[0]
	}
	use := tableUse{what, arg, w.warn}
	if s := pf.byTable[use]; s != nil { // asked again
		s.steps = append(s.steps, pf.step())
		return nil
	}
	kind, word, name, ok := tableName(arg, pf.standard)
	lost := func(format string, args ...any) error {
		pf.exempt(clients, pf.find(w.at, text, w.phase).lose(format, args...))
		return nil
	}
	switch {
	case !ok:
		return lost("no table that an import knows")
	case kind == foreignTable:
		return lost("what is in a %s: table is known to other programs only; write its entries into a text, and name that as hash:", word)
	case kind == staticTable:
		pf.find(w.at, text, w.phase).lose("it is for everybody: no list says that")
		if a := parseAction(unbraced(name)); a.deed == pass && a.lost == "" {
			w.ended = "permit"
		}
		return nil
	}
	s := &site{about: what, steps: []step{pf.step()}, warn: w.warn}
	if kind == inlineTable {
		s.name, s.comes = fmt.Sprintf("%s-%d", strings.TrimSuffix(strings.TrimPrefix(w.phase, "smtpd_"), "_restrictions"), pf.item), w.at.String()
		t := tableText{pf: pf, site: s, path: w.at.File, kind: kind, first: map[string]*entry{}}
		t.inline(w.at.Line, name)
	} else {
		path := pf.params.path(name)
		if path != name && filepath.IsAbs(name) {
			pf.note("%s is read in place of %s", path, name)
		}
		data, err := pf.files.load(path, maxTable)
		if err != nil {
			return lost("%s", missing(word, path, err))
		}
		if kind == indexedTable {
			pf.compareAges(path)
		}
		s.name, s.comes = filepath.Base(path), path
		if err := pf.rows(s, kind, path, data); err != nil {
			return err
		}
	}
	pf.byTable[use] = s
	pf.sites = append(pf.sites, s)
	return nil
}

func exists(path string) bool {
	_, err := os.Stat(path)
	return err == nil
}

// compiled returns what postmap has made of the text of a table, "" if nothing is there.
func compiled(path string) string {
	for _, suffix := range []string{".db", ".lmdb", ".cdb", ".pag"} {
		if exists(path + suffix) {
			return path + suffix
		}
	}
	return ""
}

// missing says what can be done about a table whose text cannot be read.
func missing(word, path string, err error) string {
	if made := compiled(path); made != "" {
		return fmt.Sprintf("%s: %s; write it anew from %s with: postmap -s %s:%s >%s", path, unreadable(err), filepath.Base(made), word, path, path)
	}
	return fmt.Sprintf("%s: %s", path, unreadable(err))
}

// compareAges says when Postfix goes by an older state of a table than its text.
func (pf *postfix) compareAges(path string) {
	text, err := os.Stat(path)
	made, errMade := os.Stat(compiled(path))
	if err == nil && errMade == nil && text.ModTime().After(made.ModTime()) {
		pf.note("%s is newer than %s: Postfix goes by the older one until postmap is run; the text is what was read", path, made.Name())
	}
}

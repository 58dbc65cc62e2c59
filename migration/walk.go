package migration

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
)

// restrictions walks one list of restrictions.
func (pf *postfix) restrictions(name string) error {
	p, ok := pf.params.lookup(name)
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
		takes := argued[word] || strings.HasPrefix(word, "check_") && strings.HasSuffix(word, "_access") || word == "check_policy_service"
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
	case checks[word] != "":
		f := pf.find(w.at, text, w.phase+": asks about "+checks[word])
		f.lose("it stays with Postfix")
		pf.exempt(f)
	case ends[word] != "":
		f := pf.find(w.at, text, w.phase+": "+ends[word])
		if w.warn {
			f.lose("a warning about everything that comes to it")
			return nil
		}
		f.lose("it is not about lists; it stays with Postfix")
		w.ended = word
	case plain[word] || argued[word]:
		f := pf.find(w.at, text, w.phase)
		f.lose("%s", stays(word))
		if strings.HasPrefix(word, "permit_") {
			pf.exempt(f)
		}
	case pf.classes[word]:
		p, ok := pf.params.lookup(word)
		if !ok {
			pf.find(w.at, text, w.phase+": a restriction class").lose("main.cf does not say what it is")
			return nil
		}
		inner := walk{pf: pf, phase: w.phase, at: p.at, said: p, warn: w.warn}
		if err := inner.list(p.value, depth+1); err != nil {
			return err
		}
		if inner.ended != "" {
			w.ended = inner.ended
		}
	default:
		f := pf.find(w.at, text, w.phase)
		f.lose("no restriction that an import knows")
		pf.exempt(f)
	}
	return nil
}

// step is the place that is being read.
func (pf *postfix) step() step { return step{pf.phase, pf.item} }

// exempt puts an exception into the order of which nobody knows whom it is for.
func (pf *postfix) exempt(f *Finding) {
	s := &site{about: clients, steps: []step{pf.step()}}
	s.add(&entry{Finding: f, deed: pass})
	pf.sites = append(pf.sites, s)
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
		f := pf.find(w.at, text, w.phase).lose(format, args...)
		pf.exempt(f)
		return nil
	}
	switch {
	case !ok:
		return lost("no table that an import knows")
	case kind == foreignTable:
		return lost("what is in a %s: table is known to other programs only; write its entries into a text, and name that as hash:", word)
	case kind == staticTable:
		w.static(pf.find(w.at, text, w.phase), name)
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
		pf.compareAges(kind, path)
		s.name, s.comes = filepath.Base(path), path
		if err := pf.rows(s, kind, path, data); err != nil {
			return err
		}
	}
	pf.byTable[use] = s
	pf.sites = append(pf.sites, s)
	return nil
}

// static is a table that answers the same to everybody.
func (w *walk) static(f *Finding, name string) {
	a := parseAction(unbraced(name))
	f.lose("it is for everybody: no list says that")
	if a.deed == pass && a.lost == "" {
		w.ended = "permit"
	}
}

func exists(path string) bool {
	_, err := os.Stat(path)
	return err == nil
}

// missing says what can be done about a table whose text cannot be read.
func missing(word, path string, err error) string {
	for _, suffix := range []string{".db", ".lmdb", ".cdb", ".pag"} {
		if exists(path + suffix) {
			return fmt.Sprintf("%s: %s; write it anew from %s with: postmap -s %s:%s >%s", path, unreadable(err), filepath.Base(path)+suffix, word, path, path)
		}
	}
	return fmt.Sprintf("%s: %s", path, unreadable(err))
}

// compareAges says when Postfix goes by an older state of a table than its text.
func (pf *postfix) compareAges(kind tableKind, path string) {
	text, err := os.Stat(path)
	if kind != indexedTable || err != nil {
		return
	}
	for _, suffix := range []string{".db", ".lmdb", ".cdb"} {
		if made, err := os.Stat(path + suffix); err == nil && text.ModTime().After(made.ModTime()) {
			pf.note("%s is newer than %s: Postfix goes by the older one until postmap is run; the text is what was read", path, filepath.Base(path)+suffix)
		}
	}
}

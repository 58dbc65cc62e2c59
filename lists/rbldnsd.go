package lists

import (
	"fmt"
	"slices"
	"strings"
)

// The arguments of the format, and the types of datasets that are read.
const (
	dnset    = "dnset"
	ip4set   = "ip4set"
	combined = "combined"
)

// rbldnsdFile is the state between the lines of a data file (rbldnsd(8)).
type rbldnsdFile struct {
	combined  bool
	dataset   string // type of the lines to come; "" = none was opened yet
	maxRange  uint64 // addresses that an entry may cover; 0 = any number
	templates        // of the dataset
	common    templates
}

// readRbldnsd reads a data file of the type that the format's argument says.
func readRbldnsd(r *reading) error {
	f := rbldnsdFile{dataset: r.arg}
	switch r.arg {
	case "":
		f.dataset = dnset
	case combined:
		f.combined, f.dataset = true, ""
	}
	return eachLine(rbldnsdComment, f.line)(r)
}

func checkDataset(arg string) error {
	if names := []string{dnset, ip4set, combined}; !slices.Contains(names, arg) {
		return fmt.Errorf("a dataset is one of %s", strings.Join(names, ", "))
	}
	return nil
}

// rbldnsdComment tells comments from specials, which may stand behind their mark
// so that other servers read over them.
func rbldnsdComment(text string) bool {
	return text != "" && (text[0] == '#' || text[0] == ';') && !strings.HasPrefix(text[1:], "$")
}

func (f *rbldnsdFile) line(r *reading, text string) {
	marked := text
	if strings.IndexByte("#;:", text[0]) >= 0 {
		marked = text[1:]
	}
	special, ok := strings.CutPrefix(marked, "$")
	switch {
	case ok:
		f.special(r, text, special)
	case f.dataset == "":
		r.fail(Syntax, "", "no $DATASET above says what this is")
	case f.dataset != dnset && f.dataset != ip4set:
		r.fail(Unsupported, "", "in a dataset of type "+f.dataset)
	case !r.utf8(text):
	case text[0] == ':':
		f.setDefault(r, text)
	default:
		f.entry(r, text)
	}
}

// special reads what follows the "$" of a line.
func (f *rbldnsdFile) special(r *reading, line, text string) {
	word, value := cutWord(text)
	word = strings.ToLower(word)
	switch i := strings.Index(templateNames, word); {
	case word == "dataset":
		f.open(r, value)
	case word == "maxrange4":
		f.limit(r, value)
	case word == "timestamp":
		r.timestamp(value)
	case len(word) == 1 && i >= 0:
		f.define(r, i, value)
	case line[0] == '#' || line[0] == ';':
		switch word {
		case "soa", "ns", "nameserver", "ttl":
			r.skip(Directive, "")
		default:
			r.comment(line) // of people, who write of dollars too
		}
	default:
		r.skip(Directive, "")
	}
}

// open begins a dataset of a combined file. In others the line makes no sense, and
// what follows would be read as something else.
func (f *rbldnsdFile) open(r *reading, text string) {
	text, _, _ = strings.Cut(cutHash(text), ";")
	word, _ := cutWord(text)
	kind, _, _ := strings.Cut(word, ":")
	f.dataset, f.templates = kind, f.common
	switch {
	case !f.combined:
		f.dataset = ""
		r.fail(Unsupported, "", "only rbldnsd:combined has datasets in it")
	case kind == "":
		r.fail(Syntax, "", "no type of the dataset")
	case kind != dnset && kind != ip4set:
		r.fail(Unsupported, kind, "a dataset of another type than dnset and ip4set")
	default:
		r.skip(Directive, "")
	}
}

// define sets one of the texts that others are made of. The first one counts; what
// stands before any dataset is for all of them.
func (f *rbldnsdFile) define(r *reading, i int, value string) {
	if !r.utf8(value) {
		return
	}
	if f.vars[i] == "" {
		f.vars[i] = strings.Clone(value)
	}
	if f.combined && f.dataset == "" {
		f.common = f.templates
	}
	r.skip(Directive, "")
}

// setDefault reads ":A:TXT" at the beginning of a line.
func (f *rbldnsdFile) setDefault(r *reading, text string) {
	value, own, ok := cutValue(text)
	if !ok {
		r.fail(Syntax, text, `a default is ":127.0.0.2:TEXT"`)
		return
	}
	if f.text = ""; own {
		f.text = strings.Clone(value)
	}
	r.skip(DefaultValue, "")
}

// entry reads "KEY VALUE". An exception has no use for a value.
func (f *rbldnsdFile) entry(r *reading, text string) {
	text, exception := strings.CutPrefix(text, "!")
	if text = trimLeft(text); exception && !r.except() {
		return
	}
	key, rest := cutWord(text)
	if f.dataset == ip4set {
		key, rest = cutIP4(text)
	}
	value, ok := f.value(rest)
	switch {
	case key == "":
		r.fail(Syntax, text, "no IPv4 address, network or range")
		return
	case !ok && !exception:
		r.fail(Syntax, rest, `a value is ":127.0.0.2:TEXT" or a text`)
		return
	case isWild(key):
		r.fail(TooBroad, text, "this covers every name")
		return
	case f.dataset == ip4set && !f.ip4(r, key), f.dataset == dnset && !r.dnsetName(key), exception:
		return
	}
	for i := range r.queue {
		if reason := f.expand(value, r.queue[i].Name()); reason != "" {
			r.queue[i].Reason = cleanReason(reason)
		}
	}
}

// value returns the text of an entry by what stands behind its key; false if that
// cannot be read.
func (f *rbldnsdFile) value(text string) (string, bool) {
	if text == "" || text[0] == '#' || text[0] == ';' {
		return f.text, true
	}
	value, own, ok := cutValue(text)
	if !own {
		value = f.text
	}
	return value, ok
}

// dnsetName queues a name, which without a mark is the name alone.
func (r *reading) dnsetName(name string) bool {
	if below, ok := strings.CutPrefix(name, "*."); ok {
		return r.name(below, Sub)
	}
	if both, ok := strings.CutPrefix(name, "."); ok {
		return r.name(both, Tree)
	}
	return r.name(name, r.bare)
}

// rbldnsdMark tells values of 127/8 between colons and rbldnsd's own specials.
func rbldnsdMark(text string) bool {
	for _, special := range [...]string{"$DATASET", "$SOA", "$NS", "$TIMESTAMP", "$MAXRANGE4"} {
		if hasFold(text, special) {
			return true
		}
	}
	return strings.HasPrefix(text, ":127.") || strings.Contains(text, " :127.") || strings.Contains(text, "\t:127.")
}

// guessDataset returns the argument by which most of a sample can be read.
func guessDataset(sample []string) string {
	names, networks := 0, 0
	for _, text := range sample {
		text = strings.TrimLeft(text, "! \t")
		switch key, _ := cutIP4(text); {
		case hasFold(text, "$DATASET"):
			return combined
		case text == "" || text[0] == '$' || text[0] == ':':
		case key != "":
			networks++
		default:
			names++
		}
	}
	if networks > names {
		return ip4set
	}
	return ""
}

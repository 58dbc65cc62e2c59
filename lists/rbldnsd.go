package lists

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"
)

// The arguments of the format, and the types of datasets that are read.
const (
	dnset    = "dnset"
	ip4set   = "ip4set"
	ip4trie  = "ip4trie" // networks by their prefix
	ip4tset  = "ip4tset" // single addresses
	ip6trie  = "ip6trie"
	ip6tset  = "ip6tset" // networks of 64 bits
	generic  = "generic" // resource records
	combined = "combined"
)

// datasets are the types that have entries.
var datasets = []string{dnset, ip4set, ip4trie, ip4tset, ip6trie, ip6tset, generic}

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
	if arg != combined && !slices.Contains(datasets, arg) {
		return fmt.Errorf("a dataset is one of %s and %s", strings.Join(datasets, ", "), combined)
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
	case !slices.Contains(datasets, f.dataset):
		r.fail(Unsupported, "", "in a dataset of type "+f.dataset)
	case !r.utf8(text):
	case f.dataset == generic:
		f.record(r, text)
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
	case !slices.Contains(datasets, kind):
		r.fail(Unsupported, kind, "a dataset of another type than "+strings.Join(datasets, ", "))
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
	four := f.dataset == ip4set || f.dataset == ip4trie || f.dataset == ip4tset
	if four {
		key, rest = cutIP4(text)
	}
	value, ok := f.value(rest)
	switch {
	case key == "", f.dataset == ip4trie && strings.IndexByte(key, '-') >= 0, f.dataset == ip4tset && (strings.Count(key, ".") != 3 || strings.ContainsAny(key, "-/")):
		r.fail(Syntax, text, "no IPv4 address, network or range that stands in a dataset of type "+f.dataset)
		return
	case !ok && !exception:
		r.fail(Syntax, rest, `a value is ":127.0.0.2:TEXT" or a text`)
		return
	case isWild(key):
		r.fail(TooBroad, text, "this covers every name")
		return
	case four && !f.ip4(r, key), f.dataset == dnset && !r.dnsetName(key), !four && f.dataset != dnset && !ip6(r, key), exception:
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

// record reads one resource record of a generic dataset: NAME [TTL] TYPE DATA. An address of 127/8 lists the name, or
// the client whose reversed address that is; others, and records of other types, are what a zone has besides.
func (f *rbldnsdFile) record(r *reading, text string) {
	name, kind, data := cutRecord(text)
	switch a, ok := parseDotted(data); {
	case kind == "":
		r.fail(Syntax, text, "a record is NAME [TTL] TYPE DATA")
		return
	case kind != "A":
		r.skip(Directive, "a record of type "+kind)
		return
	case !ok || a.n != 4:
		r.fail(Syntax, data, "a record without an IPv4 address")
		return
	case a.first[0] != 127 || strings.IndexByte(name, '.') < 0: // such as www, for visitors
		r.skip(Directive, "an address that lists nobody")
		return
	}
	if client, ok := reversedIP(name); ok {
		if !r.prefix(text, netip.PrefixFrom(client, client.BitLen())) {
			return
		}
	} else if !r.name(name, r.bare) {
		return
	}
	if reason := r.texts[strings.ToLower(name)]; reason != "" && len(r.queue) > 0 {
		r.queue[0].Reason = cleanReason(reason)
	}
}

// cutRecord cuts a record of a generic dataset; kind is in capitals, and "" if there is none.
func cutRecord(text string) (name, kind, data string) {
	name, rest := cutWord(text)
	kind, data = cutWord(rest)
	if kind != "" && '0' <= kind[0] && kind[0] <= '9' { // its time to live
		kind, data = cutWord(data)
	}
	if kind = strings.ToUpper(kind); data == "" || kind != "A" && kind != "TXT" && kind != "MX" {
		return name, "", ""
	}
	if kind != "TXT" {
		data, _ = cutWord(data)
	}
	return name, kind, strings.Trim(data, `"`)
}

// reversedIP reads the name by which DNS lists ask for a client: 7.100.51.198, or 32 hexadecimal digits.
func reversedIP(name string) (a netip.Addr, ok bool) {
	labels := strings.Split(strings.TrimSuffix(name, "."), ".")
	slices.Reverse(labels)
	if len(labels) == 4 {
		a, err := netip.ParseAddr(strings.Join(labels, "."))
		return a, err == nil
	}
	var b strings.Builder
	for i, digit := range labels {
		if len(labels) != 32 || len(digit) != 1 {
			return a, false
		}
		if i > 0 && i%4 == 0 {
			b.WriteByte(':')
		}
		b.WriteString(digit)
	}
	a, err := netip.ParseAddr(b.String())
	return a, err == nil
}

// maxTexts bounds the records of type TXT that are kept for generic datasets, each of at most maxReason octets.
const maxTexts = 1 << 17

// maxGenericName bounds their names: no name of DNS is longer.
const maxGenericName = 255

// findTexts notes the texts of names in generic datasets, which stand in lines of their own, before or behind the
// address.
func findTexts(r *reading, open func(*reading) error) error {
	if r.arg != generic && r.arg != combined {
		return nil
	}
	look := &reading{settings: Settings{MaxBytes: r.settings.MaxBytes}}
	if err := open(look); err != nil {
		return err
	}
	for dataset := r.arg; ; {
		l, ok := look.lines.next()
		if !ok {
			return look.end()
		}
		text := trim(l.text)
		if kind, ok := strings.CutPrefix(strings.TrimLeft(text, "#;:"), "$"); ok && hasFold(kind, "DATASET ") {
			kind, _ = cutWord(trim(kind[len("DATASET"):]))
			kind, _, _ = strings.Cut(kind, ":")
			dataset = strings.Clone(kind)
		} else if name, kind, data := cutRecord(text); dataset == generic && kind == "TXT" && !l.long && !rbldnsdComment(text) && len(name) <= maxGenericName && len(r.texts) < maxTexts {
			if r.texts == nil {
				r.texts = map[string]string{}
			}
			r.texts[strings.Clone(strings.ToLower(name))] = cleanReason(strings.Clone(data))
		}
	}
}

// ip6 queues an IPv6 address or network. Without a length it is all below the groups that are written: 2001:db8:1:2 is
// a network of 64 bits.
func ip6(r *reading, text string) bool {
	head, length, isPrefix := strings.Cut(text, "/")
	bits, fits := 128, true
	if groups := strings.Count(head, ":") + 1; groups < 8 && !strings.Contains(head, "::") {
		head, bits = head+"::", 16*groups
	}
	a, err := netip.ParseAddr(head)
	if isPrefix {
		bits, fits = prefixLen(length)
	}
	if err != nil || !a.Is6() || a.Zone() != "" || !fits || a.Is4In6() && bits < 96 {
		return r.fail(Syntax, text, "no IPv6 address or network")
	}
	return r.prefix(text, netip.PrefixFrom(a, bits))
}

// firstWord is the first word of a text.
func firstWord(text string) string {
	first, _ := cutWord(text)
	return first
}

// guessDataset returns the argument by which most of a sample can be read.
func guessDataset(sample []string) string {
	names, networks, sixes := 0, 0, 0
	for _, text := range sample {
		text = strings.TrimLeft(text, "! \t")
		switch key, _ := cutIP4(text); {
		case hasFold(text, "$DATASET"):
			return combined
		case text == "" || text[0] == '$' || text[0] == ':':
		case key != "":
			networks++
		case strings.Count(firstWord(text), ":") > 1 && looksNet(firstWord(text)):
			sixes++
		default:
			names++
		}
	}
	switch {
	case networks > names+sixes:
		return ip4set
	case sixes > names+networks:
		return ip6trie
	}
	return ""
}

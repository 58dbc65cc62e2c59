package lists

import (
	"fmt"
	"iter"
	"maps"
	"net/netip"
	"slices"
	"strings"

	"github.com/zeebo/xxh3"

	"blockd/mail/addr"
)

// GuardSettings say what no entry of a list may cover, and how wrong a file may
// be (docs/lists.md, section 8). The zero value lets no bad line pass in a file of
// 100 lines: begin with DefaultGuard.
type GuardSettings struct {
	AllowPublicSuffix bool     // suffixes are loaded, with a warning
	Protected         []string // domains, in any spelling
	Force             []string // entries that may cover a protected domain: their domains
	MaxProtected      int      // entries refused for that before the file is, 0 or more
	MaxBadRatio       float64  // of refused lines, 0 to 1; judged from 100 lines

	// Frees: exceptions of the list reach all lists, and are judged as blocks are.
	Frees bool

	// Of entries that people make by hand (blockd add): what they would not want to block.
	// ID leaves them out.
	Own       []OwnNetwork
	Mailboxes []string // canonical local-parts, at every domain
}

// OwnNetwork is a network that no entry may block any part of.
type OwnNetwork struct {
	Net  netip.Prefix
	What string // it is, for people
}

// DefaultGuard is what a list is judged by that nothing is said of. Protected is
// what ships: see ShippedProtected.
func DefaultGuard() GuardSettings {
	return GuardSettings{Protected: ShippedProtected(), MaxProtected: 5, MaxBadRatio: 0.25}
}

// Guard judges the entries of one list. It never changes, so files that are read
// at one time may share it. The nil Guard lets everything pass.
type Guard struct {
	settings GuardSettings
	names    map[string]bool   // protected domains
	sorted   []string          // the same
	parents  map[string]string // of each domain above a protected one: that one
	force    map[string]bool
	id       uint64
}

// NewGuard makes a Guard. The error names the first text that is no domain.
func NewGuard(s GuardSettings) (*Guard, error) {
	g := &Guard{settings: s, parents: map[string]string{}}
	var err error
	if g.names, err = domainSet(s.Protected); err != nil {
		return nil, fmt.Errorf("protected: %w", err)
	}
	if g.force, err = domainSet(s.Force); err != nil {
		return nil, fmt.Errorf("force: %w", err)
	}
	g.sorted = slices.Sorted(maps.Keys(g.names))
	for _, name := range g.sorted {
		for parent := range namesAbove(name) {
			if g.parents[parent] == "" {
				g.parents[parent] = name
			}
		}
	}
	judged := fmt.Sprintf("%d %t %q %q %s", ParserVersion, s.AllowPublicSuffix, g.sorted, slices.Sorted(maps.Keys(g.force)), suffixVersion())
	if s.Frees {
		judged += " frees"
	}
	g.id = xxh3.HashString(judged)
	return g, nil
}

// Settings are what the guard was made of, by which another process makes the same one. Do
// not change them. Those of the nil Guard are nil.
func (g *Guard) Settings() *GuardSettings {
	if g == nil {
		return nil
	}
	return &g.settings
}

// ID tells guards apart that make other entries of the same text: by what they
// let pass, by the version of the Public Suffix List and by ParserVersion, so that an
// index which an older program has made is made anew, but not by how wrong a file may be. It is 0 for the nil Guard, and the same in every process.
func (g *Guard) ID() uint64 {
	if g == nil {
		return 0
	}
	return g.id
}

// frees reports whether exceptions are judged.
func (g *Guard) frees() bool { return g != nil && g.settings.Frees }

// Bounds are what ID leaves out: how wrong a file may be. They are 0 for the nil
// Guard, which bounds nothing.
func (g *Guard) Bounds() (maxProtected int, maxBadRatio float64) {
	if g == nil {
		return 0, 0
	}
	return g.settings.MaxProtected, g.settings.MaxBadRatio
}

func domainSet(texts []string) (map[string]bool, error) {
	set := make(map[string]bool, len(texts))
	for _, text := range texts {
		key, err := addr.DomainKey(text)
		if err != nil {
			return nil, err
		}
		set[key.Text] = true
	}
	return set, nil
}

// cutLabel returns the name above name; false for a single label.
func cutLabel(name string) (parent string, more bool) {
	_, parent, more = strings.Cut(name, ".")
	return parent, more
}

// namesAbove yields the names above name, the nearest first.
func namesAbove(name string) iter.Seq[string] {
	return func(yield func(string) bool) {
		for parent, more := cutLabel(name); more && yield(parent); parent, more = cutLabel(parent) {
		}
	}
}

// judge says what is wrong with an entry of this key and scope that refuses
// senders, or lets them pass whatever other lists say, "" if nothing is. pass: it is loaded, with the class as a warning.
func (g *Guard) judge(key addr.Key, s Scope) (c Class, message string, pass bool) {
	if s != Exact {
		c, message, pass = g.suffix(key)
		if c != "" && !pass {
			return c, message, false
		}
	}
	name, covers := g.covered(key.Text, s)
	switch {
	case !covers:
		return c, message, pass
	case !g.force[key.Text]:
		return Protected, fmt.Sprintf("covers the protected domain %s as a whole", name), false
	case c != "":
		return c, message, pass // public-suffix goes before protected
	}
	return Protected, fmt.Sprintf("covers the protected domain %s as a whole, by force", name), true
}

// Protects reports whether a domain, as a key has it, is a protected one or below one. The nil Guard protects none.
func (g *Guard) Protects(domain string) bool {
	if g == nil {
		return false
	}
	if g.names[domain] {
		return true
	}
	for parent := range namesAbove(domain) {
		if g.names[parent] {
			return true
		}
	}
	return false
}

// covered finds a protected domain that an entry covers as a whole.
func (g *Guard) covered(name string, s Scope) (string, bool) {
	if s != Sub && g.names[name] {
		return name, true
	}
	below := g.parents[name]
	return below, s != Exact && below != ""
}

// guard holds the entries of the line in hand against the list's Guard. One of
// them that reaches too far refuses the line.
func (r *reading) guard() {
	g := r.settings.Guard
	if g == nil || r.failed && !r.apart {
		return
	}
	for i := 0; i < len(r.queue); i++ {
		it := &r.queue[i]
		c, message, pass := r.judgeEntry(g, it)
		switch {
		case c == "":
		case pass:
			it.Class, it.Message = c, message // section 9: before any other warning of the line itself
		default:
			if c == Protected && !it.Action.Allows() { // a list of providers is a usual list of exceptions
				r.tally.protect(it)
			}
			r.drop(it, c, message)
			if !r.apart {
				return
			}
			i--
		}
	}
}

// judgeEntry says what is wrong with one entry of the line in hand, as judge does.
func (r *reading) judgeEntry(g *Guard, it *Item) (c Class, message string, pass bool) {
	network, allows := it.Kind == IP || it.Kind == CIDR, it.Action.Allows()
	switch {
	case it.void || it.Action == Remove, it.Personal(): // what owners want for themselves is within their rights
		return "", "", true
	case allows && !g.frees():
		if it.Kind == Domain && it.Scope != Exact {
			if c, _, _ := g.suffix(it.Key); c != "" { // loaded all the same: it lifts what its own list blocks
				return c, "an exception for everybody's names below a public suffix", true
			}
		}
		return "", "", true
	case allows && network:
		if message := r.tooWide(it.Net); message != "" {
			return Wide, message, false
		}
	case !allows:
		if message := g.own(it); message != "" {
			return Protected, message, false
		}
	}
	switch {
	case it.pattern != nil:
		return g.judgePattern(it.pattern)
	case it.Kind == Domain:
		return g.judge(it.Key, it.Scope)
	}
	return "", "", true // it is about one mailbox or network
}

// own says whose network or mailbox an entry would block, "" if that is nobody's in
// particular.
func (g *Guard) own(it *Item) string {
	switch {
	case it.Kind == IP || it.Kind == CIDR:
		for _, o := range g.settings.Own {
			if o.Net.Overlaps(it.Net) {
				return fmt.Sprintf("covers %s, %s", o.Net, o.What)
			}
		}
	case it.Kind == Addr && it.Scope == Local:
		if local := strings.TrimSuffix(it.Key.Text, "@"); slices.Contains(g.settings.Mailboxes, local) {
			return fmt.Sprintf("everybody's %s@: complaints come from there", local)
		}
	}
	return ""
}

// tooWide says why an exception that reaches all lists may not cover a network, "" if
// it may.
func (r *reading) tooWide(p netip.Prefix) string {
	if p.Bits() < freeBits(p.Addr()) {
		return fmt.Sprintf("an exception from all lists for a network wider than IPv4 /%d or IPv6 /%d", maxFree4, maxFree6)
	}
	if n, over := r.wide.over(p); over {
		return fmt.Sprintf("with other lines an exception from all lists for %s, or most of it", n)
	}
	return ""
}

// ratioLines is from how many lines on the share of bad ones says something.
const ratioLines = 100

// tally counts what MaxProtected and MaxBadRatio are about.
type tally struct {
	lines, bad, protected    int
	firstBad, firstProtected found
}

// found is the first of the lines that are counted, the zero value if there is none.
type found struct {
	line int
	what string
}

func (f found) String() string { return fmt.Sprintf("line %d: %s", f.line, f.what) }

// earlier returns the one of two that stands before the other.
func (f found) earlier(o found) found {
	if f.line == 0 || o.line > 0 && o.line < f.line {
		return o
	}
	return f
}

// add takes in what was counted elsewhere in the file.
func (t *tally) add(o *tally) {
	t.lines += o.lines
	t.bad += o.bad
	t.protected += o.protected
	t.firstBad = t.firstBad.earlier(o.firstBad)
	t.firstProtected = t.firstProtected.earlier(o.firstProtected)
}

func (t *tally) protect(it *Item) {
	if t.protected++; t.protected == 1 {
		t.firstProtected = found{it.Line, strings.Clone(it.Name())}
	}
}

// count takes in the items of one line: comments and blank lines do not count,
// and what is unsupported is not bad.
func (t *tally) count(line []Item) {
	if len(line) == 0 {
		return
	}
	if it := &line[0]; it.Kind == Skip && (it.Class == Comment || it.Class == Blank || it.Class == SelfTest) {
		return // which stand alone
	}
	for i := range line {
		if it := &line[i]; it.Kind == Err && it.Class != Unsupported && it.Class != OwnerFull { // one at most
			if t.bad++; t.bad == 1 {
				t.firstBad = found{it.Line, fmt.Sprintf("%s: %s", it.Class, it.Message)}
			}
		}
	}
	t.lines++
}

// judge refuses a file that was read to its good end and is no list to be
// trusted all the same.
func (r *reading) judge() error {
	g, t := r.settings.Guard, &r.tally
	switch {
	case g != nil && t.protected > g.settings.MaxProtected:
		return refusal(Protected, "entries that cover a protected domain: %d, more than max_protected = %d; a list of providers, or poisoned; the first is %s",
			t.protected, g.settings.MaxProtected, t.firstProtected)
	case r.sum.Format == "entries":
		// A program has written each line; what is refused here reaches too far, and nothing is wrong with the others. The copy of a
		// database is 64 such files, of which one may hold nothing else.
		return nil
	case r.sum.Entries == r.void && r.sum.Errors > 0:
		return refusal(OnlyErrors, "%d refused lines and no entry; wrong format?", r.sum.Errors)
	case g != nil && t.lines >= ratioLines && float64(t.bad) > g.settings.MaxBadRatio*float64(t.lines):
		return refusal(BadRatio, "%d of %d lines are refused, more than max_bad_ratio = %v; the first is %s",
			t.bad, t.lines, g.settings.MaxBadRatio, t.firstBad)
	}
	return nil
}

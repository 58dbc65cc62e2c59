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
	Force             []string // entries that may cover a protected domain: their domains; and networks, parts of which may be in Own
	MaxProtected      int      // entries refused for that before the file is, 0 or more
	MaxBadRatio       float64  // of refused lines, 0 to 1; judged from 100 lines
	Machine           []string // canonical names of the machine that reads: in a hosts file they are no entries

	// Frees: exceptions of the list reach all lists, and are judged as blocks are.
	Frees bool

	Own       []OwnNetwork // whose clients are this machine's and its neighbours
	Mailboxes []string     // canonical local-parts that no entry may block at every domain
}

// OwnNetwork is a network that no entry may block any part of.
type OwnNetwork struct {
	Net  netip.Prefix
	What string // it is, for people
}

// ownNetworks are those whose addresses mean somebody near on every machine. Lists of networks that no stranger comes
// from, such as those for firewalls, have all of them.
var ownNetworks = [...]struct{ net, what string }{
	{"127.0.0.0/8", "this machine itself"}, {"::1/128", "this machine itself"},
	{"10.0.0.0/8", "a private network"}, {"172.16.0.0/12", "a private network"}, {"192.168.0.0/16", "a private network"},
	{"fc00::/7", "a private network"}, {"169.254.0.0/16", "the link of this machine"}, {"fe80::/10", "the link of this machine"},
	{"100.64.0.0/10", "a network behind a provider's gateway"},
}

// DefaultGuard is what a list is judged by that nothing is said of. Protected is
// what ships: see ShippedProtected.
func DefaultGuard() GuardSettings {
	s := GuardSettings{Protected: ShippedProtected(), MaxProtected: 5, MaxBadRatio: 0.25, Mailboxes: []string{"postmaster", "abuse"}}
	for _, own := range ownNetworks {
		s.Own = append(s.Own, OwnNetwork{netip.MustParsePrefix(own.net), own.what})
	}
	return s
}

// Guard judges the entries of one list. It never changes, so files that are read
// at one time may share it. The nil Guard lets everything pass.
type Guard struct {
	settings GuardSettings
	names    map[string]bool   // protected domains
	sorted   []string          // the same
	parents  map[string]string // of each domain above a protected one: that one
	force    map[string]bool
	forced   []netip.Prefix
	ownHeads [2][256]bool // the first octets of addresses in Own, of IPv4 and of IPv6
	id       uint64
}

// NewGuard makes a Guard. The error names the first text that is no domain.
func NewGuard(s GuardSettings) (*Guard, error) {
	g := &Guard{settings: s, parents: map[string]string{}}
	var err error
	if g.names, err = domainSet(s.Protected); err != nil {
		return nil, fmt.Errorf("protected: %w", err)
	}
	var forced []string
	for _, text := range s.Force {
		if p, ok := ParseNetwork(text); ok {
			g.forced = append(g.forced, p)
		} else {
			forced = append(forced, text)
		}
	}
	if g.force, err = domainSet(forced); err != nil {
		return nil, fmt.Errorf("force: %w", err)
	}
	for _, o := range s.Own {
		family, first := headOf(o.Net.Masked().Addr())
		_, last := headOf(LastOf(o.Net.Masked()))
		for i := int(first); i <= int(last); i++ {
			g.ownHeads[family][i] = true
		}
	}
	g.sorted = slices.Sorted(maps.Keys(g.names))
	for _, name := range g.sorted {
		for parent := range namesAbove(name) {
			if g.parents[parent] == "" {
				g.parents[parent] = name
			}
		}
	}
	judged := fmt.Sprintf("%d %t %q %q %s %v %q %v", ParserVersion, s.AllowPublicSuffix, g.sorted, slices.Sorted(maps.Keys(g.force)), suffixVersion(),
		s.Own, s.Mailboxes, g.forced)
	if s.Frees {
		judged += " frees"
	}
	if len(s.Machine) > 0 {
		judged += fmt.Sprintf(" machine %q", s.Machine)
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

// isMachine reports whether a name of a hosts file is one of the machine's own. The nil Guard knows none.
func (g *Guard) isMachine(name string) bool {
	return g != nil && slices.Contains(g.settings.Machine, strings.ToLower(strings.TrimSuffix(name, ".")))
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
			if c == Protected && !it.Action.Allows() && !it.ours { // a list of providers is a usual list of exceptions
				r.tally.protect(it)
			}
			ours := it.ours
			r.drop(it, c, message)
			r.queue[len(r.queue)-1].ours = ours
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
			if it.ours = network; network && slices.ContainsFunc(g.forced, func(p netip.Prefix) bool { return p.Bits() <= it.Net.Bits() && p.Contains(it.Net.Addr()) }) {
				return Protected, message + ", by force", true
			}
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
		if family, first := headOf(it.Net.Addr()); it.Net.Bits() >= 8 && !g.ownHeads[family][first] {
			return "" // as nearly every one
		}
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

// headOf is the first octet of an address, and 0 for IPv4, 1 for IPv6.
func headOf(a netip.Addr) (family int, first byte) {
	if a.Is4() {
		return 0, a.As4()[0]
	}
	return 1, a.As16()[0]
}

// ParseNetwork reads a network, or one address, as GuardSettings.Force may have it.
func ParseNetwork(text string) (p netip.Prefix, ok bool) {
	if a, err := netip.ParseAddr(text); err == nil {
		return netip.PrefixFrom(a.Unmap(), a.Unmap().BitLen()), a.Zone() == ""
	}
	p, err := netip.ParsePrefix(text)
	return p.Masked(), err == nil
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
// and what is unsupported, or about networks of our own, is not bad.
func (t *tally) count(line []Item) {
	if len(line) == 0 {
		return
	}
	if it := &line[0]; it.Kind == Skip && (it.Class == Comment || it.Class == Blank || it.Class == SelfTest) {
		return // which stand alone
	}
	for i := range line {
		if it := &line[i]; it.Kind == Err && it.Class != Unsupported && it.Class != OwnerFull && !it.ours { // one at most
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

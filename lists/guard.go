package lists

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/zeebo/xxh3"

	"blockd/addr"
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
		for parent, more := cutLabel(name); more; parent, more = cutLabel(parent) {
			if g.parents[parent] == "" {
				g.parents[parent] = name
			}
		}
	}
	g.id = xxh3.HashString(fmt.Sprintf("%t %q %q %s", s.AllowPublicSuffix, g.sorted, slices.Sorted(maps.Keys(g.force)), suffixVersion()))
	return g, nil
}

// ID tells guards apart that make other entries of the same text: by what they
// let pass, and by the version of the Public Suffix List, but not by how wrong a
// file may be. It is 0 for the nil Guard, and the same in every process.
func (g *Guard) ID() uint64 {
	if g == nil {
		return 0
	}
	return g.id
}

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

// judgeItem is judge for an entry of any kind that has a pattern or a domain.
func (g *Guard) judgeItem(it *Item) (c Class, message string, pass bool) {
	if it.pattern != nil {
		return g.judgePattern(it.pattern)
	}
	return g.judge(it.Key, it.Scope)
}

// judge says what is wrong with an entry of this key and scope that refuses
// senders, "" if nothing is. pass: it is loaded, with the class as a warning.
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
	if g == nil || r.failed {
		return
	}
	for i := range r.queue {
		it := &r.queue[i]
		if it.Action.Allows() && it.Kind == Domain && it.Scope != Exact && !it.void {
			// Loaded all the same: what it lets pass is its list's business.
			if c, _, _ := g.suffix(it.Key); c != "" {
				it.Class, it.Message = c, "an exception for everybody's names below a public suffix"
			}
		}
		if it.Kind != Domain && it.pattern == nil || it.void || it.Action != Block && it.Action != Tempfail && it.Action != Discard {
			continue // nobody is refused for it, or one mailbox only
		}
		c, message, pass := g.judgeItem(it)
		switch {
		case c == "":
		case pass:
			it.Class, it.Message = c, message // section 9: before any other warning of the line itself
		default:
			if c == Protected {
				r.tally.protect(it)
			}
			r.fail(c, it.Name(), message)
			return
		}
	}
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
	switch it := &line[0]; {
	case it.Kind == Skip && (it.Class == Comment || it.Class == Blank || it.Class == SelfTest):
		return // which stand alone
	case it.Kind == Err && it.Class != Unsupported:
		if t.bad++; t.bad == 1 {
			t.firstBad = found{it.Line, fmt.Sprintf("%s: %s", it.Class, it.Message)}
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
	case r.sum.Entries == r.void && r.sum.Errors > 0:
		return refusal(OnlyErrors, "%d refused lines and no entry; wrong format?", r.sum.Errors)
	case g != nil && t.lines >= ratioLines && float64(t.bad) > g.settings.MaxBadRatio*float64(t.lines):
		return refusal(BadRatio, "%d of %d lines are refused, more than max_bad_ratio = %v; the first is %s",
			t.bad, t.lines, g.settings.MaxBadRatio, t.firstBad)
	}
	return nil
}

package migration

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"blockd/cmd/blockd/internal/migration/internal/original"
	"blockd/lists"
	"blockd/mail/addr"
)

// part is one of the lists that a site becomes: what is read alike and leads to the same.
type part struct {
	deed     deed // hold, mark or watch; of patterns also defers; block for all else
	patterns bool
}

// parts are all, in the order of their lists. Only patterns that defer have one of their own:
// other entries have an action each.
var parts = [...]part{{block, false}, {block, true}, {defers, true}, {hold, false}, {hold, true}, {mark, false}, {mark, true}, {watch, false}, {watch, true}}

// partOf returns the list of one key of an entry.
func partOf(e *entry, k key) part {
	if p := (part{e.deed, k.isPattern()}); slices.Contains(parts[:], p) {
		return p
	}
	return part{block, k.isPattern()}
}

// newList makes the empty list of a part.
func (p part) newList(s *site) *List {
	name := s.name
	if p.patterns {
		name += "-patterns"
	}
	name += map[deed]string{defers: "-defer", hold: "-hold", mark: "-mark", watch: "-warn"}[p.deed]
	l := &List{
		Name: name, Comes: s.comes, site: s, Format: "postfix", Match: s.match, Require: s.require,
		Patterns: p.patterns, Hold: p.deed == hold, Shadow: p.deed == watch, Tempfail: p.deed == defers, Tag: s.tag || p.deed == mark,
	}
	l.Excepts = !s.home && !l.Shadow && slices.ContainsFunc(s.entries, func(e *entry) bool {
		return e.Outcome != Lost && e.deed.exempts() && slices.ContainsFunc(e.keys, func(k key) bool { return partOf(e, k) == p })
	})
	if l.Patterns || p.deed == hold || p.deed == mark {
		l.Format = "plain"
	}
	return l
}

// build makes the lists of the sites and reads each of them back. An entry that a
// list cannot hold is lost then.
func (r *Result) build(ctx context.Context, sites []*site, o Options) error {
	r.Lists = nil
	taken := map[string]bool{}
	for _, l := range r.fetched {
		l.Name = unique(taken, l.Name)
		l.File = l.Name + ".map"
		r.Lists = append(r.Lists, l)
	}
	for _, s := range sites {
		if s.name == "" {
			continue
		}
		if err := r.buildSite(ctx, s, taken, o); err != nil {
			return err
		}
	}
	return nil
}

// buildSite makes the lists of one site. The first of them has the comments, and the lines that
// are not carried over.
func (r *Result) buildSite(ctx context.Context, s *site, taken map[string]bool, o Options) error {
	used := map[part]bool{}
	for _, e := range s.entries {
		if e.Outcome == Lost {
			continue
		}
		e.List = ""
		for _, k := range e.keys {
			used[partOf(e, k)] = true
		}
	}
	lead := true
	for _, p := range parts {
		if !used[p] {
			continue
		}
		l := p.newList(s)
		l.Name = unique(taken, listName(l.Name))
		l.File = l.Name + map[string]string{"postfix": ".access", "plain": ".txt"}[l.Format]
		if err := r.settle(ctx, l, p, lead, o); err != nil {
			return err
		}
		if lead = false; l.Entries > 0 {
			r.Lists = append(r.Lists, l)
		}
	}
	return nil
}

// listName makes a text fit for the name of a list.
func listName(text string) string {
	name := strings.Map(func(c rune) rune {
		if c >= '0' && c <= '9' || c|0x20 >= 'a' && c|0x20 <= 'z' || c == '.' || c == '_' || c == '-' {
			return c
		}
		return '-'
	}, text)
	name = strings.TrimLeft(name, "._-")
	if name == "" {
		name = "list"
	}
	return name[:min(len(name), 60)]
}

func unique(taken map[string]bool, name string) string {
	free := name
	for i := 2; taken[strings.ToLower(free)]; i++ {
		free = fmt.Sprintf("%s-%d", name, i)
	}
	taken[strings.ToLower(free)] = true
	return free
}

// written is one key of an entry in a line of a list.
type written struct {
	entry *entry
	key   key
}

// settle writes the text of a list and reads it back, until all that is in it reads
// as what was meant.
func (r *Result) settle(ctx context.Context, l *List, p part, lead bool, o Options) error {
	dir, err := os.MkdirTemp("", "blockd-import-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	path := filepath.Join(dir, "list")
	// Each round loses an entry or lets one more thing pass; most lists need one.
	for range 10 {
		at := l.write(p, lead, r.Program)
		if l.Entries = len(at); l.Entries == 0 {
			return nil
		}
		if err := os.WriteFile(path, l.Text, 0o600); err != nil {
			return err
		}
		good, err := r.readBack(ctx, l, path, at, o)
		if err != nil || good {
			return err
		}
	}
	for _, line := range l.site.lines {
		if line.entry != nil && line.entry.deed != watch {
			line.entry.lose("the list does not read back as what was meant")
		}
	}
	l.Entries = 0
	return nil
}

// readBack reads a list as the daemon will. good is false if it is to be written
// again.
func (r *Result) readBack(ctx context.Context, l *List, path string, at map[int]written, o Options) (good bool, err error) {
	guard, err := lists.NewGuard(l.guard(r.Hostname, o))
	if err != nil {
		return false, err
	}
	yes := true
	settings := lists.Settings{Format: l.Format, Patterns: l.Patterns, Guard: guard}
	if l.Format == "postfix" {
		settings.Subdomains = &yes
	}
	good = true
	_, err = lists.ReadFile(ctx, path, settings, func(it *lists.Item) error {
		w, ours := at[it.Line]
		switch {
		case it.Kind == lists.Skip && it.Test == nil && !ours:
		case ours && it.Kind != lists.Skip && it.Kind != lists.Err && w.reads(it):
			delete(at, it.Line)
		case ours && it.Kind == lists.Err && l.permit(it, w):
			good = false
		case ours:
			good = false
			why := "it would read as something else"
			if it.Kind == lists.Err {
				why = fmt.Sprintf("%s: %s", it.Class, it.Message)
			}
			w.entry.lose("%s", why)
		default:
			return fmt.Errorf("line %d of the list %s reads as %s", it.Line, l.Name, it.Kind) // ours: a comment that is none
		}
		return nil
	})
	if refused := (*lists.FileError)(nil); errors.As(err, &refused) {
		if good { // the file as a whole, such as too many patterns
			for _, w := range at {
				w.entry.lose("%s", refused.Why())
			}
		}
		return false, nil
	}
	if good && err == nil {
		for _, w := range at {
			w.entry.lose("it would not be read")
			return false, nil
		}
	}
	return good, err
}

// reads reports whether an item is what was written.
func (w written) reads(it *lists.Item) bool {
	want := map[deed]lists.Action{defers: lists.Tempfail, discard: lists.Discard, pass: lists.Allow, stop: lists.Allow}[w.entry.deed] // or Block
	if w.key.isPattern() && want != lists.Allow {
		want = lists.Block
	}
	k := w.key
	return it.Action == want && it.Kind == k.kind && it.Scope == k.scope && (k.text == "" && it.Net == k.net || k.text != "" && it.Name() == k.text)
}

// permit lets an entry pass the gate that the administrator has had in force.
func (l *List) permit(it *lists.Item, w written) bool {
	switch {
	case it.Class == lists.PublicSuffix && !l.AllowPublicSuffix:
		l.AllowPublicSuffix = true
		w.entry.remark("by allow_public_suffix: " + it.Message)
		return true
	case it.Class == lists.Protected && w.key.kind == lists.Domain && !slices.Contains(l.Force, w.key.text):
		l.Force = append(l.Force, w.key.text)
		w.entry.remark("by force: " + it.Message)
		return true
	case it.Class == lists.Protected && w.key.net.IsValid() && !slices.Contains(l.Force, w.key.net.String()):
		l.Force = append(l.Force, w.key.net.String())
		w.entry.remark("by force: " + it.Message)
		return true
	}
	return false
}

// guard is the gate that a list must pass, but for how wrong it may be as a whole.
func (l *List) guard(hostname string, o Options) lists.GuardSettings {
	g := lists.DefaultGuard()
	g.MaxProtected, g.MaxBadRatio = maxEntries, 1
	g.Force, g.AllowPublicSuffix, g.Frees = l.Force, l.AllowPublicSuffix, l.Excepts
	if hostname == "" {
		hostname = o.Hostname
	}
	if key, err := addr.DomainKey(hostname); err == nil && key.Labels > 1 {
		g.Protected = append(g.Protected, key.Text)
		if registered := lists.RegistrableDomain(key.Text); registered != "" {
			g.Protected = append(g.Protected, registered)
		}
	}
	return g
}

// write makes the text of the list, and says which line has what.
func (l *List) write(p part, lead bool, program string) map[int]written {
	t := listText{List: l, part: p, at: map[int]written{}}
	t.put("# From %s, by blockd import --from-%s.", original.Clean(l.Comes), strings.ToLower(program))
	l.Discard, l.Reason, l.Says = false, "", ""
	for _, line := range l.site.lines {
		switch e := line.entry; {
		case e == nil && lead:
			t.put("# %s", original.Clean(strings.TrimLeft(line.comment, "#?;! \t")))
		case e == nil:
		case e.Outcome != Lost:
			t.entry(e)
		case lead:
			t.put("# Line %d, not carried over: %s", e.Line, e.Text)
		}
	}
	if l.Patterns {
		l.reason(t.answers, t.at)
	}
	l.Text = t.out.Bytes()
	return t.at
}

// listText is the text of a list being written.
type listText struct {
	*List
	part    part
	out     bytes.Buffer
	n       int // lines
	at      map[int]written
	answers []string // of patterns
}

func (t *listText) put(format string, args ...any) {
	fmt.Fprintf(&t.out, format+"\n", args...)
	t.n++
}

// entry writes the keys of an entry that belong to this list.
func (t *listText) entry(e *entry) {
	first := true
	for _, k := range e.keys {
		if partOf(e, k) != t.part {
			continue
		}
		text := t.say(e, k)
		if first && text != e.Text {
			t.put("# Line %d: %s", e.Line, e.Text)
		}
		first = false
		t.put("%s", text)
		t.at[t.n] = written{e, k}
		if e.List == "" || t.Hold || t.part == (part{deed: mark}) {
			e.List = t.Name
		}
		t.Discard = t.Discard || e.deed == discard
		switch {
		case t.Patterns && e.deed == watch:
			t.Reason = original.Cut(original.Clean(e.reason), 400)
		case t.Patterns && e.deed.answers():
			t.answers = append(t.answers, cmp.Or(e.full, original.Clean(e.reason)))
		case e.deed == block && e.bare != "":
			t.Says = e.bare
		}
	}
}

// reason gives a list of patterns the text that all its entries have: such a list
// has none for each.
func (l *List) reason(answers []string, at map[int]written) {
	slices.Sort(answers)
	switch answers = slices.Compact(answers); {
	case len(answers) == 1:
		l.Says = answers[0]
		l.Reason = original.Cut(original.Clean(lists.ParseAnswer(l.Says).Text), 400)
	case len(answers) > 1:
		for _, w := range at {
			if w.entry.deed.answers() && kindOnly(w.entry) && !w.entry.untold {
				w.entry.untold = true
				w.entry.differ(Reworded, "without its text: a list of patterns has one for all")
			}
		}
	}
}

// kindOnly reports whether an entry has patterns alone, and so no line with a text.
func kindOnly(e *entry) bool {
	return !slices.ContainsFunc(e.keys, func(k key) bool { return !k.isPattern() })
}

// say is the line of one key.
func (l *List) say(e *entry, k key) string {
	if l.Format == "plain" {
		text := k.text
		if k.kind == lists.Regexp {
			text = strings.ReplaceAll(text, " ", `\x20`)
			if strings.HasPrefix(text, "//") {
				text = `/\` + text[1:]
			}
		} else if !k.isPattern() {
			text = quoted(k)
		}
		if e.deed.exempts() {
			text = "!" + text
		}
		return text
	}
	reason := original.Clean(e.reason)
	action, code := "REJECT ", byte('5')
	switch e.deed {
	case pass:
		return quoted(k) + " OK"
	case stop:
		return quoted(k) + " DUNNO"
	case discard:
		action, code = "DISCARD ", 0
	case defers:
		action, code = "DEFER ", '4'
	}
	if len(reason) > 4 && digits(reason[:3]) && reason[3] == ' ' && reason[0] == code {
		action = ""
	}
	return strings.TrimSpace(quoted(k) + " " + action + reason)
}

// quoted is a key with quotes around a local-part that has marks of formats in it.
func quoted(k key) string {
	text := k.String()
	at := strings.LastIndexByte(text, '@')
	if k.kind == lists.Addr && text[0] != '"' && strings.ContainsAny(text[:at], "!#$%&'*/?^`{|}~=") {
		return `"` + text[:at] + `"` + text[at:]
	}
	return text
}

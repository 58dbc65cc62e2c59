package migration

import (
	"context"
	"regexp"
	"slices"
	"strings"

	"blockd/cmd/blockd/internal/migration/internal/original"
)

// part is one of the lists that a table becomes: what is read alike and leads to the same.
type part struct {
	deed     deed // refuses: all that is not said of another part; defers: patterns; holds; lets: exceptions that reach all lists
	patterns bool
	says     string // of patterns, which have no text of their own
}

// maxSays bounds the lists that the patterns of one table become, for the sake of their texts.
const maxSays = 8

// write makes a list of each table.
func (pf *postfix) write(ctx context.Context, o Options) error {
	for _, list := range pf.order { // what a table lets pass skips those behind it in the same restrictions
		behind := false
		for _, t := range slices.Backward(tablesOf(list)) {
			if t.about != recipients {
				t.all, behind = t.all || behind, true
			}
		}
	}
	var last []*shelf // those of mail that is taken go behind those that refuse it
	for _, t := range pf.tables {
		if t.about == recipients {
			continue // they become policies
		}
		for _, s := range pf.shelves(t) {
			if s.Hold {
				last = append(last, s)
			} else if err := pf.listed(ctx, s, o); err != nil {
				return err
			}
		}
	}
	for _, s := range last {
		if err := pf.listed(ctx, s, o); err != nil {
			return err
		}
	}
	return nil
}

// tablesOf are the tables of restrictions, in the order in which they are asked.
func tablesOf(list []restriction) (all []*table) {
	for _, r := range list {
		if all = append(all, tablesOf(r.class)...); r.table != nil {
			all = append(all, r.table)
		}
	}
	return all
}

// shelves are the lists of one table.
func (pf *postfix) shelves(t *table) (all []*shelf) {
	byPart := map[part]*shelf{}
	shelfOf := func(p part) *shelf {
		if s := byPart[p]; s != nil {
			return s
		}
		name := t.name
		if p.patterns {
			name += "-patterns"
		}
		l := &List{Name: pf.unique(name + map[deed]string{defers: "-defer", holds: "-hold", lets: "-ok"}[p.deed]), Comes: t.comes, from: t, Format: "postfix",
			Patterns: p.patterns, Hold: p.deed == holds, Shadow: t.warn, Tempfail: p.deed == defers, Excepts: p.deed == lets, Says: p.says}
		if p.patterns || p.deed == holds {
			l.Format = "plain"
		}
		l.File = l.Name + map[string]string{"postfix": ".access", "plain": ".txt"}[l.Format]
		s := newShelf(l, pf.Program)
		byPart[p], all = s, append(all, s)
		return s
	}
	lead := shelfOf(part{patterns: t.kind == regexpTable})
	seen := map[string]*row{}
	comments := func(texts []string) {
		for _, text := range texts {
			lead.comment(text)
		}
	}
	frees := map[*row][]string{}
	for _, r := range t.rows {
		comments(r.above)
		if r.Outcome == NotAsked {
			frees[r] = pf.put(t, r, seen, shelfOf, len(byPart))
		}
		if r.Outcome == Lost {
			comments([]string{"Not carried over: " + r.Text})
		}
	}
	comments(t.above)
	for _, r := range t.rows { // from every list of this table's patterns
		for _, text := range frees[r] {
			for _, s := range all {
				if s.Patterns && !s.Excepts {
					s.put(r.Finding, text)
				}
			}
		}
	}
	return all
}

// put writes an entry into its list, or says why no list has it. The patterns are returned that let pass what others
// of the table match.
func (pf *postfix) put(t *table, r *row, seen map[string]*row, shelfOf func(part) *shelf, parts int) (frees []string) {
	a := pf.rules.action(r.value)
	p := part{deed: refuses}
	switch {
	case a.deed == classes:
		r.Lose("an action that is a restriction is Postfix's own")
		return nil
	case a.deed == marks:
		r.Now = a.word + " stays with Postfix; here it only has the table say nothing more"
	case a.deed == holds, a.deed == lets && t.all:
		p.deed = a.deed
	case t.warn && a.deed == lets:
		r.Now = "in shadow mode nothing is let pass either"
	}
	keys, expressions, why := pf.keys(t, r)
	if first := seen[strings.ToLower(r.key)]; first != nil && (t.kind == indexedTable || t.kind == inlineTable) {
		why = "the same key as in " + first.Place.String() + ", which counts"
	}
	if why != "" {
		r.Lose("%s", why)
		return nil
	}
	seen[strings.ToLower(r.key)] = r
	for _, key := range keys {
		s := shelfOf(p)
		switch {
		case p.deed == holds:
			s.put(r.Finding, key)
			continue
		case a.silent:
			s.Says = a.answer
		}
		s.Discard = s.Discard || a.deed == drops
		s.put(r.Finding, key+" "+original.Clean(a.plain()))
	}
	for _, expr := range expressions {
		text, err := expression(expr)
		q := part{deed: p.deed, patterns: true}
		if a.deed >= lets && t.kind != regexpTable { // what it frees is in a list without patterns
			q.deed = lets
		}
		switch {
		case err != nil:
			r.Lose("%s", original.Shown(err.Error()))
			continue
		case q.deed == lets:
			shelfOf(q).put(r.Finding, "!"+text)
			continue
		case a.deed >= lets:
			frees = append(frees, "!"+text)
			continue
		case a.deed == defers:
			q.deed = defers
		}
		if parts < maxSays && !strings.Contains(strings.ReplaceAll(r.value, "$$", ""), "$") {
			q.says = strings.ReplaceAll(a.answer, "$$", "$")
		}
		shelfOf(q).put(r.Finding, text)
	}
	return frees
}

// keys are what a list says of an entry: entries, and expressions over addresses.
func (pf *postfix) keys(t *table, r *row) (keys, expressions []string, why string) {
	lower := strings.ToLower(r.key)
	at := strings.LastIndexByte(r.key, '@')
	switch {
	case t.kind == cidrTable && t.about != clients:
		return nil, nil, "a cidr: table has networks of clients, and is asked about mail addresses"
	case t.kind == cidrTable:
		return []string{unmapped(r.network).String()}, nil, ""
	case t.kind == regexpTable:
		return nil, []string{r.key}, ""
	case t.about == clients:
		net, ok := leading(lower)
		if strings.Contains(lower, "/") {
			return nil, nil, "Postfix never asks for such a key"
		} else if !ok {
			return nil, nil, "a client's name: blockd looks no names up"
		}
		return []string{net.String()}, nil, ""
	case looksClient(lower):
		return nil, nil, "an address or a network of clients in a table of mail addresses"
	case lower == "<>":
		return nil, nil, "bounces always pass: the null sender cannot be listed"
	case !slices.ContainsFunc(pf.samples(t, r), func(m Mail) bool { return pf.reached(t, r, &m) }):
		return nil, nil, "Postfix never asks for such a key"
	case at < 0 && strings.HasPrefix(lower, "."):
		return []string{lower}, nil, ""
	case at < 0 && pf.rules.parents:
		return []string{lower}, nil, ""
	case at < 0:
		return []string{"@" + lower}, nil, ""
	}
	local, domain := lower[:at], lower[at+1:]
	if pf.rules.delimiter != "" && pf.rules.unextended(local) == local && !strings.Contains(local, `"`) {
		expr := "^" + regexp.QuoteMeta(local) + "[" + regexp.MustCompile(`[\]\\^-]`).ReplaceAllString(pf.rules.delimiter, `\$0`) + "].*@" + regexp.QuoteMeta(domain)
		if domain != "" {
			expr += "$"
		}
		expressions = []string{expr}
	}
	return []string{quoted(lower)}, expressions, ""
}

// recipientPolicies writes a [[policy]] for the recipients that a table lets pass. The lists of the tables behind it
// in the same restrictions do not count for them.
func (pf *postfix) recipientPolicies() {
	freed := map[string][]string{} // names of lists, by recipient
	var order []string
	for _, t := range pf.tables {
		if t.about != recipients {
			continue
		}
		var behind []string
		for _, list := range pf.order {
			tables := tablesOf(list)
			at := slices.Index(tables, t)
			for _, l := range pf.Lists {
				if at >= 0 && slices.Contains(tables[at+1:], l.from) {
					behind = append(behind, l.Name)
				}
			}
		}
		for _, r := range t.rows {
			a := pf.rules.action(r.value)
			switch {
			case r.Outcome != NotAsked:
			case a.deed != lets:
				r.Lose("it is about recipients; it stays with Postfix")
			case t.kind != indexedTable && t.kind != inlineTable:
				r.Lose("a policy names recipients, not expressions or networks")
			case len(behind) == 0:
				r.Lose("nothing that is carried over is asked behind it")
			default:
				keys, _, why := pf.keys(t, r)
				if why == "" && len(order) == maxRecipients {
					why = "there are too many recipients for policies"
				}
				if why != "" {
					r.Lose("%s", why)
					continue
				}
				r.List = "[[policy]]"
				text := keys[0]
				if name, ok := strings.CutPrefix(text, "@"); ok {
					text = "=" + name
				}
				if freed[text] == nil {
					order = append(order, text)
				}
				freed[text] = append(freed[text], behind...)
			}
		}
	}
	groups := map[string]int{}
	for _, recipient := range order {
		names := []string{}
		for _, l := range pf.Lists {
			if !slices.Contains(freed[recipient], l.Name) {
				names = append(names, l.Name)
			}
		}
		id := strings.Join(names, " ")
		at, ok := groups[id]
		if !ok {
			at = len(pf.Policies)
			groups[id] = at
			pf.Policies = append(pf.Policies, Policy{Lists: names})
		}
		pf.Policies[at].Recipients = append(pf.Policies[at].Recipients, recipient)
	}
}

// maxRecipients bounds the recipients of all policies; blockd takes no more.
const maxRecipients = 10_000

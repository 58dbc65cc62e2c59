package policy

import (
	"slices"

	"blockd/index"
	"blockd/policy/rule"
	"blockd/policy/verdict"
)

// sourcesOf is what all lists together are asked about.
func sourcesOf(rules map[string]rule.List) verdict.Sources {
	all := verdict.Sources(1 << verdict.EnvelopeSource)
	for _, r := range rules {
		all |= r.Match
	}
	return all
}

// narrowed reports whether some list is not asked about envelopes.
func narrowed(rules map[string]rule.List) bool {
	for _, r := range rules {
		if !r.Match.Has(verdict.EnvelopeSource) {
			return true
		}
	}
	return false
}

// asked takes out of matches those of lists that are not asked about s.
func (c *checks) asked(matches []index.Match, table []index.ListInfo, s verdict.Source) []index.Match {
	if s == verdict.EnvelopeSource && !c.narrow {
		return matches
	}
	return asked(c.rules, matches, table, s)
}

func asked(rules map[string]rule.List, matches []index.Match, table []index.ListInfo, s verdict.Source) []index.Match {
	return slices.DeleteFunc(matches, func(m index.Match) bool {
		return !rules[table[m.Row].Source.List].Match.Has(s)
	})
}

// passes reports whether no list has a part in any of these.
func passes(all []verdict.Verdict) bool {
	for i := range all {
		if all[i].Kind != verdict.Clear || len(all[i].Matches) > 0 {
			return false
		}
	}
	return true
}

func (c *checks) recordPassed(door *Door, recipient string, all []verdict.Verdict) {
	for i := range all {
		c.record(door, &all[i], recipient, &Decision{})
	}
}

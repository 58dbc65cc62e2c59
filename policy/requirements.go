package policy

import (
	"blockd/policy/rule"
	"blockd/policy/verdict"
)

// requirementsOf are those of the configuration.
func requirementsOf(rules map[string]rule.List, a rule.Auth) *verdict.Requirements {
	r := &verdict.Requirements{Require: map[string]verdict.Proof{}, Ignore: a.Ignore, Clients: a.Clients}
	for name, l := range rules {
		if l.Require != 0 {
			r.Require[name] = l.Require
		}
	}
	return r
}

// sharesOf are those of the configuration; nil if every list counts for all senders.
func sharesOf(rules map[string]rule.List, key [verdict.ShareKeySize]byte) *verdict.Shares {
	percents := map[string]float64{}
	for name, l := range rules {
		if l.Percent != 0 {
			percents[name] = l.Percent
		}
	}
	return verdict.NewShares(key, percents)
}

package policy

import (
	"blockd/rule"
	"blockd/verdict"
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

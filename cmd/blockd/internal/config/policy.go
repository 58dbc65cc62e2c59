package config

import (
	"fmt"
	"slices"

	"blockd/index/live"
	"blockd/internal/spelling"
	"blockd/policy/rule"
)

// Policy is [[policy]], one table for some recipients: the lists that count for them (docs/lists.md).
// The most specific recipient decides, and a recipient of no policy is served by all lists. What the
// other lists find is logged and counted.
type Policy struct {
	// As in a plain list: "vip@example.org", "sales@" (at any domain), "example.org" (and below),
	// "=example.org" (that name alone), ".example.org" (below it); 10,000 in all policies.
	Recipients []string `toml:"recipients"`
	// The names of the lists that block and allow; [] is none of them.
	Lists []string `toml:"lists"`
}

// validatePolicies checks every [[policy]] against the lists that there are.
func (c Config) validatePolicies(f *Faults) {
	var names []string
	for _, l := range c.Lists {
		names = append(names, l.Name)
	}
	if c.Live.Folder != None {
		names = append(names, live.ListName)
	}
	keys, seen := 0, map[string]bool{}
	for i, p := range c.Policies {
		at := fmt.Sprintf("policy[%d]", i)
		if c.SMTP.Open() && c.SMTP.RejectAt == "mail" {
			f.add(at, `cannot act with smtp.reject_at = "mail", which refuses before a recipient is known`)
		}
		if keys += len(p.Recipients); keys > rule.MaxRecipientKeys {
			f.add(at+".recipients", "more than %d recipients in all policies", rule.MaxRecipientKeys)
			break // before a text of each of them
		}
		p.validateRecipients(f, at, seen)
		p.validateLists(f, at, names, c.Fleet.On())
	}
}

func (p Policy) validateRecipients(f *Faults, at string, seen map[string]bool) {
	if len(p.Recipients) == 0 {
		f.add(at+".recipients", `is missing; want addresses or domains such as "vip@example.org", "example.org", ".example.org"`)
	}
	for i, text := range p.Recipients {
		at := fmt.Sprintf("%s.recipients[%d]", at, i)
		key, scope, err := rule.RecipientKey(text)
		if err != nil {
			f.add(at, "want an address or a domain, have %v", err)
			continue
		}
		id := scope.String() + " " + key.Text
		if seen[id] {
			f.add(at, "%q has a policy above", text)
		}
		seen[id] = true
	}
}

// validateLists: of a fleet, which lists there are is known later.
func (p Policy) validateLists(f *Faults, at string, names []string, fleet bool) {
	if p.Lists == nil {
		f.add(at+".lists", "is missing; want names of lists, [] for none of them")
	}
	for i, name := range p.Lists {
		if !slices.Contains(names, name) && !fleet {
			f.add(fmt.Sprintf("%s.lists[%d]", at, i), "no [[list]] is named %q%s", name, spelling.Hint(name, "", names))
		}
	}
}

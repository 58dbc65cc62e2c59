package policy

import (
	"blockd/lists"
	"blockd/mail/addr"
	"blockd/policy/rule"
)

// policyTable finds the policy of a recipient.
type policyTable struct {
	policies map[scopedKey]int // into lists
	lists    []map[string]bool // names that count, by policy
	groups   []group           // by policy
}

// scopedKey is a recipient of a policy. Keys of different kinds differ as text.
type scopedKey struct {
	text  string
	scope lists.Scope
}

// newPolicyTable takes what is no recipient for one that nobody ever writes to,
// and the first of two policies for one recipient; the configuration's check
// reports both.
func newPolicyTable(all []rule.Recipients, rules map[string]rule.List) policyTable {
	t := policyTable{policies: map[scopedKey]int{}}
	for i, p := range all {
		counting := make(map[string]bool, len(p.Lists))
		for _, name := range p.Lists {
			counting[name] = true
		}
		t.lists = append(t.lists, counting)
		t.groups = append(t.groups, t.groupOf(counting, rules))
		for _, text := range p.Recipients {
			key, scope, err := rule.RecipientKey(text)
			if _, taken := t.policies[scopedKey{key.Text, scope}]; err == nil && !taken {
				t.policies[scopedKey{key.Text, scope}] = i
			}
		}
	}
	return t
}

// of returns the names of the lists that count for a recipient, nil if all do.
// The most specific key of the recipient that has a policy decides, in the order
// that is the senders': address, exact name, longest name, local-part.
func (t *policyTable) of(recipient string) map[string]bool {
	if i := t.place(recipient); i >= 0 {
		return t.lists[i]
	}
	return nil
}

// groupOf is the group of a policy of these lists.
func (t *policyTable) groupOf(counting map[string]bool, rules map[string]rule.List) group {
	every := map[string]bool{}
	for name := range rules {
		every[name] = true
	}
	for i, other := range append([]map[string]bool{nil, every}, t.lists...) {
		if sameForHeaders(counting, other, rules) {
			return unread + group(i)
		}
	}
	return allRead
}

// group is the group of a recipient's policy.
func (t *policyTable) group(recipient string) group {
	if i := t.place(recipient); i >= 0 {
		return t.groups[i]
	}
	return allRead
}

// sameForHeaders reports whether the same lists that are asked about header fields
// count in both.
func sameForHeaders(a, b map[string]bool, rules map[string]rule.List) bool {
	for name, r := range rules {
		if r.Match.Header() && a[name] != b[name] {
			return false
		}
	}
	return true
}

// place is of's answer as a place in lists, -1 for all lists.
func (t *policyTable) place(recipient string) int {
	if len(t.policies) == 0 || recipient == "" {
		return -1
	}
	a, err := addr.Parse(recipient)
	if err != nil {
		return -1
	}
	local := scopedKey{}
	for _, key := range a.Keys(nil) {
		found := -1
		switch own := key.Text == a.Domain(); {
		case key.Kind == addr.Address:
			found = t.first(scopedKey{key.Text, lists.Exact})
		case key.Kind == addr.Local:
			local = scopedKey{key.Text, lists.Local}
		case own:
			if found = t.first(scopedKey{key.Text, lists.Exact}); found < 0 {
				found = t.first(scopedKey{key.Text, lists.Tree})
			}
		default:
			found = t.first(scopedKey{key.Text, lists.Tree}, scopedKey{key.Text, lists.Sub})
		}
		if found >= 0 {
			return found
		}
	}
	return t.first(local)
}

// without reports whether no list at all counts for a recipient.
func (t *policyTable) without(recipient string) bool {
	only := t.of(recipient)
	return only != nil && len(only) == 0
}

// first is the first policy that has one of equally specific keys, or -1.
func (t *policyTable) first(keys ...scopedKey) int {
	found := -1
	for _, key := range keys {
		if i, ok := t.policies[key]; ok && (found < 0 || i < found) {
			found = i
		}
	}
	return found
}

package policy

import (
	"fmt"
	"strings"

	"blockd/addr"
	"blockd/lists"
)

// MaxRecipientKeys bounds the recipients of all policies together: 10,000 keys
// are two megabytes, and who has more of them wants a server a tenant.
const MaxRecipientKeys = 10_000

// RecipientPolicy says which lists count for some recipients. Other lists are
// still reported and counted, and neither refuse nor allow anything for them.
type RecipientPolicy struct {
	Recipients []string // as RecipientKey reads them
	Lists      []string // names; none = no list counts
}

// RecipientKey reads a recipient of a policy, which is written as an entry of a
// plain list (docs/lists.md, section 2): "vip@example.org", "sales@" (at any
// domain), "example.org" (the name and all below), "=example.org" or
// "@example.org" (the name alone), ".example.net" (the names below).
func RecipientKey(text string) (addr.Key, lists.Scope, error) {
	for _, below := range []string{"*@*.", "*@.", "@.", "*.", "."} {
		if name, ok := strings.CutPrefix(text, below); ok {
			return domainKey(name, lists.Sub)
		}
	}
	local, domain, isAddress := strings.Cut(text, "@")
	switch {
	case !isAddress && strings.HasPrefix(text, "="):
		return domainKey(text[1:], lists.Exact)
	case !isAddress && strings.HasPrefix(text, "["):
		return addr.Key{}, 0, fmt.Errorf("%q: a client's address, no recipient", text)
	case !isAddress:
		return domainKey(text, lists.Tree)
	case local == "", local == "*":
		return domainKey(domain, lists.Exact)
	case strings.HasPrefix(local, "*"), strings.HasSuffix(local, "*"):
		// A list would take it for a pattern; as a mailbox nobody would mean it.
		return addr.Key{}, 0, fmt.Errorf("%q: a pattern, no recipient", text)
	case strings.HasSuffix(text, "@"):
		key, err := addr.LocalKey(strings.TrimSuffix(text, "@"))
		return key, lists.Local, err
	}
	a, err := addr.Parse(text)
	if err != nil {
		return addr.Key{}, 0, err
	}
	key, ok := a.Key()
	if !ok {
		return addr.Key{}, 0, fmt.Errorf("%q: no address with a domain", text)
	}
	return key, lists.Exact, nil
}

func domainKey(name string, s lists.Scope) (addr.Key, lists.Scope, error) {
	key, err := addr.DomainKey(name)
	return key, s, err
}

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
func newPolicyTable(all []RecipientPolicy, rules map[string]ListRule) policyTable {
	t := policyTable{policies: map[scopedKey]int{}}
	for i, p := range all {
		counting := make(map[string]bool, len(p.Lists))
		for _, name := range p.Lists {
			counting[name] = true
		}
		t.lists = append(t.lists, counting)
		t.groups = append(t.groups, t.groupOf(counting, rules))
		for _, text := range p.Recipients {
			key, scope, err := RecipientKey(text)
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
func (t *policyTable) groupOf(counting map[string]bool, rules map[string]ListRule) group {
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
func sameForHeaders(a, b map[string]bool, rules map[string]ListRule) bool {
	for name, rule := range rules {
		if rule.Match.Header() && a[name] != b[name] {
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

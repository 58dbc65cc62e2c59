package rule

import (
	"fmt"
	"strings"

	"blockd/lists"
	"blockd/mail/addr"
)

// MaxRecipientKeys bounds the recipients of all policies together: 10,000 keys
// are two megabytes, and who has more of them wants a server a tenant.
const MaxRecipientKeys = 10_000

// Recipients says which lists count for some recipients. Other lists are
// still reported and counted, and neither refuse nor allow anything for them.
type Recipients struct {
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
		// In a list it would be a pattern, and no operator means a mailbox by it.
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

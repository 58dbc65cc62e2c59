package rule

import (
	"fmt"
	"strings"

	"blockd/addr"
)

// MaxAliases bounds the aliases that lead to owners: a million are some 200 MB.
const MaxAliases = 1_000_000

// Owners says who owns a recipient, and so whose entries count for mail to it (docs/recipients.md). The zero
// Owners gives nobody an owner: begin with DefaultOwners.
type Owners struct {
	Addresses  bool     // its mailbox
	Domains    bool     // its domain
	Subaddress string   // each octet separates a tag from a mailbox; "" = there are no tags
	Aliases    *Aliases // nil = there are none
}

// DefaultOwners is what counts where nothing is said.
func DefaultOwners() Owners { return Owners{Addresses: true, Domains: true, Subaddress: "+"} }

// ParseOwners reads the kinds of owners: "address", "domain", or both with a comma.
func ParseOwners(text string) (o Owners, err error) {
	for word := range strings.SplitSeq(text, ",") {
		switch word = strings.TrimSpace(word); {
		case word == "address" && !o.Addresses:
			o.Addresses = true
		case word == "domain" && !o.Domains:
			o.Domains = true
		default:
			return o, fmt.Errorf(`want "address", "domain" or "address,domain", have %q`, text)
		}
	}
	return o, nil
}

// Aliases lead from addresses to those that own what is written to them. They never change, so
// that goroutines may share them.
type Aliases struct{ to map[string]addr.Addr }

// Add leads mail for alias to owner; the first one counts of two for the same alias. A domain as alias
// ("@old.example") leads the whole domain to one with the same local-parts.
func (a *Aliases) Add(alias, owner string) error {
	from, err := addr.ParseOwner(alias)
	if err != nil {
		return fmt.Errorf("alias: %w", err)
	}
	to, err := addr.ParseOwner(owner)
	if err != nil {
		return fmt.Errorf("owner: %w", err)
	}
	if from.Kind == addr.Domain && to.Kind != addr.Domain {
		return fmt.Errorf("alias %s: a whole domain leads to a domain", from.Text)
	}
	if to.Kind == addr.Domain && from.Kind != addr.Domain {
		return fmt.Errorf("alias %s: a mailbox leads to a mailbox", from.Text)
	}
	text := to.Text
	if to.Kind == addr.Domain {
		text = "x@" + text
	}
	owns, err := addr.Parse(text)
	if err != nil {
		return err
	}
	if a.to == nil {
		a.to = map[string]addr.Addr{}
	}
	if _, known := a.to[from.Text]; !known {
		if len(a.to) == MaxAliases {
			return fmt.Errorf("more than %d aliases", MaxAliases)
		}
		a.to[from.Text] = owns
	}
	return nil
}

// Len is the number of aliases.
func (a *Aliases) Len() int {
	if a == nil {
		return 0
	}
	return len(a.to)
}

// Owner is who owns what is written to an address, of which untagged is without its tag: the alias of the
// address, else of that without its tag, else the address at the domain that its domain leads to. Without
// any it is untagged. One step is taken: an alias of an alias leads to that.
func (a *Aliases) Owner(address, untagged addr.Addr) addr.Addr {
	if to, ok := a.to[address.String()]; ok {
		return to
	}
	if to, ok := a.to[untagged.String()]; ok {
		return to
	}
	if to, ok := a.to[untagged.Domain()]; ok {
		if moved, err := addr.Parse(untagged.Local() + "@" + to.Domain()); err == nil {
			return moved
		}
	}
	return untagged
}

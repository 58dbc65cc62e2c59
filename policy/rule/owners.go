package rule

import (
	"encoding/csv"
	"errors"
	"fmt"
	"io"
	"strings"
	"sync/atomic"

	"blockd/mail/addr"
)

// MaxAliases bounds the aliases that lead to owners: a million are some 200 MB.
const MaxAliases = 1_000_000

// Owners says who owns a recipient, and so whose entries count for mail to it (docs/recipients.md). The zero
// Owners gives nobody an owner: begin with DefaultOwners.
type Owners struct {
	Addresses  bool   // its mailbox
	Domains    bool   // its domain
	Subaddress string // each octet separates a tag from a mailbox; "" = there are no tags
	Aliases    *Book  // nil = there are none
}

// DefaultOwners is what counts where nothing is said.
func DefaultOwners() Owners { return Owners{Addresses: true, Domains: true, Subaddress: "+"} }

// Mailbox is the one that mail for an address belongs to: by the aliases, and without a tag.
func (o *Owners) Mailbox(a addr.Addr) addr.Addr {
	untagged := a.Untagged(o.Subaddress)
	if aliases := o.Aliases.Now(); aliases != nil {
		return aliases.Owner(a, untagged)
	}
	return untagged
}

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

// Book has the aliases that are in force, and is safe for concurrent use. The zero Book and the nil Book have none.
type Book struct{ now atomic.Pointer[Aliases] }

// Set makes aliases those in force.
func (b *Book) Set(a *Aliases) { b.now.Store(a) }

// Now are those in force; nil = there are none.
func (b *Book) Now() *Aliases {
	if b == nil {
		return nil
	}
	return b.now.Load()
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

// ReadAliases reads lines "alias,owner"; a first line with these two words and lines that begin with # say nothing. The
// error names the first line that is wrong: then nothing is read.
func ReadAliases(in io.Reader) (*Aliases, error) {
	r := csv.NewReader(in)
	r.FieldsPerRecord, r.Comment, r.TrimLeadingSpace, r.ReuseRecord = 2, '#', true, true
	all := &Aliases{}
	for first := true; ; first = false {
		record, err := r.Read()
		if errors.Is(err, io.EOF) {
			return all, nil
		}
		if err != nil {
			return nil, err
		}
		alias, owner := strings.TrimSpace(record[0]), strings.TrimSpace(record[1])
		if first && strings.EqualFold(alias, "alias") && strings.EqualFold(owner, "owner") {
			continue
		}
		if err := all.Add(alias, owner); err != nil {
			line, _ := r.FieldPos(0)
			return nil, fmt.Errorf("line %d: %w", line, err)
		}
	}
}

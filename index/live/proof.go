package live

import (
	"fmt"

	"blockd/lists"
)

// An exception may need proof. A build would make of it one that needs none, and so would every program that reads an index.
// So it is in no list for a build, as entries with owners are not, and look-ups always search for it.

// provedKinds is the bit of the kinds of keys that says that some entries need proof.
const provedKinds = 62

// provable refuses an entry that SPF and DKIM, which vouch for a domain, say nothing about.
func provable(it *lists.Item, needsProof bool) error {
	switch {
	case !needsProof:
		return nil
	case it.Owner.Text != "":
		return fmt.Errorf("%w: an owner's entry asks for no proof", ErrInvalid)
	case it.Action != lists.Allow:
		return fmt.Errorf("%w: a block needs no proof", ErrInvalid)
	case it.Kind != lists.Domain && (it.Kind != lists.Addr || it.Scope == lists.Local):
		return fmt.Errorf("%w: SPF and DKIM prove a domain, so want an address or a domain where they are required", ErrInvalid)
	}
	return nil
}

// newTo reports whether an index with the entries up to a number lacks the entry.
func (e *Entry) newTo(number uint64) bool { return e.Number > number || e.NeedsProof }

// hasProved reports whether some record needs proof.
func (s *snapshot) hasProved() bool { return s != nil && s.kinds&(1<<provedKinds) != 0 }

// proved reports whether an entry that the snapshot is to have needs proof.
func (z *frozen) proved(changed marks) bool {
	if z.base.hasProved() {
		for i := range z.base.count {
			if z.base.proved(i) && !changed.has(i) {
				return true
			}
		}
	}
	for _, e := range z.changes {
		if e.NeedsProof && !e.gone {
			return true
		}
	}
	return false
}

// NeedsProof reports whether there are, or were, exceptions that need proof. A nil Set has none. It takes no lock.
func (s *Set) NeedsProof() bool {
	if s == nil {
		return false
	}
	v := s.view.Load()
	b := v.delta.body.Load()
	return b != nil && b.kinds.Load()&(1<<provedKinds) != 0 || v.base.hasProved()
}

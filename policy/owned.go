package policy

import (
	"time"

	"blockd/index"
	"blockd/mail/addr"
	"blockd/policy/rule"
	"blockd/policy/verdict"
)

// ownersOf finds out who owns a recipient. ok is false if nobody does: it is no address, or
// [recipients] gives such recipients no owner.
func ownersOf(o *rule.Owners, recipient string) (q index.OwnedQuestion, ok bool) {
	a, err := addr.Parse(recipient)
	if err != nil || a.Domain() == "" {
		return q, false
	}
	q.Recipient, _ = a.Key()
	owner := o.Mailbox(a)
	if o.Addresses {
		q.Owners[0], _ = owner.Key()
	}
	if o.Domains {
		q.Owners[1], _ = owner.DomainKey()
	}
	return q, true
}

// owned returns all, the verdicts of a sender's spellings, with what the owners of a recipient say. It is all itself
// if they say nothing. What cannot be read is counted and logged, and changes nothing.
func (c *checks) owned(ix *index.Index, all []verdict.Verdict, recipient string) []verdict.Verdict {
	q, ok := ownersOf(&c.owners, recipient)
	if !ok {
		return all
	}
	if !c.entries.Personal() {
		if may, err := ix.MayOwn(&q); err == nil && !may { // and no time is asked for, which takes longer
			return all
		}
	}
	now := time.Now()
	var with []verdict.Verdict
	for i := range all {
		v := &all[i]
		if v.Generation != ix.Generation() || v.Internal() {
			continue
		}
		q.Sender, q.Domain = v.Sender, v.Domain
		matches, err := ix.LookupOwned(nil, &q, now)
		if err != nil {
			c.failed(inStore, err)
			continue
		}
		matches, table := c.entries.AmendOwned(matches, v.Lists, &q, now)
		if len(matches) == 0 {
			continue
		}
		if with == nil {
			with = append(with, all...)
		}
		with[i].Lists = table
		with[i] = with[i].Own(matches)
	}
	if with == nil {
		return all
	}
	return with
}

// personal reports whether some entries are about recipients.
func (c *checks) personal(ix *index.Index) bool { return ix.Personal() || c.entries.Personal() }

// forOwners are the verdicts of the sender as they are for a recipient, with what its owners say.
func (t *Transaction) forOwners(recipient string) []verdict.Verdict {
	if recipient == "" || t.personal == nil || t.checker.isExempt(recipient) {
		return t.verdicts
	}
	if t.ownedFor != recipient {
		t.owned, t.ownedFor = t.checker.owned(t.personal, t.verdicts, recipient), recipient
	}
	return t.owned
}

// hearsOwners notes the generation that tells of entries about recipients, if such entries count for the message.
// Those of trusted clients do not, nor those of clients that are not asked about after their login.
func (t *Transaction) hearsOwners(skips bool) {
	if t.Client.Trusted || skips || t.door.SendersOnly {
		return
	}
	if ix := t.checker.serving(); ix != nil && t.checker.personal(ix) {
		t.index, t.personal = ix, ix
	}
}

// proved gives the verdicts of the sender the evidence that was found for a recipient.
func (t *Transaction) proved(i int, e verdict.Evidence) {
	t.verdicts[i] = t.verdicts[i].Prove(e)
	t.ownedFor, t.owned = "", nil
}

// fixedLists are the names of lists that no owner overrides, nil if there are none.
func fixedLists(rules map[string]rule.List) (fixed map[string]bool) {
	for name, r := range rules {
		if r.NoOverride {
			if fixed == nil {
				fixed = map[string]bool{}
			}
			fixed[name] = true
		}
	}
	return fixed
}

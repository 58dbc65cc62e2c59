package index

import (
	"context"
	"iter"
	"math/bits"
	"runtime"
	"time"

	"blockd/bloom"
	"blockd/index/internal/format"
	"blockd/lists"
	"blockd/mail/addr"
)

// OwnedQuestion asks what the owners of a recipient say about a sender.
type OwnedQuestion struct {
	Owners    [2]addr.Key // of the recipient: mailbox and domain, in the order of their say; a zero Key is none
	Recipient addr.Key    // its address as the client wrote it, canonical; zero = it has no key
	Sender    addr.Addr
	Domain    addr.Key // of a sender of which only this can be read
}

// Owners is the number of owners that have entries. It is counted when the file is written: an
// owner whose last entry an Update has removed counts until the next build.
func (ix *Index) Owners() uint64 { return uint64(ix.file.Owners) }

// Personal reports whether some entries are about recipients, so that LookupOwned can find something.
func (ix *Index) Personal() bool { return ix.file.OwnerMask != 0 }

// LookupOwned appends to dst the entries of q.Owners that cover the sender, those of the first owner
// first, and each owner's as Lookup orders them; and the entries for the recipient itself, each
// before those for senders of the same owner. Entries of everybody for the recipient come last. It does not
// allocate when nothing matches. An error wraps ErrRead.
//
// An owner without entries costs a key that the filter is asked for. If the filter says "perhaps", the
// entries are looked for without a look at the owner's record: that would be a page.
func (ix *Index) LookupOwned(dst []Match, q *OwnedQuestion, now time.Time) ([]Match, error) {
	marks, err := ix.markOwners(q)
	if err != nil || marks.perhaps == 0 {
		return dst, err
	}
	perhaps, hashes, of := marks.perhaps, &marks.hashes, &marks.of
	found := len(dst)
	for ; perhaps != 0; perhaps &= perhaps - 1 {
		i := bits.TrailingZeros32(perhaps)
		if of[i] < len(q.Owners) {
			dst, err = ix.lookupOwner(dst, q, q.Owners[of[i]], now.Unix())
		} else {
			c := ownedCheck{recipient: q.Recipient}
			c.add(hashes[i], aboutRecipient)
			dst, err = ix.confirmOwned(dst, &c, nil, now.Unix())
		}
		if err != nil {
			return dst[:found], err
		}
	}
	runtime.KeepAlive(ix)
	return dst, nil
}

// MayOwn reports whether the filter says "perhaps" of one of q's owners, or of the recipient: else LookupOwned finds nothing.
func (ix *Index) MayOwn(q *OwnedQuestion) (bool, error) {
	marks, err := ix.markOwners(q)
	return marks.perhaps != 0, err
}

// ownerMarks are the markers of a question's owners, and the key of its recipient.
type ownerMarks struct {
	hashes  [3]bloom.Hash
	of      [3]int // places of owners; beyond them the recipient
	perhaps uint32 // the filter's answers, a bit for each
}

// markOwners asks the filter for the markers.
func (ix *Index) markOwners(q *OwnedQuestion) (m ownerMarks, err error) {
	mask, n := ix.file.OwnerMask, 0
	if mask == 0 {
		return m, nil
	}
	for i := range q.Owners {
		owner := &q.Owners[i]
		if owner.Text != "" && len(owner.Text) <= format.MaxKey && mask&format.OwnerBit(*owner) != 0 {
			m.hashes[n], m.of[n] = ix.hashMark(owner.Text, false), i
			n++
		}
	}
	if q.Recipient.Text != "" && mask&format.RecipientsAsKey != 0 {
		m.hashes[n], m.of[n] = ix.hashMark(q.Recipient.Text, true), len(q.Owners)
		n++
	}
	if n > 0 {
		m.perhaps, err = ix.perhaps(m.hashes[:n])
		ix.asked.Add(uint64(n))
	}
	return m, err
}

// usualMark and usualOwned are room for the keys of usual owners, and of their entries, in octets: to clear room for the longest ones costs
// as much as to hash them.
const usualMark, usualOwned = 64, 160

// hashMark hashes the key of an owner, or of a recipient.
func (ix *Index) hashMark(text string, recipient bool) bloom.Hash {
	if len(text) >= usualMark {
		return ix.hashLongMark(text, recipient)
	}
	var room [usualMark]byte
	if recipient {
		return ix.file.Hash.SumPlain(format.AppendRecipient(room[:0], text))
	}
	return ix.file.Hash.SumPlain(format.AppendOwner(room[:0], text))
}

func (ix *Index) hashLongMark(text string, recipient bool) bloom.Hash {
	var room [1 + format.MaxKey]byte
	if recipient {
		return ix.file.Hash.SumPlain(format.AppendRecipient(room[:0], text))
	}
	return ix.file.Hash.SumPlain(format.AppendOwner(room[:0], text))
}

// aboutRecipient stands for the place of a key: it is not the sender's, but the recipient's.
const aboutRecipient = -1

// ownedCheck is what the filter says "perhaps" of, about one owner. Its keys are confirmed together.
type ownedCheck struct {
	owner     addr.Key // zero = everybody's
	recipient addr.Key
	own       int // place of the sender's own domain among his keys

	hashes [bloom.BatchSize / 2]bloom.Hash
	of     [bloom.BatchSize / 2]int16 // places of keys, or aboutRecipient
	n      int
}

func (c *ownedCheck) add(h bloom.Hash, of int) {
	c.hashes[c.n], c.of[c.n] = h, int16(of)
	c.n++
}

// lookupOwner asks for all keys of one owner.
func (ix *Index) lookupOwner(dst []Match, q *OwnedQuestion, owner addr.Key, now int64) ([]Match, error) {
	longest := max(len(q.Sender.String()), len(q.Domain.Text), len(q.Recipient.Text))
	if len(owner.Text)+longest+len("\x05\x01\x09") <= usualOwned {
		var room [usualOwned]byte
		return ix.lookupKeys(dst, q, owner, now, room[:0])
	}
	var room [format.OwnedRoom]byte
	return ix.lookupKeys(dst, q, owner, now, room[:0])
}

// lookupKeys is lookupOwner with room for each of the keys.
func (ix *Index) lookupKeys(dst []Match, q *OwnedQuestion, owner addr.Key, now int64, room []byte) ([]Match, error) {
	var usual [usualKeys]addr.Key
	keys := q.Sender.Keys(usual[:0])
	if q.Domain.Text != "" {
		keys = q.Domain.AndParents(keys)
	}
	c := ownedCheck{owner: owner, recipient: q.Recipient, own: localLast(keys)}
	begin := format.AppendOwned(room, owner.Text)
	if q.Recipient.Text != "" {
		c.add(ix.file.Hash.SumPlain(format.AppendRecipient(begin, q.Recipient.Text)), aboutRecipient)
	}
	asked := uint64(0)
	for i := 0; ; i++ {
		if c.n == len(c.hashes) || i == len(keys) {
			perhaps, err := ix.perhaps(c.hashes[:c.n])
			if asked += uint64(c.n); err == nil && perhaps != 0 {
				c.keep(perhaps)
				dst, err = ix.confirmOwned(dst, &c, keys, now)
			}
			if err != nil || i == len(keys) {
				ix.asked.Add(asked)
				return dst, err
			}
			c.n = 0
		}
		if len(keys[i].Text) <= format.MaxKey { // else no list can hold it
			c.add(ix.file.Hash.SumPlain(append(begin, keys[i].Text...)), i)
		}
	}
}

// keep leaves those whose bit is set.
func (c *ownedCheck) keep(perhaps uint32) {
	c.n = 0
	for ; perhaps != 0; perhaps &= perhaps - 1 {
		i := bits.TrailingZeros32(perhaps)
		c.hashes[c.n], c.of[c.n] = c.hashes[i], c.of[i]
		c.n++
	}
}

// confirmOwned asks the store for the keys of c. Their pages are fetched together.
func (ix *Index) confirmOwned(dst []Match, c *ownedCheck, keys []addr.Key, now int64) ([]Match, error) {
	for _, h := range c.hashes[:c.n] {
		ix.fetchPage(h)
	}
	falsePositives := uint64(0)
	err := ix.mapping.guarded(func() error {
		var room [format.OwnedRoom]byte
		begin := room[:0]
		if c.owner.Text != "" {
			begin = format.AppendOwned(begin, c.owner.Text)
		}
		for i, h := range c.hashes[:c.n] {
			m, stored, ranks := Match{Kind: lists.Recipient, Owner: c.owner, Key: c.recipient}, begin, [2]uint8{1 << lists.Exact}
			if at := int(c.of[i]); at == aboutRecipient {
				stored = format.AppendRecipient(stored, m.Key.Text)
			} else {
				m.Key = keys[at]
				m.Kind, ranks = format.KeyKind(m.Key.Kind), rank(m.Key.Kind, at == c.own)
				stored = append(stored, m.Key.Text...)
			}
			record, listed, err := ix.findWhere(h, func(k []byte) bool { return string(k) == string(stored) })
			if err != nil {
				return err
			}
			if !listed {
				falsePositives++
				continue
			}
			for _, scopes := range ranks {
				if dst, err = ix.appendMatches(dst, record, m, scopes, now); err != nil {
					return err
				}
			}
		}
		return nil
	})
	if falsePositives > 0 && err == nil {
		ix.falsePositives.Add(falsePositives)
	}
	return dst, ix.unreadable(err)
}

// OwnedEntries walks over the entries about recipients: those of one owner, or with a zero Key all of them, those
// of everybody about a recipient too. They come in no order. Every page of the file is read, so this is for people; a
// second or two for twenty million entries. Only callers that may see what the owner has may show it.
func (ix *Index) OwnedEntries(ctx context.Context, owner addr.Key) iter.Seq2[Entry, error] {
	return func(yield func(Entry, error) bool) {
		wanted := func(key []byte) bool {
			if !format.IsPersonal(key) || format.IsOwner(key) {
				return false
			}
			if owner.Text == "" {
				return true
			}
			of, _ := format.CutOwner(key)
			return string(of) == owner.Text
		}
		if err := ix.walkPages(ctx, wanted, yield); err != nil {
			yield(Entry{}, err)
		}
		runtime.KeepAlive(ix)
	}
}

// anyones tells the keys that walks over all entries tell of: neither made ones, nor those about recipients.
func anyones(key []byte) bool { return !format.IsDigest(key) && !format.IsPersonal(key) }

package index

import (
	"context"
	"iter"
	"math/bits"
	"runtime"
	"time"

	"blockd/addr"
	"blockd/bloom"
	"blockd/index/internal/format"
	"blockd/lists"
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
	mask := ix.file.OwnerMask
	if mask == 0 {
		return dst, nil
	}
	var hashes [3]bloom.Hash
	var of [3]int
	var room [format.OwnedRoom]byte
	n := 0
	for i, owner := range q.Owners {
		if owner.Text != "" && len(owner.Text) <= format.MaxKey && mask&format.OwnerBit(owner) != 0 {
			hashes[n], of[n] = ix.file.Hash.SumPlain(format.AppendOwner(room[:0], owner.Text)), i
			n++
		}
	}
	if q.Recipient.Text != "" && mask&format.RecipientsAsKey != 0 {
		hashes[n], of[n] = ix.file.Hash.SumPlain(format.AppendRecipient(room[:0], q.Recipient.Text)), len(q.Owners)
		n++
	}
	if n == 0 {
		return dst, nil
	}
	perhaps, err := ix.perhaps(hashes[:n])
	ix.asked.Add(uint64(n))
	if err != nil || perhaps == 0 {
		return dst, err
	}
	found := len(dst)
	for ; perhaps != 0; perhaps &= perhaps - 1 {
		i := bits.TrailingZeros32(perhaps)
		if of[i] < len(q.Owners) {
			dst, err = ix.lookupOwner(dst, q, q.Owners[of[i]], now.Unix())
		} else {
			dst, err = ix.confirmPersonal(dst, hashes[i], addr.Key{}, q.Recipient, lists.Recipient, false, now.Unix())
		}
		if err != nil {
			return dst[:found], err
		}
	}
	runtime.KeepAlive(ix)
	return dst, nil
}

// lookupOwner asks for all keys of one owner.
func (ix *Index) lookupOwner(dst []Match, q *OwnedQuestion, owner addr.Key, now int64) ([]Match, error) {
	var room [usualKeys]addr.Key
	keys := q.Sender.Keys(room[:0])
	if q.Domain.Text != "" {
		keys = q.Domain.AndParents(keys)
	}
	own := localLast(keys)
	var buf [format.OwnedRoom]byte
	begin := len(format.AppendOwned(buf[:0], owner.Text))
	var hashes [bloom.BatchSize]bloom.Hash
	var of [bloom.BatchSize]int // -1: the recipient
	n := 0
	if q.Recipient.Text != "" {
		hashes[0], of[0] = ix.file.Hash.SumPlain(format.AppendRecipient(buf[:begin], q.Recipient.Text)), -1
		n++
	}
	for i := 0; ; i++ {
		if n == len(hashes) || i == len(keys) {
			perhaps, err := ix.perhaps(hashes[:n])
			ix.asked.Add(uint64(n))
			for ; err == nil && perhaps != 0; perhaps &= perhaps - 1 {
				k := bits.TrailingZeros32(perhaps)
				if at := of[k]; at < 0 {
					dst, err = ix.confirmPersonal(dst, hashes[k], owner, q.Recipient, lists.Recipient, false, now)
				} else {
					dst, err = ix.confirmPersonal(dst, hashes[k], owner, keys[at], format.KeyKind(keys[at].Kind), at == own, now)
				}
			}
			if err != nil || i == len(keys) {
				return dst, err
			}
			n = 0
		}
		if len(keys[i].Text) > format.MaxKey {
			continue // no list can hold it
		}
		hashes[n], of[n] = ix.file.Hash.SumPlain(append(buf[:begin], keys[i].Text...)), i
		n++
	}
}

// confirmPersonal asks the store for one key about a recipient, whose hash is h.
func (ix *Index) confirmPersonal(dst []Match, h bloom.Hash, owner, key addr.Key, kind lists.Kind, own bool, now int64) ([]Match, error) {
	ix.fetchPage(h)
	found := false
	err := ix.mapping.guarded(func() error {
		var buf [format.OwnedRoom]byte
		stored := buf[:0]
		if owner.Text != "" {
			stored = format.AppendOwned(stored, owner.Text)
		}
		ranks := rank(key.Kind, own)
		if kind == lists.Recipient {
			stored = format.AppendRecipient(stored, key.Text)
			ranks = [2]uint8{1 << lists.Exact}
		} else {
			stored = append(stored, key.Text...)
		}
		c, listed, err := ix.findWhere(h, func(k []byte) bool { return string(k) == string(stored) })
		if found = listed; err != nil || !listed {
			return err
		}
		m := Match{Kind: kind, Owner: owner, Key: key}
		for _, scopes := range ranks {
			if dst, err = ix.appendMatches(dst, c, m, scopes, now); err != nil {
				return err
			}
		}
		return nil
	})
	if err == nil && !found {
		ix.falsePositives.Add(1)
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

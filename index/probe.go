package index

import (
	"net/netip"
	"runtime"

	"blockd/bloom"
	"blockd/index/internal/format"
	"blockd/mail/addr"
)

// Probe is what the two halves of an index say of one key or network, for who
// wants to see how an answer came about.
type Probe struct {
	Key     addr.Key     // zero of a network
	Net     netip.Prefix // zero of a key
	Asked   bool         // false: no list has keys of this kind, so nobody was asked
	Perhaps bool         // the filter's answer
	Listed  bool         // the store's: it holds the key, whatever its entries' scopes are

	Owner     addr.Key // whose entry it would be; zero = everybody's
	Recipient bool     // Key is a recipient that is refused
}

// Marks reports whether the key is that of Owner himself: whether he has entries.
func (p *Probe) Marks() bool { return p.Owner.Text != "" && p.Key.Text == "" }

// Probe asks for keys one by one, and for the networks of client that are looked
// up, the longest first; a client that is not valid has none. It counts as no
// look-up. An error wraps ErrRead.
func (ix *Index) Probe(keys []addr.Key, client netip.Addr) ([]Probe, error) {
	var all []Probe
	for _, key := range keys {
		p := Probe{Key: key, Asked: ix.file.Kinds&key.KindBit() != 0}
		if err := ix.probeOne(&p, ix.file.Hash.SumString(key.Text), key.Text); err != nil {
			return nil, err
		}
		all = append(all, p)
	}
	client = client.WithZone("").Unmap()
	for _, length := range ix.file.Networks.Of(client) {
		p := Probe{Asked: true}
		p.Net, _ = client.Prefix(int(length))
		key := format.AppendNetKey(nil, p.Net)
		if err := ix.probeOne(&p, ix.file.Hash.Sum(key), string(key)); err != nil {
			return nil, err
		}
		all = append(all, p)
	}
	runtime.KeepAlive(ix)
	return all, nil
}

// ProbeOwned asks as Probe does for the keys of q, in the order of LookupOwned: of each owner first whether he has entries,
// and only if the filter says "perhaps" the others. The last one is the recipient's by everybody's lists. Only callers that may see what
// the owners have may show it.
func (ix *Index) ProbeOwned(q *OwnedQuestion) ([]Probe, error) {
	var all []Probe
	mask := ix.file.OwnerMask
	ask := func(p Probe, key []byte) (perhaps bool, err error) {
		if len(key) > format.OwnedRoom {
			return false, nil
		}
		err = ix.probeOne(&p, ix.file.Hash.SumPlain(key), string(key))
		all = append(all, p)
		return p.Perhaps, err
	}
	for _, owner := range q.Owners {
		if owner.Text == "" || len(owner.Text) > format.MaxKey {
			continue
		}
		perhaps, err := ask(Probe{Owner: owner, Asked: mask&format.OwnerBit(owner) != 0}, format.AppendOwner(nil, owner.Text))
		if err != nil {
			return nil, err
		}
		if !perhaps {
			continue
		}
		begin := format.AppendOwned(nil, owner.Text)
		if q.Recipient.Text != "" {
			if _, err := ask(Probe{Owner: owner, Key: q.Recipient, Recipient: true, Asked: true}, format.AppendRecipient(begin, q.Recipient.Text)); err != nil {
				return nil, err
			}
		}
		keys := q.Sender.Keys(nil)
		if q.Domain.Text != "" {
			keys = q.Domain.AndParents(keys)
		}
		for _, key := range keys {
			if len(key.Text) > format.MaxKey {
				continue
			}
			if _, err := ask(Probe{Owner: owner, Key: key, Asked: true}, append(begin, key.Text...)); err != nil {
				return nil, err
			}
		}
	}
	if q.Recipient.Text != "" && mask&format.RecipientsAsKey != 0 {
		if _, err := ask(Probe{Key: q.Recipient, Recipient: true, Asked: true}, format.AppendRecipient(nil, q.Recipient.Text)); err != nil {
			return nil, err
		}
	}
	runtime.KeepAlive(ix)
	return all, nil
}

func (ix *Index) probeOne(p *Probe, h bloom.Hash, key string) error {
	if !p.Asked {
		return nil
	}
	perhaps, err := ix.perhaps([]bloom.Hash{h})
	if p.Perhaps = perhaps != 0; err != nil || !p.Perhaps {
		return err
	}
	return ix.unreadable(ix.mapping.guarded(func() (err error) {
		_, p.Listed, err = ix.find(h, key)
		return err
	}))
}

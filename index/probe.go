package index

import (
	"net/netip"
	"runtime"

	"blockd/addr"
	"blockd/bloom"
	"blockd/index/internal/format"
)

// Probe is what the two halves of an index say of one key or network, for who
// wants to see how an answer came about.
type Probe struct {
	Key     addr.Key     // zero of a network
	Net     netip.Prefix // zero of a key
	Asked   bool         // false: no list has keys of this kind, so nobody was asked
	Perhaps bool         // the filter's answer
	Listed  bool         // the store's: it holds the key, whatever its entries' scopes are
}

// Probe asks for keys one by one, and for the networks of client that are looked
// up, the longest first; a client that is not valid has none. It counts as no
// look-up. An error wraps ErrRead.
func (ix *Index) Probe(keys []addr.Key, client netip.Addr) ([]Probe, error) {
	var all []Probe
	for _, key := range keys {
		p := Probe{Key: key, Asked: ix.file.Kinds&format.KindBit(key) != 0}
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

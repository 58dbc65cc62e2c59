package index

import (
	"errors"
	"fmt"
	"runtime"

	"blockd/bloom"
	"blockd/index/internal/format"
	"blockd/mail/addr"
	"blockd/mail/digest"
)

// ErrNoDigests is wrapped by the error of a digest that an index cannot be asked for: it was built
// without that algorithm.
var ErrNoDigests = errors.New("no such digests")

// Hashes are the algorithms of the digests by which addresses can be asked for.
func (ix *Index) Hashes() digest.Set { return ix.file.Digests.Set() }

// Digests is the number of keys for digests. Counts does not count them.
func (ix *Index) Digests() uint64 { return ix.file.Digests.Sum().Keys }

// AddressOf returns the address with digest d that some list has an entry for, of whatever action
// and scope, expired or held; found is false if there is none. What the lists say of it a Lookup
// tells. Entries for domains, local-parts and patterns make no address known.
//
// An error wraps ErrRead or ErrNoDigests: then nothing is known. AddressOf may be called by several
// goroutines at once, and allocates for an address that is found.
func (ix *Index) AddressOf(d digest.Digest) (address addr.Addr, found bool, err error) {
	if _, ok := ix.file.Digests[d.Algorithm]; !ok {
		return addr.Addr{}, false, fmt.Errorf("%w by %v in generation %s", ErrNoDigests, d.Algorithm, ix.generation)
	}
	h := ix.file.Hash.SumDigest(&d)
	perhaps, err := ix.perhaps([]bloom.Hash{h})
	ix.asked.Add(1)
	if err != nil || perhaps == 0 {
		return addr.Addr{}, false, err
	}
	var text string
	err = ix.unreadable(ix.mapping.guarded(func() (err error) {
		_, found, err = ix.findWhere(h, func(key []byte) bool {
			if !format.HasDigest(key, &d) {
				return false
			}
			text = string(format.DigestText(key))
			return true
		})
		return err
	}))
	runtime.KeepAlive(ix)
	if err != nil || !found {
		if err == nil {
			ix.falsePositives.Add(1)
		}
		return addr.Addr{}, false, err
	}
	if address, err = addr.Parse(text); err != nil { // a text that no writer of ours hashes
		return addr.Addr{}, false, ix.unreadable(format.Corrupt(ix.file.Sections[format.SecPages].Offset, "digest of %q, which is no address", text))
	}
	return address, true, nil
}

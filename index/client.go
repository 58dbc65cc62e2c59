package index

import (
	"math/bits"
	"net/netip"
	"runtime"
	"slices"
	"time"

	"blockd/bloom"
	"blockd/index/internal/format"
	"blockd/lists"
)

// LookupClient appends to dst every entry for client addresses that covers ip and
// has not expired at now, the longest prefix first; between equal ones in the order
// of Lists. An IPv4 address mapped into IPv6 is the IPv4 address; a zone is dropped.
// It does not allocate when nothing matches. An error (wrapping ErrRead) means that
// the store could not be read: the client is then neither listed nor clear.
func (ix *Index) LookupClient(dst []Match, ip netip.Addr, now time.Time) ([]Match, error) {
	ip = ip.WithZone("").Unmap()
	lengths := ix.file.Networks.Of(ip)
	if len(lengths) == 0 {
		return dst, nil
	}
	found := len(dst)
	for part := range slices.Chunk(lengths, bloom.BatchSize) {
		var err error
		if dst, err = ix.lookupNets(dst, ip, part, now.Unix()); err != nil {
			return dst[:found], err
		}
	}
	runtime.KeepAlive(ix)
	return dst, nil
}

// lookupNets asks for the networks of ip with these lengths.
func (ix *Index) lookupNets(dst []Match, ip netip.Addr, lengths []uint8, now int64) ([]Match, error) {
	var hashes [bloom.BatchSize]bloom.Hash
	for i, length := range lengths {
		var key [format.MaxNetKey]byte
		p, _ := ip.Prefix(int(length)) // which DecodeNetLengths has bounded
		hashes[i] = ix.file.Hash.SumString(string(format.AppendNetKey(key[:0], p)))
	}
	perhaps, err := ix.perhaps(hashes[:len(lengths)])
	ix.asked.Add(uint64(len(lengths)))
	if err != nil || perhaps == 0 {
		return dst, err
	}
	err = ix.mapping.guarded(func() error {
		for ; perhaps != 0; perhaps &= perhaps - 1 {
			i := bits.TrailingZeros32(perhaps)
			p, _ := ip.Prefix(int(lengths[i]))
			var key [format.MaxNetKey]byte
			c, found, err := ix.find(hashes[i], string(format.AppendNetKey(key[:0], p)))
			if err != nil {
				return err
			}
			if !found {
				ix.falsePositives.Add(1)
				continue
			}
			if dst, err = ix.appendMatches(dst, c, Match{Kind: format.NetKind(p), Net: p}, 1<<lists.Exact|1<<lists.Tree, now); err != nil {
				return err
			}
		}
		return nil
	})
	return dst, ix.unreadable(err)
}

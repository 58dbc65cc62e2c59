package index

import (
	"time"

	"blockd/addr"
)

// LookupDomain appends to dst the entries that cover every sender at a domain:
// those for the name itself and for its parents, in the order of Lookup. Entries
// for single addresses, local-parts and patterns cover some senders there, and
// are left out.
func (ix *Index) LookupDomain(dst []Match, domain addr.Key, now time.Time) ([]Match, error) {
	var keys [addr.MaxKeys]addr.Key
	return ix.lookup(dst, domain.AndParents(keys[:0]), now.Unix())
}

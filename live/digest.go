package live

import (
	"time"

	"blockd/addr"
	"blockd/digest"
	"blockd/lists"
)

// AddressOf returns the address with digest d that a live entry in force is about, of either action;
// ok is false if there is none. It knows the digests of Settings.Hashes alone. What the entry means
// Amend tells. A nil Set has no entries. It takes no lock.
func (s *Set) AddressOf(d digest.Digest, now time.Time) (address addr.Addr, ok bool) {
	if s == nil {
		return addr.Addr{}, false
	}
	body := s.digests.body.Load()
	if body == nil {
		return addr.Addr{}, false
	}
	for _, e := range s.digests.find(body, digestKey(d)) {
		if !e.expired(now.Unix()) {
			address, err := addr.Parse(e.key)
			return address, err == nil
		}
	}
	return addr.Addr{}, false
}

// digestKey is the key of a digest in a table.
func digestKey(d digest.Digest) string {
	return string(d.Append([]byte{byte(d.Algorithm)}))
}

// set makes look-ups see an entry. The caller holds writing.
func (s *Set) set(e *Entry) {
	if e.Item.Kind == lists.Addr && e.Item.Key.Kind == addr.Address {
		s.setDigests(e.key, []*Entry{e}) // an address has one scope, so one entry
	}
	s.all.set(e)
}

// remove undoes set. The caller holds writing.
func (s *Set) remove(id identity) {
	if id.scope == lists.Exact {
		s.setDigests(id.key, nil)
	}
	s.all.remove(id)
}

// setDigests sets the entries that the digests of an address stand for.
func (s *Set) setDigests(address string, entries []*Entry) {
	for text := range digest.Texts(address) {
		for a := range s.hashes.All() {
			key := digestKey(digest.Of(a, text))
			if len(entries) > 0 || len(s.digests.entries(key)) > 0 {
				s.digests.put(key, entries, nil)
			}
		}
	}
}

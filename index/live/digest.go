package live

import (
	"time"

	"blockd/mail/addr"
	"blockd/mail/digest"
)

// AddressOf returns the address with digest d that a live entry in force is about, of either action;
// ok is false if there is none. It knows the digests of Settings.Hashes alone. What the entry means
// Amend tells. A nil Set has no entries. It takes no lock.
func (s *Set) AddressOf(d digest.Digest, now time.Time) (address addr.Addr, ok bool) {
	if s == nil || !s.hashes.Has(d.Algorithm) {
		return addr.Addr{}, false
	}
	v := s.view.Load()
	if body := v.digests.body.Load(); body != nil {
		for _, e := range v.digests.find(body, digestKey(d)) {
			if !e.expired(s.seconds(now)) {
				return parsed(e.key)
			}
		}
	}
	if key, i := v.base.addressOf(d); i >= 0 && !v.overruled(i) {
		if end := v.base.expiry(i); end == 0 || end > s.seconds(now) {
			return parsed(key)
		}
	}
	return addr.Addr{}, false
}

func parsed(key string) (addr.Addr, bool) {
	address, err := addr.Parse(key)
	return address, err == nil
}

// digestKey is the key of a digest in a table.
func digestKey(d digest.Digest) string {
	return string(d.Append([]byte{byte(d.Algorithm)}))
}

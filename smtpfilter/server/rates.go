package server

import (
	"net/netip"
	"time"
)

// rates limits the new connections of every client a minute. They may come
// all at once, and then at even distances: the generic cell rate algorithm of ITU-T
// I.371, with one time for each client.
type rates struct {
	distance time.Duration // between two connections at the full rate; 0 = no limit
	most     int           // clients that are remembered

	// due is when the next connection of a client would be expected at even
	// distances. A time in the past means the same as no entry.
	due map[netip.Prefix]time.Time
}

// maxRates bounds the memory, at about 100 octets a client. The owner of a
// /32 of IPv6 has 2^32 networks. It can make blockd forget clients that
// have opened few connections, but not those that have opened many.
const maxRates = 1 << 16

func newRates(perMinute int) rates {
	if perMinute <= 0 {
		return rates{}
	}
	return rates{distance: time.Minute / time.Duration(perMinute), most: maxRates, due: map[netip.Prefix]time.Time{}}
}

// allow counts a connection at the time now, and reports whether the rate has
// room for it. A refused connection does not count.
func (r *rates) allow(client netip.Prefix, now time.Time) bool {
	if r.distance == 0 {
		return true
	}
	due, known := r.due[client]
	if due.Before(now) {
		due = now
	}
	if due = due.Add(r.distance); due.Sub(now) > time.Minute {
		return false
	}
	if !known && len(r.due) >= r.most {
		r.forget()
	}
	r.due[client] = due
	return true
}

// forget drops the client with the fewest recent connections among eight that
// the map's random order gives.
func (r *rates) forget() {
	var least netip.Prefix
	seen := 0
	for client, due := range r.due {
		if seen == 0 || due.Before(r.due[least]) {
			least = client
		}
		if seen++; seen == 8 {
			break
		}
	}
	delete(r.due, least)
}

package dnsbl

import (
	"encoding/binary"
	"hash/maphash"
	"net/netip"
	"sync/atomic"
)

// limiter bounds the answers by UDP to one network: the address of a query can be forged, and
// its answers then flood a third party. It counts whole seconds.
//
// Its memory is fixed. A network has four slots to be counted in, chosen by a seed that no
// client knows. Where all four are taken in this second, the one with the fewest answers is
// given away: networks with many stay counted.
type limiter struct {
	most  uint32
	seed  maphash.Seed
	slots []atomic.Uint64 // the network's tag, the second and the answers in it: 24, 16 and 24 bits
}

// limiterSlots is 512 KB, for 65,536 networks in one second.
const (
	limiterSlots = 1 << 16
	slotsOfOne   = 4
)

func newLimiter(most uint32) *limiter {
	return &limiter{most: most, seed: maphash.MakeSeed(), slots: make([]atomic.Uint64, limiterSlots)}
}

// beyond counts one more answer, and returns how many more than allowed that makes in this
// second; 0 = none.
func (l *limiter) beyond(client netip.Addr, second int64) uint32 {
	hash := l.hash(client)
	own := l.slots[hash%(limiterSlots/slotsOfOne)*slotsOfOne:][:slotsOfOne]
	head := hash>>40<<40 | uint64(uint16(second))<<24
	for { // until no other goroutine has been faster
		slot, value := choose(own, head)
		n := uint64(1)
		if value>>24 == head>>24 {
			n = min(value&(1<<24-1)+1, 1<<24-1)
		}
		if slot.CompareAndSwap(value, head|n) {
			return uint32(max(int64(n)-int64(l.most), 0))
		}
	}
}

// choose returns the slot of head, or the one that it is to take.
func choose(own []atomic.Uint64, head uint64) (slot *atomic.Uint64, value uint64) {
	var fewest uint64
	for i := range own {
		v := own[i].Load()
		if v>>24 == head>>24 {
			return &own[i], v
		}
		n := v & (1<<24 - 1)
		if uint16(v>>24) != uint16(head>>24) {
			n = 0 // of another second
		}
		if slot == nil || n < fewest {
			slot, value, fewest = &own[i], v, n
		}
	}
	return slot, value
}

// hash is that of the network: an IPv4 /24 or an IPv6 /56, the usual share of a customer.
func (l *limiter) hash(client netip.Addr) uint64 {
	var octets [8]byte
	if client = client.Unmap(); client.Is4() {
		a := client.As4()
		copy(octets[:], a[:3])
		octets[7] = 4
	} else {
		a := client.As16()
		binary.BigEndian.PutUint64(octets[:], binary.BigEndian.Uint64(a[:])&^0xff)
	}
	return maphash.Bytes(l.seed, octets[:])
}

package server

import (
	"net/netip"
	"sync"
)

// admission is the answer to a new connection.
type admission uint8

const (
	admitted   admission = iota
	overTotal            // as many as may be at all
	overClient           // as many as one client may have
)

// clients counts the open connections, all and by client. A client is an IPv4
// address or an IPv6 /64, the smallest network a provider gives away: counting
// single addresses would give each of its hosts 2^64 lives. The map holds only
// clients that are connected, so the total bounds it.
type clients struct {
	maxTotal, maxClient int

	mu    sync.Mutex
	total int
	each  map[netip.Prefix]int
}

func newClients(maxTotal, maxClient int) *clients {
	return &clients{maxTotal: maxTotal, maxClient: maxClient, each: map[netip.Prefix]int{}}
}

// enter counts a connection from ip; leave must follow if it was admitted. A
// zero ip, of a connection that is not TCP, counts towards the total alone.
func (c *clients) enter(ip netip.Addr) admission {
	net := network(ip)
	c.mu.Lock()
	defer c.mu.Unlock()
	switch {
	case c.total >= c.maxTotal:
		return overTotal
	case net.IsValid() && c.each[net] >= c.maxClient:
		return overClient
	}
	c.total++
	if net.IsValid() {
		c.each[net]++
	}
	return admitted
}

// leave undoes one enter.
func (c *clients) leave(ip netip.Addr) {
	net := network(ip)
	c.mu.Lock()
	defer c.mu.Unlock()
	c.total--
	if !net.IsValid() {
		return
	}
	if c.each[net]--; c.each[net] == 0 {
		delete(c.each, net)
	}
}

// count returns the number of open connections.
func (c *clients) count() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.total
}

// network returns what stands for a client; invalid for a zero ip.
func network(ip netip.Addr) netip.Prefix {
	ip = ip.Unmap().WithZone("")
	bits := 32
	if ip.Is6() {
		bits = 64
	}
	p, _ := ip.Prefix(bits)
	return p
}

package server

import (
	"net/netip"
	"sync"
	"sync/atomic"
	"time"

	"blockd/internal/listener"
)

// admission is the answer to a new connection.
type admission uint8

const (
	admitted   admission = iota
	overTotal            // over the limit of all connections
	overClient           // over the limit of one client
	overRate             // over the rate of one client
)

// clients counts the open connections, all and by client, which is a listener.Network. The
// map holds only connected clients, so the total bounds it.
type clients struct {
	maxTotal, maxClient int

	total atomic.Int64 // written with mu held
	mu    sync.Mutex
	each  map[netip.Prefix]int
	rates rates
}

// newClients returns an empty count; maxRate is connections a minute, 0 for
// any number.
func newClients(maxTotal, maxClient, maxRate int) *clients {
	return &clients{maxTotal: maxTotal, maxClient: maxClient, each: map[netip.Prefix]int{}, rates: newRates(maxRate)}
}

// enter counts a connection from ip. If it was admitted, leave must follow. A
// zero ip counts towards the total only: the connection is not TCP, or its client is
// not known yet.
func (c *clients) enter(ip netip.Addr) admission {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.total.Load() >= int64(c.maxTotal) {
		return overTotal
	}
	if a := c.count(listener.Network(ip)); a != admitted {
		return a
	}
	c.total.Add(1)
	return admitted
}

// identify names the client of a connection that has entered with a zero ip. If it is
// admitted, leave must have that ip; otherwise again the zero one.
func (c *clients) identify(ip netip.Addr) admission {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.count(listener.Network(ip))
}

// count counts a connection of a client, with the lock held.
func (c *clients) count(net netip.Prefix) admission {
	switch {
	case !net.IsValid():
		return admitted
	case c.each[net] >= c.maxClient:
		return overClient
	case !c.rates.allow(net, time.Now()):
		return overRate
	}
	c.each[net]++
	return admitted
}

// leave undoes enter.
func (c *clients) leave(ip netip.Addr) {
	net := listener.Network(ip)
	c.mu.Lock()
	defer c.mu.Unlock()
	c.total.Add(-1)
	if !net.IsValid() {
		return
	}
	if c.each[net]--; c.each[net] == 0 {
		delete(c.each, net)
	}
}

// open returns the number of open connections.
func (c *clients) open() int { return int(c.total.Load()) }

// crowded reports whether 80 % of the places are taken.
func (c *clients) crowded() bool { return c.total.Load()*5 >= int64(c.maxTotal)*4 }

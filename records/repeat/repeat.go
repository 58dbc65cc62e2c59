// Package repeat keeps a flood of refusals from filling the log and the history.
//
// The first refusals of a client for a sender are written in full. Those that follow
// within a minute are counted, and one line at the minute's end stands for all of them.
// Each of them is answered with the reference of the first, so that the reference in a
// bounce is found whichever refusal it comes from. A client's network has a number of
// full lines a minute, whatever its senders are; its first refusal is always among them.
package repeat

import (
	"context"
	"log/slog"
	"maps"
	"net/netip"
	"sync"
	"sync/atomic"
	"time"

	"blockd/records/history"
)

// The bounds of a window. Clients that send little never meet them: a refused message
// with ten recipients is written in full. 10,000 refusals of one network within a minute
// cost at most 200 full lines, 0.2 MB of log and history together.
const (
	Window = time.Minute

	// PerSender is how many refusals of one client for one sender are written in full.
	PerSender = 10

	// PerNetwork is how many lines of the log one network may cause, refusals included;
	// a network is an IPv4 /24 or an IPv6 /48.
	PerNetwork = 200

	// perRest is PerNetwork for all the networks that have no place of their own.
	perRest = 10_000

	// maxSenders and maxNetworks bound the memory: some 300 octets each, and the last
	// record of those that something is folded into, at most 3 KB.
	maxSenders  = 8192
	maxNetworks = 16_384

	sweepEvery = time.Second
)

// Table counts what repeats. All methods may be used from any goroutine; a nil Table
// folds nothing. Run has to run for the counts to be written.
type Table struct {
	mu       sync.Mutex
	senders  map[senderKey]*group
	networks map[netip.Prefix]*group
	rest     *group // of networks without a place; nil: there are none

	refusals, lines atomic.Uint64 // folded
}

// senderKey says which refusals are the same.
type senderKey struct {
	client                      netip.Addr
	door, outcome, sender, list string
	line                        int
}

// group is what has been counted since its window began.
type group struct {
	begun time.Time
	ref   string // of the first refusal that is written in full
	full  int    // lines written
	lines int    // lines left out that are no refusals

	folded int             // refusals
	last   *history.Record // of them; nil: none yet
}

// NewTable returns an empty table.
func NewTable() *Table {
	return &Table{senders: map[senderKey]*group{}, networks: map[netip.Prefix]*group{}}
}

// Refused takes a refusal in. If folded is true, it is counted and must not be written:
// another line stands for it, whose reference is ref. Otherwise ref is its own.
func (t *Table) Refused(r *history.Record) (ref string, folded bool) {
	if t == nil {
		return r.Ref, false
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	network := t.network(r.Client, r.Time)
	key := senderKey{r.Client, r.Door, r.Outcome, r.Sender, r.List, r.Line}
	sender := t.senders[key]
	room := network.ref == "" || network.full < t.most(network)
	if sender == nil && room && len(t.senders) < maxSenders {
		sender = &group{begun: r.Time, ref: r.Ref}
		t.senders[key] = sender
	}
	switch {
	case room && (sender == nil || sender.full < PerSender):
		network.full++
		if network.ref == "" { // that of others is one that is written
			network.ref = r.Ref
		}
		if sender != nil {
			sender.full++
		}
		return r.Ref, false
	case sender == nil:
		sender = network
	}
	sender.fold(r)
	t.refusals.Add(1)
	return sender.ref, true
}

// Line reports whether another line about a client may be written, and counts it.
func (t *Table) Line(client netip.Addr) bool {
	if t == nil {
		return true
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	network := t.network(client, time.Now())
	if network.full < t.most(network) {
		network.full++
		return true
	}
	network.lines++
	t.lines.Add(1)
	return false
}

// network returns the group of a client's network.
func (t *Table) network(client netip.Addr, now time.Time) *group {
	prefix := history.Network(client)
	if g := t.networks[prefix]; g != nil {
		return g
	}
	if len(t.networks) < maxNetworks {
		g := &group{begun: now}
		t.networks[prefix] = g
		return g
	}
	if t.rest == nil {
		t.rest = &group{begun: now}
	}
	return t.rest
}

func (t *Table) most(network *group) int {
	if network == t.rest {
		return perRest
	}
	return PerNetwork
}

// fold counts a refusal that is not written.
func (g *group) fold(r *history.Record) {
	if g.last == nil {
		g.last = new(history.Record)
	}
	*g.last = *r
	g.folded++
}

// Run writes the count of each window that has ended, to the log and by add, until ctx
// ends. It returns nil. Flush then writes the others.
func (t *Table) Run(ctx context.Context, log *slog.Logger, add func(history.Record)) error {
	tick := time.NewTicker(sweepEvery)
	defer tick.Stop()
	for {
		select {
		case <-tick.C:
			t.write(t.ended(time.Now().Add(-Window)), log, add)
		case <-ctx.Done():
			return nil
		}
	}
}

// Flush writes what has been counted, whether or not its window has ended.
func (t *Table) Flush(log *slog.Logger, add func(history.Record)) {
	t.write(t.ended(time.Now().Add(Window)), log, add)
}

// total is a group whose window has ended, and which of the two it is.
type total struct {
	*group
	network netip.Prefix // zero: that of a sender
}

// ended takes out the groups that began at a time or before it, and returns those that
// something was folded into.
func (t *Table) ended(before time.Time) (all []total) {
	t.mu.Lock()
	defer t.mu.Unlock()
	take := func(g *group, network netip.Prefix) (ended bool) {
		if ended = !g.begun.After(before); ended && g.folded+g.lines > 0 {
			all = append(all, total{g, network})
		}
		return ended
	}
	maps.DeleteFunc(t.senders, func(_ senderKey, g *group) bool { return take(g, netip.Prefix{}) })
	maps.DeleteFunc(t.networks, func(network netip.Prefix, g *group) bool { return take(g, network) })
	if t.rest != nil && take(t.rest, netip.Prefix{}) {
		t.rest = nil
	}
	return all
}

// write writes what windows have come to.
func (t *Table) write(all []total, log *slog.Logger, add func(history.Record)) {
	now := time.Now()
	for _, g := range all {
		within := slog.String("within", now.Sub(g.begun).Round(time.Second).String())
		if g.folded > 0 {
			r := *g.last
			r.Time, r.Ref, r.Repeated = now, g.ref, g.folded
			log.LogAttrs(context.Background(), slog.LevelInfo, event(r.Outcome), append(attrs(&r), within)...)
			add(r)
		}
		if g.lines > 0 {
			log.LogAttrs(context.Background(), slog.LevelInfo, "log lines left out",
				slog.String("network", networkText(g.network)), slog.Int("lines", g.lines), within)
		}
	}
}

// event is what the log says of the refusals that a line stands for.
func event(outcome string) string {
	if outcome == "defer" {
		return "sender deferred again"
	}
	return "sender blocked again"
}

// attrs are those of the last refusal that a line stands for.
func attrs(r *history.Record) []slog.Attr {
	client := "unknown"
	if r.Client.IsValid() {
		client = r.Client.String()
	}
	all := []slog.Attr{slog.String("door", r.Door), slog.String("client", client), slog.String("helo", r.Helo), slog.String("ref", r.Ref),
		slog.String("sender", r.Sender), slog.String("recipient", r.Recipient), slog.String("verdict", r.Verdict),
		slog.String("list", r.List), slog.String("file", r.File), slog.Int("line", r.Line), slog.String("entry", r.Entry),
		slog.String("generation", r.Generation), slog.Int("repeated", r.Repeated)}
	if r.FirstSeen {
		all = append(all, slog.Bool("first_seen", true))
	}
	return all
}

func networkText(p netip.Prefix) string {
	if !p.IsValid() {
		return "unknown"
	}
	return p.String()
}

// Package repeat keeps a flood of refusals from filling the log and the history, without
// a word that is untrue.
//
// What is folded is the same refusal: of one client, of one sender, by one entry of one list.
// The first ones of a minute are written in full. The others are counted, and a line at the
// minute's end stands for all of them. Each is answered with the reference of the first, so that the
// reference in a bounce is found whichever refusal it comes from. A refusal of another
// sender is always written, with a reference of its own; only its line of the log is left
// out where a client's network has had many, and one line says how many these were.
package repeat

import (
	"context"
	"log/slog"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"blockd/records/history"
)

// The bounds of a minute. Clients that send little never meet them: a refused message
// with ten recipients is written in full. 10,000 refusals of one network within a minute
// cost at most 200 full lines of the log. In the history they take room from their own network alone.
const (
	// Window is a minute of the clock, as charts count: so the counts of a minute are the same everywhere.
	Window = time.Minute

	// PerSender is how many refusals of one client for one sender are written in full.
	PerSender = 10

	// PerNetwork is how many lines of the log one network may cause, refusals included, and
	// of how many senders refusals are folded; a network is an IPv4 /24 or an IPv6 /48.
	PerNetwork = 200

	// perRest is PerNetwork for all the networks that have no place of their own.
	perRest = 10_000

	// maxSenders and maxNetworks bound the memory: a kilobyte of the former, and 3 KB of texts at most.
	maxSenders  = 8192
	maxNetworks = 16_384

	sweepEvery = time.Second
)

// Table counts what repeats. All methods may be used from any goroutine; a nil Table
// folds nothing. Run has to run for the counts to be written.
type Table struct {
	mu       sync.Mutex
	minute   int64 // that is counted, since 1970
	senders  map[history.Record]*group
	networks map[netip.Prefix]*network
	rest     *network // all without a place; nil: there are none
	groups   []*group // that something was folded into, of minutes that have ended, too, until they are logged
	crowded  []*network

	refusals, lines atomic.Uint64 // folded
}

// group is what has been counted of one kind of refusal in a minute.
type group struct {
	minute int64
	begun  time.Time
	ref    string // of the first refusal, which is written in full
	full   int    // refusals written

	folded  int // refusals, all of the minute
	waiting int // of these: not in the history yet
	several bool
	last    history.Record // of folded
}

// network is what has been counted of a network in a minute.
type network struct {
	prefix  netip.Prefix
	minute  int64
	begun   time.Time
	senders int // with a group
	lines   int // of the log
	left    int // lines of the log that were left out
}

// NewTable returns an empty table.
func NewTable() *Table {
	return &Table{senders: map[history.Record]*group{}, networks: map[netip.Prefix]*network{}}
}

// kindOf is what refusals have in common that one line may stand for. Their recipients are of one domain: its owner
// counts them.
func kindOf(r *history.Record) history.Record {
	kind := *r
	kind.Time, kind.Ref, kind.Generation, kind.Helo = time.Time{}, "", "", ""
	kind.Recipient = history.Lower(r.Recipient[strings.LastIndexByte(r.Recipient, '@')+1:])
	return kind
}

// Refused takes a refusal in. If folded is true, it is counted and must not be written:
// another line stands for it, whose reference is ref. Otherwise ref is its own.
func (t *Table) Refused(r *history.Record) (ref string, folded bool) {
	if t == nil {
		return r.Ref, false
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	t.turn(r.Time)
	kind := kindOf(r)
	g := t.senders[kind]
	if g == nil {
		from := t.network(r.Client, r.Time)
		if from.senders >= t.most(from) || len(t.senders) >= maxSenders {
			return r.Ref, false
		}
		from.senders++
		g = &group{minute: t.minute, begun: r.Time, ref: r.Ref}
		t.senders[kind] = g
	}
	if g.full < PerSender {
		g.full++
		return r.Ref, false
	}
	if g.folded == 0 {
		t.groups = append(t.groups, g)
	}
	g.several = g.waiting > 0 && (g.several || g.last.Recipient != r.Recipient)
	g.last = *r
	g.folded++
	g.waiting++
	t.refusals.Add(1)
	return g.ref, true
}

// Line reports whether another line about a client may be written to the log, and counts it.
func (t *Table) Line(client netip.Addr) bool {
	if t == nil {
		return true
	}
	now := time.Now()
	t.mu.Lock()
	defer t.mu.Unlock()
	t.turn(now)
	from := t.network(client, now)
	if from.lines < t.most(from) {
		from.lines++
		return true
	}
	if from.left == 0 {
		t.crowded = append(t.crowded, from)
	}
	from.left++
	t.lines.Add(1)
	return false
}

// turn begins a minute, if a time is in another one. A refusal that is a moment late begins its own again: so what is
// folded of a minute is of that minute.
func (t *Table) turn(now time.Time) {
	if minute := now.Unix() / 60; minute != t.minute {
		t.minute, t.rest = minute, nil
		clear(t.senders)
		clear(t.networks)
	}
}

// network returns that of a client.
func (t *Table) network(client netip.Addr, now time.Time) *network {
	prefix := history.Network(client)
	if n := t.networks[prefix]; n != nil {
		return n
	}
	if len(t.networks) < maxNetworks {
		n := &network{prefix: prefix, minute: t.minute, begun: now}
		t.networks[prefix] = n
		return n
	}
	if t.rest == nil {
		t.rest = &network{minute: t.minute, begun: now}
	}
	return t.rest
}

func (t *Table) most(n *network) int {
	if n == t.rest {
		return perRest
	}
	return PerNetwork
}

// Settle gives add what has been counted until now, so that whoever reads the history finds all of it. The lines of the
// log are written at the minute's end.
func (t *Table) Settle(add func(history.Record)) {
	if t == nil {
		return
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, g := range t.groups {
		g.settle(add)
	}
}

// settle gives add the line that stands for what waits.
func (g *group) settle(add func(history.Record)) {
	if g.waiting == 0 {
		return
	}
	r := g.last
	r.Ref, r.Repeated, r.Several = g.ref, g.waiting, g.several
	g.waiting = 0
	add(r)
}

// Run writes the count of each minute that has ended, to the log and by add, until ctx
// ends. It returns nil. Flush then writes the others.
func (t *Table) Run(ctx context.Context, log *slog.Logger, add func(history.Record)) error {
	tick := time.NewTicker(sweepEvery)
	defer tick.Stop()
	for {
		select {
		case <-tick.C:
			now := time.Now()
			t.mu.Lock()
			t.turn(now)
			t.mu.Unlock()
			t.write(log, add, now.Unix()/60)
		case <-ctx.Done():
			return nil
		}
	}
}

// Flush writes what has been counted, whether or not its minute has ended.
func (t *Table) Flush(log *slog.Logger, add func(history.Record)) {
	t.mu.Lock()
	t.turn(time.Time{}) // what comes after it begins anew
	t.mu.Unlock()
	t.write(log, add, 0)
}

// write writes what minutes but one have come to.
func (t *Table) write(log *slog.Logger, add func(history.Record), but int64) {
	t.mu.Lock()
	var groups []*group
	var crowded []*network
	t.groups = slices.DeleteFunc(t.groups, func(g *group) bool {
		if g.minute != but {
			g.settle(add)
			groups = append(groups, g)
		}
		return g.minute != but
	})
	t.crowded = slices.DeleteFunc(t.crowded, func(n *network) bool {
		if n.minute != but {
			crowded = append(crowded, n)
		}
		return n.minute != but
	})
	t.mu.Unlock()
	now := time.Now()
	within := func(begun time.Time) slog.Attr {
		return slog.String("within", now.Sub(begun).Round(time.Second).String())
	}
	for _, g := range groups {
		log.LogAttrs(context.Background(), slog.LevelInfo, event(g.last.Outcome), append(g.attrs(), within(g.begun))...)
	}
	for _, n := range crowded {
		log.LogAttrs(context.Background(), slog.LevelInfo, "log lines left out",
			slog.String("network", networkText(n.prefix)), slog.Int("lines", n.left), within(n.begun))
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
func (g *group) attrs() []slog.Attr {
	r, client := &g.last, "unknown"
	if r.Client.IsValid() {
		client = r.Client.String()
	}
	all := []slog.Attr{slog.String("door", r.Door), slog.String("client", client), slog.String("helo", r.Helo), slog.String("ref", g.ref),
		slog.String("sender", r.Sender), slog.String("recipient", r.Recipient), slog.String("verdict", r.Verdict),
		slog.String("list", r.List), slog.String("file", r.File), slog.Int("line", r.Line), slog.String("entry", r.Entry),
		slog.String("generation", r.Generation), slog.Int("repeated", g.folded)}
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

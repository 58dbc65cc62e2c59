package shared

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"
)

// Status is how a node is.
type Status struct {
	Store    string    // which engine, without a password
	Name     string    // who shares
	Up       bool      // it answers
	Fault    string    // why not
	Since    time.Time // when it began not to
	Seen     time.Time // when it has answered last, by its clock; zero = never
	Revision uint64    // of the newest change here
	Entries  int64     // that are shared
	Sum      string    // of these, in hexadecimal
	Offset   time.Duration
	Pending  int // changes of this machine alone that wait for the engine
	Refused  int // changes of this machine alone that the engine refuses for good, at most the last 100
	Lost     int // changes that the engine has lost
	Differs  int // how often in turn the entries have differed from the engine's
}

// Status returns how the node is. It may read all entries, the first time.
func (n *Node) Status() Status {
	sum := n.o.Set.Sum()
	n.mu.Lock()
	s := Status{Store: n.o.Engine.String(), Name: n.o.Name, Up: n.tried && n.fault == nil, Since: n.since, Revision: n.rev, Offset: n.offset, Differs: n.differs,
		Entries: sum.Count, Sum: fmt.Sprintf("%016x%016x", sum.XOR[0], sum.XOR[1])}
	if n.fault != nil {
		s.Fault = n.fault.Error()
	}
	n.mu.Unlock()
	n.kept.mu.Lock()
	defer n.kept.mu.Unlock()
	s.Seen, s.Pending, s.Refused, s.Lost = n.kept.Seen, len(n.kept.Pending), len(n.kept.Refused), n.lost.count()
	return s
}

// Problems are what an administrator should know, a line each.
func (n *Node) Problems() (all []string) {
	if n == nil {
		return nil
	}
	n.mu.Lock()
	fault, since, offset, differs, left := n.fault, n.since, n.offset, n.differs, n.left.problems()
	n.mu.Unlock()
	n.kept.mu.Lock()
	lost, pending, refused := n.lost.count(), len(n.kept.Pending), slices.Clone(n.kept.Refused)
	n.kept.mu.Unlock()
	if fault != nil {
		text := "no change can be made"
		if n.o.Alone {
			text = fmt.Sprintf("changes are made on this machine alone, %d so far", pending)
		}
		all = append(all, fmt.Sprintf("live.shared: %s does not answer since %s, what was known is served, and %s: %v", n.o.Engine, since.UTC().Format(time.RFC3339), text, fault))
	}
	if lost > 0 {
		all = append(all, fmt.Sprintf("live.shared: the store has lost %d changes that were acknowledged: see blockd live lost, then blockd live offer or blockd live dismiss", lost))
	}
	if len(refused) > 0 {
		last := &refused[len(refused)-1]
		all = append(all, fmt.Sprintf("live.shared: the store refuses %d changes that were made on this machine alone, which act here alone; the last one is %s: %s; blockd live dismiss ends this notice", len(refused), last.Row.String(), last.Why))
	}
	if offset.Abs() > clockMargin {
		all = append(all, fmt.Sprintf("live.shared: the clock of this machine is off by %s, by the clock of the store", offset.Round(time.Second).Abs()))
	}
	if differs > 1 {
		all = append(all, fmt.Sprintf("live.shared: the entries differ from the store's, %d times in turn, though all of them were read again", differs))
	}
	all = append(all, left...)
	return all
}

// Report keeps a report about this node with the engine.
func (n *Node) Report(ctx context.Context, node string, report []byte, life time.Duration) error {
	ctx, cancel := context.WithTimeout(ctx, writeLimit)
	defer cancel()
	if err := n.take(ctx); err != nil {
		return err
	}
	defer n.release()
	return n.o.Engine.Report(ctx, node, report, life)
}

// Reports returns the reports of all nodes that live.
func (n *Node) Reports(ctx context.Context) (map[string][]byte, error) {
	ctx, cancel := context.WithTimeout(ctx, writeLimit)
	defer cancel()
	if err := n.take(ctx); err != nil {
		return nil, err
	}
	defer n.release()
	return n.o.Engine.Reports(ctx)
}

// Register registers the metrics of a node. It panics if reg already has them.
func (n *Node) Register(reg prometheus.Registerer) {
	auto := promauto.With(reg)
	gauge := func(name, help string, value func() float64) {
		auto.NewGaugeFunc(prometheus.GaugeOpts{Name: name, Help: help}, value)
	}
	counter := func(name, help string, value func() uint64) {
		auto.NewCounterFunc(prometheus.CounterOpts{Name: name, Help: help}, func() float64 { return float64(value()) })
	}
	locked := func(value func() float64) func() float64 {
		return func() float64 {
			n.mu.Lock()
			defer n.mu.Unlock()
			return value()
		}
	}
	gauge("blockd_live_revision", "Revision of the newest change of shared live entries that acts here.", locked(func() float64 { return float64(n.rev) }))
	gauge("blockd_live_shared_up", "1 if the store of shared live entries answers.", locked(func() float64 {
		if n.tried && n.fault == nil {
			return 1
		}
		return 0
	}))
	gauge("blockd_clock_offset_seconds", "How far the clock of the store of shared live entries is before this machine's.", locked(func() float64 { return n.offset.Seconds() }))
	gauge("blockd_live_shared_differs", "How often in turn the shared live entries have differed from the store's.", locked(func() float64 { return float64(n.differs) }))
	gauge("blockd_live_shared_lost", "Changes that the store of shared live entries has lost, and that were neither offered again nor dismissed.", func() float64 { return float64(n.lost.count()) })
	gauge("blockd_live_shared_pending", "Changes made on this machine alone that wait for the store of shared live entries.", func() float64 {
		n.kept.mu.Lock()
		defer n.kept.mu.Unlock()
		return float64(len(n.kept.Pending))
	})
	counter("blockd_live_shared_writes_total", "Changes that were sent to the store of shared live entries.", n.counts.writes.Load)
	counter("blockd_live_shared_failures_total", "Questions that the store of shared live entries did not answer.", n.counts.failures.Load)
	counter("blockd_live_shared_lost_total", "Changes that the store of shared live entries had acknowledged and lost.", n.counts.lost.Load)
	counter("blockd_live_shared_conflicts_total", "Changes made on this machine alone that were given up, because the entry was changed elsewhere.", n.counts.conflicts.Load)
	counter("blockd_live_shared_refused_total", "Changes made on this machine alone that the store refuses for good.", n.counts.refused.Load)
	counter("blockd_live_shared_unread_total", "Rows of the store of shared live entries that this program could not read.", n.counts.unread.Load)
}

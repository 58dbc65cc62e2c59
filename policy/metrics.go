package policy

import (
	"context"
	"log/slog"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"
	dto "github.com/prometheus/client_model/go"

	"blockd/policy/hits"
	"blockd/policy/verdict"
)

// The places of blockd_internal_errors_total{where} that this package counts.
const (
	inStore = "store"
	inPanic = "panic"
)

// quietErrors is the time after a logged internal error in which further ones
// are only counted: a dying disk under 10,000 senders a second would fill the
// other disk with the log.
const quietErrors = 10 * time.Second

// instruments count and log what a Checker does.
type instruments struct {
	log        *slog.Logger
	verdicts   map[verdict.Kind]prometheus.Counter // never changes: resolved once, so counting does not allocate
	clients    map[verdict.Kind]prometheus.Counter
	shadows    *prometheus.CounterVec
	believed   *prometheus.CounterVec // unverified allows
	proofs     *prometheus.CounterVec
	unread     *prometheus.CounterVec // texts that are no sender
	owned      prometheus.Counter     // recipients refused by their owners
	hits       *hits.Table
	errors     map[string]prometheus.Counter
	logNext    atomic.Int64 // Unix nanoseconds: no error is logged before
	suppressed atomic.Uint64
}

func newInstruments(log *slog.Logger, reg prometheus.Registerer) *instruments {
	auto := promauto.With(reg)
	verdicts := auto.NewCounterVec(prometheus.CounterOpts{Name: "blockd_verdicts_total",
		Help: "Senders decided about, by verdict."}, []string{"verdict"})
	clients := auto.NewCounterVec(prometheus.CounterOpts{Name: "blockd_client_verdicts_total",
		Help: "Clients decided about before they named a sender, by verdict."}, []string{"verdict"})
	errors := auto.NewCounterVec(prometheus.CounterOpts{Name: "blockd_internal_errors_total",
		Help: "Look-ups that failed inside blockd and were answered by on_error, by place."}, []string{"where"})
	in := &instruments{log: log,
		hits: hits.NewTable(reg),
		owned: auto.NewCounter(prometheus.CounterOpts{Name: "blockd_owner_refusals_total",
			Help: "Recipients refused by an entry of their owner, a mailbox or a domain."}),
		shadows: auto.NewCounterVec(prometheus.CounterOpts{Name: "blockd_shadow_refusals_total",
			Help: "Senders that a list in shadow mode would have refused, by list."}, []string{"list"}),
		believed: auto.NewCounterVec(prometheus.CounterOpts{Name: "blockd_unverified_allows_total",
			Help: "Blocked senders that an allow entry let pass on their word alone, by the allowing list."}, []string{"list"}),
		proofs: auto.NewCounterVec(prometheus.CounterOpts{Name: "blockd_proofs_total",
			Help: "Proofs that were looked for, since they could let a blocked sender pass, by kind and result: pass, no, unknown, shortage."}, []string{"kind", "result"}),
		unread: auto.NewCounterVec(prometheus.CounterOpts{Name: "blockd_unreadable_senders_total",
			Help: "Addresses that cannot be read as such and were judged by their readable part, if there is any, by where they stood and by verdict."}, []string{"source", "verdict"}),
		verdicts: map[verdict.Kind]prometheus.Counter{}, clients: map[verdict.Kind]prometheus.Counter{}, errors: map[string]prometheus.Counter{},
	}
	for _, k := range []verdict.Kind{verdict.Blocked, verdict.Allowed, verdict.Clear, verdict.Unknown} {
		in.verdicts[k] = verdicts.WithLabelValues(string(k))
		in.clients[k] = clients.WithLabelValues(string(k))
	}
	for _, where := range []string{inStore, inPanic} {
		in.errors[where] = errors.WithLabelValues(where)
	}
	return in
}

// Counts are how many senders were decided about since the start of the process, and how many of them were listed.
func (c *Checker) Counts() (checks, listed uint64) {
	for kind, counter := range c.instruments.verdicts {
		var m dto.Metric
		if counter.Write(&m) != nil {
			continue
		}
		n := uint64(m.GetCounter().GetValue())
		if checks += n; kind == verdict.Blocked {
			listed += n
		}
	}
	return checks, listed
}

// count counts one verdict. A question about a domain is no mail, and counts as a hit of its lists alone.
func (in *instruments) count(v *verdict.Verdict, about Subject, now time.Time) {
	switch about {
	case AboutDomain:
	case AboutClient:
		in.clients[v.Kind].Inc()
		if v.Kind != verdict.Blocked {
			return // its envelopes come, and are counted then
		}
	case aboutField: // of a message whose envelope is counted
	default:
		in.verdicts[v.Kind].Inc()
	}
	if v.Unread != "" {
		in.unread.WithLabelValues(v.Source.String(), string(v.Kind)).Inc()
	}
	in.countMatches(v, now)
}

func (in *instruments) countMatches(v *verdict.Verdict, now time.Time) {
	if len(v.Matches) > 0 {
		in.hits.Count(v, now)
	}
	if v.Unverified {
		in.believed.WithLabelValues(v.ListName(v.Decider)).Inc()
	}
	if v.Shadow >= 0 {
		in.shadows.WithLabelValues(v.ListName(v.Shadow)).Inc()
	}
}

// failed counts an internal error and logs it, unless another was logged a
// moment ago.
func (in *instruments) failed(where string, err error, more ...slog.Attr) {
	in.errors[where].Inc()
	now, next := time.Now().UnixNano(), in.logNext.Load()
	if now < next || !in.logNext.CompareAndSwap(next, now+int64(quietErrors)) {
		in.suppressed.Add(1)
		return
	}
	in.log.LogAttrs(context.Background(), slog.LevelError, "internal error in a look-up",
		append(more, slog.String("where", where), slog.Any("error", err),
			slog.Uint64("not_logged_before", in.suppressed.Swap(0)))...)
}

package postfix

import (
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"

	"blockd/policy"
)

// Metrics counts the events of all Servers of a process. It is safe for concurrent use.
type Metrics struct {
	answers, faults, refused, acceptErrors *prometheus.CounterVec
	connections                            *prometheus.GaugeVec
	duplicates                             prometheus.Counter
}

// NewMetrics returns Metrics and registers them with reg. It panics if reg already has them.
func NewMetrics(reg prometheus.Registerer) *Metrics {
	auto := promauto.With(reg)
	return &Metrics{
		answers: auto.NewCounterVec(prometheus.CounterOpts{Name: "blockd_postfix_answers_total",
			Help: "Requests of Postfix answered, by service (policy, socketmap, tcp) and answer: passed, refused, deferred, tagged, held, again (this recipient by itself)."},
			[]string{"service", "answer"}),
		faults: auto.NewCounterVec(prometheus.CounterOpts{Name: "blockd_postfix_faults_total",
			Help: "Connections of Postfix ended early, by service and why: too-long, malformed, slow, unread, panic (a defect of blockd)."},
			[]string{"service", "why"}),
		refused: auto.NewCounterVec(prometheus.CounterOpts{Name: "blockd_postfix_connections_refused_total",
			Help: "Connections closed at once, by service and why: peer (not in allow_from), total (over max_connections)."},
			[]string{"service", "why"}),
		acceptErrors: auto.NewCounterVec(prometheus.CounterOpts{Name: "blockd_postfix_accept_errors_total",
			Help: "Errors in accepting a connection of Postfix, such as no file descriptors left, by service."},
			[]string{"service"}),
		connections: auto.NewGaugeVec(prometheus.GaugeOpts{Name: "blockd_postfix_connections",
			Help: "Connections of Postfix open now, by service."}, []string{"service"}),
		duplicates: auto.NewCounter(prometheus.CounterOpts{Name: "blockd_postfix_duplicate_attributes_total",
			Help: "Attributes that came twice in one policy request; the last one counted."}),
	}
}

// serviceMetrics are the metrics of one service. They are looked up once, so that counting an
// answer does not allocate.
type serviceMetrics struct {
	answers      map[policy.Outcome]prometheus.Counter
	faults       map[fault]prometheus.Counter
	refused      *prometheus.CounterVec
	acceptErrors prometheus.Counter
	connections  prometheus.Gauge
	duplicates   prometheus.Counter
}

func (m *Metrics) of(service string) *serviceMetrics {
	s := &serviceMetrics{
		answers: map[policy.Outcome]prometheus.Counter{}, faults: map[fault]prometheus.Counter{}, refused: m.refused,
		acceptErrors: m.acceptErrors.WithLabelValues(service), connections: m.connections.WithLabelValues(service),
		duplicates: m.duplicates,
	}
	for outcome, answer := range map[policy.Outcome]string{
		policy.Accept: "passed", policy.Refuse: "refused", policy.Defer: "deferred", policy.Mark: "tagged",
		policy.Quarantine: "held", policy.Apart: "again",
	} {
		s.answers[outcome] = m.answers.WithLabelValues(service, answer)
	}
	for _, f := range []fault{errTooLong, errMalformed, errSlow, errUnread, errPanic} {
		s.faults[f] = m.faults.WithLabelValues(service, string(f))
	}
	for _, why := range []string{"peer", "total"} {
		m.refused.WithLabelValues(service, why)
	}
	return s
}

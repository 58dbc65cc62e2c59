package dnsbl

import (
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"
)

// answerKind is what a question in a zone was answered with, for the metric.
type answerKind uint8

// The kinds.
const (
	answerListed answerKind = iota
	answerClear
	answerOther
	answerFailed
	answerKinds
)

func (k answerKind) String() string { return [...]string{"listed", "clear", "other", "failed"}[k] }

// The reasons for REFUSED and other refusals.
const (
	noZone     = "zone"
	badPeer    = "peer"
	badOpcode  = "opcode"
	badFormat  = "format"
	badClass   = "class"
	badVersion = "version"
	noTransfer = "transfer"
	ourDefect  = "defect"
)

// The reasons for no answer.
const (
	noQuery  = "no-query" // no message, or an answer
	overRate = "rate"
	unsent   = "unsent" // the system did not take the answer
)

// The ends of TCP connections that have a reason of ours.
const (
	tooMany     = "total"
	tooManyHere = "client"
	tooSlow     = "slow"
	tooLong     = "too-long"
	notRead     = "unread"
)

type metrics struct {
	answers          *prometheus.CounterVec
	refused, dropped map[string]prometheus.Counter
	slipped          prometheus.Counter
	truncated        prometheus.Counter
	connections      prometheus.Gauge
	closed           map[string]prometheus.Counter
	errors           prometheus.Counter
}

func newMetrics(reg prometheus.Registerer) *metrics {
	auto := promauto.With(reg)
	byReason := func(name, help string, reasons ...string) map[string]prometheus.Counter {
		vec, all := auto.NewCounterVec(prometheus.CounterOpts{Name: name, Help: help}, []string{"why"}), map[string]prometheus.Counter{}
		for _, why := range reasons {
			all[why] = vec.WithLabelValues(why)
		}
		return all
	}
	return &metrics{
		answers: auto.NewCounterVec(prometheus.CounterOpts{Name: "blockd_dnsbl_answers_total",
			Help: "Questions in the zones of the DNS door, by zone and answer: listed, clear, other (the zone itself, test entries, names that are no question), failed (SERVFAIL)."},
			[]string{"zone", "answer"}),
		refused: byReason("blockd_dnsbl_refused_total",
			"Messages to the DNS door that were answered with an error, by reason: zone (of another server), peer (not in dns.allow_from), opcode, class, version, transfer, format, defect (of blockd).",
			noZone, badPeer, badOpcode, badFormat, badClass, badVersion, noTransfer, ourDefect),
		dropped: byReason("blockd_dnsbl_dropped_total",
			"Messages to the DNS door without an answer, by reason: no-query, rate (dns.max_rate), unsent.", noQuery, overRate, unsent),
		slipped: auto.NewCounter(prometheus.CounterOpts{Name: "blockd_dnsbl_slipped_total",
			Help: "Questions beyond dns.max_rate that were answered with nothing but the request to ask by TCP."}),
		truncated: auto.NewCounter(prometheus.CounterOpts{Name: "blockd_dnsbl_truncated_total",
			Help: "Answers that were too long for the client's UDP."}),
		connections: auto.NewGauge(prometheus.GaugeOpts{Name: "blockd_dnsbl_connections",
			Help: "Open TCP connections of the DNS door."}),
		closed: byReason("blockd_dnsbl_connections_closed_total",
			"TCP connections of the DNS door that were closed, by reason: peer (not in dns.allow_from), total (dns.max_connections), client (half of them), slow, too-long, unread, defect (of blockd).",
			badPeer, tooMany, tooManyHere, tooSlow, tooLong, notRead, ourDefect),
		errors: auto.NewCounter(prometheus.CounterOpts{Name: "blockd_dnsbl_socket_errors_total",
			Help: "Errors of the system at the sockets of the DNS door."}),
	}
}

// of are the counters of one zone, resolved once, so that counting does not allocate.
func (m *metrics) of(zone string) (all [answerKinds]prometheus.Counter) {
	for k := range answerKinds {
		all[k] = m.answers.WithLabelValues(zone, k.String())
	}
	return all
}

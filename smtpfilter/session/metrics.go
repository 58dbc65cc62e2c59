package session

import "github.com/prometheus/client_golang/prometheus"

// Metrics counts the events of all sessions of a process. It is safe for concurrent use. Make
// one per registry.
type Metrics struct {
	sessions   prometheus.Counter
	active     prometheus.Gauge
	recipients *prometheus.CounterVec // outcome
	messages   *prometheus.CounterVec // outcome
	upstream   *prometheus.CounterVec // stage
	ended      *prometheus.CounterVec // reason
	panics     prometheus.Counter
	quarantine prometheus.Counter
	spool      prometheus.Counter
	tarpits    prometheus.Gauge
}

// NewMetrics returns Metrics and registers them with reg. It panics if reg already has them.
func NewMetrics(reg prometheus.Registerer) *Metrics {
	m := &Metrics{
		sessions: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "blockd_smtp_sessions_total",
			Help: "SMTP sessions begun.",
		}),
		active: prometheus.NewGauge(prometheus.GaugeOpts{
			Name: "blockd_smtp_sessions",
			Help: "SMTP sessions open now.",
		}),
		recipients: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "blockd_smtp_recipients_total",
			Help: "RCPT commands answered, by outcome: accepted, exempt, refused and deferred (by the lists), upstream-refused, failed (upstream lost), limited, quarantined.",
		}, []string{"outcome"}),
		messages: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "blockd_smtp_messages_total",
			Help: "Messages whose data was begun, by outcome: accepted (upstream's 250 passed on), quarantined (there alone), quarantine-failed, refused and deferred (by the lists, at its end), copy-failed, upstream-refused, upstream-lost, bare (CR, LF or NUL), too-big, loop, timeout, client-lost.",
		}, []string{"outcome"}),
		upstream: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "blockd_smtp_upstream_errors_total",
			Help: "Failures of the upstream connection, by stage: open, probe, client-info (XCLIENT or PROXY), capability (no longer offered), command, data, final.",
		}, []string{"stage"}),
		ended: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "blockd_smtp_sessions_ended_total",
			Help: "Sessions ended by the filter, by reason: errors, junk, rate, timeout, drain, protocol, upstream, client (its address is listed), list (an entry's own reply is 421 or 521).",
		}, []string{"reason"}),
		panics: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "blockd_smtp_panics_total",
			Help: "Sessions ended by a panic, which is a defect of blockd: please report the stack in the log.",
		}),
	}
	m.quarantine = prometheus.NewCounter(prometheus.CounterOpts{
		Name: "blockd_smtp_quarantine_errors_total",
		Help: "Failures to write into the quarantine or to take a copy back; the mail was answered 451.",
	})
	m.spool = prometheus.NewCounter(prometheus.CounterOpts{
		Name: "blockd_smtp_copy_errors_total",
		Help: "Failures to keep a copy of a message that was to prove its sender; the mail was answered 451.",
	})
	m.tarpits = prometheus.NewGauge(prometheus.GaugeOpts{
		Name: "blockd_smtp_tarpits",
		Help: "SMTP sessions whose answer is held back now.",
	})
	// Every series exists from the start, so that its first increase shows.
	for _, outcome := range []string{"accepted", "exempt", "refused", "deferred", "upstream-refused", "failed", "limited", "quarantined"} {
		m.recipients.WithLabelValues(outcome)
	}
	for _, outcome := range []string{"accepted", "quarantined", "quarantine-failed", "refused", "deferred", "copy-failed", "upstream-refused", "upstream-lost", "bare", "too-big", "loop", "timeout", "client-lost"} {
		m.messages.WithLabelValues(outcome)
	}
	for _, stage := range []string{"open", "probe", "client-info", "capability", "command", "data", "final"} {
		m.upstream.WithLabelValues(stage)
	}
	for _, reason := range []string{"errors", "junk", "rate", "timeout", "drain", "protocol", "upstream", "client"} {
		m.ended.WithLabelValues(reason)
	}
	reg.MustRegister(m.sessions, m.active, m.recipients, m.messages, m.upstream, m.ended, m.panics, m.quarantine, m.spool, m.tarpits)
	return m
}

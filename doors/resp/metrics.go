package resp

import (
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"
)

// Metrics counts the events of a Server. It is safe for concurrent use.
type Metrics struct {
	commands, faults, refused *prometheus.CounterVec
	answers                   [errored + 1]prometheus.Counter
	connections               prometheus.Gauge
	acceptErrors, other       prometheus.Counter
}

// answer is what a client hears about one sender.
type answer uint8

// The answers.
const (
	unlisted answer = iota // 0, or nil
	listed                 // 1, or the reason
	unjudged               // an error: no sender
	errored                // an error: a fault of blockd
)

// NewMetrics returns Metrics and registers them with reg. It panics if reg already has them.
func NewMetrics(reg prometheus.Registerer) *Metrics {
	auto := promauto.With(reg)
	answers := auto.NewCounterVec(prometheus.CounterOpts{Name: "blockd_resp_answers_total",
		Help: "Senders, domains and addresses that RESP clients asked about, by answer: clear, listed, unjudged (the text is none of these), error (a fault of blockd)."},
		[]string{"answer"})
	m := &Metrics{
		commands: auto.NewCounterVec(prometheus.CounterOpts{Name: "blockd_resp_commands_total",
			Help: "Commands of RESP clients, by name; other: commands that blockd does not answer."}, []string{"command"}),
		faults: auto.NewCounterVec(prometheus.CounterOpts{Name: "blockd_resp_faults_total",
			Help: "Connections of RESP clients ended early, by why: too-long, malformed, http, slow, unread, memory (of all connections together), passwords, panic (a defect of blockd)."},
			[]string{"why"}),
		refused: auto.NewCounterVec(prometheus.CounterOpts{Name: "blockd_resp_connections_refused_total",
			Help: "Connections of RESP clients closed at once, by why: peer (not in allow_from), total (over max_connections)."}, []string{"why"}),
		connections:  auto.NewGauge(prometheus.GaugeOpts{Name: "blockd_resp_connections", Help: "Connections of RESP clients open now."}),
		acceptErrors: auto.NewCounter(prometheus.CounterOpts{Name: "blockd_resp_accept_errors_total", Help: "Errors in accepting a connection of a RESP client, such as no file descriptors left."}),
	}
	m.other = m.commands.WithLabelValues("other")
	for a, word := range [...]string{unlisted: "clear", listed: "listed", unjudged: "unjudged", errored: "error"} {
		m.answers[a] = answers.WithLabelValues(word)
	}
	for _, f := range []fault{errTooLong, errMalformed, errHTTP, errSlow, errUnread, errMemory, errPasswords, errPanic} {
		m.faults.WithLabelValues(string(f))
	}
	for _, why := range []string{"peer", "total"} {
		m.refused.WithLabelValues(why)
	}
	return m
}

// commandsOf gives each command its counter, so that counting does not allocate.
func (m *Metrics) commandsOf(all []command) map[string]*command {
	byName := make(map[string]*command, len(all))
	for i := range all {
		c := &all[i]
		c.counter = m.commands.WithLabelValues(c.name)
		byName[c.name] = c
	}
	return byName
}

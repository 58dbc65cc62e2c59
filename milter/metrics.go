package milter

import "github.com/prometheus/client_golang/prometheus"

// Reasons to refuse a connection.
const (
	whyNetwork = "network"
	whyTotal   = "total"
)

// Reasons to close a connection for a bad packet.
const (
	whyForm = "form"
	whySlow = "slow"
	whyTorn = "torn"
)

// Outcomes for a recipient, or for a message at its end.
const (
	outAccepted    = "accepted"
	outExempt      = "exempt"
	outRefused     = "refused"
	outDeferred    = "deferred"
	outLimited     = "limited"
	outTagged      = "tagged"
	outQuarantined = "quarantined"
	outDiscarded   = "discarded"
	outAwaiting    = "awaiting"
)

// Outcomes of MAIL.
const (
	mailPassed  = "passed"
	mailWatched = "watched"
	mailRefused = "refused"
)

// metrics counts what a Server does. It is safe for concurrent use.
type metrics struct {
	connections  prometheus.Counter
	active       prometheus.Gauge
	refused      *prometheus.CounterVec // why
	badPackets   *prometheus.CounterVec // why
	acceptErrors prometheus.Counter
	cut          prometheus.Counter
	panics       prometheus.Counter
	clients      prometheus.Counter
	forged       prometheus.Counter
	senders      map[string]prometheus.Counter // looked up once, so that counting does not allocate
	recipients   *prometheus.CounterVec        // outcome
	messages     *prometheus.CounterVec        // outcome
}

func newMetrics(reg prometheus.Registerer) *metrics {
	counter := func(name, help string) prometheus.Counter {
		c := prometheus.NewCounter(prometheus.CounterOpts{Name: name, Help: help})
		reg.MustRegister(c)
		return c
	}
	// Every series exists from the start, so that no rate over them is missing.
	vec := func(name, help, label string, values ...string) *prometheus.CounterVec {
		v := prometheus.NewCounterVec(prometheus.CounterOpts{Name: name, Help: help}, []string{label})
		for _, value := range values {
			v.WithLabelValues(value)
		}
		reg.MustRegister(v)
		return v
	}
	m := &metrics{
		connections: counter("blockd_milter_connections_total", "Connections of mail servers to the milter door."),
		active: prometheus.NewGauge(prometheus.GaugeOpts{
			Name: "blockd_milter_connections",
			Help: "Connections of mail servers to the milter door that are open now.",
		}),
		refused: vec("blockd_milter_connections_refused_total",
			"Connections to the milter door closed at once, by why: network (not of allow_from), total (too many).",
			"why", whyNetwork, whyTotal),
		badPackets: vec("blockd_milter_bad_packets_total",
			"Connections to the milter door closed for what came, by why: form (no packet of the protocol), slow (not whole in time), torn (the end within a packet).",
			"why", whyForm, whySlow, whyTorn),
		acceptErrors: counter("blockd_milter_accept_errors_total", "Errors in accepting a connection, such as no file descriptors left."),
		cut:          counter("blockd_milter_cut_total", "Connections of mail servers closed because the time to stop was over."),
		panics:       counter("blockd_milter_panics_total", "Milter events answered by on_error after a panic, which is a defect of blockd: please report the stack in the log."),
		clients:      counter("blockd_milter_clients_refused_total", "SMTP clients refused through the milter door because their address is listed, before they named a sender."),
		forged:       counter("blockd_milter_forged_results_total", "Authentication-Results fields taken out of messages because they claimed to be this server's own."),
		senders:      map[string]prometheus.Counter{},
		recipients: vec("blockd_milter_recipients_total",
			"RCPT events of senders that were not passed at MAIL, by outcome: accepted, exempt, refused and deferred (by the lists), limited (to come again in a transaction of its own), tagged, quarantined, discarded, awaiting (the message, which may prove its sender).",
			"outcome", outAccepted, outExempt, outRefused, outDeferred, outLimited, outTagged, outQuarantined, outDiscarded, outAwaiting),
		messages: vec("blockd_milter_messages_total",
			"Messages that blockd had a last word on, by outcome: accepted (having proved their sender), refused and deferred (by their header, or for want of proof), tagged, quarantined, discarded.",
			"outcome", outAccepted, outRefused, outDeferred, outTagged, outQuarantined, outDiscarded),
	}
	senders := vec("blockd_milter_senders_total",
		"MAIL events, by what followed: passed (nothing more is asked), watched (recipients or header are asked about), refused (at MAIL).",
		"outcome", mailPassed, mailWatched, mailRefused)
	for _, outcome := range []string{mailPassed, mailWatched, mailRefused} {
		m.senders[outcome] = senders.WithLabelValues(outcome)
	}
	reg.MustRegister(m.active)
	return m
}

package daemon

import (
	"fmt"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"

	"blockd/cmd/blockd/internal/config"
	"blockd/mail/msgauth"
)

// NewResolver returns the one that SPF and DKIM share; observe may be nil.
func NewResolver(a config.Auth, observe func(msgauth.Query)) (*msgauth.Resolver, error) {
	r, err := msgauth.NewResolver(msgauth.Settings{
		Server: a.Resolver, Timeout: time.Duration(a.DNSTimeout), TrustedRelays: config.Networks(a.TrustedRelays), Observe: observe,
	})
	if err != nil {
		return nil, fmt.Errorf("auth.resolver: %w", err)
	}
	return r, nil
}

// observedResolver is NewResolver with its metrics.
func (d *daemon) observedResolver() (*msgauth.Resolver, error) {
	auto := promauto.With(d.metrics)
	times := auto.NewHistogramVec(prometheus.HistogramOpts{Name: "blockd_dns_query_seconds",
		Help:    "DNS queries for SPF, DKIM and PTR rules, by outcome: records, none, error.",
		Buckets: prometheus.ExponentialBuckets(0.001, 4, 7)}, []string{"outcome"}) // 1 ms to 4 s
	_, day := msgauth.SuffixList()
	auto.NewGaugeFunc(prometheus.GaugeOpts{Name: "blockd_public_suffix_list_timestamp_seconds",
		Help: "The day of the Public Suffix List that this program has, by Unix time."},
		func() float64 { return float64(day.Unix()) })
	return NewResolver(d.config.Auth, func(q msgauth.Query) { times.WithLabelValues(q.Outcome).Observe(q.Elapsed.Seconds()) })
}

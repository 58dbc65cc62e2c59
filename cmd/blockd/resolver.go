package main

import (
	"fmt"
	"path/filepath"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"

	"blockd/internal/config"
	"blockd/msgauth"
	"blockd/spool"
)

// newResolver returns the one that SPF and DKIM share; observe may be nil.
func newResolver(a config.Auth, observe func(msgauth.Query)) (*msgauth.Resolver, error) {
	r, err := msgauth.NewResolver(msgauth.Settings{
		Server: a.Resolver, Timeout: time.Duration(a.DNSTimeout), TrustedRelays: config.Networks(a.TrustedRelays), Observe: observe,
	})
	if err != nil {
		return nil, fmt.Errorf("auth.resolver: %w", err)
	}
	return r, nil
}

// observedResolver is newResolver with its metrics.
func observedResolver(a config.Auth, reg prometheus.Registerer) (*msgauth.Resolver, error) {
	auto := promauto.With(reg)
	times := auto.NewHistogramVec(prometheus.HistogramOpts{Name: "blockd_dns_query_seconds",
		Help:    "DNS queries for SPF, DKIM and PTR rules, by outcome: records, none, error.",
		Buckets: prometheus.ExponentialBuckets(0.001, 4, 7)}, []string{"outcome"}) // 1 ms to 4 s
	_, day := msgauth.SuffixList()
	auto.NewGaugeFunc(prometheus.GaugeOpts{Name: "blockd_public_suffix_list_timestamp_seconds",
		Help: "The day of the Public Suffix List that this program has, by Unix time."},
		func() float64 { return float64(day.Unix()) })
	return newResolver(a, func(q msgauth.Query) { times.WithLabelValues(q.Outcome).Observe(q.Elapsed.Seconds()) })
}

// copies is the room for messages that are to prove something, for all doors. Its
// files are beside the index: that folder is written to anyway and is on a disk, which
// the system's folder for temporary files need not be.
func messageCopies(c config.Config) *spool.Store {
	return spool.New(spool.Settings{Dir: filepath.Dir(c.Index.Path)})
}

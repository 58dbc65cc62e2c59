package ask

import (
	"errors"
	"sync/atomic"

	"github.com/prometheus/client_golang/prometheus"
)

// outcomes are what questions to a store come to.
var outcomes = [...]string{"yes", "no", "timeout", "away", "wrong", "paused", "busy", "unfiltered"}

// The places of outcomes.
const (
	outcomeYes = iota
	outcomeNo
	outcomeTimeout
	outcomeAway
	outcomeWrong
	outcomePaused
	outcomeBusy
	outcomeUnfiltered
)

// counts counts since the start.
type counts struct {
	outcomes [len(outcomes)]atomic.Uint64
	cached   atomic.Uint64 // answers that came from the cache
	paused   atomic.Bool   // the store is left alone
	pausedAt atomic.Int64  // since when, in Unix nanoseconds; 0 = it is not
}

// count counts a question that got no answer.
func (c *counts) count(err error) {
	o := outcomeAway
	for i, kind := range map[int]error{outcomeTimeout: ErrTimeout, outcomeWrong: ErrWrong, outcomePaused: ErrPaused, outcomeBusy: ErrBusy, outcomeUnfiltered: ErrNoFilter} {
		if errors.Is(err, kind) {
			o = i
		}
	}
	c.outcomes[o].Add(1)
}

// Register registers the metrics of all lists with reg. It panics if reg already has them.
func (s *Sets) Register(reg prometheus.Registerer) {
	if s == nil {
		return
	}
	reg.MustRegister(collector{s})
}

// collector gives the metrics of Sets.
type collector struct{ sets *Sets }

var (
	questionsDesc = prometheus.NewDesc("blockd_ask_questions_total", "Questions to the store of a list with mode = \"ask\", by outcome: yes, no; timeout, away, wrong, paused, busy: not answered; unfiltered: not asked for want of a filter.", []string{"list", "outcome"}, nil)
	cachedDesc    = prometheus.NewDesc("blockd_ask_cached_total", "Answers about entries of a list with mode = \"ask\" that came from the cache.", []string{"list"}, nil)
	pausedDesc    = prometheus.NewDesc("blockd_ask_paused", "1 while the store of a list with mode = \"ask\" is left alone after failures.", []string{"list"}, nil)
	keysDesc      = prometheus.NewDesc("blockd_ask_filter_keys", "Keys in blockd's own filter of a list with mode = \"ask\"; 0 = it has none.", []string{"list"}, nil)
)

func (c collector) Describe(to chan<- *prometheus.Desc) {
	for _, d := range []*prometheus.Desc{questionsDesc, cachedDesc, pausedDesc, keysDesc} {
		to <- d
	}
}

func (c collector) Collect(to chan<- prometheus.Metric) {
	for _, s := range c.sets.all {
		list := s.Source.List
		for i, word := range outcomes {
			to <- prometheus.MustNewConstMetric(questionsDesc, prometheus.CounterValue, float64(s.outcomes[i].Load()), list, word)
		}
		to <- prometheus.MustNewConstMetric(cachedDesc, prometheus.CounterValue, float64(s.cached.Load()), list)
		paused, keys := 0.0, 0.0
		if s.paused.Load() {
			paused = 1
		}
		if f := s.local.Load(); f != nil {
			keys = float64(f.keys.Load())
		}
		to <- prometheus.MustNewConstMetric(pausedDesc, prometheus.GaugeValue, paused, list)
		to <- prometheus.MustNewConstMetric(keysDesc, prometheus.GaugeValue, keys, list)
	}
}

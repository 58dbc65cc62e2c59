package postfix

import (
	"bytes"
	"cmp"
	"fmt"
	"log/slog"
	"net"
	"sync/atomic"
	"testing"

	"github.com/prometheus/client_golang/prometheus"

	"blockd/index"
	"blockd/internal/testkit"
	"blockd/internal/testkit/indexes"
	"blockd/lists"
	"blockd/policy"
	"blockd/policy/rule"
)

// testList is one list of a test. Its text is a plain list, or a Postfix table if
// an entry of it says DISCARD.
type testList struct {
	name, text string
	action     lists.Action
	mode       index.Mode
	rule       rule.List
}

// rig is what a test's services stand on.
type rig struct {
	t        testing.TB
	settings Settings
	verdicts policy.Settings
	live     atomic.Pointer[index.Index] // nil: the store is broken
	log      bytes.Buffer
	registry *prometheus.Registry

	checker *policy.Checker
	metrics *Metrics
}

func newRig(t testing.TB, all ...testList) *rig {
	r := &rig{t: t, registry: prometheus.NewRegistry()}
	r.verdicts.RecipientsExempt = []string{"postmaster", "abuse"}
	r.verdicts.Lists = map[string]rule.List{}
	for _, l := range all {
		r.settings.Lists = append(r.settings.Lists, l.name)
		r.verdicts.Lists[l.name] = l.rule
	}
	r.load(all...)
	return r
}

// load has other lists serve from now on.
func (r *rig) load(all ...testList) {
	var sources []index.Source
	for _, l := range all {
		s := indexes.Source(r.t, l.name, l.text)
		s.Mode, s.Settings.Action = l.mode, l.action
		sources = append(sources, s)
	}
	r.live.Store(indexes.Build(r.t, sources...))
}

// service makes one of the servers; settings of r do not change from here on.
func (r *rig) service(make func(Settings, *policy.Checker, *Metrics, *slog.Logger) *Server) *Server {
	log := slog.New(slog.NewTextHandler(&r.log, nil))
	r.settings.OnError = cmp.Or(r.settings.OnError, r.verdicts.OnError)
	if r.checker == nil {
		r.checker = policy.New(func() *index.Index {
			ix := r.live.Load()
			if ix == nil {
				panic("broken store")
			}
			return ix
		}, r.verdicts, log, r.registry)
		r.metrics = NewMetrics(r.registry)
	}
	return make(r.settings, r.checker, r.metrics, log)
}

// speak is one connection of a service, without a network.
func (r *rig) speak(make func(Settings, *policy.Checker, *Metrics, *slog.Logger) *Server) dialect {
	s := r.service(make)
	return s.speak(&s.service, true)
}

// ask gives one whole request to a dialect and returns its answer.
func ask(t *testing.T, d dialect, request string) string {
	t.Helper()
	n := testkit.Value(d.measure([]byte(request), 0))(t)
	testkit.MustEqual(t, "measure", n, len(request))
	out, err := d.answer(nil, []byte(request))
	if err != nil {
		t.Fatalf("answer(%q): %v", request, err)
	}
	return string(out)
}

// dial is a connection to a service over an in-memory pipe; ended is closed when
// the service has done with it.
func (r *rig) dial(s *Server) (client net.Conn, c *conn, ended <-chan struct{}) {
	return r.dialAs(s, true)
}

// dialAs is dial of a peer that is listener.Private, or not.
func (r *rig) dialAs(s *Server, private bool) (client net.Conn, c *conn, ended <-chan struct{}) {
	near, far := net.Pipe()
	c = newConn(&s.service, s.speak(&s.service, private), far)
	done := make(chan struct{})
	go func() {
		defer close(done)
		c.Run()
	}()
	return near, c, done
}

// wants gives one request to a dialect, and wants an answer as shown has it.
func wants(t *testing.T, want string, d dialect, request string) {
	t.Helper()
	testkit.Equal(t, fmt.Sprintf("%q is answered", request), shown(ask(t, d, request)), want)
}

// counts wants a value of a counter.
func (r *rig) counts(want float64, name string, labels ...string) {
	r.t.Helper()
	testkit.Equal(r.t, fmt.Sprintf("%s %q", name, labels), r.count(name, labels...), want)
}

// count is the value of a counter, by the values of its labels.
func (r *rig) count(name string, labels ...string) float64 {
	r.t.Helper()
	all := testkit.Samples(r.t, r.registry, name, labels...)
	testkit.MustEqual(r.t, fmt.Sprintf("metric %s %q", name, labels), len(all), 1)
	return all[0]
}

package policy_test

import (
	"log/slog"
	"net/netip"
	"path/filepath"
	"testing"

	"github.com/prometheus/client_golang/prometheus"

	"blockd/index"
	"blockd/internal/testkit/indexes"
	"blockd/lists"
	"blockd/policy"
	"blockd/policy/verdict"
)

// list is one list of a test: plain text, as a file would have it.
type list struct {
	name, text string
	action     lists.Action
	mode       index.Mode
	exceptions index.Exceptions
}

func block(name, text string) list { return list{name: name, text: text} }
func allow(name, text string) list { return list{name: name, text: text, action: lists.Allow} }
func (l list) shadow() list        { l.mode = index.Shadow; return l }

// build makes a real index of the lists in a folder of the test.
func build(t testing.TB, all ...list) *index.Index {
	t.Helper()
	return buildAt(t, filepath.Join(t.TempDir(), "test.bdx"), all...)
}

func buildAt(t testing.TB, path string, all ...list) *index.Index {
	t.Helper()
	return indexes.BuildAt(t, path, sourcesOf(t, all)...)
}

func sourcesOf(t testing.TB, all []list) (sources []index.Source) {
	t.Helper()
	for _, l := range all {
		s := indexes.Source(t, l.name, l.text)
		s.Mode, s.Exceptions = l.mode, l.exceptions
		s.Settings.Action, s.Settings.Patterns = l.action, true
		sources = append(sources, s)
	}
	return sources
}

// askSender asks about mail of a sender, from a client that is not known.
func askSender(c *policy.Checker, reversePath string) verdict.Verdict {
	return c.Ask(policy.Question{Text: reversePath})
}

func askEnvelope(c *policy.Checker, client netip.Addr, reversePath string) verdict.Verdict {
	return c.Ask(policy.Question{Text: reversePath, Client: client})
}

func askClient(c *policy.Checker, client netip.Addr) verdict.Verdict {
	return c.Ask(policy.Question{About: policy.AboutClient, Client: client})
}

func askDomain(c *policy.Checker, domain string) verdict.Verdict {
	return c.Ask(policy.Question{About: policy.AboutDomain, Text: domain})
}

// checker asks ix with the given settings. Its metrics are in the registry.
func checker(t testing.TB, ix *index.Index, s policy.Settings) (*policy.Checker, *prometheus.Registry) {
	t.Helper()
	reg := prometheus.NewRegistry()
	return policy.New(func() *index.Index { return ix }, s, slog.New(slog.DiscardHandler), reg), reg
}

// tentative reports whether a message can change a verdict.
func tentative(v verdict.Verdict) bool { return v.Wants&verdict.LateProofs != 0 }

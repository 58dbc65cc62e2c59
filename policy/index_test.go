package policy_test

import (
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"

	"blockd/index"
	"blockd/lists"
	"blockd/policy"
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
	var sources []index.Source
	for _, l := range all {
		file := filepath.Join(t.TempDir(), l.name+".txt")
		if err := os.WriteFile(file, []byte(l.text), 0o600); err != nil {
			t.Fatal(err)
		}
		sources = append(sources, index.Source{List: l.name, Path: file, Mode: l.mode, Exceptions: l.exceptions,
			Settings: lists.Settings{Format: formatOf(l.text), Action: l.action, Patterns: true}})
	}
	d, err := index.Build(t.Context(), path, sources, index.Options{})
	if err != nil {
		t.Fatal(err)
	}
	if err := d.Publish(); err != nil {
		t.Fatal(err)
	}
	return d.Index()
}

// formatOf reads lists with actions of their own as Postfix tables, and those that
// ask for an author's proof as SpamAssassin's.
func formatOf(text string) string {
	if strings.Contains(text, "_auth ") {
		return "spamassassin"
	}
	for _, sign := range []string{" REJECT", " DEFER", " 4", " 5", " OK", " DISCARD"} {
		if strings.Contains(text, sign) {
			return "postfix"
		}
	}
	return "plain"
}

// checker asks ix with the given settings. Its metrics are in the registry.
func checker(t testing.TB, ix *index.Index, s policy.Settings) (*policy.Checker, *prometheus.Registry) {
	t.Helper()
	reg := prometheus.NewRegistry()
	return policy.New(func() *index.Index { return ix }, s, slog.New(slog.DiscardHandler), reg), reg
}

package config

import (
	"fmt"
	"testing"

	"blockd/internal/testkit"
)

func TestOwnDomains(t *testing.T) {
	for hostname, want := range map[string][]string{
		"mx.here.example":       {"here.example", "mx.here.example"},
		"MX1.Mail.Here.co.uk.":  {"here.co.uk", "mx1.mail.here.co.uk"},
		"here.example":          {"here.example"},
		"mailhost":              nil,
		"mx.bücher.example":     {"xn--bcher-kva.example", "mx.xn--bcher-kva.example"},
		"[198.51.100.23]":       nil,
		"a.b.compute.example.k": {"example.k", "a.b.compute.example.k"},
	} {
		testkit.EqualSlices(t, fmt.Sprintf("OwnDomains of %s", hostname), (Config{SMTP: SMTP{Hostname: hostname}}).OwnDomains(), want)
	}
}

// A bound of a list stands above that of [index], which stands above the default.
func TestBoundsReachTheGate(t *testing.T) {
	file := testkit.File(t, "config.toml", `
[index]
max_grow = 3
[[list]]
name = "a"
path = "a.txt"
[[list]]
name = "b"
path = "b.txt"
max_shrink = 0
max_grow = 1.5
`)
	c := testkit.Value(Load(file))(t)
	for i, want := range []struct{ shrink, grow float64 }{{0.5, 3}, {0, 1.5}} {
		if l := c.Reload().Lists[i]; l.MaxShrink != want.shrink || l.MaxGrow != want.grow {
			t.Errorf("list %s: %v and %v, want %v and %v", l.Name, l.MaxShrink, l.MaxGrow, want.shrink, want.grow)
		}
	}
}

package main

import (
	"strings"
	"testing"

	"blockd/index"
)

// What stands before the bar leaves room for what the library writes behind it.
func TestBarFitsTheTerminal(t *testing.T) {
	p := index.Progress{Stage: "read", Source: "lists/" + strings.Repeat("long-name-", 20) + ".txt", Entries: 100_000_000}
	for _, tt := range []struct {
		width int
		want  string
	}{
		{80, "read 100,000,000 entrie…"},
		{90, "read 100,000,000 entries"},
		{140, "read 100,000,000 entries, long-name-long-name-long-name…"},
		{20, "…"},
	} {
		b := bar{width: tt.width}
		if got := b.text(p); got != tt.want {
			t.Errorf("at width %d: %q (%d columns), want %q", tt.width, got, columns(got), tt.want)
		}
	}
}

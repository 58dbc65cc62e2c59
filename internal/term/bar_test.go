package term

import (
	"strings"
	"testing"
)

// What stands before the bar leaves room for what the library writes behind it.
func TestBarFitsTheTerminal(t *testing.T) {
	p := Step{Stage: "read", Text: "read 100,000,000 entries", More: ", " + strings.Repeat("long-name-", 20) + ".txt"}
	for _, tt := range []struct {
		width int
		want  string
	}{
		{79, "read 100,000,000 entri…"},
		{80, "read 100,000,000 entries"},
		{90, "read 100,000,000 entries"},
		{140, "read 100,000,000 entries, long-name-long-name-long-name…"},
		{20, "…"},
	} {
		b := Bar{width: tt.width}
		if got := b.text(p); got != tt.want {
			t.Errorf("at width %d: %q (%d columns), want %q", tt.width, got, Columns(got), tt.want)
		}
	}
}

package spelling

import (
	"fmt"
	"testing"

	"blockd/internal/testkit"
)

func TestDistance(t *testing.T) {
	for _, tt := range []struct {
		a, b string
		want int
	}{
		{"", "", 0}, {"listen", "listen", 0}, {"listen", "lisen", 1}, {"hostnmae", "hostname", 1},
		{"rctp", "rcpt", 1}, {"pol", "poll", 1}, {"", "abc", 3}, {"kitten", "sitting", 3},
	} {
		testkit.Equal(t, fmt.Sprintf("Distance(%q, %q)", tt.a, tt.b), Distance(tt.a, tt.b), tt.want)
		testkit.Equal(t, fmt.Sprintf("Distance(%q, %q)", tt.b, tt.a), Distance(tt.b, tt.a), tt.want)
	}
}

package daemon

import (
	"fmt"
	"log/slog"
	"testing"

	"blockd/internal/testkit"
)

// TestServeNamesItselfAsTheWireAllows: what stands in greetings and Received
// fields is a domain name in A-form, whatever was configured or the system says.
func TestServeNamesItselfAsTheWireAllows(t *testing.T) {
	for name, want := range map[string]string{
		"MX.Here.example.": "mx.here.example", "müller.example": "xn--mller-kva.example", "my host": "localhost", "a\r\nb": "localhost",
	} {
		testkit.Equal(t, fmt.Sprintf("wireName(%q)", name), wireName(name, slog.New(slog.DiscardHandler)), want)
	}
}

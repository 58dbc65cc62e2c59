package daemon

import (
	"log/slog"
	"testing"
)

// TestServeNamesItselfAsTheWireAllows: what stands in greetings and Received
// fields is a domain name in A-form, whatever was configured or the system says.
func TestServeNamesItselfAsTheWireAllows(t *testing.T) {
	for name, want := range map[string]string{
		"MX.Here.example.": "mx.here.example", "müller.example": "xn--mller-kva.example", "my host": "localhost", "a\r\nb": "localhost",
	} {
		if got := wireName(name, slog.New(slog.DiscardHandler)); got != want {
			t.Errorf("wireName(%q) = %q, want %q", name, got, want)
		}
	}
}

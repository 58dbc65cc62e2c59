package httpapi

import (
	"bytes"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"testing"
)

// BenchmarkStream asks over a real connection; the figures are per sender, of
// client and server together.
func BenchmarkStream(b *testing.B) {
	f := newFixture(b, Settings{}, "bad.example\n")
	srv := httptest.NewServer(f.Handler())
	defer srv.Close()
	for name, line := range map[string]string{"clear": "\"someone%d@mail.clear.example\"\n", "listed": "{\"sender\":\"x%d@mx.bad.example\"}\n"} {
		b.Run(name, func(b *testing.B) {
			b.ReportAllocs()
			var body bytes.Buffer
			for i := range b.N {
				fmt.Fprintf(&body, line, i)
			}
			b.ResetTimer()
			r, err := http.Post(srv.URL+"/v1/check", "application/x-ndjson", &body)
			if err != nil {
				b.Fatal(err)
			}
			defer r.Body.Close()
			if n, err := io.Copy(io.Discard, r.Body); err != nil || r.StatusCode != http.StatusOK || n < int64(b.N) {
				b.Fatalf("%d bytes, status %d, %v", n, r.StatusCode, err)
			}
		})
	}
}

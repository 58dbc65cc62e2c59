package httpapi

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"testing"

	"blockd/internal/testkit"
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
			r := testkit.Value(http.Post(srv.URL+"/v1/check", "application/x-ndjson", &body))(b)
			defer r.Body.Close()
			if n, err := io.Copy(io.Discard, r.Body); err != nil || r.StatusCode != http.StatusOK || n < int64(b.N) {
				b.Fatalf("%d bytes, status %d, %v", n, r.StatusCode, err)
			}
		})
	}
}

// BenchmarkConnection asks on one connection, with the fast path and without; the figures
// are of client and server together.
func BenchmarkConnection(b *testing.B) {
	f := newFixture(b, Settings{}, "bad.example\n")
	for name, fast := range map[string]bool{"fast": true, "net-http": false} {
		b.Run(name, func(b *testing.B) {
			b.ReportAllocs()
			l := testkit.Listen(b)
			ctx, stop := context.WithCancel(b.Context())
			f.settings.Fast = fast
			go f.Serve(ctx, l)
			defer l.Close()
			defer stop()
			conn := testkit.Value(net.Dial("tcp", l.Addr().String()))(b)
			defer conn.Close()
			answer := make([]byte, 4<<10)
			for i := 0; b.Loop(); i++ {
				fmt.Fprintf(conn, "GET /v1/check?sender=x%d@ok.example HTTP/1.1\r\nHost: localhost\r\nUser-Agent: x\r\nAccept: */*\r\n\r\n", i)
				if n, err := conn.Read(answer); err != nil || !bytes.HasPrefix(answer[:n], []byte("HTTP/1.1 200 ")) {
					b.Fatalf("%q, %v", answer[:n], err)
				}
			}
		})
	}
}

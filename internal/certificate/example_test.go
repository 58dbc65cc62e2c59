package certificate_test

import (
	"context"
	"crypto/tls"
	"fmt"
	"log/slog"

	"blockd/internal/certificate"
)

// A server that takes up a renewed certificate by itself.
func Example() {
	pair, err := certificate.Open("cert.pem", "key.pem", slog.New(slog.DiscardHandler))
	if err != nil {
		fmt.Println(err)
		return
	}
	ctx, stop := context.WithCancel(context.Background())
	defer stop()
	go pair.Watch(ctx)
	config := &tls.Config{GetCertificate: pair.Get}
	_ = config
	// Output: open cert.pem: no such file or directory
}

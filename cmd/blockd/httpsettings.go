package main

import (
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"slices"
	"strings"

	"github.com/prometheus/client_golang/prometheus"

	"blockd/certificate"
	"blockd/httpapi"
	"blockd/internal/config"
)

// makeFirstToken reads the first token, or makes it. Without one, for whatever reason,
// what it would open stays closed, and mail is filtered.
func makeFirstToken(c config.Config, log *slog.Logger) string {
	path := c.FirstToken()
	if path == "" {
		return ""
	}
	token, made, err := httpapi.FirstToken(path)
	if err != nil {
		log.Error("no token for the HTTP door: who wrote to whom is shown by the Unix socket alone", slog.Any("error", err))
		return ""
	}
	if made {
		log.Info("token made for the HTTP door", slog.String("file", path))
	}
	return token
}

// settings are those of the server; certificate is nil where it speaks no TLS.
func httpSettings(h config.HTTP, reg prometheus.Registerer, log *slog.Logger) (s httpapi.Settings, pair *certificate.Pair, err error) {
	s = httpapi.Settings{Tokens: h.Tokens, Hosts: slices.Clone(h.Hosts), Fast: h.Fast,
		MaxConnections: h.MaxConnections, MaxPerClient: h.MaxConnectionsPerIP, MaxRate: h.MaxRate}
	for i, host := range s.Hosts {
		s.Hosts[i] = strings.ToLower(host)
	}
	if own := h.OwnToken(); own != "" {
		if s.Token, err = httpapi.ReadToken(own); err != nil {
			return s, nil, fmt.Errorf("http.token_file: %w", err)
		}
	}
	if h.TLSCert == "" {
		return s, nil, nil
	}
	if pair, err = certificate.Open(h.TLSCert, h.TLSKey, log); err != nil {
		return s, nil, fmt.Errorf("http.tls_cert: %w", err)
	}
	s.TLS = &tls.Config{MinVersion: tls.VersionTLS12, GetCertificate: pair.Get}
	reg.MustRegister(
		prometheus.NewGaugeFunc(prometheus.GaugeOpts{
			Name: "blockd_http_tls_certificate_valid_until_timestamp_seconds",
			Help: "When the certificate of the HTTP door ends to be valid, by Unix time.",
		}, func() float64 { return float64(pair.NotAfter().Unix()) }),
		prometheus.NewGaugeFunc(prometheus.GaugeOpts{
			Name: "blockd_http_tls_certificate_current",
			Help: "1 if the HTTP door shows the certificate that the files hold, 0 if that cannot be used and an older one serves.",
		}, func() float64 {
			if pair.Failing() {
				return 0
			}
			return 1
		}))
	return s, pair, nil
}

var errOtherCertificate = errors.New("it shows a certificate that is not the one of http.tls_cert")

// trustDaemon is how this program knows its own daemon: by the very certificate that the
// configuration names, which may be issued for a name that no loopback address has, or
// by nobody. A daemon that was not told of a renewal yet is a stranger for a moment.
func trustDaemon(h config.HTTP) (*tls.Config, error) {
	if h.TLSCert == "" {
		return nil, nil
	}
	text, err := os.ReadFile(h.TLSCert)
	if err != nil {
		return nil, fmt.Errorf("http.tls_cert: %w", err)
	}
	block, _ := pem.Decode(text)
	if block == nil {
		return nil, fmt.Errorf("http.tls_cert: %s holds no PEM", h.TLSCert)
	}
	own, err := x509.ParseCertificate(block.Bytes)
	if err != nil {
		return nil, fmt.Errorf("http.tls_cert: %s: %w", h.TLSCert, err)
	}
	return &tls.Config{
		InsecureSkipVerify: true, // in favour of what follows, which is stricter
		VerifyConnection: func(state tls.ConnectionState) error {
			if len(state.PeerCertificates) == 0 || !own.Equal(state.PeerCertificates[0]) {
				return errOtherCertificate
			}
			return nil
		},
	}, nil
}

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

	"blockd/addr"
	"blockd/certificate"
	"blockd/httpapi"
)

// defaultHTTP is [http] of an empty file. A rate of 1,000 is more than mail and people
// ask, and a thirtieth of what two cores answer: a program that asks in circles leaves
// them to the mail.
func defaultHTTP() HTTP {
	return HTTP{Listen: "127.0.0.1:8025", TokenFile: autoPath, Hosts: []string{}, Socket: autoPath, SocketMode: "0660",
		MaxConnections: 256, MaxConnectionsPerIP: 128, MaxRate: 1000}
}

func (h HTTP) validate(f *Faults) {
	f.hostPort("http.listen", h.Listen)
	if h.Listen != "" && !h.closed() && !onLoopback(h.Listen) {
		f.add("http.listen", "%s can be reached from other machines: it needs http.token_file or http.tokens", h.Listen)
	}
	switch {
	case h.TLSCert != "" && h.TLSKey == "":
		f.add("http.tls_key", "is missing; http.tls_cert needs it")
	case h.TLSCert == "" && h.TLSKey != "":
		f.add("http.tls_cert", "is missing; http.tls_key needs it")
	}
	for i, host := range h.Hosts {
		if _, err := addr.DomainKey(host); err != nil {
			f.add(fmt.Sprintf("http.hosts[%d]", i), "want a name such as \"mail.example.org\", without a port: %v", err)
		}
	}
	const most = 1 << 20
	for _, l := range []struct {
		key         string
		have, least int
	}{
		{"max_connections", h.MaxConnections, 1},
		{"max_connections_per_ip", h.MaxConnectionsPerIP, 1},
		{"max_rate", h.MaxRate, 0},
	} {
		if l.have < l.least || l.have > most {
			f.add("http."+l.key, "want %d to %d, have %d", l.least, most, l.have)
		}
	}
	if h.Socket == "" {
		f.add("http.socket", `want a path, "auto" or "none"`)
	} else if h.Socket != autoPath && h.Socket != noPath {
		f.door("http.socket", unixPrefix+h.Socket)
	}
	if _, err := socketMode(h.SocketMode); err != nil {
		f.add("http.socket_mode", "%v", err)
	}
}

// ownToken is the token that token_file names, "" if that is no path.
func (h HTTP) ownToken() string {
	if h.TokenFile == autoPath || h.TokenFile == noPath {
		return ""
	}
	return h.TokenFile
}

// closed reports whether the door answers nobody without a token.
func (h HTTP) closed() bool { return h.ownToken() != "" || h.Tokens != "" }

// firstToken is the file beside the index with a token that the first start makes, so that
// what names senders and recipients is closed to other users of this machine, and open to
// its administrator, before anybody has thought of it. It is "" where there is to be none:
// where other tokens are wanted, where only the Unix socket may ask, and where no door is.
func (c Config) firstToken() string {
	if c.HTTP.closed() || c.HTTP.TokenFile == noPath || c.HTTP.Listen == "" {
		return ""
	}
	return c.Index.Path + ".token"
}

// makeFirstToken reads the first token, or makes it. Without one, for whatever reason,
// what it would open stays closed, and mail is filtered.
func (c Config) makeFirstToken(log *slog.Logger) string {
	path := c.firstToken()
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

// warnings are what h allows and its administrator may not mean.
func (h HTTP) warnings() (w []string) {
	if h.Listen != "" && !onLoopback(h.Listen) && h.TLSCert == "" {
		w = append(w, fmt.Sprintf("http.listen %s without http.tls_cert: tokens cross the network as they are", h.Listen))
	}
	return w
}

// scheme is how the door at listen is spoken to.
func (h HTTP) scheme() string {
	if h.TLSCert != "" {
		return "https"
	}
	return "http"
}

// settings are those of the server; certificate is nil where it speaks no TLS.
func (h HTTP) settings(reg prometheus.Registerer, log *slog.Logger) (s httpapi.Settings, pair *certificate.Pair, err error) {
	s = httpapi.Settings{Tokens: h.Tokens, Hosts: slices.Clone(h.Hosts), Fast: true,
		MaxConnections: h.MaxConnections, MaxPerClient: h.MaxConnectionsPerIP, MaxRate: h.MaxRate}
	for i, host := range s.Hosts {
		s.Hosts[i] = strings.ToLower(host)
	}
	if own := h.ownToken(); own != "" {
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

// trust is how this program knows its own daemon: by the very certificate that the
// configuration names, which may be issued for a name that no loopback address has, or
// by nobody. A daemon that was not told of a renewal yet is a stranger for a moment.
func (h HTTP) trust() (*tls.Config, error) {
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

package certificate

import (
	"bytes"
	"crypto/tls"
	"log/slog"
	"os"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"blockd/internal/testkit"
	"blockd/internal/testkit/selfsigned"
)

// served is the first name of the certificate that p shows.
func served(t *testing.T, p *Pair) string {
	t.Helper()
	c := testkit.Value(p.Get(&tls.ClientHelloInfo{}))(t)
	return c.Leaf.DNSNames[0]
}

func TestRenewal(t *testing.T) {
	dir := t.TempDir()
	cert, key := selfsigned.New(t, "first.example").Write(t, dir)
	var log bytes.Buffer
	p := testkit.Value(Open(cert, key, slog.New(slog.NewTextHandler(&log, nil))))(t)
	second := selfsigned.New(t, "second.example")
	gone := func(path string) func() { return func() { os.Remove(path) } }
	text := func(path string, text []byte) func() { return func() { os.WriteFile(path, text, 0o600) } }
	steps := []struct {
		name    string
		change  func()
		want    string // name in the certificate that serves
		failing bool
		said    string // in the log, "" = nothing
	}{
		{"unchanged", func() {}, "first.example", false, ""},
		{"the certificate is there, its key is not yet", text(cert, second.CertPEM), "first.example", true, "private key does not match"},
		{"the same is said once", func() {}, "first.example", true, ""},
		{"the key has come", text(key, second.KeyPEM), "second.example", false, "certificate taken up"},
		{"torn", text(cert, second.CertPEM[:200]), "second.example", true, "not taken up"},
		{"gone", gone(cert), "second.example", true, "no such file"},
		{"still gone", func() {}, "second.example", true, ""},
		{"back as it was", text(cert, second.CertPEM), "second.example", false, "certificate taken up"},
		{"expired", func() { selfsigned.Until(t, time.Now().Add(-time.Hour), "old.example").Write(t, dir) }, "second.example", true, "certificate expired"},
		{"a good one again", func() { selfsigned.New(t, "third.example").Write(t, dir) }, "third.example", false, "certificate taken up"},
	}
	for _, step := range steps {
		log.Reset()
		step.change()
		p.look()
		if got := served(t, p); got != step.want || p.Failing() != step.failing {
			t.Fatalf("%s: %s serves, failing %v, want %s, %v\n%s", step.name, got, p.Failing(), step.want, step.failing, &log)
		}
		if said := log.String(); !strings.Contains(said, step.said) || step.said == "" && said != "" {
			t.Fatalf("%s: the log says %q, want %q", step.name, said, step.said)
		}
	}
}

func TestWatchLooksNowAndThen(t *testing.T) {
	dir := t.TempDir()
	synctest.Test(t, func(t *testing.T) {
		cert, key := selfsigned.New(t, "first.example").Write(t, dir)
		p := testkit.Value(Open(cert, key, slog.New(slog.DiscardHandler)))(t)
		go p.Watch(t.Context())
		synctest.Wait()
		selfsigned.New(t, "second.example").Write(t, dir)
		time.Sleep(Every - time.Second)
		synctest.Wait()
		testkit.Equal(t, "serves before the next look is due", served(t, p), "first.example")
		time.Sleep(2 * time.Second)
		synctest.Wait()
		testkit.Equal(t, "serves after the look", served(t, p), "second.example")
		selfsigned.New(t, "third.example").Write(t, dir)
		p.Now()
		p.Now()
		synctest.Wait()
		testkit.Equal(t, "serves after Now", served(t, p), "third.example")
	})
}

func TestOpenRefusesWhatCannotServe(t *testing.T) {
	good, other := selfsigned.New(t, "a.example"), selfsigned.New(t, "b.example")
	for _, tt := range []struct {
		name      string
		cert, key []byte
		want      string
	}{
		{"no PEM", []byte("hello"), good.KeyPEM, "failed to find any PEM data"},
		{"another's key", good.CertPEM, other.KeyPEM, "private key does not match"},
		{"no key", good.CertPEM, nil, "failed to find any PEM data in key input"},
		{"too big", make([]byte, maxFile+1), good.KeyPEM, "over 1 MiB"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			cert, key := selfsigned.Cert{CertPEM: tt.cert, KeyPEM: tt.key}.Write(t, t.TempDir())
			if _, err := Open(cert, key, slog.New(slog.DiscardHandler)); err == nil || !strings.Contains(err.Error(), tt.want) {
				t.Errorf("Open: %v, want %q", err, tt.want)
			}
		})
	}
	if _, err := Open("/nonexistent/cert.pem", "/nonexistent/key.pem", slog.New(slog.DiscardHandler)); !os.IsNotExist(err) {
		t.Errorf("Open of no file: %v", err)
	}
}

// An expired pair is better than none at a start.
func TestOpenTakesAnExpiredPair(t *testing.T) {
	cert, key := selfsigned.Until(t, time.Now().Add(-time.Hour), "old.example").Write(t, t.TempDir())
	var log bytes.Buffer
	p, err := Open(cert, key, slog.New(slog.NewTextHandler(&log, nil)))
	if err != nil || served(t, p) != "old.example" || !strings.Contains(log.String(), "certificate expired") {
		t.Errorf("Open: %v, log %q", err, &log)
	}
}

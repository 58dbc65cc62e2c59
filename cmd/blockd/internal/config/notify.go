package config

import (
	"crypto/x509"
	"fmt"
	"os"

	"blockd/records/bell"
	"blockd/smtpfilter/upstream"
)

// Notify is [notify]: who is told at once that something is degraded, and that it is well again (docs/report.md).
type Notify struct {
	// A web address that gets a POST with a JSON body; "" is none. What is degraded is what /readyz says. Each try has 10 s,
	// and what fails is tried again for a day. A redirect is not followed.
	URL string `toml:"url"`
	// A file with a secret of 16 octets at least, by which events are signed (X-Blockd-Signature); "" is no signature.
	SecretFile string `toml:"secret_file"`
	// A PEM file of the authorities that may have signed the certificate of url; "" is the system's.
	CA string `toml:"ca"`
	// An http:// address may be on another machine. Whoever is between can then read events, and write others unless they are signed.
	Insecure bool `toml:"insecure"`
}

// NotifyPath is where it is kept what was told.
func (c Config) NotifyPath() string { return c.Index.Path + ".notify" }

func (n Notify) validate(f *Faults) {
	if n.URL == "" {
		for _, unused := range []struct {
			key string
			set bool
		}{{"notify.secret_file", n.SecretFile != ""}, {"notify.ca", n.CA != ""}, {"notify.insecure", n.Insecure}} {
			if unused.set {
				f.add(unused.key, "has no effect without notify.url")
			}
		}
		return
	}
	if err := bell.CheckURL(n.URL, n.Insecure); err != nil {
		f.add("notify.url", "%v", err)
	}
}

// Settings reads the files of [notify].
func (n Notify) Settings() (s bell.Settings, err error) {
	s = bell.Settings{URL: n.URL, Insecure: n.Insecure}
	if n.SecretFile != "" {
		if s.Secret, err = bell.ReadSecret(n.SecretFile); err != nil {
			return s, fmt.Errorf("notify.secret_file: %w", err)
		}
	}
	s.Roots, err = n.roots()
	return s, err
}

func (n Notify) roots() (*x509.CertPool, error) {
	if n.CA == "" {
		return nil, nil
	}
	text, err := os.ReadFile(n.CA)
	if err != nil {
		return nil, fmt.Errorf("notify.ca: %w", err)
	}
	roots, err := upstream.ParseRoots(text)
	if err != nil {
		return nil, fmt.Errorf("notify.ca: %w", err)
	}
	return roots, nil
}

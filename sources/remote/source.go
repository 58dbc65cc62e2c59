package remote

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/netip"
	"net/url"
	"path/filepath"
	"sync/atomic"
	"time"
)

// Source is one published list and its copy on disk.
type Source struct {
	Name string // the list's, for log and metrics; no two sources share one

	// URL is https://…, or http://… to this machine itself. Plain http needs
	// Insecure, because anyone on the way can change the list. User name
	// and password may stand in it. They, and the text after a "?", never appear
	// in a log line or an error.
	URL      string
	Insecure bool // http:// to any machine, also where a redirect leads there

	// Public wants servers of the public internet, or of Networks: an address of this machine or of a network around it is not asked,
	// whatever name or redirect leads there. It is for a URL that somebody else has given than the owner of this machine. Through a proxy
	// (HTTPS_PROXY) the proxy decides where names lead.
	Public   bool
	Networks []netip.Prefix

	// Path is the copy, a regular file or nothing yet; a symlink is replaced, not
	// followed. Its folder is made if it is missing, and in that a folder ".fetch".
	Path string

	Every    time.Duration // from one look to the next, ±10 %; 1 min to 31 days; 0 = 1 h
	Timeout  time.Duration // of one fetch, checksum and Check included; 0 = 10 min
	MaxBytes int64         // of the file as it is sent, packed or not; 0 = 512 MiB

	// Checksum says what the SHA-256 of the file must be: "" = nothing is known;
	// "sha256:" and 64 hex digits; or "sha256:" and where a file of sha256sum(1) is
	// published, as an ending of the URL's path (".sha256"), a name relative to the
	// URL ("SHA256SUMS") or a URL of its own.
	Checksum string

	// Signature names the key that must have signed the file: "" = none; "minisign:" and a
	// public key of minisign. The signature is published beside the file, under
	// its URL with the ending ".minisig".
	Signature string

	// Check, if not nil, judges a file that is about to become the copy: an error
	// keeps the old one. The file is complete. Its name is temporary, so the error
	// must not contain it.
	Check func(ctx context.Context, path string) error
}

// The defaults and bounds of a Source.
const (
	// defaultEvery: list servers ask clients to come at most once an hour. An entry
	// that was taken back should not refuse mail for much longer than that.
	defaultEvery = time.Hour
	leastEvery   = time.Minute
	mostEvery    = 31 * 24 * time.Hour

	// defaultTimeout lets 512 MiB arrive at 0.9 MB/s.
	defaultTimeout = 10 * time.Minute

	// defaultMaxBytes is 25 million entries of 20 octets. It is there for the disk,
	// which holds the copy and the next one at a time.
	defaultMaxBytes = 512 << 20
)

// source is a valid Source, with its defaults filled in.
type source struct {
	Source
	url   *url.URL
	shown string // the URL as it may be shown
	sum   checksum
	sig   signature
	asked chan struct{}          // of Now
	fault atomic.Pointer[string] // why the copy has not been brought up to date for a while; nil = it has
}

// SettingError is one fault of a Source. No text of it holds a password.
type SettingError struct {
	Key string // "url", "path", "every", "checksum", "signature", "limits"
	Err error
}

// Error gives "KEY: text".
func (e *SettingError) Error() string { return e.Key + ": " + e.Err.Error() }

func (e *SettingError) Unwrap() error { return e.Err }

// Validate reports every fault of s as a *SettingError, joined by errors.Join.
func (s Source) Validate() error {
	_, err := newSource(s)
	return err
}

func newSource(settings Source) (*source, error) {
	s := &source{Source: settings, asked: make(chan struct{}, 1)}
	s.Every = cmp.Or(s.Every, defaultEvery)
	s.Timeout = cmp.Or(s.Timeout, defaultTimeout)
	s.MaxBytes = cmp.Or(s.MaxBytes, defaultMaxBytes)
	var faults []error
	add := func(key, format string, args ...any) {
		faults = append(faults, &SettingError{key, fmt.Errorf(format, args...)})
	}
	if s.Every < leastEvery || s.Every > mostEvery {
		add("every", "want %s to %s, have %s", leastEvery, mostEvery, s.Every)
	}
	if s.Timeout < 0 || s.MaxBytes < 0 {
		add("limits", "timeout and size cannot be negative")
	}
	if s.Path == "" {
		add("path", "is missing; want the file that is to hold the copy")
	}
	s.Path = filepath.Clean(s.Path)
	var err error
	if s.url, err = parseURL(s.URL); err == nil {
		err = s.mayAsk(s.url)
	}
	if err != nil {
		add("url", "%w", err)
		s.url = &url.URL{} // what else stands there can be judged all the same
	}
	if s.sum, err = parseChecksum(s.Checksum, s.url); err == nil && s.sum.url != nil && s.url.Host != "" {
		err = s.mayAsk(s.sum.url)
	}
	if err != nil {
		add("checksum", "%w", err)
	}
	if s.sig, err = parseSignature(s.Signature, s.url); err != nil {
		add("signature", "%w", err)
	}
	if len(faults) > 0 {
		return nil, errors.Join(faults...)
	}
	s.shown = shown(s.url)
	return s, nil
}

// parseURL is url.Parse without the URL, and its password, in the error.
func parseURL(text string) (*url.URL, error) {
	u, err := url.Parse(text)
	if ue, ok := errors.AsType[*url.Error](err); ok {
		return nil, ue.Err
	}
	return u, err
}

// ErrInsecure is for a URL that Source.Insecure would allow.
var ErrInsecure = errors.New("anybody on the way can change what comes over http://; want https://")

// mayAsk reports why a list, or a checksum, must not come from u.
func mayAsk(u *url.URL, insecure bool) error {
	switch {
	case u.Scheme != "https" && u.Scheme != "http" || u.Hostname() == "":
		return errors.New("want https://HOST/FILE")
	case u.Scheme == "http" && !insecure && !isLoopback(u.Hostname()):
		return ErrInsecure
	}
	return nil
}

func isLoopback(host string) bool {
	ip, err := netip.ParseAddr(host)
	return host == "localhost" || err == nil && ip.Unmap().IsLoopback()
}

// Shown is the address of a list as it may be shown to those who may not have all of it.
func Shown(address string) string {
	u, err := parseURL(address)
	if err != nil {
		return ""
	}
	return shown(u)
}

// shown is u without user name, password, query and fragment. Paid list servers
// take their key in any of the first three.
func shown(u *url.URL) string {
	return (&url.URL{Scheme: u.Scheme, Host: u.Host, Path: u.Path, RawPath: u.RawPath}).String()
}

package s3

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"net/url"
	"strings"

	"github.com/minio/minio-go/v7/pkg/credentials"
	"github.com/minio/minio-go/v7/pkg/s3utils"
)

// location is what a URL says.
type location struct {
	address        string // HOST or HOST:PORT
	tls            bool
	unverified     bool
	authorities    string // a file of PEM; "" = the system's
	region         string
	key, secret    string
	bucket, prefix string
}

// covers tells whether an object belongs to the list. "lists/bad.txt.old" and "lists/bad" are not below "lists/bad.txt".
func (w *location) covers(key string) bool {
	rest, ok := strings.CutPrefix(key, w.prefix)
	return ok && (rest == "" || w.prefix == "" || strings.HasSuffix(w.prefix, "/") || rest[0] == '/')
}

func (w *location) security() string {
	switch {
	case !w.tls:
		return " without TLS"
	case w.unverified:
		return ", certificate not verified"
	}
	return ""
}

// credentials are those of the URL alone. Without a key the questions are anonymous.
func (w *location) credentials() *credentials.Credentials {
	if w.key == "" {
		return credentials.NewStatic("", "", "", credentials.SignatureAnonymous)
	}
	return credentials.NewStaticV4(w.key, w.secret, "")
}

// parseURL reads a URL. It does so by itself, since errors of net/url show the text, which has a secret.
func parseURL(text string) (*location, error) {
	rest, ok := strings.CutPrefix(text, "s3://")
	if !ok {
		return nil, errors.New("want s3://HOST/BUCKET/PREFIX")
	}
	if strings.ContainsFunc(text, func(r rune) bool { return r < ' ' || r == 0x7f }) {
		return nil, errors.New("a control character; write it as %XX")
	}
	rest, parameters, _ := strings.Cut(rest, "?")
	authority, path, _ := strings.Cut(rest, "/")
	bucket, prefix, _ := strings.Cut(path, "/")
	w := &location{}
	if err := w.server(authority); err != nil {
		return nil, err
	}
	var err error
	if w.prefix, err = url.PathUnescape(prefix); err != nil {
		return nil, errors.New("the prefix: a % that is not before two hexadecimal digits")
	}
	if w.bucket = bucket; s3utils.CheckValidBucketName(bucket) != nil {
		return nil, fmt.Errorf("want a bucket behind the host, have %q", bucket)
	}
	if err := s3utils.CheckValidObjectNamePrefix(w.prefix); err != nil {
		return nil, errors.New("the prefix is no part of a key")
	}
	return w, w.parameters(parameters)
}

// server reads what stands before the bucket.
func (w *location) server(authority string) error {
	if at := strings.LastIndexByte(authority, '@'); at >= 0 {
		key, secret, _ := strings.Cut(authority[:at], ":")
		authority = authority[at+1:]
		var errKey, errSecret error
		w.key, errKey = url.PathUnescape(key)
		w.secret, errSecret = url.PathUnescape(secret)
		switch {
		case errKey != nil || errSecret != nil:
			return errors.New("the key or secret: a % that is not before two hexadecimal digits; write % as %25")
		case w.key == "" || w.secret == "":
			return errors.New("want KEY:SECRET before the @, or none of them")
		}
	}
	host := strings.Trim(authority, "[]")
	if name, port, err := net.SplitHostPort(authority); err == nil {
		if host = name; port == "" || strings.Trim(port, "0123456789") != "" {
			host = ""
		}
	}
	if host == "" || strings.ContainsAny(host, "[]%@ ") || strings.Contains(host, ":") && authority[0] != '[' {
		return errors.New("want HOST or HOST:PORT; in a key or secret, / is written %2F")
	}
	w.address = authority
	ip, err := netip.ParseAddr(host)
	w.tls = !(err == nil && ip.IsLoopback() || strings.EqualFold(host, "localhost"))
	return nil
}

// parameters reads region, tls and tls_ca. To this machine there is no TLS unless they ask for it.
func (w *location) parameters(text string) error {
	all, err := url.ParseQuery(text)
	if err != nil {
		return errors.New("the parameters behind ? cannot be read")
	}
	for name, values := range all {
		value := values[len(values)-1]
		switch {
		case name == "region" && value != "":
			w.region = value
		case name == "tls" && (value == "true" || value == "false"):
			w.tls = value == "true"
		case name == "tls" && value == "skip-verify":
			w.tls, w.unverified = true, true
		case name == "tls":
			return fmt.Errorf(`tls: want "true", "false" or "skip-verify", have %q`, value)
		case name == "tls_ca" && value != "":
			w.authorities = value
		default:
			return fmt.Errorf("unknown parameter %q, want region, tls or tls_ca", name)
		}
	}
	if w.authorities != "" && !w.tls {
		return errors.New("tls_ca is about TLS: want tls=true too")
	}
	return nil
}

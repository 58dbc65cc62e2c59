package redisclient

import (
	"cmp"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net"
	"net/url"
	"os"
	"strings"

	"github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/maintnotifications"
)

// IsURL reports whether text is written as a URL of Options.
func IsURL(text string) bool {
	scheme, _, ok := strings.Cut(text, "://")
	return ok && schemes[scheme]
}

// schemes are those that are known.
var schemes = map[string]bool{"redis": true, "rediss": true, "unix": true, "redis-sentinel": true, "rediss-sentinel": true}

// errURL does not tell what it could not read: a password may stand anywhere in it.
var errURL = errors.New("the URL cannot be read: want redis://[USER[:PASSWORD]@]HOST[:PORT][/DATABASE]; " +
	"in a password write % as %25, / as %2F, # as %23, ? as %3F and @ as %40, or give it in a file")

var (
	errParameter   = errors.New("a parameter of the URL is not known: want tls_ca, tls_cert, tls_key or tls=skip-verify; in a password write ? as %3F")
	errCertificate = errors.New("certificates go with TLS: want rediss:// or rediss-sentinel://")
	errDatabase    = errors.New("a Cluster has the database 0 alone")
)

// parse turns o into what the library takes, and a URL that may be shown.
func (o Options) parse() (to *redis.UniversalOptions, shown string, err error) {
	scheme, rest, _ := strings.Cut(o.URL, "://")
	if !schemes[scheme] {
		return nil, "", errors.New("want a URL that begins with redis://, rediss://, unix://, redis-sentinel:// or rediss-sentinel://")
	}
	// Package net/url knows one host.
	authority, path, _ := strings.Cut(rest, "/")
	if question := strings.IndexByte(authority, '?'); question > strings.LastIndexByte(authority, '@') {
		authority, path = rest[:question], rest[question:]
	}
	user, hosts, found := cutLast(authority, "@")
	if !found {
		user, hosts = "", authority
	}
	first, _, _ := strings.Cut(hosts, ",")
	u, err := url.Parse(scheme + "://" + strings.TrimPrefix(user+"@", "@") + first + "/" + path)
	if err != nil || u.Fragment != "" {
		return nil, "", errURL
	}
	to = &redis.UniversalOptions{
		Protocol: 2, DisableIdentity: true, MaintNotificationsConfig: &maintnotifications.Config{Mode: maintnotifications.ModeDisabled},
		MaxRetries: attempts, DialerRetries: 1, ContextTimeoutEnabled: true, PoolSize: cmp.Or(o.Connections, defaultConnections),
		Username: u.User.Username(),
	}
	to.ReadTimeout = cmp.Or(o.Timeout, defaultTimeout)
	to.WriteTimeout, to.DialTimeout = to.ReadTimeout, to.ReadTimeout
	inURL, _ := u.User.Password()
	to.Password = cmp.Or(o.Password, inURL)
	place := strings.Trim(u.Path, "/")
	switch {
	case scheme == "unix":
		to.Addrs, place = []string{u.Path}, u.Query().Get("db")
		if hosts != "" || u.Path == "/" {
			return nil, "", errors.New("want unix:///PATH: three slashes, and the path of a socket")
		}
		shown = "unix://" + u.Path
	default:
		for host := range strings.SplitSeq(hosts, ",") {
			address, err := withPort(host, scheme)
			if err != nil {
				return nil, "", err
			}
			to.Addrs = append(to.Addrs, address)
		}
		shown = scheme + "://" + strings.Join(to.Addrs, ",")
		if strings.HasSuffix(scheme, "-sentinel") {
			to.MasterName, place, _ = strings.Cut(place, "/")
			if to.MasterName == "" {
				return nil, "", errors.New("want " + scheme + "://HOST:PORT/MASTER, with the name that the Sentinels have for the master")
			}
			shown += "/" + to.MasterName
		}
		to.IsClusterMode = to.MasterName == "" && len(to.Addrs) > 1
	}
	if place != "" {
		if _, err := fmt.Sscanf(place+" .", "%d .", &to.DB); err != nil || to.DB < 0 {
			return nil, "", errors.New("want a number as the database, behind the host: redis://HOST:PORT/0")
		}
		if to.IsClusterMode && to.DB != 0 {
			return nil, "", errDatabase
		}
		shown += map[bool]string{true: "?db=", false: "/"}[scheme == "unix"] + place
	}
	if scheme != "unix" {
		if o, err = o.parameters(u.Query()); err != nil {
			return nil, "", err
		}
	}
	if strings.HasPrefix(scheme, "rediss") {
		if to.TLSConfig, err = o.tls(); err == nil {
			to.TLSConfig.InsecureSkipVerify = u.Query().Has("tls")
		}
	} else if o.CAFile != "" || o.CertFile != "" || o.KeyFile != "" || u.Query().Has("tls") {
		err = errCertificate
	}
	if to.Dialer = dialer(to, cmp.Or(o.MaxAnswer, defaultAnswer)); to.MasterName != "" {
		// A master that was isolated takes writes that will be lost, and does not end its connections.
		to.Dialer, to.ConnMaxLifetime = watched(to), sentinelPause
	}
	return to, shown, err
}

// parameters completes o by those of a URL. Their values are not told.
func (o Options) parameters(all url.Values) (Options, error) {
	for name, values := range all {
		switch {
		case len(values) != 1 || values[0] == "":
			return o, errParameter
		case name == "tls_ca":
			o.CAFile = cmp.Or(o.CAFile, values[0])
		case name == "tls_cert":
			o.CertFile = cmp.Or(o.CertFile, values[0])
		case name == "tls_key":
			o.KeyFile = cmp.Or(o.KeyFile, values[0])
		case name == "tls" && values[0] == "skip-verify":
		default:
			return o, errParameter
		}
	}
	return o, nil
}

// cutLast is strings.Cut at the last separator.
func cutLast(s, sep string) (before, after string, found bool) {
	if i := strings.LastIndex(s, sep); i >= 0 {
		return s[:i], s[i+len(sep):], true
	}
	return s, "", false
}

// withPort completes a host.
func withPort(host, scheme string) (address string, err error) {
	port := defaultPort
	if strings.HasSuffix(scheme, "-sentinel") {
		port = defaultSentinel
	}
	u, err := url.Parse("//" + host)
	if err != nil || u.Hostname() == "" || u.User != nil || u.Path != "" || u.RawQuery != "" {
		return "", errURL
	}
	return net.JoinHostPort(u.Hostname(), cmp.Or(u.Port(), port)), nil
}

// tls says whom to trust. A certificate must be for the host that is dialled, which may be
// another than the URL's: a Cluster and Sentinels name their servers.
func (o Options) tls() (*tls.Config, error) {
	c := &tls.Config{MinVersion: tls.VersionTLS12}
	if o.CAFile != "" {
		pem, err := os.ReadFile(o.CAFile)
		if err != nil {
			return nil, err
		}
		if c.RootCAs = x509.NewCertPool(); !c.RootCAs.AppendCertsFromPEM(pem) {
			return nil, fmt.Errorf("%s: no certificate in PEM", o.CAFile)
		}
	}
	if o.CertFile != "" || o.KeyFile != "" {
		pair, err := tls.LoadX509KeyPair(o.CertFile, o.KeyFile)
		if err != nil {
			return nil, fmt.Errorf("the certificate and its key: %w", err)
		}
		c.Certificates = []tls.Certificate{pair}
	}
	return c, nil
}

package mysql

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net"
	"net/url"
	"os"
	"strings"

	client "github.com/go-sql-driver/mysql"
)

// parse reads a DSN. No error has any part of it: it has a password, wherever that stands in a URL that is not one.
func parse(dsn string) (*client.Config, error) {
	u, err := url.Parse(strings.TrimSpace(dsn))
	if err != nil || u.Scheme != "mysql" || u.Opaque != "" || u.Fragment != "" {
		return nil, errors.New("want mysql://USER:PASSWORD@HOST:PORT/DATABASE; a character such as / # ? or @ in the password is written as its code, such as %2F")
	}
	c := client.NewConfig()
	c.User, c.DBName = u.User.Username(), strings.TrimPrefix(u.Path, "/")
	c.Passwd, _ = u.User.Password()
	if c.User == "" {
		return nil, errors.New("it names no user; want mysql://USER:PASSWORD@HOST:PORT/DATABASE")
	}
	if c.DBName == "" {
		return nil, errors.New("it names no database; want mysql://USER:PASSWORD@HOST:PORT/DATABASE")
	}
	parameters, err := url.ParseQuery(u.RawQuery)
	if err != nil {
		return nil, errors.New("its parameters cannot be read; want ?tls=…&tls_ca=…&socket=…")
	}
	for name := range parameters {
		if name != "tls" && name != "tls_ca" && name != "socket" {
			return nil, errors.New("it has a parameter that is not known; there are tls, tls_ca and socket")
		}
	}
	near := false
	if socket := parameters.Get("socket"); socket != "" {
		if u.Host != "" {
			return nil, errors.New("it has a host and a socket; want mysql://USER:PASSWORD@/DATABASE?socket=PATH")
		}
		c.Net, c.Addr, near = "unix", socket, true
	} else {
		host, port := u.Hostname(), u.Port()
		if host == "" {
			return nil, errors.New("it names no host; want mysql://USER:PASSWORD@HOST:PORT/DATABASE")
		}
		if port == "" {
			port = "3306"
		}
		c.Net, c.Addr, near = "tcp", net.JoinHostPort(host, port), isLoopback(host)
	}
	if c.TLS, err = security(parameters, u.Hostname(), near); err != nil {
		return nil, err
	}
	c.DialFunc = dial(c.TLS == nil)
	c.Timeout, c.ReadTimeout, c.WriteTimeout = dialTimeout, readTimeout, dialTimeout
	c.Logger = &client.NopLogger{}
	c.InterpolateParams = true                            // a question in one round trip
	c.Params = map[string]string{"time_zone": "'+00:00'"} // a TIMESTAMP is UTC then
	return c, c.Apply(client.Charset("utf8mb4", ""))
}

// security is how a connection is encrypted: always, with a certificate that is checked, unless the server is near or the
// parameters say otherwise. nil = not at all.
func security(parameters url.Values, host string, near bool) (*tls.Config, error) {
	ca := parameters.Get("tls_ca")
	switch word := parameters.Get("tls"); word {
	case "":
		if near && ca == "" {
			return nil, nil
		}
	case "true":
	case "false":
		return nil, nil
	case "skip-verify":
		return &tls.Config{InsecureSkipVerify: true}, nil
	default:
		return nil, errors.New("tls: want true, false or skip-verify")
	}
	c := &tls.Config{ServerName: host}
	if ca != "" {
		text, err := os.ReadFile(ca)
		if err != nil {
			return nil, fmt.Errorf("tls_ca: %w", err)
		}
		if c.RootCAs = x509.NewCertPool(); !c.RootCAs.AppendCertsFromPEM(text) {
			return nil, fmt.Errorf("tls_ca: %s has no certificate in PEM", ca)
		}
	}
	return c, nil
}

func isLoopback(host string) bool {
	ip := net.ParseIP(host)
	return host == "localhost" || ip != nil && ip.IsLoopback()
}

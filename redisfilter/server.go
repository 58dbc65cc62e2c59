// Package redisfilter keeps Bloom filters in a live Redis: a single server, a Cluster, or
// what a Sentinel watches over. A reader sees a whole filter at all times, the old or the new one.
package redisfilter

import (
	"cmp"
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net"
	"net/url"
	"os"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/logging"
	"github.com/redis/go-redis/v9/maintnotifications"
)

// Options say where a Redis is.
type Options struct {
	// URL is redis://[USER[:PASSWORD]@]HOST[:PORT][/DATABASE], rediss:// for TLS,
	// unix:///PATH[?db=N], or redis-sentinel://[…@]HOST:PORT[,HOST:PORT]…/MASTER[/DATABASE] with
	// rediss-sentinel:// for TLS. A Cluster is found by itself. USER and PASSWORD are those of
	// the servers; Sentinels are asked without.
	URL string
	// Password takes the place of the URL's, where it is not "".
	Password string
	// CAFile has the certificates that a server's is signed with; "" = those of the machine.
	// CertFile and KeyFile are a certificate of ours, for servers that want one.
	CAFile, CertFile, KeyFile string
	// Timeout is for connecting and for one reply. 0 is 15 s.
	Timeout time.Duration

	// grace is how long after its context's end a push may remove what it has left; 0 = defaultGrace.
	grace time.Duration
}

// IsURL reports whether text is written as a URL of Options.
func IsURL(text string) bool {
	scheme, _, ok := strings.Cut(text, "://")
	return ok && schemes[scheme]
}

// schemes are those that are known; with true those over TCP.
var schemes = map[string]bool{"redis": true, "rediss": true, "unix": true, "redis-sentinel": true, "rediss-sentinel": true}

// Server is a connection to a Redis. Any number of goroutines may use it.
type Server struct {
	client  redis.UniversalClient
	shown   string // without user and password
	timeout time.Duration
	stop    func() bool
	closed  chan struct{}
}

const (
	defaultTimeout = 15 * time.Second
	defaultPort    = "6379"
	// attempts is how often a command is sent again that got no answer, or one such as LOADING.
	attempts = 2
	// defaultGrace is how long Ctrl-C waits for a server that does not answer.
	defaultGrace = 2 * time.Second
)

// Dial connects. When ctx ends, so do soon the connections, and whatever waits for them. Who
// dials calls Close, once.
func Dial(ctx context.Context, o Options) (*Server, error) {
	to, shown, err := o.parse()
	if err != nil {
		return nil, err
	}
	redis.SetLogger(&logging.VoidLogger{}) // each error comes back, too
	s := &Server{client: redis.NewUniversalClient(to), shown: shown, timeout: to.ReadTimeout, closed: make(chan struct{})}
	// The first command tells whether this is a Cluster, and whether we may speak at all.
	err = s.client.Do(ctx, "CLUSTER", "INFO").Err()
	switch {
	case err == nil && to.MasterName == "":
		s.client.Close()
		if to.DB != 0 {
			return nil, fmt.Errorf("%s: a Cluster has the database 0 alone", shown)
		}
		to.IsClusterMode = true
		s.client = redis.NewUniversalClient(to)
		if err := s.client.Ping(ctx).Err(); err != nil {
			s.client.Close()
			return nil, s.explain(err)
		}
	case err != nil && !isReply(err), refused(err):
		s.client.Close()
		return nil, s.explain(err)
	} // else it has no Cluster, or this user may not know
	s.stop = context.AfterFunc(ctx, func() {
		select {
		case <-s.closed:
		case <-time.After(cmp.Or(o.grace, defaultGrace)):
		}
		s.client.Close()
	})
	return s, nil
}

// Close ends the connections.
func (s *Server) Close() {
	if close(s.closed); s.stop() {
		s.client.Close()
	}
}

// String is the server's URL without user and password.
func (s *Server) String() string { return s.shown }

// errURL does not tell what it could not read: a password may stand anywhere in it.
var errURL = errors.New("the URL cannot be read: want redis://[USER[:PASSWORD]@]HOST[:PORT][/DATABASE]; " +
	"in a password write % as %25, / as %2F, # as %23, ? as %3F and @ as %40, or give it in a file")

// parse turns o into what the library takes, and a URL that may be shown.
func (o Options) parse() (to *redis.UniversalOptions, shown string, err error) {
	scheme, rest, _ := strings.Cut(o.URL, "://")
	if !schemes[scheme] {
		return nil, "", errors.New("want a URL that begins with redis://, rediss://, unix://, redis-sentinel:// or rediss-sentinel://")
	}
	// Package net/url knows one host.
	authority, path, _ := strings.Cut(rest, "/")
	user, hosts, found := cutLast(authority, "@")
	if !found {
		user, hosts = "", authority
	}
	first, _, _ := strings.Cut(hosts, ",")
	u, err := url.Parse(scheme + "://" + strings.TrimPrefix(user+"@", "@") + first + "/" + path)
	if err != nil || u.Fragment != "" || u.RawQuery != "" && scheme != "unix" {
		return nil, "", errURL
	}
	to = &redis.UniversalOptions{
		Protocol: 2, DisableIdentity: true, MaintNotificationsConfig: &maintnotifications.Config{Mode: maintnotifications.ModeDisabled},
		MaxRetries: attempts, DialerRetries: 1, ContextTimeoutEnabled: true, PoolSize: 4,
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
		} else if len(to.Addrs) > 1 {
			return nil, "", errors.New("want one host: of a Cluster, any node will do")
		}
	}
	if place != "" {
		if _, err := fmt.Sscanf(place+" .", "%d .", &to.DB); err != nil || to.DB < 0 {
			return nil, "", errors.New("want a number as the database, behind the host: redis://HOST:PORT/0")
		}
		shown += map[bool]string{true: "?db=", false: "/"}[scheme == "unix"] + place
	}
	if strings.HasPrefix(scheme, "rediss") {
		to.TLSConfig, err = o.tls()
	} else if o.CAFile != "" || o.CertFile != "" || o.KeyFile != "" {
		err = errors.New("certificates go with TLS: want rediss:// or rediss-sentinel://")
	}
	return to, shown, err
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
		port = "26379"
	}
	u, err := url.Parse("//" + host)
	if err != nil || u.Hostname() == "" {
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

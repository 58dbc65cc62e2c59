// Package httpapi is the door for programs. It answers whether a sender is
// listed, shows the state of the lists, and serves metrics. It translates the decisions
// of package policy and adds nothing.
//
// A sender that is not listed is 200 with "clear", never 404: the question was
// answered. Errors are about requests, and are problem details (RFC 9457). An OpenAPI
// document, made of the same types, describes all of it and is served too.
package httpapi

import (
	"cmp"
	"context"
	"crypto/tls"
	"errors"
	"log/slog"
	"net"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"blockd/doors/forget"
	"blockd/doors/httpapi/fastpath"
	"blockd/doors/httpapi/session"
	"blockd/doors/receipt"
	"blockd/index/live"
	"blockd/index/live/shared"
	"blockd/lists"
	"blockd/mail/addr"
	"blockd/policy"
	"blockd/policy/junk"
	"blockd/records/history"
	"blockd/records/pause"
	"blockd/records/rollup"
	"blockd/reload"
)

// Settings of a Server. The zero value is safe on a loopback address.
type Settings struct {
	// Token is needed as "Authorization: Bearer TOKEN" for everything but
	// /healthz; "" = no token is needed. It has the scope Read. See ReadToken.
	Token string
	// First is the file of a token of scope Admin that the daemon makes by itself at its first start. Answers that name
	// senders and recipients need a token even where all else is open; this one lets whoever has installed blockd read
	// them. It changes nothing else: what is open without a token stays so. The file counts as it is now. "" = there is
	// none. See FirstToken.
	First string
	// Tokens is a file of tokens, each with a scope; "" = none. With it every caller
	// needs one, except over a Unix socket. See ReadTokens.
	Tokens string
	// Sessions are those of browsers that have signed in; nil: they end with the process, after DefaultIdle and DefaultMax.
	Sessions *session.Set
	// Provider is who people sign in with; nil: they sign in with tokens alone. It needs URL.
	Provider *Provider
	// URL is where browsers reach the door, such as https://mail.example.org/blockd/; nil: at whatever their Host header says.
	URL *url.URL
	// Entries are those that /v1/entries shows and changes; nil: there is no such
	// resource.
	Entries *live.Set
	// Shared is by what machines share Entries and tokens; nil: they do not.
	Shared *shared.Node
	// Fleet is what /v1/fleet shows; nil: there is no such resource.
	Fleet *Fleet
	// Channel is what this machine publishes for a fleet; nil: nothing.
	Channel *Channel
	// Mailbox is the one that mail for an address belongs to, without its tag and by the aliases, as rule.Owners says it; nil: the address.
	Mailbox func(addr.Addr) addr.Addr
	// Successor waits until it is known who has Entries after they were yielded: nil if this process has them back, or
	// else what has another process answer. A nil Successor: they are never yielded.
	Successor func(context.Context) http.Handler
	// Filters are what /v1/lists shows of [[filter]]; nil: there are none.
	Filters func() []KeptFilter
	// Sources are those of lists that have one, by the names of the lists; nil: there are none.
	Sources func(reload.Status) map[string]ListSource

	// Reload reads the configuration and all lists again, and waits until they are taken up; nil: there is no such
	// resource.
	// The error wraps live.ErrYielded where another process answers in this one's place.
	Reload func(ctx context.Context, by string) (Reloaded, error)

	// Person is where what is kept about people is; nil: there are no such resources.
	Person *forget.Places

	// Audit is the journal of changes, which has a line before a change is made; nil: none is written, and there is no such
	// resource. That of Entries is set there.
	Audit *Audit

	// Pauses are the lists that do not count for a while; nil: there are no such resources.
	Pauses *pause.Set

	// Undo is what lists held before; nil: there are no such resources.
	Undo *Undo

	// Junk takes what users have moved to Junk; nil: there are no such resources. Without its Box there are no proposals, and no complaints are taken.
	Junk *junk.Desk

	// Requests are those of refused people; nil: there are no such resources.
	Requests *receipt.Store
	// Proves asks DNS whether the mail of a request came from its sender; nil: nothing is proved.
	Proves func(ctx context.Context, q receipt.Request) receipt.Proof

	// Quarantine is what /v1/quarantine shows and changes; nil: there are no such resources.
	Quarantine *Quarantine
	// Serving is what /v1/serving shows; nil: nothing is known.
	Serving func() Serving
	// Message is how saved messages are explained.
	Message Message

	// Report is what /v1/report shows and sends; nil: there is no such resource.
	Report *Report

	// History is what /v1/decisions shows; nil: there is no such resource.
	History *history.Log
	// Replay holds a list against past mail; nil: there is no such resource. Errors wrap ErrNotReplayed where that cannot be done.
	Replay func(ctx context.Context, list string, since time.Time) (Replay, error)
	// ListSettings says how the configuration has a list read; nil: no list is known.
	ListSettings func(list string) (lists.Settings, bool)
	// Offer is what lists there could be; nil: there are no such resources.
	Offer *Offer
	// Subscriptions are the lists that are fetched from elsewhere, and how they are changed; nil: there are no such resources.
	Subscriptions *Subscriptions
	// Rollup is what /v1/series shows; nil: there is no such resource.
	Rollup *rollup.Table
	// Events are what /v1/events shows; nil: there is no such resource.
	Events *Events
	// Hosts are names, in lower case, that a request may have in its Host header when
	// there is no token, besides IP addresses and localhost. Any other name is refused,
	// because a web page could make its own name lead to a loopback address, and ask.
	Hosts []string
	// TLS is spoken at every listener except Unix sockets; nil: none. A Server speaks
	// HTTP/1.1 in it.
	TLS *tls.Config
	// Fast answers repeated checks on one connection by package fastpath, where no TLS is
	// spoken. The answers are the same.
	Fast bool
	// Alone: a command serves itself in its own process, over the files of a daemon that does not run. No time ends its questions.
	Alone bool
	// MaxConnections limits the open connections of each listener; 0 = 256. Beyond it those
	// without a request give their places to newcomers. An eighth is for clients that have none.
	MaxConnections int
	// MaxPerClient limits those of one address; an IPv6 /64 counts as one. 0 = as
	// many as MaxConnections. Further ones are closed at once.
	MaxPerClient int
	// MaxRate limits the requests a second with one token, or of one such client
	// without a token; 0 = any. A Unix socket has no such bound.
	MaxRate int
}

// The limits of a request. A header holds a sender of any legal length many
// times over; the times are for clients that stall, not for slow answers.
const (
	maxHeader      = 16 << 10
	headerSlack    = 4 << 10 // that net/http reads beyond what it is told
	headerTimeout  = 5 * time.Second
	requestTimeout = 30 * time.Second // to read a request, and to write an answer
	idleTimeout    = 2 * time.Minute
	graceTimeout   = 5 * time.Second // for requests under way at the end
	defaultConns   = 256
)

// Server answers HTTP requests. It is safe for concurrent use.
type Server struct {
	settings   Settings
	checker    *policy.Checker
	status     func() reload.Status
	log        *slog.Logger
	tokens     tokens
	first      tokens // the one of the first start
	uses       uses
	fleet      tokens // of all machines that share them
	limiter    *limiter
	refusals   *prometheus.CounterVec
	panics     prometheus.Counter
	sessions   *session.Set
	url        *url.URL // Settings.URL
	begins     *limiter // of sessions of one holder
	steps      *limiter // of sign-ins with the provider of one address
	signIns    *prometheus.CounterVec
	ended      *prometheus.CounterVec // sessions
	junked     *prometheus.CounterVec
	complaints *prometheus.CounterVec
	workspaces sync.Pool     // of *workspace
	searches   chan struct{} // has one of each search of the quarantine that is under way
	scans      chan struct{} // and one of each of the live entries
	ofDomains  domainCounts
	replays    chan struct{} // and of each replay

	checks atomic.Uint64 // questions of programs

	searchingAudit sync.Mutex
	document       []byte
	handler        http.Handler
}

// Metrics take those of a Server, and are what /metrics shows.
type Metrics interface {
	prometheus.Registerer
	prometheus.Gatherer
}

// New returns a Server that asks checker. status is what /readyz and /v1/lists
// show: a caller that knows of more than lists adds its own Problems to it.
// /metrics shows what is in metrics, which gets those of the Server.
func New(s Settings, checker *policy.Checker, status func() reload.Status, metrics Metrics, log *slog.Logger) *Server {
	s.MaxConnections = cmp.Or(s.MaxConnections, defaultConns)
	s.MaxPerClient = cmp.Or(s.MaxPerClient, s.MaxConnections)
	if s.Mailbox == nil {
		s.Mailbox = func(a addr.Addr) addr.Addr { return a }
	}
	if s.Sessions == nil {
		s.Sessions, _ = session.Open(session.Settings{Idle: DefaultIdle, Max: DefaultMax}) // no file: it cannot fail
	}
	srv := &Server{settings: s, sessions: s.Sessions, url: s.URL, checker: checker, status: status, log: log, tokens: tokens{path: s.Tokens, read: ReadTokens}, fleet: tokens{path: s.Shared.TokenFile(), read: ReadTokens}, first: tokens{path: s.First, read: readFirst},
		limiter: newLimiter(s.MaxRate), refusals: newRefusals(metrics), panics: newPanics(metrics), searches: make(chan struct{}, 2), scans: make(chan struct{}, 2), replays: make(chan struct{}, 1)}
	srv.junked, srv.complaints = newJunkMetrics(metrics)
	srv.begins, srv.signIns, srv.ended = newSlowLimiter(signInEvery, signInBurst), newSignIns(metrics), newEnded(metrics)
	srv.steps = newSlowLimiter(stepEvery, stepBurst)
	newOpenSessions(metrics, srv.sessions)
	routes := srv.routes(promhttp.HandlerFor(metrics, promhttp.HandlerOpts{
		ErrorLog: slog.NewLogLogger(log.Handler(), slog.LevelWarn), MaxRequestsInFlight: 4, Timeout: requestTimeout,
	}))
	srv.document = newDocument(routes)
	mux := http.NewServeMux()
	for _, r := range routes {
		mux.HandleFunc(r.pattern(), func(w http.ResponseWriter, req *http.Request) { r.serve(srv, w, req) })
	}
	mux.HandleFunc("GET /console/{file}", compressed(console))
	mux.HandleFunc("/", func(w http.ResponseWriter, r *http.Request) {
		fail(w, http.StatusNotFound, "no such resource; / lists them")
	})
	srv.handler = srv.guard(mux)
	return srv
}

// Handler returns what Serve serves, for tests and for another server.
func (s *Server) Handler() http.Handler { return s.handler }

// Serve answers on l until ctx ends; requests under way may then finish for a
// moment, and streams are cut off. It closes l. It returns nil after ctx.
func (s *Server) Serve(ctx context.Context, l net.Listener) error {
	srv := s.server(ctx)
	all := newConnections(l, s.settings.MaxConnections, s.settings.MaxPerClient, func() { s.refused(refusedConnections) })
	all.patient = s.settings.Alone
	var fast *fastpath.Listener
	switch {
	case s.settings.TLS != nil && l.Addr().Network() != "unix":
		l = tls.NewListener(all, s.settings.TLS)
	case s.settings.Fast:
		fast = fastpath.NewListener(ctx, all, srv, checkPath, marked(s.guard(http.HandlerFunc(s.check))), s.settings.MaxConnections)
		l = fast
	default:
		l = all
	}
	ended := make(chan struct{})
	stop := context.AfterFunc(ctx, func() {
		defer close(ended)
		grace, cancel := context.WithTimeout(context.WithoutCancel(ctx), graceTimeout)
		defer cancel()
		all.Close() // not with Shutdown, which may come late
		if fast != nil {
			fast.Drain(grace) // first: Shutdown would cut off its answers
		}
		if srv.Shutdown(grace) != nil {
			srv.Close()
		}
	})
	err := srv.Serve(l)
	if stop() { // it ended by itself
		return err
	}
	<-ended
	if errors.Is(err, http.ErrServerClosed) || errors.Is(err, net.ErrClosed) {
		return nil
	}
	return err
}

// server is a net/http server with blockd's limits. A connection sets the limit on the time
// of a body itself. net/http would count it from the moment when it begins to wait for a
// request, and the fast path may let it wait for hours.
func (s *Server) server(ctx context.Context) *http.Server {
	writing := requestTimeout // streams extend this as they go
	if s.settings.Alone {
		writing = 0
	}
	return &http.Server{
		Handler:           marked(s.handler),
		ConnContext:       remember,
		ReadHeaderTimeout: headerTimeout, // and for the TLS handshake
		WriteTimeout:      writing,
		IdleTimeout:       idleTimeout,
		MaxHeaderBytes:    maxHeader - headerSlack,
		ErrorLog:          slog.NewLogLogger(s.log.Handler(), slog.LevelDebug), // what clients did wrong, as often as they like
		BaseContext:       func(net.Listener) context.Context { return ctx },
	}
}

// knownHost reports whether a Host header may be answered without a token.
func (s *Server) knownHost(host string) bool {
	if name, _, err := net.SplitHostPort(host); err == nil {
		host = name
	}
	host = strings.ToLower(strings.Trim(host, "[]"))
	return host == "" || host == "localhost" || net.ParseIP(host) != nil || slices.Contains(s.settings.Hosts, host)
}

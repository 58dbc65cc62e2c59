package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"slices"
	"syscall"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"blockd/httpapi"
	"blockd/mailbox"
	"blockd/policy"
	"blockd/reload"
	"blockd/smtpfilter/server"
	"blockd/smtpfilter/session"
	"blockd/smtpfilter/upstream"
)

// smtpDoor is [smtp], open. The zero value is a door that is shut.
type smtpDoor struct {
	listener net.Listener
	server   *server.Server
	done     func() // ends the embedded mailbox, if there is one
}

// openSMTP makes what [smtp] asks for, from the next server back to the
// listener. Nothing is accepted before serve.
func (c Config) openSMTP(ctx context.Context, hostname string, checker *policy.Checker, reg prometheus.Registerer, log *slog.Logger) (*smtpDoor, error) {
	if c.SMTP.Listen == "" {
		return &smtpDoor{}, nil
	}
	listener, err := listen(ctx, "smtp.listen", c.SMTP.Listen)
	if err != nil {
		return nil, err
	}
	up, err := parseUpstream(c.SMTP.Upstream)
	if err != nil {
		listener.Close()
		return nil, err
	}
	next, done, err := up.dialer(hostname, c.SMTP.ClientInfo, log)
	if err != nil {
		listener.Close()
		return nil, fmt.Errorf("smtp.upstream: %w", err)
	}
	relay := session.New(session.Settings{
		Hostname: hostname, RejectAt: c.SMTP.RejectAt, ClientInfo: c.SMTP.ClientInfo, Protocol: up.protocol(),
	}, next, checker, session.NewMetrics(reg), log)
	return &smtpDoor{listener, server.New(server.Settings{
		Hostname: hostname, MaxConnections: c.SMTP.MaxConnections, MaxPerClient: c.SMTP.MaxConnectionsPerIP,
		AllowOpenUpstream: c.SMTP.AllowOpenUpstream,
	}, relay.Run, next, reg, log), done}, nil
}

// serve accepts clients until ctx ends and then waits for their transactions.
func (d *smtpDoor) serve(ctx context.Context) error {
	if d.listener == nil {
		<-ctx.Done()
		return nil
	}
	return d.server.Serve(ctx, d.listener)
}

func (d *smtpDoor) close() {
	if d.listener != nil {
		d.listener.Close() // a second time, if it served
		d.done()
	}
}

func (u upstreamURL) protocol() upstream.Protocol {
	if u.scheme == "lmtp" || u.scheme == "lmtp+unix" {
		return upstream.LMTP
	}
	return upstream.SMTP
}

// mailboxPatience is how long the embedded mailbox may finish what it writes
// after the last session has gone: a file and two syncs.
const mailboxPatience = 10 * time.Second

// dialer returns the way to the next server. The embedded mailbox is started
// for it where there is none; done ends that after the last session.
func (u upstreamURL) dialer(hostname, clientInfo string, log *slog.Logger) (d *upstream.Dialer, done func(), err error) {
	s := upstream.Settings{
		Protocol: u.protocol(), Network: u.network, Address: u.address, Hostname: hostname, ClientInfo: clientInfo,
	}
	if u.scheme != "maildir" {
		return upstream.New(s), func() {}, nil
	}
	box, err := mailbox.New(mailbox.Settings{Dir: u.address, Hostname: hostname}, log)
	if err != nil {
		return nil, nil, err
	}
	s.Network, s.Address, s.Dial = "", "", box.Dial
	return upstream.New(s), func() {
		ctx, cancel := context.WithTimeout(context.Background(), mailboxPatience)
		defer cancel()
		if err := box.Shutdown(ctx); err != nil {
			log.Warn("mailbox cut off", slog.Any("err", err))
		}
	}, nil
}

// httpDoor is [http], open. The zero value is a door that is shut.
type httpDoor struct {
	listener net.Listener
	server   *httpapi.Server
	log      *slog.Logger
}

func (c Config) openHTTP(ctx context.Context, checker *policy.Checker, status func() reload.Status, reg prometheus.Gatherer, log *slog.Logger) (*httpDoor, error) {
	if c.HTTP.Listen == "" {
		return &httpDoor{}, nil
	}
	var s httpapi.Settings
	if c.HTTP.TokenFile != "" {
		var err error
		if s.Token, err = httpapi.ReadToken(c.HTTP.TokenFile); err != nil {
			return nil, fmt.Errorf("http.token_file: %w", err)
		}
	}
	listener, err := listen(ctx, "http.listen", c.HTTP.Listen)
	if err != nil {
		return nil, err
	}
	return &httpDoor{listener, httpapi.New(s, checker, status, reg, log), log}, nil
}

func (d *httpDoor) serve(ctx context.Context) error {
	if d.listener == nil {
		<-ctx.Done()
		return nil
	}
	d.log.Info("http listens", slog.String("address", d.listener.Addr().String()))
	return d.server.Serve(ctx, d.listener)
}

func (d *httpDoor) close() {
	if d.listener != nil {
		d.listener.Close()
	}
}

// readiness is the state of the lists with that of the way to the next server.
// An open relay behind is served nothing, and until the first look nobody knows;
// a server that is away for a while is a problem, but the filter waits for it.
func readiness(lists *reload.Reloader, smtp *smtpDoor) func() reload.Status {
	return func() reload.Status {
		s := lists.Status()
		if smtp.server == nil {
			return s
		}
		if err := smtp.server.Status().Err; err != nil {
			s.Problems = append(slices.Clone(s.Problems), "smtp.upstream: "+err.Error())
			if errors.Is(err, upstream.ErrOpenRelay) || errors.Is(err, upstream.ErrUntested) {
				s.Ready = false
			}
		}
		return s
	}
}

// listen opens a door, or says in one line why it cannot be opened.
func listen(ctx context.Context, key, address string) (net.Listener, error) {
	var lc net.ListenConfig
	l, err := lc.Listen(ctx, "tcp", address)
	switch {
	case errors.Is(err, syscall.EADDRINUSE):
		return nil, fmt.Errorf("%s: %s is in use; is another blockd running?", key, address)
	case errors.Is(err, syscall.EACCES):
		return nil, fmt.Errorf("%s: no permission for %s; ports below 1024 need the capability CAP_NET_BIND_SERVICE", key, address)
	case err != nil:
		return nil, fmt.Errorf("%s: %w", key, err)
	}
	return l, nil
}

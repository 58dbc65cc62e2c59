package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"slices"

	"github.com/prometheus/client_golang/prometheus"
	"golang.org/x/sync/errgroup"

	"blockd/certificate"
	"blockd/history"
	"blockd/httpapi"
	"blockd/internal/config"
	"blockd/live"
	"blockd/policy"
	"blockd/reload"
	"blockd/smtpfilter/upstream"
)

// httpDoor is [http], open. The zero value is a door that is shut.
type httpDoor struct {
	listeners   []net.Listener
	server      *httpapi.Server
	certificate *certificate.Pair // nil: no TLS
	log         *slog.Logger
}

func openHTTP(ctx context.Context, c config.Config, inherited inherited, checker *policy.Checker, entries *live.Set, past *history.Log, events *httpapi.Events, status func() reload.Status, reg *prometheus.Registry, log *slog.Logger) (*httpDoor, error) {
	socket := usableSocket(c, log)
	if c.HTTP.Listen == "" && socket == "" {
		return &httpDoor{}, nil
	}
	s, pair, err := httpSettings(c.HTTP, reg, log)
	if err != nil {
		return nil, err
	}
	s.Entries, s.History, s.Events = entries, past, events
	s.First = makeFirstToken(c, log)
	listeners, err := inherited.listen(ctx, "http", "http.listen", c.HTTP.Listen)
	if err != nil {
		return nil, err
	}
	d := &httpDoor{listeners, httpapi.New(s, checker, status, reg, log), pair, log}
	for _, l := range listeners { // an inherited one need not be where http.listen says
		if address := l.Addr().String(); !c.HTTP.Closed() && l.Addr().Network() == "tcp" && !config.OnLoopback(address) {
			d.close()
			return nil, fmt.Errorf("http.listen: the inherited socket %s can be reached from other machines: it needs http.token_file or http.tokens", address)
		}
	}
	if socket != "" {
		l, err := listenUnix(ctx, socket, socketAccess{c.HTTP.SocketMode, c.HTTP.SocketGroup})
		if err != nil {
			d.close()
			return nil, fmt.Errorf("http.socket: %w", err)
		}
		d.listeners = append(d.listeners, l)
	}
	return d, nil
}

// usableSocket is httpSocket, or "" where the place beside the index has a longer name
// than the system takes for a socket.
func usableSocket(c config.Config, log *slog.Logger) string {
	path := c.HTTPSocket()
	if c.HTTP.Socket == config.Auto && len(path) > config.MaxSocketPath {
		log.Warn("no Unix socket for blockd add and others: its path is too long; set http.socket", slog.String("path", path))
		return ""
	}
	return path
}

func (d *httpDoor) serve(ctx context.Context) error {
	g, ctx := errgroup.WithContext(ctx)
	if d.certificate != nil {
		go d.certificate.Watch(ctx)
	}
	for _, l := range d.listeners {
		d.log.Info("http listens", slog.String("address", l.Addr().String()))
		g.Go(func() error { return d.server.Serve(ctx, l) })
	}
	return g.Wait()
}

// reload takes up a changed certificate at once.
func (d *httpDoor) reload() {
	if d.certificate != nil {
		d.certificate.Now()
	}
}

func (d *httpDoor) close() {
	for _, l := range d.listeners {
		l.Close()
	}
}

// readiness is the state of the lists with that of the doors and of the way to the
// next server. Nothing is ready whose doors close because ctx has ended. In front of an
// open relay nothing is served, and before the first look the way is not known; a
// server that is away for a while is a problem, but the filter waits for it.
func readiness(ctx context.Context, lists *reload.Reloader, smtp *smtpDoor, entries *live.Set, past *history.Log) func() reload.Status {
	return func() reload.Status {
		s := lists.Status()
		if ctx.Err() != nil {
			s.Ready = false
			s.Problems = append(slices.Clone(s.Problems), "stopping: the doors take no new connection")
		}
		if more := append(entries.Problems(), past.Problems()...); len(more) > 0 {
			s.Problems = append(slices.Clone(s.Problems), more...)
		}
		if smtp.server == nil {
			return s
		}
		if err := smtp.server.Status().Err; err != nil {
			s.Problems = append(slices.Clone(s.Problems), "smtp.upstream: "+err.Error())
			if errors.Is(err, upstream.ErrOpenRelay) || errors.Is(err, upstream.ErrOwnListener) || errors.Is(err, upstream.ErrUntested) {
				s.Ready = false
			}
		}
		return s
	}
}
